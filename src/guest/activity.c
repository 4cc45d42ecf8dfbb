#include "guest/activity.h"

#include "json/json.h"

#include <sys/wait.h>

enum {
	RECORD_BYTES = 16 << 10, /* one as JSON: a byte of text may become six */
	ARG_COST = 4,            /* of its quotes and comma */
};

struct record {
	struct list node;
	int64_t seq;
	size_t n;
	char json[];
};

void activity_init(struct activity *a)
{
	*a = (struct activity){ 0 };
	random_id(a->epoch, ACTIVITY_EPOCH_SIZE - 1);
	list_init(&a->records);
}

static void record_free(struct activity *a, struct record *record)
{
	list_remove(&record->node);
	a->n--;
	a->bytes -= record->n;
	free(record);
}

void activity_done(struct activity *a)
{
	LIST_EACH(&a->records, node)
	record_free(a, container_of(node, struct record, node));
	a->is_over = true;
}

/* ---- one record ---- */

/* Between two characters, where it is text. */
static struct str cut(struct str s, size_t most)
{
	size_t n = most;

	if (s.n <= most)
		return s;
	while (n > 0 && most - n < 3 && ((unsigned char)s.p[n] & 0xc0) == 0x80)
		n--;
	return str_make(s.p, n);
}

static void add_text(struct jsonw *w, const char *key, struct str text, size_t most)
{
	if (text.n)
		jsonw_str(w, key, cut(text, most));
}

/* What there is no room for takes a number all the same. */
static void keep(struct activity *a, const struct buf *json)
{
	struct record *record;

	if (a->is_over || json->failed || a->n >= ACTIVITY_MAX_RECORDS ||
		a->bytes + json->n > ACTIVITY_MAX_BYTES)
		return;
	record = xcalloc(1, sizeof *record + json->n);
	record->seq = a->last;
	record->n = json->n;
	memcpy(record->json, json->p, json->n);
	list_append(&a->records, &record->node);
	a->n++;
	a->bytes += record->n;
}

static void begin(struct activity *a, struct jsonw *w, struct buf *out, const char *kind)
{
	jsonw_init(w, out);
	jsonw_object(w, NULL);
	jsonw_int(w, "seq", ++a->last);
	jsonw_int(w, "at", time_wall_us());
	jsonw_strz(w, "kind", kind);
}

static void end(struct activity *a, struct jsonw *w)
{
	jsonw_end_object(w);
	keep(a, w->out);
}

/* ---- processes ---- */

/* True: there are more, or the last one is longer. */
static bool write_args(struct jsonw *w, char *const *argv)
{
	size_t room = ACTIVITY_ARGS;
	bool is_cut = false;

	for (int n = 0; argv[n] && !is_cut; n++) {
		struct str arg = str_of(argv[n]);

		is_cut = n == ACTIVITY_MAX_ARGS || arg.n + ARG_COST > room;
		if (n == ACTIVITY_MAX_ARGS || room <= ARG_COST)
			break;
		jsonw_str(w, NULL, cut(arg, room - ARG_COST));
		room -= MIN(room, arg.n + ARG_COST);
	}
	return is_cut;
}

static void keep_args(struct activity_begun *begun, char *const *argv)
{
	CLEANUP(buf_done) struct buf json = BUF_INIT(RECORD_BYTES);
	struct jsonw w;

	jsonw_init(&w, &json);
	jsonw_array(&w, NULL);
	begun->is_cut = write_args(&w, argv);
	jsonw_end_array(&w);
	begun->args = json.failed ? NULL : strndup(json.p, json.n);
}

static char *dup_cut(struct str text)
{
	text = cut(text, ACTIVITY_WORD);
	return text.p ? strndup(text.p, text.n) : NULL;
}

static void write_begun(struct jsonw *w, pid_t pid, const struct activity_begun *begun)
{
	jsonw_int(w, "pid", pid);
	if (!begun->is_recorded)
		add_text(w, "program", str_of(begun->program), ACTIVITY_WORD);
	if (begun->args)
		jsonw_raw(w, "args", str_of(begun->args));
	if (begun->is_cut)
		jsonw_bool(w, "cut", true);
	add_text(w, "user", str_of(begun->user), ACTIVITY_WORD);
	add_text(w, "tag", str_of(begun->tag), ACTIVITY_WORD);
	if (begun->is_recorded)
		jsonw_bool(w, "recorded", true);
}

void activity_started(struct activity *a, pid_t pid, const struct activity_process *process,
	struct activity_begun *ret)
{
	CLEANUP(buf_done) struct buf json = BUF_INIT(RECORD_BYTES);
	struct jsonw w;

	begin(a, &w, &json, process->has_pty ? "terminal.opened" : "process.started");
	*ret = (struct activity_begun){ .seq = a->last,
		.clock_us = time_now_us(),
		.program = dup_cut(str_of(process->argv[0])),
		.user = dup_cut(str_of(process->user)),
		.tag = dup_cut(process->tag),
		.has_pty = process->has_pty,
		.is_recorded = process->asker.is_recorded };
	/* Else they are in the server's row, without secrets that are the command's alone. */
	if (!ret->is_recorded)
		keep_args(ret, process->argv + 1);
	write_begun(&w, pid, ret);
	if (!ret->is_recorded)
		add_text(&w, "cwd", str_of(process->cwd), ACTIVITY_PATH);
	add_text(&w, "source", process->asker.source, ACTIVITY_SOURCE_SIZE - 1);
	end(a, &w);
}

void activity_begun_done(struct activity_begun *begun)
{
	free(begun->program);
	free(begun->user);
	free(begun->tag);
	free(begun->args);
	*begun = (struct activity_begun){ 0 };
}

void activity_ended(struct activity *a, pid_t pid, struct activity_begun *begun, int wait_status,
	const char *fault)
{
	CLEANUP(buf_done) struct buf json = BUF_INIT(RECORD_BYTES);
	bool is_signal = WIFSIGNALED(wait_status);
	struct jsonw w;

	begin(a, &w, &json, begun->has_pty ? "terminal.closed" : "process.ended");
	write_begun(&w, pid, begun);
	jsonw_int(&w, "begun", begun->seq);
	jsonw_int(&w, "us", time_now_us() - begun->clock_us);
	if (is_signal)
		jsonw_int(&w, "signal", WTERMSIG(wait_status));
	else
		jsonw_int(&w, "exit_code", WEXITSTATUS(wait_status));
	jsonw_strz(&w, "cause", fault ? fault : is_signal ? "signal" : "exit");
	end(a, &w);
	activity_begun_done(begun);
}

/* ---- files ---- */

void activity_file(struct activity *a, const struct activity_file *file)
{
	CLEANUP(buf_done) struct buf json = BUF_INIT(RECORD_BYTES);
	struct jsonw w;

	/* The server tells of what succeeded. */
	if (file->asker.is_recorded && !file->is_partly)
		return;
	begin(a, &w, &json, file->kind);
	add_text(&w, "path", str_of(file->path), ACTIVITY_PATH);
	add_text(&w, "to", str_of(file->to), ACTIVITY_PATH);
	add_text(&w, "user", str_of(file->user), ACTIVITY_WORD);
	add_text(&w, "source", file->asker.source, ACTIVITY_SOURCE_SIZE - 1);
	if (file->bytes >= 0)
		jsonw_int(&w, "bytes", file->bytes);
	if (file->is_partly)
		jsonw_bool(&w, "partly", true);
	end(a, &w);
}

/* ---- telling ---- */

void activity_answer(struct activity *a, struct str epoch, int64_t after, struct buf *out)
{
	bool is_more = false;
	struct jsonw w;

	if (!str_is(epoch, a->epoch))
		after = 0;
	jsonw_init(&w, out);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "epoch", a->epoch);
	jsonw_int(&w, "last", a->last);
	jsonw_array(&w, "records");
	LIST_EACH(&a->records, node)
	{
		struct record *record = container_of(node, struct record, node);

		if (record->seq <= after) {
			record_free(a, record);
			continue;
		}
		is_more = out->n + record->n > ACTIVITY_PAGE_BYTES;
		if (is_more)
			break;
		jsonw_raw(&w, NULL, str_make(record->json, record->n));
	}
	jsonw_end_array(&w);
	jsonw_bool(&w, "more", is_more);
	jsonw_end_object(&w);
}
