#include "observe/observe.h"
#include "loop/loop.h"

#include "scratch.h"
#include "test.h"

struct rig {
	struct scratch scratch;
	struct observe_point points[OBSERVE_MAX_POINTS];
	struct observe_use uses[8];
	size_t n;
	int r;
};

/* Three lives: 10-25 s, 12-14 s, 30 s on; another team's is not counted. */
static const char rows_sql[] =
	"INSERT INTO sandboxes (id, team_id, template_id, template_name, runtime, state, secure, "
	"cpu_count, memory_mb, disk_mb, timeout_s, metadata, options, started_us, end_us, "
	"ended_us) "
	"VALUES ('a', 't1', 'base', 'base', 'local', 'ended', 1, 1, 1, 1, 1, '{}', '{}', 10000000, "
	"0, 25000000), ('b', 't1', 'base', 'base', 'local', 'ended', 1, 1, 1, 1, 1, '{}', '{}', "
	"12000000, 0, 14000000), ('c', 't1', 'big', 'big', 'local', 'running', 1, 1, 1, 1, 1, "
	"'{}', "
	"'{}', 30000000, 0, NULL), ('d', 't2', 'base', 'base', 'local', 'running', 1, 1, 1, 1, 1, "
	"'{}', '{}', 10000000, 0, NULL)";

static int add_rows(struct store_tx *tx, void *arg, struct err *e)
{
	int r = store_exec(tx,
		"INSERT INTO teams (id, name, created_us) VALUES ('t1', 'one', 1), ('t2', 'two', "
		"2)",
		NULL, 0, e);

	(void)arg;
	return r < 0 ? r : store_exec(tx, rows_sql, NULL, 0, e);
}

static int rig_open(struct rig *s, struct err *e)
{
	int r = scratch_open(&s->scratch, e);

	return r < 0 ? r : MIN(store_run_now(s->scratch.store, add_rows, NULL, e), 0);
}

static void rig_done(struct rig *s)
{
	scratch_done(&s->scratch);
}

static void got_points(void *arg, int r, const struct observe_point *v, size_t n,
	const struct err *e)
{
	struct rig *s = arg;

	(void)e;
	s->r = r;
	s->n = MIN(n, (size_t)OBSERVE_MAX_POINTS);
	memcpy(s->points, v, s->n * sizeof *v);
	loop_stop(s->scratch.loop);
}

static void got_uses(void *arg, int r, const struct observe_use *v, size_t n, const struct err *e)
{
	struct rig *s = arg;

	(void)e;
	s->r = r;
	s->n = MIN(n, ARRAY_SIZE(s->uses));
	memcpy(s->uses, v, s->n * sizeof *v);
	loop_stop(s->scratch.loop);
}

TEST(concurrency_is_the_most_within_each_step)
{
	static const struct {
		int64_t running, per_10s;
	} want[] = { { 2, 2 }, { 1, 0 }, { 1, 1 }, { 1, 0 } };
	CLEANUP(rig_done) struct rig s = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&s, &e), 0);
	observe_team(s.scratch.store, "t1", 10000000, 50000000, got_points, &s);
	ASSERT_EQ(loop_run(s.scratch.loop, &e), 0);
	ASSERT_EQ(s.r, 0);
	ASSERT_EQ(s.n, ARRAY_SIZE(want));
	for (size_t i = 0; i < s.n; i++) {
		ASSERT_EQ(s.points[i].at_us, 10000000 + (int64_t)i * 10000000);
		ASSERT_EQ(s.points[i].running, want[i].running);
		ASSERT_EQ((int64_t)(s.points[i].start_rate * 10 + 0.5), want[i].per_10s);
	}
}

TEST(a_long_time_has_wider_steps_and_never_too_many)
{
	CLEANUP(rig_done) struct rig s = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&s, &e), 0);
	observe_team(s.scratch.store, "t1", 0, 7LL * 86400 * 1000000, got_points, &s);
	ASSERT_EQ(loop_run(s.scratch.loop, &e), 0);
	ASSERT_EQ(s.n, OBSERVE_MAX_POINTS);
	ASSERT_EQ(s.points[0].running, 2);
	ASSERT_EQ((int64_t)(s.points[0].start_rate * 10 + 0.5), 2);
	ASSERT_EQ(s.points[OBSERVE_MAX_POINTS - 1].running, 1);
	observe_team(s.scratch.store, "t1", 0, 1, got_points, &s);
	ASSERT_EQ(loop_run(s.scratch.loop, &e), 0);
	ASSERT_EQ(s.n, 1);
	ASSERT_EQ(s.points[0].running, 0);
}

TEST(uses_are_counted_a_template_and_a_team)
{
	CLEANUP(rig_done) struct rig s = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&s, &e), 0);
	observe_templates(s.scratch.store, "t1", got_uses, &s);
	ASSERT_EQ(loop_run(s.scratch.loop, &e), 0);
	ASSERT_EQ(s.n, 2);
	ASSERT_STR(s.uses[0].template_id, "big");
	ASSERT_STR(s.uses[1].template_id, "base");
	ASSERT_EQ(s.uses[1].count, 2);
	ASSERT_EQ(s.uses[1].last_us, 12000000);
}

TEST(the_machine_has_processors_and_memory)
{
	struct observe_machine m;

	observe_machine(&m);
	ASSERT(m.cpu_count > 0);
	ASSERT(m.memory_total > 0);
	ASSERT(m.memory_used > 0 && m.memory_used < m.memory_total);
	ASSERT(m.cpu_all >= m.cpu_busy && m.cpu_all > 0);
	ASSERT(m.cpu_architecture[0]);
}

struct log_rows {
	int n;
	int64_t last_seq;
	char kind[32], team[8], cause[64], data[64];
};

static int read_event(void *arg, const struct store_row *row, struct err *e)
{
	struct log_rows *rows = arg;

	(void)e;
	rows->n++;
	rows->last_seq = store_int(row, 0);
	store_copy_text(row, 1, rows->kind, sizeof rows->kind);
	store_copy_text(row, 2, rows->team, sizeof rows->team);
	store_copy_text(row, 3, rows->cause, sizeof rows->cause);
	store_copy_text(row, 4, rows->data, sizeof rows->data);
	return 0;
}

static int read_events(struct store_tx *tx, void *arg, struct err *e)
{
	return store_query(tx, "SELECT seq, kind, team_id, cause, data FROM events ORDER BY seq",
		NULL, 0, read_event, arg, e);
}

static void stop(void *loop)
{
	loop_stop(loop);
}

TEST(events_are_written_in_order_and_none_is_left_behind)
{
	struct rig s = { 0 };
	struct err e = { 0 };
	struct log_rows rows = { 0 };
	struct observe_log *log;
	struct loop_timer timer = { 0 };

	ASSERT_EQ(rig_open(&s, &e), 0);
	log = observe_log_new(s.scratch.store);
	for (int i = 0; i < 100; i++) {
		char data[32];
		int n = snprintf(data, sizeof data, "{\"i\":%d}", i);

		observe_event(log, &(struct observe_event){ .actor = "system",
					   .kind = "sandbox.limit",
					   .subject = "a",
					   .team_id = "t1",
					   .cause = "because",
					   .data = str_make(data, (size_t)n) });
	}
	loop_timer_init(&timer, s.scratch.loop, stop, s.scratch.loop);
	loop_timer_set(&timer, loop_now_ms(s.scratch.loop) + 1000);
	ASSERT_EQ(loop_run(s.scratch.loop, &e), 0);
	/* The last one has nobody to wait for it but the end. */
	observe_event(log,
		&(struct observe_event){ .actor = "system", .kind = "last", .subject = "a" });
	log = observe_log_free(log);
	loop_timer_set(&timer, loop_now_ms(s.scratch.loop) + 1000);
	ASSERT_EQ(loop_run(s.scratch.loop, &e), 0);
	ASSERT(store_run_now(s.scratch.store, read_events, &rows, &e) >= 0);
	rig_done(&s);
	ASSERT_EQ(rows.n, 101);
	ASSERT_EQ(rows.last_seq, 101);
	ASSERT_STR(rows.kind, "last");
	ASSERT_STR(rows.data, "{}");
	ASSERT_STR(rows.team, "");
}
