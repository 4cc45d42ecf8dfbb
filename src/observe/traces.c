/* Sends sandboxes' lives to a trace collector: a reader of the event log with a place of its own,
 * which is stored (cursors, "traces") once the collector has what comes before it. The log itself
 * is the queue: nothing waits in memory but the batch that is being sent, a restart resumes where
 * the collector stopped listening, and sending a batch twice does no harm, since a span's id is the
 * same each time. When the collector is away for so long that MOST_BEHIND events wait, the oldest
 * are given up, and counted. */
#include "client/client.h"
#include "observe/spans.h"

#include <time.h>

enum {
	BATCH_MS = 5000, /* the longest that a span waits for company */
	BATCH_SPANS = 512,
	BATCH_EVENTS = 512,
	BATCH_BYTES = 8 << 20,
	MOST_BEHIND = 20000,
	SEND_MS = 10000,
	ANSWER_BYTES = 64 << 10,
	FIRST_RETRY_MS = 1000,
	LAST_RETRY_MS = 30000,
	MOST_RETRY_AFTER_S = 300,
	MAX_HEADERS = 16,
};

struct observe_traces {
	struct loop *loop;
	struct store *store;
	struct observe_feed *feed;
	struct observe_metrics *metrics;
	struct client *client;
	struct observe_prices prices;
	char *url, *headers[MAX_HEADERS + 2], *node_id;
	int64_t cursor; /* all up to here is the collector's, or given up */
	struct loop_timer timer;
	struct batch *batch; /* being read or sent; NULL: none */
	struct client_call *call;
	struct observe_traces_state state;
	int64_t retry_ms;
	struct loop_timer deadline; /* of stopping */
	struct loop_task told;
	done_fn stopped; /* set: it is stopping */
	void *stopped_arg;
	bool is_drained; /* stopping, and the log has been read to its end */
	bool is_over;
};

struct batch {                         /* the job's, while it is read */
	struct observe_traces *traces; /* NULL: gone meanwhile */
	int64_t after, last;           /* the events it is made of: after < seq <= last */
	size_t n_spans, n_events;
	bool more;
	struct observe_prices prices;
	char *node_id;
	struct buf body;
};

/* ---- reading: events with what is known of their sandboxes ---- */

#define SPAN "(COALESCE(r.ended_us, e.at_us) - r.started_us)"
static const char events_sql[] =
	"SELECT e.seq, e.at_us, e.actor, e.kind, e.subject, e.data, e.team_id, e.agent_id, "
	"e.task_id, e.cause, e.actor_name, e.source, s.traceparent, s.template_name, s.runtime, "
	"s.started_us, s.cpu_count, "
	"s.memory_mb, s.disk_mb, "
	"CAST((SELECT COALESCE(SUM(CASE WHEN " SPAN " > 0 THEN " SPAN " ELSE 0 END), 0) FROM "
	"sandbox_runs r WHERE r.sandbox_id = e.subject) AS BIGINT), "
	"CAST((SELECT COALESCE(SUM(r.cpu_us), 0) FROM sandbox_runs r WHERE r.sandbox_id = "
	"e.subject) AS BIGINT), "
	"CAST((SELECT COALESCE(SUM(r.egress_bytes), 0) FROM sandbox_runs r WHERE r.sandbox_id = "
	"e.subject) AS BIGINT) "
	"FROM events e LEFT JOIN sandboxes s ON s.id = e.subject "
	"WHERE e.seq > $1 ORDER BY e.seq LIMIT $2";

/* Rows are kept until all are read: an execution's own row is asked for afterwards. */
struct gathered {
	struct page page;
	struct trace_event v[BATCH_EVENTS];
	size_t n;
};

static struct str keep(struct gathered *g, struct str text)
{
	char *copy = arena_dup(g->page.arena, text.p ? text : STR(""));

	return (struct str){ copy, copy ? text.n : 0 };
}

static int gather_row(void *arg, const struct store_row *row, struct err *e)
{
	struct gathered *g = arg;
	struct trace_event *event = &g->v[g->n];
	struct observe_item item;
	struct observe_run run;
	int r;

	item_read(row, &item);
	r = page_add(&g->page, &item, e);
	if (r < 0)
		return r;
	*event = (struct trace_event){ .traceparent = keep(g, store_text(row, 12)),
		.template_name = keep(g, store_text(row, 13)),
		.runtime = keep(g, store_text(row, 14)),
		.started_us = store_int(row, 15) };
	run = (struct observe_run){ .ms = store_int(row, 19) / 1000,
		.cpu_count = store_int(row, 16),
		.memory_mib = store_int(row, 17),
		.disk_mib = store_int(row, 18),
		.cpu_us = store_int(row, 20),
		.egress_bytes = store_int(row, 21) };
	observe_add_run(&event->amounts, &run);
	g->n++;
	return 0;
}

struct execution_row {
	struct gathered *g;
	struct trace_event *event;
};

static int take_execution(void *arg, const struct store_row *row, struct err *e)
{
	struct execution_row *x = arg;

	(void)e;
	x->event->command = keep(x->g, store_text(row, 0));
	x->event->exec_traceparent = keep(x->g, store_text(row, 1));
	return 0;
}

static int look_up_execution(struct store_tx *tx, struct gathered *g, struct trace_event *event,
	struct err *e)
{
	struct execution_row x = { g, event };
	struct event_data data;

	if (event_data_read(g->page.arena, event->item->data, &data) < 0 || !data.n.is_set)
		return 0;
	return store_query(tx,
		"SELECT substr(command, 1, 8192), traceparent FROM executions "
		"WHERE sandbox_id = $1 AND n = $2", /* a span shows no more of it */
		STORE_PARAMS(P_STR(event->item->subject), P_INT(data.n.value)), take_execution, &x,
		e);
}

static void write_batch(struct batch *b, const struct gathered *g)
{
	struct jsonw w;

	buf_clear(&b->body);
	b->n_spans = b->n_events = 0;
	b->more = g->page.more || g->n == BATCH_EVENTS;
	b->last = b->after;
	spans_begin(&w, &b->body, b->node_id);
	for (size_t i = 0; i < g->n; i++) {
		if (b->n_spans + SPANS_OF_EVENT > BATCH_SPANS || b->body.n > BATCH_BYTES / 2) {
			b->more = true;
			break;
		}
		b->n_spans += spans_write(&w, &g->v[i], &b->prices);
		b->n_events++;
		b->last = g->v[i].item->seq;
	}
	spans_end(&w);
}

static int read_batch(struct store_tx *tx, void *arg, struct err *e)
{
	struct batch *b = arg;
	cleanup_free struct gathered *g = XNEW(struct gathered);
	int r = store_query(tx, events_sql, STORE_PARAMS(P_INT(b->after), P_INT(BATCH_EVENTS)),
		gather_row, g, e);

	r = r == -ENOBUFS ? 0 : r;
	for (size_t i = 0; r >= 0 && i < g->n; i++) {
		g->v[i].item = &g->page.v[i];
		if (str_is(g->v[i].item->kind, "execution.ended"))
			r = look_up_execution(tx, g, &g->v[i], e);
	}
	if (r >= 0)
		write_batch(b, g);
	page_done(&g->page);
	return r < 0 ? r : 0;
}

/* ---- the place in the log ---- */

static int write_cursor(struct store_tx *tx, void *arg, struct err *e)
{
	return store_exec(tx,
		"INSERT INTO cursors (name, seq) VALUES ('traces', $1) "
		"ON CONFLICT (name) DO UPDATE SET seq = $1",
		STORE_PARAMS(P_INT(*(const int64_t *)arg)), e);
}

static void cursor_written(void *arg, int r, const struct err *e)
{
	if (r < 0)
		log_warn("traces.place_lost", "err=%s", log_quote(str_of(e->msg)));
	free(arg);
}

static void move_on(struct observe_traces *t, int64_t to)
{
	int64_t *seq = XNEW(int64_t);

	t->cursor = *seq = to;
	store_run(t->store, write_cursor, cursor_written, seq);
}

/* The collector was away for too long. */
static void give_up_oldest(struct observe_traces *t)
{
	int64_t behind = observe_feed_head(t->feed) - t->cursor;

	if (behind <= MOST_BEHIND)
		return;
	t->state.dropped += behind - MOST_BEHIND;
	observe_count(t->metrics, OBSERVE_TRACE_SPANS, STR("result=\"dropped\""),
		behind - MOST_BEHIND);
	log_warn("traces.dropped", "events=%" PRId64 " in_all=%" PRId64, behind - MOST_BEHIND,
		t->state.dropped);
	move_on(t, t->cursor + behind - MOST_BEHIND);
}

/* ---- sending ---- */

static void start_batch(struct observe_traces *t);

static void batch_free(struct batch *b)
{
	buf_done(&b->body);
	free(b->node_id);
	free(b);
}

static void end_stop(void *arg)
{
	struct observe_traces *t = arg;

	t->stopped(t->stopped_arg, 0, NULL);
}

static void over(struct observe_traces *t)
{
	if (t->is_over)
		return;
	t->is_over = true;
	loop_timer_cancel(&t->timer);
	loop_timer_cancel(&t->deadline);
	loop_defer(t->loop, &t->told, end_stop, t);
}

/* What has just been written is not in the feed yet: at the end only the store itself can tell. */
static bool has_more(const struct observe_traces *t)
{
	return t->stopped ? !t->is_drained : t->cursor < observe_feed_head(t->feed);
}

/* What comes next: at once when much is waiting or nobody waits for us any more. */
static void plan(struct observe_traces *t, bool more)
{
	if (t->is_over || t->batch)
		return;
	if (more || (t->stopped && has_more(t)))
		start_batch(t);
	else if (t->stopped)
		over(t);
	else if (has_more(t) && !loop_timer_is_set(&t->timer))
		loop_timer_set(&t->timer, loop_now_ms(t->loop) + BATCH_MS);
}

/* Seconds, or a date; 0: nothing was said that we understand. */
static int64_t retry_after_ms(const struct client_call *call)
{
	struct str text = str_trim(client_header(call, "Retry-After"));
	struct tm tm = { 0 };
	int64_t s = 0;
	char date[64];

	if (!text.n || text.n >= sizeof date)
		return 0;
	if (str_to_int(text, 0, INT64_MAX, &s) < 0) {
		(void)snprintf(date, sizeof date, "%.*s", STR_ARG(text));
		if (!strptime(date, "%a, %d %b %Y %H:%M:%S GMT", &tm))
			return 0;
		s = (int64_t)timegm(&tm) - time_wall_us() / 1000000;
	}
	return MIN(MAX(s, 0), MOST_RETRY_AFTER_S) * 1000;
}

static bool is_worth_retrying(int r, int status)
{
	return r < 0 || status == 429 || (status >= 502 && status <= 504);
}

/* Each wait is half as long again, up to a ceiling, and a fifth of it is chance: many servers that
 * lost one collector do not come back all at once. */
static void retry_later(struct observe_traces *t, int64_t asked_ms)
{
	uint32_t chance;

	random_bytes(&chance, sizeof chance);
	t->state.failures++;
	t->retry_ms = t->retry_ms ? MIN(t->retry_ms * 3 / 2, LAST_RETRY_MS) : FIRST_RETRY_MS;
	if (t->stopped) {
		over(t);
		return;
	}
	loop_timer_set(&t->timer,
		loop_now_ms(t->loop) +
			(asked_ms ? asked_ms : t->retry_ms * (80 + chance % 41) / 100));
}

/* {"partialSuccess": {"rejectedSpans": "3", ...}}: it took the others. */
struct partial {
	struct json_int rejected;
};
struct success {
	struct partial partial;
};
static const struct json_field partial_fields[] = {
	JSON_FIELD(struct partial, rejected, "rejectedSpans", JSON_INT, .flags = JSON_LAX),
};
static const struct json_shape partial_shape =
	JSON_SHAPE(struct partial, partial_fields, .ignore_unknown = true);
static const struct json_field success_fields[] = {
	JSON_FIELD(struct success, partial, "partialSuccess", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &partial_shape),
};
static const struct json_shape success_shape =
	JSON_SHAPE(struct success, success_fields, .ignore_unknown = true);

static int64_t refused_of(const struct batch *b, struct str answer)
{
	struct arena *arena = arena_new((size_t)ANSWER_BYTES * 4);
	struct success success = { 0 };
	int64_t n = 0;

	if (json_decode(arena, answer, &success_shape, &success, NULL) >= 0)
		n = success.partial.rejected.value;
	(void)arena_free(arena);
	return MIN(MAX(n, 0), (int64_t)b->n_spans);
}

static void rejected(struct observe_traces *t, int64_t spans, int status, struct str answer)
{
	t->state.rejected += spans;
	observe_count(t->metrics, OBSERVE_TRACE_SPANS, STR("result=\"rejected\""), spans);
	log_warn("traces.rejected", "status=%d spans=%" PRId64 " answer=%s", status, spans,
		log_quote(str_make(answer.p, MIN(answer.n, (size_t)200))));
}

static void sent(struct observe_traces *t, struct batch *b, struct str answer)
{
	int64_t refused = refused_of(b, answer), taken = (int64_t)b->n_spans - refused;

	t->state.sent += taken;
	observe_count(t->metrics, OBSERVE_TRACE_SPANS, STR("result=\"sent\""), taken);
	if (refused)
		rejected(t, refused, 200, answer);
}

static void count_answer(struct observe_traces *t, int r, int status)
{
	char label[40];

	(void)snprintf(label, sizeof label, r < 0 ? "result=\"error\"" : "result=\"%d\"", status);
	observe_count(t->metrics, OBSERVE_TRACE_REQUESTS, str_of(label), 1);
}

static void answered(void *arg, int r, const struct client_call *call, struct str body,
	const struct err *e)
{
	struct batch *b = arg;
	struct observe_traces *t = b->traces;
	bool more = b->more;
	int status;

	if (!t) {
		batch_free(b);
		return;
	}
	r = r == -ENOBUFS ? 0 : r; /* it did answer, only at length */
	status = r < 0 ? 0 : client_status(call);
	t->call = NULL;
	t->batch = NULL;
	count_answer(t, r, status);
	if (is_worth_retrying(r, status)) {
		if (t->state.failures == 0)
			log_warn("traces.unsent", "status=%d err=%s", status,
				log_quote(str_of(r < 0 ? e->msg : "")));
		retry_later(t, r < 0 ? 0 : retry_after_ms(call));
		batch_free(b);
		return;
	}
	if (status >= 200 && status < 300)
		sent(t, b, body);
	else
		rejected(t, (int64_t)b->n_spans, status, body);
	t->state.failures = t->retry_ms = 0;
	move_on(t, b->last);
	batch_free(b);
	plan(t, more);
}

static void send_batch(struct observe_traces *t, struct batch *b)
{
	struct client_request request = { .method = "POST",
		.url = t->url,
		.headers = (const char *const *)t->headers,
		.body = buf_str(&b->body),
		.timeout_ms = SEND_MS };

	t->call = client_fetch(t->client, &request, ANSWER_BYTES, answered, b);
}

static void batch_read(void *arg, int r, const struct err *e)
{
	struct batch *b = arg;
	struct observe_traces *t = b->traces;

	if (!t || t->is_over) {
		if (t)
			t->batch = NULL;
		batch_free(b);
		return;
	}
	if (r >= 0 && b->body.failed)
		log_error("traces.too_large", "events=%zu", b->n_events);
	if (r >= 0 && b->n_spans && !b->body.failed) {
		send_batch(t, b);
		return;
	}
	t->batch = NULL;
	t->is_drained = r >= 0 && b->n_events == 0;
	if (r < 0) {
		log_warn("traces.unread", "err=%s", log_quote(str_of(e->msg)));
		retry_later(t, 0);
	} else {
		bool more = b->more;

		if (b->last > t->cursor)
			move_on(t, b->last);
		plan(t, more);
	}
	batch_free(b);
}

static void start_batch(struct observe_traces *t)
{
	struct batch *b = XNEW(struct batch);

	loop_timer_cancel(&t->timer);
	give_up_oldest(t);
	b->traces = t;
	b->after = t->cursor;
	b->prices = t->prices;
	b->node_id = xstrdup(t->node_id);
	b->body = BUF_INIT((size_t)2 * BATCH_BYTES);
	t->batch = b;
	store_read(t->store, read_batch, batch_read, b);
}

static void on_timer(void *arg)
{
	struct observe_traces *t = arg;

	if (!t->batch && !t->is_over)
		start_batch(t);
}

static void on_new(void *arg)
{
	struct observe_traces *t = arg;

	if (t->state.failures == 0) /* else its own time will come */
		plan(t, observe_feed_head(t->feed) - t->cursor >= BATCH_SPANS);
}

/* ---- doors ---- */

static void keep_headers(struct observe_traces *t, const char *const *headers)
{
	size_t n = 0;

	t->headers[n++] = xstrdup("Content-Type: application/json");
	for (; headers && *headers && n <= MAX_HEADERS; headers++)
		t->headers[n++] = xstrdup(*headers);
}

int observe_traces_new(const struct observe_traces_config *config, struct observe_traces **ret,
	struct err *e)
{
	int64_t cursor = -1;
	int r = read_number(config->store, "SELECT seq FROM cursors WHERE name = 'traces'", &cursor,
		e);
	struct observe_traces *t;

	/* The first time there is nothing to take up; and a log that was put back ends earlier. */
	if (r >= 0 && (cursor < 0 || cursor > observe_feed_head(config->feed))) {
		cursor = observe_feed_head(config->feed);
		r = store_run_now(config->store, write_cursor, &cursor, e);
	}
	if (r < 0)
		return err_wrap(e, r, "read how far traces were sent");
	t = XNEW(struct observe_traces);
	t->loop = config->loop;
	t->store = config->store;
	t->feed = config->feed;
	t->metrics = config->metrics;
	t->client = config->client;
	t->prices = *config->prices;
	t->url = xstrdup(config->url);
	t->node_id = xstrdup(config->node_id);
	keep_headers(t, config->headers);
	t->cursor = cursor;
	loop_timer_init(&t->timer, t->loop, on_timer, t);
	observe_feed_on_new(t->feed, on_new, t);
	plan(t, false);
	*ret = t;
	return 0;
}

static void on_deadline(void *arg)
{
	struct observe_traces *t = arg;

	if (t->call)
		client_cancel(t->call); /* ends in answered, and so in over */
	else
		over(t);
}

void observe_traces_stop(struct observe_traces *t, int64_t within_ms, done_fn done, void *arg)
{
	assert(!t->stopped);
	t->stopped = done;
	t->stopped_arg = arg;
	loop_timer_init(&t->deadline, t->loop, on_deadline, t);
	loop_timer_set(&t->deadline, loop_now_ms(t->loop) + within_ms);
	if (t->state.failures) /* nobody listens */
		over(t);
	else
		plan(t, true);
}

struct observe_traces *observe_traces_free(struct observe_traces *t)
{
	if (!t)
		return NULL;
	if (t->batch)
		t->batch->traces = NULL;
	if (t->call)
		client_cancel(t->call);
	observe_feed_on_new(t->feed, NULL, NULL);
	loop_timer_cancel(&t->timer);
	loop_timer_cancel(&t->deadline);
	loop_task_cancel(&t->told);
	for (size_t i = 0; i < ARRAY_SIZE(t->headers); i++) {
		if (t->headers[i])
			explicit_bzero(t->headers[i], strlen(t->headers[i]));
		free(t->headers[i]);
	}
	free(t->url);
	free(t->node_id);
	free(t);
	return NULL;
}

void observe_traces_state(const struct observe_traces *t, struct observe_traces_state *ret)
{
	*ret = t->state;
	ret->cursor = t->cursor;
	ret->behind = observe_feed_head(t->feed) - t->cursor;
}
