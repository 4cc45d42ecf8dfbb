/* Sandboxes: listed, looked at, ended. */
#include "api/v1/v1.h"

enum {
	MOST_LISTED = 500,
	PAGE_BYTES = 16 << 20, /* more than so many are for the next page */
	MAX_PAIRS = 16,        /* of metadata to look for */
};

static void reply_record(struct api_call *call, const struct sandbox_record *record)
{
	struct api_answer answer;

	(void)api_answer_begin(call, &answer, 0, NULL);
	v1_write_sandbox(call, &answer.w, record);
	api_answer_send(call, &answer, 200);
}

void v1_sandboxes_get(struct api_call *call)
{
	v1_record(call, reply_record);
}

/* ---- ending ---- */

/* Gone is gone: asked for again it is the same answer. */
static void ended_before(struct api_call *call, const struct sandbox_record *record)
{
	(void)record;
	api_reply_empty(call, 204);
}

static void killed(void *arg, int r, const struct err *e)
{
	if (r == -ENOENT) /* somebody else was faster */
		v1_record(arg, ended_before);
	else
		api_done_empty(arg, r, e);
}

void v1_sandboxes_delete(struct api_call *call)
{
	if (sandbox_find_any(call->api->config.sandboxes, v1_owner(call), call->params[0]))
		sandbox_kill(call->api->config.sandboxes, v1_owner(call), call->params[0],
			call->actor, killed, call);
	else
		v1_record(call, ended_before);
}

/* ---- listing ---- */

struct list_call {
	struct api_call *call;
	struct sandbox_query query;
	const struct sandbox **v; /* those in memory that match */
	size_t n, cap;
};

/* "key=value", once for each pair: ?metadata=a=1&metadata=b=2 would need a list in the query, so
 * they are joined by ',' as the document says. */
static int read_metadata(struct api_call *call, struct json_map *ret)
{
	struct str text = http_query_value(call->x, "metadata"), item, key;

	*ret = (struct json_map){ 0 };
	if (!text.n)
		return 0;
	ret->v = arena_alloc(http_arena(call->x), MAX_PAIRS * sizeof *ret->v);
	while (ret->v && text.n && str_split(&text, ',', &item)) {
		if (ret->n == MAX_PAIRS || str_find(item, '=') <= 0)
			break;
		(void)str_split(&item, '=', &key);
		ret->v[ret->n++] = (struct json_pair){ key, item.p ? item : STR("") };
		if (!text.n)
			return 0;
	}
	api_fail_status(call, 400,
		"validation error: metadata must be up to 16 KEY=VALUE with ',' between");
	return -EINVAL;
}

static int read_states(struct api_call *call, struct sandbox_query *q)
{
	struct str text = http_query_value(call->x, "state"), state;

	q->running = q->paused = !text.p;
	while (text.p && str_split(&text, ',', &state)) {
		if (str_is(state, "running"))
			q->running = true;
		else if (str_is(state, "paused"))
			q->paused = true;
		else if (str_is(state, "ended"))
			q->ended = true;
		else
			break;
		if (!text.p || !text.n)
			return 0;
	}
	if (!http_query_value(call->x, "state").p)
		return 0;
	api_fail_status(call, 400,
		"validation error: state must be of running, paused and ended, with ',' between");
	return -EINVAL;
}

/* Answers 400 itself. */
static int read_query(struct api_call *call, struct sandbox_query *q)
{
	struct v1_page page;

	*q = (struct sandbox_query){ .agent_id = http_query_value(call->x, "agent_id"),
		.task_id = http_query_value(call->x, "task_id"),
		.template_name = http_query_value(call->x, "template") };
	if (v1_page_read(call, 100, MOST_LISTED, &page) < 0 || read_states(call, q) < 0 ||
		read_metadata(call, &q->metadata) < 0 ||
		v1_cursor_us(call, &page, &q->before_us, &q->before_id) < 0)
		return -EINVAL;
	q->limit = (size_t)page.limit;
	return 0;
}

static void reply_page(void *arg, int r, const struct sandbox_page *page, const struct err *e)
{
	struct list_call *list = arg;
	struct api_answer answer;

	if (!api_answer_begin(list->call, &answer, r, e))
		return;
	v1_page_begin(&answer.w);
	for (size_t i = 0; i < page->n; i++) {
		const struct sandbox_record *record = &page->v[i];
		/* One that lives is known better than its row says. */
		const struct sandbox *sb = sandbox_find_any(list->call->api->config.sandboxes,
			v1_owner(list->call), str_of(record->sb.id));
		struct sandbox_record live = { 0 };

		if (sb)
			live.sb = *sb;
		v1_write_sandbox(list->call, &answer.w, sb ? &live : record);
	}
	v1_page_end_us(&answer.w, page->more, page->last_us, page->last_id);
	api_answer_send(list->call, &answer, 200);
}

static void collect(void *arg, const struct sandbox *sb)
{
	struct list_call *list = arg;
	const struct sandbox_query *q = &list->query;

	if (list->n < list->cap &&
		v1_is_behind(q->before_us, q->before_id, sb->started_us, sb->id) &&
		(sandbox_is_paused(sb) ? q->paused : q->running) && sandbox_matches(sb, q))
		list->v[list->n++] = sb;
}

static int newest_first(const void *a, const void *b)
{
	const struct sandbox *x = *(const struct sandbox *const *)a,
			     *y = *(const struct sandbox *const *)b;

	if (x->started_us != y->started_us)
		return x->started_us < y->started_us ? 1 : -1;
	return strcmp(x->id, y->id);
}

/* Those that live need no store. */
static void reply_living(struct list_call *list)
{
	struct sandbox_book *book = list->call->api->config.sandboxes;
	const struct sandbox_query *q = &list->query;
	struct api_answer answer;
	size_t n;

	list->cap = sandbox_count(book);
	list->v = XNEW_N(const struct sandbox *, list->cap + 1);
	sandbox_each(book, v1_owner(list->call), collect, list);
	qsort(list->v, list->n, sizeof *list->v, newest_first);
	n = MIN(list->n, q->limit);
	(void)api_answer_begin(list->call, &answer, 0, NULL);
	v1_page_begin(&answer.w);
	for (size_t i = 0; i < n; i++) {
		const struct sandbox_record record = { .sb = *list->v[i] };

		v1_write_sandbox(list->call, &answer.w, &record);
		if (answer.body.n > PAGE_BYTES)
			n = i + 1;
	}
	v1_page_end_us(&answer.w, list->n > n, n ? list->v[n - 1]->started_us : 0,
		n ? list->v[n - 1]->id : "");
	free(list->v);
	api_answer_send(list->call, &answer, 200);
}

void v1_sandboxes_list(struct api_call *call)
{
	struct list_call *list = arena_alloc(http_arena(call->x), sizeof *list);

	if (!list) {
		api_fail_status(call, 500, "out of memory");
		return;
	}
	list->call = call;
	if (read_query(call, &list->query) < 0)
		return;
	if (list->query.ended)
		sandbox_list_records(call->api->config.sandboxes, v1_owner(call), &list->query,
			reply_page, list);
	else
		reply_living(list);
}
