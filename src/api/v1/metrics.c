/* GET /api/v1/health, /ready and /metrics: how the server is, for those who watch it. */
#include "api/v1/v1.h"

enum {
	PROBE_MS = 2000, /* a store that takes longer is not ready */
};

/* ---- health: it answers, so it lives ---- */

void v1_health(struct api_call *call)
{
	struct api_answer answer;

	if (!api_answer_begin(call, &answer, 0, NULL))
		return;
	jsonw_object(&answer.w, NULL);
	jsonw_strz(&answer.w, "status", "ok");
	jsonw_strz(&answer.w, "version", ATOLL_VERSION);
	jsonw_end_object(&answer.w);
	api_answer_send(call, &answer, 200);
}

/* ---- ready: each part with its state ---- */

/* The store may answer long after its time: the last of the two lets it go. */
struct probe {
	struct api_call *call; /* NULL: answered */
	struct loop_timer timer;
	int waiting;
};

static void write_part(struct jsonw *w, const char *name, int r, const char *good, const char *why)
{
	jsonw_object(w, name);
	jsonw_strz(w, "state", r < 0 ? "failed" : good);
	if (r < 0)
		jsonw_strz(w, "message", why);
	jsonw_end_object(w);
}

/* One whose breaker is open makes no server unready: what runs is served, and only creations tell
 * when it works again. */
static void write_runtime(struct jsonw *w, const struct runtime *rt, int r, const struct err *e)
{
	struct runtime_breaker breaker;

	runtime_breaker(rt, &breaker);
	jsonw_object(w, runtime_name(rt));
	jsonw_strz(w, "state", r < 0 ? "failed" : breaker.retry_s ? "failing" : "ready");
	jsonw_strz(w, "breaker", runtime_breaker_name(breaker.state));
	if (breaker.retry_s) {
		jsonw_int(w, "retry_after_s", breaker.retry_s);
		jsonw_int(w, "refused", breaker.refused);
	}
	if (r < 0 || breaker.why.code < 0)
		jsonw_strz(w, "message", r < 0 ? e->msg : breaker.why.msg);
	jsonw_end_object(w);
}

/* Other runtimes than the first may lack their programs: that makes no server unready. */
static int write_runtimes(struct api_call *call, struct jsonw *w)
{
	const struct runtime_set *set = call->api->config.runtimes;
	int first = 0;

	jsonw_object(w, "runtimes");
	for (size_t i = 0; i < set->n; i++) {
		struct err e = { 0 };
		int r = runtime_ready(set->v[i], &e);

		first = i == 0 ? r : first;
		write_runtime(w, set->v[i], r, &e);
	}
	jsonw_end_object(w);
	return first;
}

/* One that is short of room makes no server unready: what runs is served. */
static void write_disk(struct api_call *call, struct jsonw *w)
{
	bool is_short = sandbox_host(call->api->config.sandboxes)->is_short;

	jsonw_object(w, "disk");
	jsonw_strz(w, "state", is_short ? "short" : "ready");
	if (is_short)
		jsonw_strz(w, "message",
			"the host's disk is nearly full: sandboxes that write stand still, none is "
			"made");
	jsonw_end_object(w);
}

/* What waits behind it, and how long each kind of work has kept its loop. */
static void write_warden(struct api_call *call, struct jsonw *w, int r, const char *why)
{
	const struct runtime_host *host = sandbox_host(call->api->config.sandboxes);

	jsonw_object(w, "warden");
	jsonw_strz(w, "state", r < 0 ? "failed" : "ready");
	if (r < 0)
		jsonw_strz(w, "message", why);
	jsonw_int(w, "ending", host->ending);
	jsonw_int(w, "prepared", host->prepared);
	jsonw_array(w, "steps");
	for (size_t i = 0; i < RUNTIME_STEPS; i++) {
		const struct runtime_step *step = &host->steps[i];

		jsonw_object(w, NULL);
		jsonw_strz(w, "step", runtime_step_name(i));
		jsonw_array(w, "at_most");
		for (size_t b = 0; b < RUNTIME_BUCKETS; b++)
			jsonw_int(w, NULL, step->at_most[b]);
		jsonw_end_array(w);
		jsonw_int(w, "total_us", step->total_us);
		jsonw_int(w, "max_us", step->max_us);
		jsonw_end_object(w);
	}
	jsonw_end_array(w);
	jsonw_array(w, "buckets_us");
	for (size_t b = 0; b < RUNTIME_BUCKETS - 1; b++)
		jsonw_int(w, NULL, runtime_bucket_us(b));
	jsonw_end_array(w);
	jsonw_end_object(w);
}

static void reply_ready(struct api_call *call, int store_r, const char *why)
{
	bool draining = call->api->node.draining;
	struct api_answer answer;
	struct err e = { 0 };
	int r;

	if (!api_answer_begin(call, &answer, 0, NULL))
		return;
	jsonw_object(&answer.w, NULL);
	write_part(&answer.w, "store", store_r, "ready", why);
	r = sandbox_ready(call->api->config.sandboxes, &e);
	write_warden(call, &answer.w, r, e.msg);
	write_disk(call, &answer.w);
	r = MIN(write_runtimes(call, &answer.w), r);
	jsonw_strz(&answer.w, "status",
		draining               ? "draining"
		: store_r < 0 || r < 0 ? "unready"
				       : "ready");
	jsonw_end_object(&answer.w);
	api_answer_send(call, &answer, draining || store_r < 0 || r < 0 ? 503 : 200);
}

static void probe_end(struct probe *probe, int r, const char *why)
{
	if (probe->call)
		reply_ready(probe->call, r, why);
	probe->call = NULL;
	if (--probe->waiting == 0)
		free(probe);
}

static int take_row(void *arg, const struct store_row *row, struct err *e)
{
	(void)arg;
	(void)row;
	(void)e;
	return 0;
}

static int ask_store(struct store_tx *tx, void *arg, struct err *e)
{
	return store_query(tx, "SELECT 1", NULL, 0, take_row, arg, e);
}

static void store_answered(void *arg, int r, const struct err *e)
{
	struct probe *probe = arg;

	if (loop_timer_is_set(&probe->timer)) {
		loop_timer_cancel(&probe->timer);
		probe->waiting--;
	}
	probe_end(probe, r, r < 0 ? e->msg : "");
}

static void on_late(void *arg)
{
	probe_end(arg, -ETIMEDOUT, "it did not answer within 2 seconds");
}

void v1_ready(struct api_call *call)
{
	struct probe *probe = XNEW(struct probe);
	struct loop *loop = http_loop(call->x);

	probe->call = call;
	probe->waiting = 2;
	loop_timer_init(&probe->timer, loop, on_late, probe);
	loop_timer_set(&probe->timer, loop_now_ms(loop) + PROBE_MS);
	store_read(call->api->config.store, ask_store, store_answered, probe);
}

/* ---- metrics ---- */

enum {
	STATES = SANDBOX_ENDING + 1,
};

static void count_state(void *arg, const struct sandbox *sb)
{
	((int64_t *)arg)[sb->state]++;
}

static void write_gauge(struct buf *out, const char *name, const char *help, double value)
{
	observe_write_family(out, name, "gauge", help);
	observe_write_value(out, name, STR(""), value);
}

static void write_counter(struct buf *out, const char *name, const char *help, double value)
{
	observe_write_family(out, name, "counter", help);
	observe_write_value(out, name, STR(""), value);
}

/* Those that start and end are in no team's list yet, or no more. */
static void write_sandboxes(struct api_call *call, const struct sandbox_owner *who, struct buf *out)
{
	static const char *const labels[STATES] = {
		[SANDBOX_STARTING] = "state=\"starting\"",
		[SANDBOX_RUNNING] = "state=\"running\"",
		[SANDBOX_PAUSING] = "state=\"pausing\"",
		[SANDBOX_PAUSED] = "state=\"paused\"",
		[SANDBOX_RESUMING] = "state=\"resuming\"",
		[SANDBOX_ENDING] = "state=\"ending\"",
	};
	int64_t n[STATES] = { 0 }, all = (int64_t)sandbox_count(call->api->config.sandboxes), seen;

	sandbox_each(call->api->config.sandboxes, who, count_state, n);
	seen = n[SANDBOX_RUNNING] + n[SANDBOX_PAUSING] + n[SANDBOX_PAUSED] + n[SANDBOX_RESUMING];
	n[SANDBOX_STARTING] = MIN(call->api->node.starting, all - seen);
	n[SANDBOX_ENDING] = all - seen - n[SANDBOX_STARTING];
	observe_write_family(out, "atoll_sandboxes", "gauge", "Sandboxes by state.");
	for (size_t i = 0; i < STATES; i++)
		if (!who || (i != SANDBOX_STARTING && i != SANDBOX_ENDING))
			observe_write_value(out, "atoll_sandboxes", str_of(labels[i]),
				(double)n[i]);
}

static void write_store(struct api_call *call, struct buf *out)
{
	struct store_stats stats;
	int64_t below = 0;
	char label[40];

	store_stats(call->api->config.store, &stats);
	observe_write_family(out, "atoll_store_seconds", "histogram",
		"Transactions, from being asked for to being told.");
	for (size_t i = 0; i < STORE_BUCKETS; i++) {
		below += stats.buckets[i];
		(void)snprintf(label, sizeof label, "le=\"%.6g\"",
			(double)store_bucket_us[i] / 1e6);
		observe_write_value(out, "atoll_store_seconds_bucket", str_of(label),
			(double)below);
	}
	observe_write_value(out, "atoll_store_seconds_bucket", STR("le=\"+Inf\""),
		(double)stats.done);
	observe_write_value(out, "atoll_store_seconds_sum", STR(""), (double)stats.sum_us / 1e6);
	observe_write_value(out, "atoll_store_seconds_count", STR(""), (double)stats.done);
	write_counter(out, "atoll_store_failures_total", "Transactions that failed.",
		(double)stats.failed);
	observe_write_family(out, "atoll_queue_depth", "gauge", "What waits, by queue.");
	observe_write_value(out, "atoll_queue_depth", STR("queue=\"store\""),
		(double)stats.waiting);
	observe_write_value(out, "atoll_queue_depth", STR("queue=\"creates\""),
		(double)call->api->node.starting);
}

static void write_feed(struct api_call *call, struct buf *out)
{
	struct observe_feed_state feed;
	struct observe_traces_state traces = { 0 };

	observe_feed_state(call->api->config.feed, &feed);
	write_gauge(out, "atoll_feed_readers", "Readers of the live feed.", (double)feed.readers);
	write_gauge(out, "atoll_feed_readers_behind", "Of them, those that are behind.",
		(double)feed.behind);
	write_gauge(out, "atoll_event_head", "Number of the newest event.", (double)feed.head);
	if (call->api->config.traces)
		observe_traces_state(call->api->config.traces, &traces);
	write_gauge(out, "atoll_trace_exporter_up",
		"1: sends, 0: the collector does not answer, -1: not configured.",
		!call->api->config.traces ? -1 : traces.failures == 0);
	write_gauge(out, "atoll_trace_events_behind", "Events that were not sent yet.",
		(double)traces.behind);
}

/* What a team has open is its own and the operator's to know. */
struct team_values {
	const struct api_call *call;
	struct buf *out;
	bool is_bytes;
};

static void write_team(void *arg, const char *name, size_t connections, size_t bytes)
{
	CLEANUP(buf_done) struct buf labels = BUF_INIT(256);
	const struct team_values *v = arg;

	if (!v->call->is_operator && strcmp(v->call->key.team_id, name) != 0)
		return;
	observe_label(&labels, "team", str_of(name));
	if (v->is_bytes)
		observe_write_value(v->out, "atoll_team_queued_bytes", buf_str(&labels),
			(double)bytes);
	else
		observe_write_value(v->out, "atoll_team_connections", buf_str(&labels),
			(double)connections);
}

static void write_teams(struct api_call *call, struct buf *out)
{
	struct team_values v = { .call = call, .out = out };

	observe_write_family(out, "atoll_team_connections", "gauge", "Connections of each team.");
	http_server_each_holder(http_server_of(call->x), write_team, &v);
	v.is_bytes = true;
	observe_write_family(out, "atoll_team_queued_bytes", "gauge",
		"Replies not read yet, and bodies not whole yet, of each team.");
	http_server_each_holder(http_server_of(call->x), write_team, &v);
}

static void write_evictions(const struct http_admission *a, struct buf *out)
{
	observe_write_family(out, "atoll_connections_evicted_total", "counter",
		"Connections that gave way to others, by what they were.");
	observe_write_value(out, "atoll_connections_evicted_total", STR("was=\"stranger\""),
		(double)a->evicted_strangers);
	observe_write_value(out, "atoll_connections_evicted_total", STR("was=\"idle\""),
		(double)a->evicted_idle);
	write_counter(out, "atoll_connections_turned_away_total",
		"Connections for which there was no room.", (double)a->turned_away);
	write_counter(out, "atoll_connections_refused_total",
		"Requests of teams that had all that they may have.", (double)a->refused);
	write_counter(out, "atoll_unread_replies_cut_total",
		"Replies that were cut because nobody read them.", (double)a->cut_unread);
}

static void write_connections(struct api_call *call, struct buf *out)
{
	struct http_admission a;

	http_server_admission(http_server_of(call->x), &a);
	observe_write_family(out, "atoll_connections", "gauge", "Connections, by who holds them.");
	observe_write_value(out, "atoll_connections", STR("holder=\"stranger\""),
		(double)a.strangers);
	observe_write_value(out, "atoll_connections", STR("holder=\"operator\""),
		(double)a.operators);
	observe_write_value(out, "atoll_connections", STR("holder=\"team\""),
		(double)(a.connections - a.strangers - a.operators));
	write_gauge(out, "atoll_connections_max", "As many there may be.", (double)a.max);
	write_gauge(out, "atoll_connections_reserved", "Of them, never given to teams.",
		(double)a.reserve);
	write_gauge(out, "atoll_queued_bytes", "Replies not read yet, and bodies not whole yet.",
		(double)a.bytes);
	write_gauge(out, "atoll_queued_bytes_max", "As many there may be.", (double)a.max_bytes);
	write_evictions(&a, out);
	write_teams(call, out);
}

static void note_breakers(struct api_call *call)
{
	static const double values[] = {
		[RUNTIME_BREAKER_CLOSED] = 0,
		[RUNTIME_BREAKER_HALF_OPEN] = 1,
		[RUNTIME_BREAKER_OPEN] = 2,
	};
	const struct runtime_set *set = call->api->config.runtimes;

	for (size_t i = 0; i < set->n; i++) {
		CLEANUP(buf_done) struct buf labels = BUF_INIT(256);
		struct runtime_breaker breaker;

		runtime_breaker(set->v[i], &breaker);
		observe_label(&labels, "runtime", str_of(runtime_name(set->v[i])));
		observe_gauge(call->api->config.metrics, OBSERVE_BREAKER, buf_str(&labels),
			values[breaker.state]);
	}
}

static void count_health(void *arg, const struct sandbox *sb)
{
	if (sb->state == SANDBOX_RUNNING)
		((int64_t *)arg)[sb->health]++;
}

static void write_health(struct api_call *call, const struct sandbox_owner *who, struct buf *out)
{
	int64_t n[SANDBOX_DEAD + 1] = { 0 };

	sandbox_each(call->api->config.sandboxes, who, count_health, n);
	observe_write_family(out, "atoll_sandbox_health", "gauge",
		"Running sandboxes by their health.");
	for (size_t i = 0; i < ARRAY_SIZE(n); i++) {
		CLEANUP(buf_done) struct buf labels = BUF_INIT(256);

		observe_label(&labels, "health",
			str_of(sandbox_health_name((enum sandbox_health)i)));
		observe_write_value(out, "atoll_sandbox_health", buf_str(&labels), (double)n[i]);
	}
}

/* What the operator alone sees: of the machine, and of all teams together. */
/* What all sandboxes of this machine share. */
static void write_host(struct api_call *call, struct buf *out)
{
	const struct runtime_host *host = sandbox_host(call->api->config.sandboxes);

	write_gauge(out, "atoll_disk_free_bytes", "Left for the disks of all sandboxes.",
		(double)host->free_bytes);
	write_gauge(out, "atoll_disk_total_bytes", "Of the file system that they lie on.",
		(double)host->total_bytes);
	write_gauge(out, "atoll_disk_promised_bytes", "The sizes of their disks together.",
		(double)host->promised_bytes);
	write_gauge(out, "atoll_sandboxes_held",
		"Those that write and stand still for want of room.", host->held);
	write_gauge(out, "atoll_sandboxes_ending",
		"Those that have ended and are not yet removed to the last trace.", host->ending);
	write_gauge(out, "atoll_slots_prepared", "Sandboxes made ahead that wait for a request.",
		host->prepared);
	write_gauge(out, "atoll_workers_lost",
		"Processes that the kernel keeps in some sandbox's file system.",
		host->lost_workers);
}

/* The warden does one thing at a time: what takes long here, everybody waits for. */
static void write_step(struct buf *out, const struct runtime_step *step, const char *name)
{
	char label[80];
	int64_t n = 0;

	for (size_t b = 0; b < RUNTIME_BUCKETS; b++) {
		n += step->at_most[b];
		if (b < RUNTIME_BUCKETS - 1)
			(void)snprintf(label, sizeof label, "step=\"%s\",le=\"%.6g\"", name,
				(double)runtime_bucket_us(b) / 1e6);
		else
			(void)snprintf(label, sizeof label, "step=\"%s\",le=\"+Inf\"", name);
		observe_write_value(out, "atoll_warden_step_seconds_bucket", str_of(label),
			(double)n);
	}
	(void)snprintf(label, sizeof label, "step=\"%s\"", name);
	observe_write_value(out, "atoll_warden_step_seconds_sum", str_of(label),
		(double)step->total_us / 1e6);
	observe_write_value(out, "atoll_warden_step_seconds_count", str_of(label), (double)n);
}

static void write_steps(struct api_call *call, struct buf *out)
{
	const struct runtime_host *host = sandbox_host(call->api->config.sandboxes);

	observe_write_family(out, "atoll_warden_step_seconds", "histogram",
		"How long each kind of work kept the warden's loop.");
	for (size_t i = 0; i < RUNTIME_STEPS; i++)
		write_step(out, &host->steps[i], runtime_step_name(i));
}

static void write_server(struct api_call *call, struct buf *out)
{
	note_breakers(call);
	write_store(call, out);
	write_feed(call, out);
	write_connections(call, out);
	write_host(call, out);
	write_steps(call, out);
	observe_metrics_write(call->api->config.metrics, out);
}

static void write_own(struct api_call *call, struct buf *out)
{
	const struct observe_metrics *of_team =
		observe_metrics_of(call->api->config.metrics, str_of(call->key.team_id));

	write_teams(call, out);
	if (of_team)
		observe_metrics_write(of_team, out);
}

void v1_metrics(struct api_call *call)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(API_ANSWER_BYTES), labels = BUF_INIT(256);
	const struct sandbox_owner *who = call->key.team_id[0] ? &call->owner : NULL;

	if (call->key.agent_id[0]) {
		api_fail_as(call, 403, "forbidden", "these are counts of a whole team",
			"ask with a key that is no agent's");
		return;
	}
	observe_label(&labels, "version", STR(ATOLL_VERSION));
	observe_label(&labels, "node", str_of(call->api->config.node_id));
	observe_write_family(&out, "atoll_build_info", "gauge", "What runs here.");
	observe_write_value(&out, "atoll_build_info", buf_str(&labels), 1);
	write_sandboxes(call, who, &out);
	write_health(call, who, &out);
	if (who)
		write_own(call, &out);
	else
		write_server(call, &out);
	api_note_answer(call, 200);
	http_reply(call->x, 200, "text/plain; version=0.0.4; charset=utf-8", buf_str(&out));
}
