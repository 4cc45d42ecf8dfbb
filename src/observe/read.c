/* Pages of the event log. A page ends at its limit, or earlier when its texts are large: `more`
 * tells. The same conditions stand twice, in SQL for what is stored and in C for what passes the
 * feed; a test holds them against each other. */
#include "observe/observe-internal.h"

enum {
	PAGE_BYTES = 4 << 20, /* of texts; one event may still be larger than the rest */
	ARENA_BYTES = 64 << 20,
};

void page_done(struct page *page)
{
	page->arena = arena_free(page->arena);
	free(page->v);
	*page = (struct page){ 0 };
}

static struct str keep(struct page *page, struct str text)
{
	char *copy = arena_dup(page->arena, text.p ? text : STR(""));

	page->bytes += text.n;
	return (struct str){ copy, copy ? text.n : 0 };
}

int page_add(struct page *page, const struct observe_item *item, struct err *e)
{
	struct observe_item *to;

	if (page->bytes >= PAGE_BYTES) {
		page->more = true;
		return -ENOBUFS;
	}
	if (!page->arena)
		page->arena = arena_new(ARENA_BYTES);
	if (page->n == page->cap) {
		size_t cap = page->cap ? 2 * page->cap : 32;
		struct observe_item *more = realloc(page->v, cap * sizeof *more);

		if (!more)
			return err_set(e, -ENOMEM, "out of memory");
		page->v = more;
		page->cap = cap;
	}
	to = &page->v[page->n];
	*to = (struct observe_item){ .seq = item->seq,
		.at_us = item->at_us,
		.actor = keep(page, item->actor),
		.kind = keep(page, item->kind),
		.subject = keep(page, item->subject),
		.data = keep(page, item->data),
		.team_id = keep(page, item->team_id),
		.agent_id = keep(page, item->agent_id),
		.task_id = keep(page, item->task_id),
		.cause = keep(page, item->cause),
		.actor_name = keep(page, item->actor_name),
		.source = keep(page, item->source) };
	if (!to->source.p || !to->data.p)
		return err_set(e, -E2BIG, "event %" PRId64 " is too large", item->seq);
	page->n++;
	return 0;
}

void item_read(const struct store_row *row, struct observe_item *ret)
{
	*ret = (struct observe_item){ .seq = store_int(row, 0),
		.at_us = store_int(row, 1),
		.actor = store_text(row, 2),
		.kind = store_text(row, 3),
		.subject = store_text(row, 4),
		.data = store_text(row, 5),
		.team_id = store_text(row, 6),
		.agent_id = store_text(row, 7),
		.task_id = store_text(row, 8),
		.cause = store_text(row, 9),
		.actor_name = store_text(row, 10),
		.source = store_text(row, 11) };
}

static void write_text(struct jsonw *w, const char *key, struct str text)
{
	if (text.n)
		jsonw_str(w, key, text);
	else
		jsonw_null(w, key);
}

void observe_item_write(struct jsonw *w, const struct observe_item *item)
{
	char at[RFC3339_SIZE];

	time_rfc3339(item->at_us, at);
	jsonw_object(w, NULL);
	jsonw_int(w, "seq", item->seq);
	jsonw_strz(w, "at", at);
	jsonw_str(w, "kind", item->kind);
	jsonw_str(w, "subject", item->subject);
	jsonw_str(w, "actor", item->actor);
	write_text(w, "actor_name", item->actor_name);
	write_text(w, "source", item->source);
	write_text(w, "team_id", item->team_id);
	write_text(w, "agent_id", item->agent_id);
	write_text(w, "task_id", item->task_id);
	write_text(w, "cause", item->cause);
	jsonw_raw(w, "data", item->data.n ? item->data : STR("{}"));
	jsonw_end_object(w);
}

static bool is_or_any(struct str wanted, struct str have)
{
	return wanted.n == 0 || str_eq(wanted, have);
}

/* As ABOUT_SANDBOXES below. */
static bool is_about_sandboxes(struct str kind)
{
	static const char *const begins[] = { "sandbox.", "snapshot.", "execution.", "run.",
		"file.", "limit.", "process.", "terminal.", "port.", "activity." };

	for (size_t i = 0; i < ARRAY_SIZE(begins); i++)
		if (str_has_prefix(kind, str_of(begins[i])))
			return true;
	return false;
}

bool observe_matches(const struct observe_filter *f, const struct observe_item *item)
{
	bool fits = f->n_kinds == 0;

	if (f->only_sandboxes && !is_about_sandboxes(item->kind))
		return false;
	for (size_t i = 0; !fits && i < f->n_kinds; i++)
		fits = str_has_prefix(item->kind, f->kinds[i]);
	return fits && is_or_any(f->team_id, item->team_id) &&
	       is_or_any(f->agent_id, item->agent_id) && is_or_any(f->task_id, item->task_id) &&
	       is_or_any(f->subject, item->subject) && is_or_any(f->actor, item->actor);
}

/* ---- from the store ---- */

/* By the column that narrows it most; each has an index that ends in seq. */
enum way {
	BY_SUBJECT,
	BY_TEAM,
	BY_NUMBER,
	WAYS
};

#define ABOUT_SANDBOXES                                                                       \
	" AND ($15 = 0 OR kind LIKE 'sandbox.%' OR kind LIKE 'snapshot.%' OR kind LIKE "      \
	"'execution.%' OR kind LIKE 'run.%' OR kind LIKE 'file.%' OR kind LIKE 'limit.%' OR " \
	"kind LIKE 'process.%' OR kind LIKE 'terminal.%' OR kind LIKE 'port.%' OR kind LIKE " \
	"'activity.%')"
#define CONDITIONS                                                                             \
	" AND seq > $1 AND seq < $2 AND ($5 = '' OR agent_id = $5) AND ($6 = '' OR task_id = " \
	"$6) AND ($7 = '' OR actor = $7) AND at_us >= $8 AND at_us < $9 AND ($10 = '' OR "     \
	"substr(kind, 1, length($10)) = $10 OR substr(kind, 1, length($11)) = $11 OR "         \
	"substr(kind, 1, length($12)) = $12 OR substr(kind, 1, length($13)) = $13)"
#define SELECT "SELECT " EVENT_COLUMNS " FROM events WHERE "
#define SUBJECT "subject = $4 AND ($3 = '' OR team_id = $3)"
#define TEAM "team_id = $3 AND ($4 = '' OR subject = $4)"
#define NUMBER "($3 = '' OR team_id = $3) AND ($4 = '' OR subject = $4)"
#define UPWARDS ABOUT_SANDBOXES " ORDER BY seq LIMIT $14"
#define DOWNWARDS ABOUT_SANDBOXES " ORDER BY seq DESC LIMIT $14"

static const char *const statements[WAYS][2] = {
	[BY_SUBJECT] = { SELECT SUBJECT CONDITIONS UPWARDS, SELECT SUBJECT CONDITIONS DOWNWARDS },
	[BY_TEAM] = { SELECT TEAM CONDITIONS UPWARDS, SELECT TEAM CONDITIONS DOWNWARDS },
	[BY_NUMBER] = { SELECT NUMBER CONDITIONS UPWARDS, SELECT NUMBER CONDITIONS DOWNWARDS },
};

struct read_job {
	struct observe_query query; /* its texts are in the arena */
	struct arena *arena;
	struct page page;
	observe_page_fn fn;
	void *arg;
};

static int read_row(void *arg, const struct store_row *row, struct err *e)
{
	struct read_job *job = arg;
	struct observe_item item;

	if (job->page.n == (size_t)job->query.limit) {
		job->page.more = true; /* one more was asked for, only to know that */
		return -ENOBUFS;
	}
	item_read(row, &item);
	return page_add(&job->page, &item, e);
}

static struct store_param text_of(struct str s)
{
	return P_STR(s.n ? s : STR(""));
}

static int read_page(struct store_tx *tx, void *arg, struct err *e)
{
	struct read_job *job = arg;
	const struct observe_query *q = &job->query;
	const struct observe_filter *f = &q->filter;
	enum way way = f->subject.n ? BY_SUBJECT : f->team_id.n ? BY_TEAM : BY_NUMBER;
	struct str kinds[OBSERVE_MAX_KINDS] = { 0 };
	int r;

	page_done(&job->page); /* of an attempt that was undone */
	for (size_t i = 0; i < OBSERVE_MAX_KINDS; i++)
		kinds[i] = f->n_kinds ? f->kinds[MIN(i, f->n_kinds - 1)] : STR("");
	r = store_query(tx, statements[way][q->newest_first],
		STORE_PARAMS(P_INT(q->after), P_INT(q->before ? q->before : INT64_MAX),
			text_of(f->team_id), text_of(f->subject), text_of(f->agent_id),
			text_of(f->task_id), text_of(f->actor), P_INT(q->from_us),
			P_INT(q->to_us ? q->to_us : INT64_MAX), text_of(kinds[0]),
			text_of(kinds[1]), text_of(kinds[2]), text_of(kinds[3]),
			P_INT(q->limit + 1), P_INT(f->only_sandboxes)),
		read_row, job, e);
	return r == -ENOBUFS ? 0 : r;
}

static void page_read(void *arg, int r, const struct err *e)
{
	struct read_job *job = arg;

	job->fn(job->arg, MIN(r, 0), job->page.v, r < 0 ? 0 : job->page.n, job->page.more, e);
	page_done(&job->page);
	job->arena = arena_free(job->arena);
	free(job);
}

static struct str copy(struct arena *arena, struct str text)
{
	char *p = text.n ? arena_dup(arena, text) : NULL;

	assert(p || !text.n); /* filters are short: they came in a request's head */
	return (struct str){ p, text.n };
}

void observe_read(struct store *store, const struct observe_query *query, observe_page_fn fn,
	void *arg)
{
	struct read_job *job = XNEW(struct read_job);
	struct observe_filter *f = &job->query.filter;

	assert(query->limit >= 1 && query->limit <= OBSERVE_MAX_PAGE);
	job->query = *query;
	job->arena = arena_new(1 << 20);
	f->team_id = copy(job->arena, f->team_id);
	f->agent_id = copy(job->arena, f->agent_id);
	f->task_id = copy(job->arena, f->task_id);
	f->subject = copy(job->arena, f->subject);
	f->actor = copy(job->arena, f->actor);
	for (size_t i = 0; i < f->n_kinds; i++)
		f->kinds[i] = copy(job->arena, f->kinds[i]);
	job->fn = fn;
	job->arg = arg;
	store_read(store, read_page, page_read, job);
}

struct number_job {
	const char *sql;
	int64_t value;
};

static int take_number(void *arg, const struct store_row *row, struct err *e)
{
	struct number_job *job = arg;

	(void)e;
	job->value = store_int(row, 0);
	return 0;
}

static int ask_number(struct store_tx *tx, void *arg, struct err *e)
{
	struct number_job *job = arg;

	return store_query(tx, job->sql, NULL, 0, take_number, job, e);
}

int read_number(struct store *store, const char *sql, int64_t *ret, struct err *e)
{
	struct number_job job = { .sql = sql, .value = *ret };
	int r = store_run_now(store, ask_number, &job, e);

	if (r < 0)
		return r;
	*ret = job.value;
	return 0;
}
