#include "observe/observe-internal.h"

#include "scratch.h"
#include "test.h"

struct rig {
	struct scratch scratch;
	struct observe_usage got[16];
	char names[16][64];
	size_t n;
	int r;
};

/* Whole seconds in µs, so that the sums below can be read. */
static const char *const rows_sql[] = {
	"INSERT INTO teams (id, name, created_us) VALUES ('t1', 'one', 1), ('t2', 'two', 2)",
	"INSERT INTO sandboxes (id, team_id, template_id, template_name, runtime, state, secure, "
	"cpu_count, memory_mb, disk_mb, timeout_s, metadata, options, started_us, end_us, "
	"agent_id, task_id) VALUES "
	"('a', 't1', 'x', 'base', 'local', 'ended', 1, 2, 512, 1024, 1, '{}', '{}', 0, 0, 'ag', "
	"'k1'), "
	"('b', 't1', 'x', 'base', 'local', 'ended', 1, 1, 256, 1024, 1, '{}', '{}', 0, 0, 'ag', "
	"'k2'), "
	"('c', 't1', 'y', 'big', 'local', 'running', 1, 4, 1024, 2048, 1, '{}', '{}', 0, 0, NULL, "
	"NULL), "
	"('d', 't2', 'x', 'base', 'local', 'ended', 1, 1, 128, 1024, 1, '{}', '{}', 0, 0, NULL, "
	"NULL), "
	"('e', 't2', 'x', 'base', 'local', 'ended', 1, 2, 128, 1024, 1, '{}', '{}', 0, 0, NULL, "
	"NULL)",
	"INSERT INTO sandbox_runs (sandbox_id, started_us, ended_us, cpu_us, egress_bytes) VALUES "
	"('a', 10000000, 20000000, 5000000, 1000), ('a', 30000000, 40000000, 1000000, 0), "
	"('b', 15000000, 16500000, 0, 1048576), ('c', 35000000, NULL, 2000000, 10), "
	"('d', 12000000, 13000000, 0, 0), ('d', 50000000, 40000000, 7, 7), "
	"('e', 8640000000000, 8726400000000, 172800000000, 4398046511104)",
};

static int add_rows(struct store_tx *tx, void *arg, struct err *e)
{
	int r = 0;

	(void)arg;
	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(rows_sql); i++)
		r = store_exec(tx, rows_sql[i], NULL, 0, e);
	return r;
}

static int rig_open(struct rig *rig, struct err *e)
{
	int r = scratch_open(&rig->scratch, e);

	return r < 0 ? r : MIN(store_run_now(rig->scratch.store, add_rows, NULL, e), 0);
}

static void rig_done(struct rig *rig)
{
	scratch_done(&rig->scratch);
}

static void got(void *arg, int r, const struct observe_usage *v, size_t n, const struct err *e)
{
	struct rig *rig = arg;

	rig->r = r;
	if (r < 0)
		printf("# %s\n", e->msg);
	rig->n = MIN(n, ARRAY_SIZE(rig->got));
	for (size_t i = 0; i < rig->n; i++) {
		rig->got[i] = v[i];
		(void)snprintf(rig->names[i], sizeof rig->names[i], "%.*s/%.*s/%.*s/%.*s",
			STR_ARG(v[i].team_id), STR_ARG(v[i].agent_id), STR_ARG(v[i].task_id),
			STR_ARG(v[i].template_name));
	}
	loop_stop(rig->scratch.loop);
}

static void ask(struct rig *rig, const struct observe_usage_query *query)
{
	struct err e = { 0 };

	observe_usage(rig->scratch.store, query, got, rig);
	(void)loop_run(rig->scratch.loop, &e);
}

TEST(what_ran_within_a_time_is_summed_up)
{
	CLEANUP(rig_done) struct rig rig = { 0 };
	struct observe_usage_query query = { .team_id = STR("t1"), .to_us = 45000000 };
	const struct observe_amounts *a = &rig.got[0].amounts;
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&rig, &e), 0);
	ask(&rig, &query);
	ASSERT_EQ(rig.r, 0);
	ASSERT_EQ(rig.n, 1);
	ASSERT_EQ(a->sandboxes, 3);
	ASSERT_EQ(a->runs, 4);
	ASSERT_EQ(a->sandbox_ms, 10000 + 10000 + 1500 + 10000);
	ASSERT_EQ(a->vcpu_ms, 2 * 20000 + 1500 + 4 * 10000);
	ASSERT_EQ(a->memory_mib_ms, 512 * 20000 + 256 * 1500 + 1024 * 10000);
	ASSERT_EQ(a->disk_mib_ms, 1024 * 20000 + 1024 * 1500 + 2048 * 10000);
}

/* Half of a run, and its share of what it used. */
TEST(a_time_that_cuts_a_run_gets_its_part)
{
	CLEANUP(rig_done) struct rig rig = { 0 };
	struct observe_usage_query query = { .sandbox_id = STR("a"),
		.from_us = 5000000,
		.to_us = 15000000 };
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&rig, &e), 0);
	ask(&rig, &query);
	ASSERT_EQ(rig.got[0].amounts.sandbox_ms, 5000);
	ASSERT_EQ(rig.got[0].amounts.cpu_us, 2500000);
	ASSERT_EQ(rig.got[0].amounts.runs, 1);
}

/* Two processors for a day, and more bytes than a day's µs leave room for. */
TEST(a_part_of_a_long_run_is_no_number_too_large)
{
	CLEANUP(rig_done) struct rig rig = { 0 };
	const int64_t day_us = 86400LL * 1000000;
	struct observe_usage_query query = { .sandbox_id = STR("e"),
		.from_us = 100 * day_us,
		.to_us = 100 * day_us + day_us / 4 };
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&rig, &e), 0);
	ask(&rig, &query);
	ASSERT_EQ(rig.r, 0);
	ASSERT_EQ(rig.got[0].amounts.sandbox_ms, day_us / 4000);
	ASSERT_EQ(rig.got[0].amounts.cpu_us, day_us / 2);
	ASSERT_EQ(rig.got[0].amounts.egress_bytes, 1LL << 40);
}

TEST(groups_add_up_to_the_whole)
{
	CLEANUP(rig_done) struct rig rig = { 0 };
	static const unsigned groups[] = { OBSERVE_BY_TEAM, OBSERVE_BY_AGENT, OBSERVE_BY_TASK,
		OBSERVE_BY_TEMPLATE, OBSERVE_BY_SANDBOX,
		OBSERVE_BY_TEAM | OBSERVE_BY_AGENT | OBSERVE_BY_TEMPLATE };
	struct observe_usage_query query = { .to_us = 45000000 };
	struct observe_amounts whole;
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&rig, &e), 0);
	ask(&rig, &query);
	ASSERT_EQ(rig.n, 1);
	whole = rig.got[0].amounts;
	for (size_t i = 0; i < ARRAY_SIZE(groups); i++) {
		struct observe_amounts sum = { 0 };

		query.group = groups[i];
		ask(&rig, &query);
		ASSERT_EQ(rig.r, 0);
		ASSERT(rig.n > 1);
		for (size_t k = 0; k < rig.n; k++) {
			sum.sandbox_ms += rig.got[k].amounts.sandbox_ms;
			sum.memory_mib_ms += rig.got[k].amounts.memory_mib_ms;
			sum.cpu_us += rig.got[k].amounts.cpu_us;
			sum.egress_bytes += rig.got[k].amounts.egress_bytes;
			sum.runs += rig.got[k].amounts.runs;
		}
		ASSERT_EQ(sum.sandbox_ms, whole.sandbox_ms);
		ASSERT_EQ(sum.memory_mib_ms, whole.memory_mib_ms);
		ASSERT_EQ(sum.cpu_us, whole.cpu_us);
		ASSERT_EQ(sum.egress_bytes, whole.egress_bytes);
		ASSERT_EQ(sum.runs, whole.runs);
	}
	query.group = OBSERVE_BY_TEAM | OBSERVE_BY_AGENT | OBSERVE_BY_TEMPLATE;
	ask(&rig, &query);
	ASSERT_STR(rig.names[0], "t1/ag//base");
}

/* The clock was set back while it ran: it counts as nothing, and never as less. */
TEST(a_run_that_ends_before_it_began_counts_as_nothing)
{
	CLEANUP(rig_done) struct rig rig = { 0 };
	struct observe_usage_query query = { .team_id = STR("t2"), .to_us = 90000000 };
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&rig, &e), 0);
	ask(&rig, &query);
	ASSERT_EQ(rig.got[0].amounts.sandbox_ms, 1000);
	query.from_us = 80000000; /* and nothing ran in the time behind it */
	ask(&rig, &query);
	ASSERT_EQ(rig.n, 0);
}

TEST(prices_are_read_exactly)
{
	static const struct {
		const char *text;
		int r;
		int64_t want;
	} cases[] = { { "0", 0, 0 }, { "1", 0, 1000000000 }, { "0.05", 0, 50000000 },
		{ "12.000000001", 0, 12000000001 }, { "0.0000000001", -EINVAL, 0 },
		{ "-1", -EINVAL, 0 }, { "1.", -EINVAL, 0 }, { ".5", -EINVAL, 0 },
		{ "1.-5", -EINVAL, 0 }, { "1e3", -EINVAL, 0 }, { "", -EINVAL, 0 },
		{ "1.5.5", -EINVAL, 0 } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int64_t got_price = 0;

		ASSERT_EQ(observe_parse_price(str_of(cases[i].text), &got_price), cases[i].r);
		ASSERT_EQ(got_price, cases[i].want);
	}
}

TEST(cost_is_amount_times_price)
{
	struct observe_prices prices = { .currency = "EUR",
		.vcpu_hour = 60000000,      /* 0.06 */
		.memory_gib_hour = 8000000, /* 0.008 */
		.egress_gib = 100000000,    /* 0.1 */
		.is_set = true };
	struct observe_amounts a = { .vcpu_ms = 2 * 3600000,
		.memory_mib_ms = 2048LL * 3600000,
		.egress_bytes = 1LL << 30 };
	CLEANUP(buf_done) struct buf out = BUF_INIT(4096);
	struct jsonw w;

	ASSERT_EQ((int64_t)(observe_cost(&prices, &a) * 1e9 + 0.5),
		120000000 + 16000000 + 100000000);
	a.sandbox_ms = 61005;
	jsonw_init(&w, &out);
	jsonw_object(&w, NULL);
	observe_amounts_write(&w, &a, &prices);
	jsonw_end_object(&w);
	ASSERT(strstr(out.p, "\"sandbox_seconds\":61.005,"));
	ASSERT(strstr(out.p, "\"cost\":0.236000000,\"currency\":\"EUR\""));
	prices.is_set = false;
	buf_clear(&out);
	jsonw_init(&w, &out);
	jsonw_object(&w, NULL);
	observe_amounts_write(&w, &a, &prices);
	jsonw_end_object(&w);
	ASSERT(strstr(out.p, "\"cost\":null"));
}

/* ---- metrics ---- */

TEST(metrics_are_written_as_prometheus_reads_them)
{
	CLEANUP(observe_metrics_freep) struct observe_metrics *m = observe_metrics_new();
	CLEANUP(buf_done) struct buf out = BUF_INIT(1 << 20), labels = BUF_INIT(1024);

	observe_label(&labels, "kind", STR("a\"b\\c\nd"));
	observe_count(m, OBSERVE_EVENTS, buf_str(&labels), 2);
	observe_count(m, OBSERVE_EVENTS, buf_str(&labels), 3);
	observe_time(m, OBSERVE_EXECUTION_SECONDS, STR(""), 2000);
	observe_time(m, OBSERVE_EXECUTION_SECONDS, STR(""), 400000000);
	observe_request(m, STR("GET"), "/x/{id}", 404, 1500);
	observe_metrics_write(m, &out);
	ASSERT(!out.failed);
	ASSERT(strstr(out.p, "\natoll_events_total{kind=\"a\\\"b\\\\c_d\"} 5\n"));
	ASSERT(strstr(out.p, "# TYPE atoll_execution_seconds histogram\n"));
	ASSERT(strstr(out.p, "\natoll_execution_seconds_bucket{le=\"0.001\"} 0\n"));
	ASSERT(strstr(out.p, "\natoll_execution_seconds_bucket{le=\"0.0025\"} 1\n"));
	ASSERT(strstr(out.p, "\natoll_execution_seconds_bucket{le=\"300\"} 1\n"));
	ASSERT(strstr(out.p, "\natoll_execution_seconds_bucket{le=\"+Inf\"} 2\n"));
	ASSERT(strstr(out.p, "\natoll_execution_seconds_sum 400.002\n"));
	ASSERT(strstr(out.p, "\natoll_execution_seconds_count 2\n"));
	ASSERT(strstr(out.p,
		"\natoll_http_requests_total{route=\"/x/{id}\",method=\"GET\",status=\"404\"} "
		"1\n"));
}

/* A snapshot's name is its team's, and counts are seen by all. */
TEST(a_teams_own_names_are_no_labels)
{
	CLEANUP(observe_metrics_freep) struct observe_metrics *m = observe_metrics_new();
	CLEANUP(buf_done) struct buf out = BUF_INIT(1 << 20);
	const struct observe_item item = { .kind = STR("sandbox.created"),
		.data = STR("{\"template\":\"secret-plan\",\"base_template\":\"base\"}") };

	metrics_note(m, &item);
	observe_metrics_write(m, &out);
	ASSERT(strstr(out.p, "\natoll_sandboxes_created_total{template=\"base\"} 1\n"));
	ASSERT(!strstr(out.p, "secret-plan"));
}

TEST(a_team_sees_its_own_counts_alone)
{
	CLEANUP(observe_metrics_freep) struct observe_metrics *m = observe_metrics_new();
	CLEANUP(buf_done) struct buf one = BUF_INIT(1 << 20), other = BUF_INIT(1 << 20);
	const struct observe_item item = { .kind = STR("execution.ended"),
		.team_id = STR("one"),
		.data = STR("{\"ended_by\":\"process\"}") };

	metrics_note(m, &item);
	observe_gauge(m, OBSERVE_BREAKER, STR("runtime=\"local\""), 1);
	observe_request(observe_metrics_of(m, STR("other")), STR("GET"), "/x", 200, 1);
	observe_metrics_write(observe_metrics_of(m, STR("one")), &one);
	observe_metrics_write(observe_metrics_of(m, STR("other")), &other);
	ASSERT(strstr(one.p, "\natoll_executions_total{ended_by=\"process\"} 1\n"));
	ASSERT(!strstr(other.p, "\natoll_executions_total{"));
	ASSERT(strstr(other.p, "\natoll_http_requests_total{"));
	ASSERT(!strstr(one.p, "\natoll_http_requests_total{") && !strstr(one.p, "atoll_breaker"));
	ASSERT(!observe_metrics_of(m, STR("")) && !observe_metrics_of(NULL, STR("one")));
}

TEST(labels_of_others_do_not_fill_the_memory)
{
	CLEANUP(observe_metrics_freep) struct observe_metrics *m = observe_metrics_new();
	CLEANUP(buf_done) struct buf out = BUF_INIT(1 << 20);

	for (int i = 0; i < 2000; i++) {
		CLEANUP(buf_done) struct buf labels = BUF_INIT(1024);
		char name[16];

		(void)snprintf(name, sizeof name, "n%d", i);
		observe_label(&labels, "kind", str_of(name));
		observe_count(m, OBSERVE_EVENTS, buf_str(&labels), 1);
	}
	observe_metrics_write(m, &out);
	ASSERT(strstr(out.p, "\natoll_metrics_dropped_total 976\n"));
}
