#include "sandbox/activity-read.h"

enum {
	WORD_MOST = 256, /* these four as the guest cuts them */
	PATH_MOST = 1024,
	ARGS_MOST = 64,
	ARG_MOST = 1024,
	GROWTH = 3,    /* a byte that is no text becomes so many */
	CUT_SLACK = 8, /* what is nearly as long as it may be was cut there, perhaps in a secret */
	MASKED_BYTES = 64 << 10,
};

static const char *const names[] = {
	[ACTIVITY_PROCESS_STARTED] = "process.started",
	[ACTIVITY_PROCESS_ENDED] = "process.ended",
	[ACTIVITY_TERMINAL_OPENED] = "terminal.opened",
	[ACTIVITY_TERMINAL_CLOSED] = "terminal.closed",
	[ACTIVITY_FILE_WRITTEN] = "file.written",
	[ACTIVITY_FILE_MADE] = "file.directory_made",
	[ACTIVITY_FILE_MOVED] = "file.moved",
	[ACTIVITY_FILE_DELETED] = "file.deleted",
};
static_assert(ARRAY_SIZE(names) == ACTIVITY_KINDS, "one name each");

const char *activity_name(enum activity_kind kind)
{
	return names[kind];
}

bool activity_is_file(enum activity_kind kind)
{
	return kind >= ACTIVITY_FILE_WRITTEN;
}

/* ---- reading ---- */

struct record_in {
	struct json_int seq, at, pid, begun, us, exit_code, signal, bytes;
	struct json_bool cut, recorded, partly;
	struct str kind, source, program, user, cwd, tag, cause, path, to;
	struct json_strs args;
};
#define NUMBER(member, name, most) \
	JSON_FIELD(struct record_in, member, name, JSON_INT, .min = 0, .max = (most))
#define TEXT(member, name, most) \
	JSON_FIELD(struct record_in, member, name, JSON_STR, .max = GROWTH * (most))
static const struct json_field record_fields[] = {
	JSON_FIELD(struct record_in, seq, "seq", JSON_INT, .flags = JSON_REQUIRED, .min = 1,
		.max = INT64_MAX - 1),
	NUMBER(at, "at", INT64_MAX),
	NUMBER(pid, "pid", INT32_MAX),
	NUMBER(begun, "begun", INT64_MAX),
	NUMBER(us, "us", INT64_MAX),
	NUMBER(exit_code, "exit_code", 255),
	NUMBER(signal, "signal", 255),
	NUMBER(bytes, "bytes", INT64_MAX),
	JSON_FIELD(struct record_in, cut, "cut", JSON_BOOL),
	JSON_FIELD(struct record_in, recorded, "recorded", JSON_BOOL),
	JSON_FIELD(struct record_in, partly, "partly", JSON_BOOL),
	JSON_FIELD(struct record_in, kind, "kind", JSON_STR, .flags = JSON_REQUIRED, .max = 64),
	TEXT(source, "source", ACTIVITY_SOURCE_SIZE - 1),
	TEXT(program, "program", WORD_MOST),
	TEXT(user, "user", WORD_MOST),
	TEXT(cwd, "cwd", PATH_MOST),
	TEXT(tag, "tag", WORD_MOST),
	TEXT(cause, "cause", 32),
	TEXT(path, "path", PATH_MOST),
	TEXT(to, "to", PATH_MOST),
	JSON_FIELD(struct record_in, args, "args", JSON_STRS, .max = ARGS_MOST),
};
static const struct json_shape record_shape =
	JSON_SHAPE(struct record_in, record_fields, .ignore_unknown = true);

struct page_in {
	struct str epoch;
	struct json_int last;
	struct json_bool more;
	struct json_list records;
};
static const struct json_field page_fields[] = {
	JSON_FIELD(struct page_in, epoch, "epoch", JSON_STR, .flags = JSON_REQUIRED,
		.max = ACTIVITY_EPOCH_SIZE - 1),
	JSON_FIELD(struct page_in, last, "last", JSON_INT, .flags = JSON_REQUIRED, .min = 0,
		.max = INT64_MAX - 1),
	JSON_FIELD(struct page_in, more, "more", JSON_BOOL),
	JSON_FIELD(struct page_in, records, "records", JSON_OBJECTS, .shape = &record_shape,
		.max = ACTIVITY_MAX_RECORDS),
};
static const struct json_shape page_shape =
	JSON_SHAPE(struct page_in, page_fields, .ignore_unknown = true);

/* It goes into a column of its own, as an address. */
static bool is_address(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if (!strchr("0123456789abcdef.:", s.p[i]))
			return false;
	return s.n > 0;
}

static bool find_kind(struct str name, enum activity_kind *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (str_is(name, names[i])) {
			*ret = (enum activity_kind)i;
			return true;
		}
	return false;
}

static void take(const struct record_in *in, enum activity_kind kind, struct activity_record *to)
{
	*to = (struct activity_record){ .seq = in->seq.value,
		.at_us = in->at.value,
		.kind = kind,
		.source = is_address(in->source) ? in->source : STR_NONE,
		.program = in->program,
		.user = in->user,
		.cwd = in->cwd,
		.tag = in->tag,
		.cause = in->cause,
		.path = in->path,
		.to = in->to,
		.args = in->args,
		.pid = in->pid,
		.begun = in->begun,
		.us = in->us,
		.exit_code = in->exit_code,
		.signal = in->signal,
		.bytes = in->bytes,
		.is_cut = in->cut.value,
		.is_recorded = in->recorded.value,
		.is_partly = in->partly.value };
}

int activity_read(struct arena *arena, struct str json, struct activity_page *ret, struct err *e)
{
	const struct record_in *v;
	struct page_in in;
	int64_t seq = 0;
	int r = json_decode(arena, json, &page_shape, &in, e);

	if (r < 0)
		return r;
	if (!in.epoch.n)
		return err_set(e, -EINVAL, "epoch: is empty");
	*ret = (struct activity_page){ .last = in.last.value, .more = in.more.value };
	(void)snprintf(ret->epoch, sizeof ret->epoch, "%.*s", STR_ARG(in.epoch));
	ret->v = arena_alloc(arena, (in.records.n + 1) * sizeof *ret->v);
	if (!ret->v)
		return err_set(e, -ENOBUFS, "too much at once");
	v = in.records.v;
	for (size_t i = 0; i < in.records.n; i++) {
		enum activity_kind kind;

		if (v[i].seq.value <= seq || v[i].seq.value > ret->last)
			return err_set(e, -EINVAL, "records: their numbers do not rise");
		seq = v[i].seq.value;
		if (find_kind(v[i].kind, &kind))
			take(&v[i], kind, &ret->v[ret->n++]);
	}
	return 0;
}

/* ---- writing ---- */

/* Of a text that was cut the end may be the beginning of a secret: the masker holds that back, and
 * there it stays. */
static void write_masked(struct jsonw *w, const char *key, struct mask_needles *needles,
	struct str text, bool is_cut)
{
	CLEANUP(mask_stream_freep) struct mask_stream *m = mask_stream_new(needles);
	CLEANUP(buf_done) struct buf masked = BUF_INIT(MASKED_BYTES);
	int r = mask_stream_feed(m, text, &masked);

	if (r >= 0 && !is_cut)
		r = mask_stream_end(m, &masked);
	jsonw_str(w, key, r < 0 ? STR("") : buf_str(&masked));
}

static void write_text(struct jsonw *w, const char *key, struct mask_needles *needles,
	struct str text, size_t most)
{
	if (text.n)
		write_masked(w, key, needles, text, text.n + CUT_SLACK > most);
}

static void write_args(struct jsonw *w, const struct activity_record *r,
	struct mask_needles *needles)
{
	size_t room = (size_t)GROWTH * ARG_MOST, i;

	if (!r->args.is_set)
		return;
	jsonw_array(w, "args");
	for (i = 0; i < r->args.n && r->args.v[i].n <= room; i++) {
		write_masked(w, NULL, needles, r->args.v[i], r->is_cut && i + 1 == r->args.n);
		room -= r->args.v[i].n;
	}
	jsonw_end_array(w);
	if (r->is_cut || i < r->args.n)
		jsonw_bool(w, "args_cut", true);
}

static void write_number(struct jsonw *w, const char *key, struct json_int number)
{
	if (number.is_set)
		jsonw_int(w, key, number.value);
}

static void write_texts(struct jsonw *w, const struct activity_record *r,
	struct mask_needles *needles)
{
	write_text(w, "program", needles, r->program, WORD_MOST);
	write_args(w, r, needles);
	write_text(w, "cwd", needles, r->cwd, PATH_MOST);
	write_text(w, "path", needles, r->path, PATH_MOST);
	write_text(w, "to", needles, r->to, PATH_MOST);
	write_text(w, "user", needles, r->user, WORD_MOST);
	write_text(w, "tag", needles, r->tag, WORD_MOST);
}

static void write_signal(struct jsonw *w, struct json_int signal)
{
	const char *name = signal.is_set ? sigabbrev_np((int)signal.value) : NULL;
	char text[32];

	if (!signal.is_set)
		return;
	if (name)
		(void)snprintf(text, sizeof text, "SIG%s", name);
	else
		(void)snprintf(text, sizeof text, "SIG%d", (int)signal.value);
	jsonw_strz(w, "signal", text);
}

void activity_write(const struct activity_record *r, struct mask_needles *needles, struct buf *out)
{
	static const char *const causes[] = { "exit", "signal", "timeout", "memory" };
	struct jsonw w;

	jsonw_init(&w, out);
	jsonw_object(&w, NULL);
	write_number(&w, "pid", r->pid);
	if (needles)
		write_texts(&w, r, needles);
	else
		jsonw_bool(&w, "hidden", true);
	write_number(&w, "exit_code", r->exit_code);
	write_signal(&w, r->signal);
	for (size_t i = 0; i < ARRAY_SIZE(causes); i++)
		if (str_is(r->cause, causes[i]))
			jsonw_strz(&w, "cause", causes[i]);
	write_number(&w, "us", r->us);
	write_number(&w, "size", r->bytes);
	if (r->is_partly)
		jsonw_bool(&w, "partly", true);
	if (r->is_recorded && !activity_is_file(r->kind))
		jsonw_strz(&w, "via", "execution");
	write_number(&w, "begun", r->begun);
	jsonw_int(&w, "guest_seq", r->seq);
	jsonw_end_object(&w);
}
