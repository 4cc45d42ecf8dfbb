/* Spans as documents, and the exporter against a collector that behaves as badly as a test wants.
 */
#include "client/client.h"
#include "http/http.h"
#include "observe/spans.h"

#include "scratch.h"
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>

enum {
	MAX_POSTS = 64,
};

struct rig {
	struct scratch scratch;
	struct loop *loop; /* the scratch's, as the next */
	struct store *store;
	char endpoint[64];
	struct observe_feed *feed;
	struct client *client;
	struct http_server *collector;
	struct observe_traces *traces;
	struct loop_timer timer;
	/* What the collector does and has seen. */
	int statuses[8]; /* of the first posts; 0: 200, -1: never answers */
	const char *retry_after;
	struct str answer; /* empty: {} */
	int n_posts;
	int64_t at_ms[MAX_POSTS];
	struct buf bodies, headers;
	bool is_stopped;
};

static void body_read(void *arg, int r, struct str body)
{
	struct http_exchange *x = arg;
	struct rig *rig = http_data(x);
	int status =
		rig->n_posts < 8 && rig->statuses[rig->n_posts] ? rig->statuses[rig->n_posts] : 200;

	if (r < 0) {
		http_abort(x);
		return;
	}
	if (rig->n_posts < MAX_POSTS)
		rig->at_ms[rig->n_posts] = time_now_ms();
	rig->n_posts++;
	(void)buf_add_str(&rig->headers, http_header(x, "Authorization"));
	if (status < 0)
		return; /* the exchange stays open for ever */
	if (status == 200)
		(void)buf_add_str(&rig->bodies, body);
	if (rig->retry_after && status != 200)
		http_add_header(x, "Retry-After", str_of(rig->retry_after));
	http_reply(x, status, "application/json", rig->answer.n ? rig->answer : STR("{}"));
}

static void on_post(void *arg, struct http_exchange *x)
{
	http_set_data(x, arg);
	http_read_body(x, 16 << 20, body_read, x);
}

static int listen_somewhere(struct rig *rig, struct err *e)
{
	struct sockaddr_in address = { 0 };
	socklen_t size = sizeof address;
	int fd = http_listen("127.0.0.1:0", e);

	if (fd < 0)
		return fd;
	(void)getsockname(fd, (struct sockaddr *)&address, &size);
	(void)snprintf(rig->endpoint, sizeof rig->endpoint, "http://127.0.0.1:%d/v1/traces",
		ntohs(address.sin_port));
	return http_server_take_listener(rig->collector, fd, e);
}

static int start_traces(struct rig *rig, struct err *e)
{
	static const char *const headers[] = { "Authorization: Basic abc", NULL };
	struct observe_prices prices = { .currency = "USD",
		.vcpu_hour = 3600LL * 1000000000,
		.is_set = true };
	struct observe_traces_config config = { .loop = rig->loop,
		.store = rig->store,
		.feed = rig->feed,
		.client = rig->client,
		.prices = &prices,
		.url = rig->endpoint,
		.headers = headers,
		.node_id = "n1" };

	return observe_traces_new(&config, &rig->traces, e);
}

static int rig_open(struct rig *rig, struct err *e)
{
	struct http_limits limits = { 0 };
	int r = scratch_open(&rig->scratch, e);

	rig->bodies = rig->headers = BUF_INIT(16 << 20);
	rig->loop = rig->scratch.loop;
	rig->store = rig->scratch.store;
	if (r >= 0)
		r = observe_feed_new(rig->loop, rig->store, NULL, &rig->feed, e);
	if (r >= 0)
		r = client_new(rig->loop, &rig->client, e);
	if (r < 0)
		return r;
	rig->collector = http_server_new(rig->loop, &limits, on_post, rig);
	r = listen_somewhere(rig, e);
	return r < 0 ? r : start_traces(rig, e);
}

static void on_time(void *arg)
{
	loop_stop(arg);
}

static void run_for(struct rig *rig, int64_t ms)
{
	struct err e = { 0 };

	loop_timer_init(&rig->timer, rig->loop, on_time, rig->loop);
	loop_timer_set(&rig->timer, time_now_ms() + ms);
	(void)loop_run(rig->loop, &e);
}

/* A busy machine takes its time; what is wrong never comes. */
static void wait_for_posts(struct rig *rig, int n)
{
	for (int i = 0; i < 3000 && rig->n_posts < n; i++)
		run_for(rig, 5);
}

static void wait_for_end(struct rig *rig, int64_t spans)
{
	struct observe_traces_state state = { 0 };

	for (int i = 0; i < 4000 && state.sent + state.rejected < spans; i++) {
		run_for(rig, 5);
		observe_traces_state(rig->traces, &state);
	}
}

static void stopped(void *arg, int r, const struct err *e)
{
	struct rig *rig = arg;

	(void)r;
	(void)e;
	rig->is_stopped = true;
	loop_stop(rig->loop);
}

static void stop_traces(struct rig *rig, int64_t within_ms)
{
	struct err e = { 0 };

	rig->is_stopped = false;
	observe_traces_stop(rig->traces, within_ms, stopped, rig);
	while (!rig->is_stopped)
		(void)loop_run(rig->loop, &e);
	rig->traces = observe_traces_free(rig->traces);
}

static void rig_done(struct rig *rig)
{
	loop_timer_cancel(&rig->timer);
	if (rig->traces)
		stop_traces(rig, 100);
	rig->collector = http_server_free(rig->collector);
	rig->client = client_free(rig->client);
	observe_feed_close(rig->feed);
	rig->feed = observe_feed_free(rig->feed);
	scratch_done(&rig->scratch);
	buf_done(&rig->bodies);
	buf_done(&rig->headers);
}

/* ---- a life ---- */

#define PARENT "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

static const char *const life_sql[] = {
	"INSERT INTO teams (id, name, created_us) VALUES ('t1', 'one', 1)",
	"INSERT INTO sandboxes (id, team_id, template_id, template_name, runtime, state, secure, "
	"cpu_count, memory_mb, disk_mb, timeout_s, metadata, options, started_us, end_us, "
	"agent_id, "
	"task_id, traceparent) VALUES ('sb1', 't1', 'x', 'base', 'local', 'ended', 1, 2, 512, "
	"1024, 1, '{}', '{}', 1000000, 0, 'ag', 'task', '" PARENT "')",
	"INSERT INTO sandbox_runs (sandbox_id, started_us, ended_us, cpu_us, egress_bytes) VALUES "
	"('sb1', 1000000, 11000000, 5000000, 77)",
	"INSERT INTO executions (sandbox_id, n, team_id, actor, command, tag, state, started_us, "
	"deadline_us, traceparent) VALUES ('sb1', 1, 't1', 'k', '{\"shell\":\"make test\"}', 'x', "
	"'ended', 2000000, 0, '00-11111111111111111111111111111111-2222222222222222-01')",
};

static const struct {
	const char *kind, *data;
	int64_t at_us;
} life[] = {
	{ "sandbox.created", "{\"template\":\"base\"}", 1000000 },
	{ "sandbox.started",
		"{\"us\":1500,\"quota_us\":100,\"row_us\":900,\"runtime_us\":1300,\"ready_us\":"
		"100}",
		1001500 },
	{ "execution.ended",
		"{\"execution\":1,\"exit_code\":2,\"duration_ms\":300,\"ended_by\":\"process\"}",
		2300000 },
	{ "process.started", "{\"pid\":7,\"program\":\"/bin/sh\"}", 2400000 },
	{ "process.ended",
		"{\"pid\":7,\"program\":\"/bin/sh\",\"args\":[\"-c\",\"by an SDK\"],"
		"\"user\":\"root\",\"signal\":\"SIGKILL\",\"cause\":\"timeout\",\"us\":100000}",
		2500000 },
	{ "process.ended", "{\"via\":\"execution\",\"us\":1,\"exit_code\":0}", 2600000 },
	{ "sandbox.paused", "{\"us\":5000}", 3000000 },
	{ "key.created", "{}", 3500000 },
	{ "sandbox.ended", "{\"by\":\"infrastructure\",\"why\":\"the host was gone\"}", 11000000 },
};

static int add_life(struct store_tx *tx, void *arg, struct err *e)
{
	int r = 0;

	(void)arg;
	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(life_sql); i++)
		r = store_exec(tx, life_sql[i], NULL, 0, e);
	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(life); i++) {
		struct store_event event = { "key1", life[i].kind, "sb1", str_of(life[i].data) };
		struct store_cause cause = { .at_us = life[i].at_us,
			.team_id = "t1",
			.agent_id = "ag",
			.task_id = "task" };

		r = store_add_caused_event(tx, &event, &cause, e);
	}
	return r;
}

struct many {
	int n;
};

static int add_ends(struct store_tx *tx, void *arg, struct err *e)
{
	const struct many *many = arg;
	int r = 0;

	for (int i = 0; r >= 0 && i < many->n; i++) {
		struct store_event event = { "k", "sandbox.ended", "sb2", STR("{}") };

		r = store_add_event(tx, &event, e);
	}
	return r;
}

static void written(void *arg, int r, const struct err *e)
{
	if (r < 0)
		printf("# %s\n", e->msg);
	free(arg);
}

static void add(struct rig *rig, int n)
{
	struct many *many = XNEW(struct many);

	many->n = n;
	store_run(rig->store, n ? add_ends : add_life, written, many);
}

static int count(const struct buf *text, const char *what)
{
	int n = 0;

	for (const char *p = text->p; p && (p = strstr(p, what)); p++)
		n++;
	return n;
}

static int nothing(struct store_tx *tx, void *arg, struct err *e)
{
	(void)tx;
	(void)arg;
	(void)e;
	return 0;
}

/* Writes go one after the other: when this one is done, those before it are. */
static void wait_for_writes(struct rig *rig)
{
	store_run(rig->store, nothing, stopped, rig);
	run_for(rig, 10000);
}

TEST(a_life_becomes_one_trace)
{
	CLEANUP(rig_done) struct rig rig = { 0 };
	struct observe_traces_state state;
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&rig, &e), 0);
	add(&rig, 0);
	run_for(&rig, 300);
	ASSERT_EQ(rig.n_posts, 0); /* a span waits for company */
	stop_traces(&rig, 2000);   /* but not when there is an end */
	ASSERT_EQ(rig.n_posts, 1);
	ASSERT_EQ(count(&rig.bodies, "\"spanId\":"), 9 + 1); /* and a link */
	ASSERT_EQ(count(&rig.bodies, "\"traceId\":\"0af7651916cd43dd8448eb211c80319c\""), 9);
	ASSERT_EQ(count(&rig.bodies, "\"traceId\":\"11111111111111111111111111111111\""), 1);
	ASSERT_EQ(count(&rig.bodies, "\"parentSpanId\":\"b7ad6b7169203331\",\"name\":\"sandbox\""),
		1);
	ASSERT_EQ(count(&rig.bodies, "\"name\":\"execute\""), 1);
	ASSERT_EQ(count(&rig.bodies, "\"startTimeUnixNano\":\"2000000000\","
				     "\"endTimeUnixNano\":\"2300000000\""),
		1);
	ASSERT_EQ(count(&rig.bodies,
			  "\"key\":\"process.exit.code\",\"value\":{\"intValue\":\"2\"}"),
		1);
	ASSERT_EQ(count(&rig.bodies, "make test"), 2);
	ASSERT_EQ(count(&rig.bodies, "\"name\":\"process\""), 1);
	ASSERT_EQ(count(&rig.bodies, "\"startTimeUnixNano\":\"2400000000\","
				     "\"endTimeUnixNano\":\"2500000000\""),
		1);
	ASSERT_EQ(count(&rig.bodies, "\"stringValue\":\"/bin/sh -c by an SDK\""), 2);
	ASSERT_EQ(count(&rig.bodies, "\"stringValue\":\"SIGKILL\""), 1);
	ASSERT_EQ(count(&rig.bodies, "\"status\":{\"code\":2,\"message\":\"the host was gone\"}"),
		1);
	/* 2 processors for 10 s at 1 a second each. */
	ASSERT_EQ(count(&rig.bodies,
			  "\"key\":\"atoll.cost\",\"value\":{\"doubleValue\":20.000000000}"),
		1);
	ASSERT_EQ(count(&rig.bodies, "\"key\":\"session.id\",\"value\":{\"stringValue\":\"task\"}"),
		9);
	ASSERT_STR(rig.headers.p, "Basic abc");
	wait_for_writes(&rig);
	ASSERT_EQ(start_traces(&rig, &e), 0);
	observe_traces_state(rig.traces, &state);
	ASSERT_EQ(state.cursor, 9);
}

TEST(what_was_not_taken_is_sent_again_and_in_time)
{
	CLEANUP(rig_done) struct rig rig = { .statuses = { 503, 429 }, .retry_after = "1" };
	struct observe_traces_state state;
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&rig, &e), 0);
	add(&rig, 600); /* enough to go at once */
	wait_for_end(&rig, 600);
	ASSERT_EQ(rig.n_posts, 4);
	ASSERT(rig.at_ms[1] - rig.at_ms[0] >= 990);
	ASSERT(rig.at_ms[2] - rig.at_ms[1] >= 990);
	ASSERT_EQ(count(&rig.bodies, "\"spanId\":"), 600);
	observe_traces_state(rig.traces, &state);
	ASSERT_EQ(state.sent, 600);
	ASSERT_EQ(state.rejected + state.dropped + state.failures, 0);
	ASSERT_EQ(state.behind, 0);
}

TEST(what_is_refused_is_not_sent_again)
{
	CLEANUP(rig_done) struct rig rig = { .statuses = { 400 } };
	struct observe_traces_state state;
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&rig, &e), 0);
	add(&rig, 600);
	wait_for_end(&rig, 600);
	ASSERT_EQ(rig.n_posts, 2);
	observe_traces_state(rig.traces, &state);
	ASSERT(state.rejected >= 500);
	ASSERT_EQ(state.rejected + state.sent, 600);
	ASSERT_EQ(state.behind, 0);
}

TEST(what_is_refused_of_a_batch_is_counted_and_the_rest_is_sent)
{
	CLEANUP(rig_done)
	struct rig rig = { .answer = STR("{\"partialSuccess\":{\"rejectedSpans\":\"12\","
					 "\"errorMessage\":\"no\"}}") };
	struct observe_traces_state state;
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&rig, &e), 0);
	add(&rig, 600);
	wait_for_end(&rig, 600);
	ASSERT_EQ(rig.n_posts, 2);
	observe_traces_state(rig.traces, &state);
	ASSERT_EQ(state.rejected, 24);
	ASSERT_EQ(state.sent, 576);
}

/* More than anybody reads: it has the spans all the same, and does not get them again. */
TEST(a_collector_that_answers_at_length_is_sent_nothing_twice)
{
	cleanup_free char *text = XNEW_N(char, 200000);
	CLEANUP(rig_done) struct rig rig = { .answer = str_make(text, 200000) };
	struct observe_traces_state state;
	struct err e = { 0 };

	memset(text, ' ', 200000);
	ASSERT_EQ(rig_open(&rig, &e), 0);
	add(&rig, 600);
	wait_for_end(&rig, 600);
	ASSERT_EQ(rig.n_posts, 2);
	observe_traces_state(rig.traces, &state);
	ASSERT_EQ(state.sent, 600);
	ASSERT_EQ(state.failures, 0);
}

/* It hangs: nobody waits for it, and the end comes in time. The next one finds what is missing. */
TEST(a_collector_that_hangs_holds_nobody_up)
{
	CLEANUP(rig_done) struct rig rig = { .statuses = { -1 } };
	struct err e = { 0 };
	int64_t began;

	ASSERT_EQ(rig_open(&rig, &e), 0);
	add(&rig, 600);
	wait_for_posts(&rig, 1);
	ASSERT_EQ(rig.n_posts, 1);
	began = time_now_ms();
	stop_traces(&rig, 300);
	ASSERT(time_now_ms() - began < 20000);
	ASSERT_EQ(start_traces(&rig, &e), 0);
	run_for(&rig, 300);
	stop_traces(&rig, 2000);
	ASSERT_EQ(count(&rig.bodies, "\"spanId\":"), 600);
}

TEST(the_oldest_go_when_the_collector_is_away_for_too_long)
{
	CLEANUP(rig_done)
	struct rig rig = { .statuses = { 503, 503, 503, 503, 503, 503, 503, 503 },
		.retry_after = "2" };
	struct observe_traces_state state = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&rig, &e), 0);
	add(&rig, 600);
	wait_for_posts(&rig, 1);
	ASSERT_EQ(rig.n_posts, 1);
	ASSERT(store_run_now(rig.store, add_ends, &(struct many){ 19999 }, &e) >= 0);
	add(&rig, 1); /* which is told */
	for (int i = 0; i < 2000 && state.dropped < 600; i++) {
		run_for(&rig, 5);
		observe_traces_state(rig.traces, &state);
	}
	memset(rig.statuses, 0, sizeof rig.statuses); /* it is back */
	wait_for_end(&rig, 20000);
	observe_traces_state(rig.traces, &state);
	ASSERT_EQ(state.dropped, 600);
	ASSERT_EQ(state.sent, 20000);
	ASSERT_EQ(state.behind, 0);
}

TEST(the_same_event_gives_the_same_span)
{
	CLEANUP(buf_done) struct buf a = BUF_INIT(1 << 20), b = BUF_INIT(1 << 20);
	struct observe_item item = { .seq = 7,
		.at_us = 5000000,
		.kind = STR("sandbox.started"),
		.subject = STR("sb9"),
		.data = STR("{\"us\":1000}") };
	struct trace_event event = { .item = &item };
	struct jsonw w;

	spans_begin(&w, &a, "n");
	ASSERT_EQ(spans_write(&w, &event, NULL), 1);
	spans_end(&w);
	spans_begin(&w, &b, "n");
	(void)spans_write(&w, &event, NULL);
	spans_end(&w);
	ASSERT_STR(a.p, b.p);
	ASSERT(!strstr(a.p, "\"parentSpanId\":\"\""));
	item.subject = STR("sb8");
	buf_clear(&b);
	spans_begin(&w, &b, "n");
	(void)spans_write(&w, &event, NULL);
	spans_end(&w);
	ASSERT(strcmp(a.p, b.p) != 0);
}

TEST(traceparents_are_read_as_the_standard_says)
{
	static const struct {
		const char *text;
		int r;
	} cases[] = {
		{ PARENT, 0 },
		{ "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-comes", 0 },
		{ "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", -EINVAL },
		{ "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-", -EINVAL },
		{ "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", -EINVAL },
		{ "00-00000000000000000000000000000000-b7ad6b7169203331-01", -EINVAL },
		{ "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", -EINVAL },
		{ "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", -EINVAL },
		{ "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-01", -EINVAL },
		{ "", -EINVAL },
		{ "00", -EINVAL },
	};
	struct observe_parent parent;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		ASSERT_EQ(observe_parent_read(str_of(cases[i].text), &parent), cases[i].r);
}
