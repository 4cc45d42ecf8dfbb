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
	log = observe_log_new(s.scratch.loop, s.scratch.store);
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

/* ---- a full disk ---- */

static int skip_row(void *arg, const struct store_row *row, struct err *e)
{
	(void)arg, (void)row, (void)e;
	return 0;
}

/* SQLite's file may not grow, PostgreSQL says that its disk is full. */
static int fill(struct store_tx *tx, void *arg, struct err *e)
{
	(void)arg;
	if (!database_server())
		return store_query(tx, "PRAGMA max_page_count = 1", NULL, 0, skip_row, NULL, e);
	return store_exec(tx,
		       "CREATE FUNCTION is_full() RETURNS trigger LANGUAGE plpgsql AS "
		       "'BEGIN RAISE EXCEPTION USING ERRCODE = ''53100''; END'",
		       NULL, 0, e) < 0
		       ? e->code
		       : store_exec(tx,
				 "CREATE TRIGGER full_disk BEFORE INSERT ON events FOR EACH ROW "
				 "EXECUTE FUNCTION is_full()",
				 NULL, 0, e);
}

static int make_room(struct store_tx *tx, void *arg, struct err *e)
{
	(void)arg;
	if (!database_server())
		return store_query(tx, "PRAGMA max_page_count = 1073741823", NULL, 0, skip_row,
			NULL, e);
	return store_exec(tx, "DROP TRIGGER full_disk ON events", NULL, 0, e);
}

static void done(void *arg, int r, const struct err *e)
{
	struct rig *s = arg;

	(void)e;
	s->r = MIN(r, 0);
	loop_stop(s->scratch.loop);
}

static int run_work(struct rig *s, store_work_fn work)
{
	store_run(s->scratch.store, work, done, s);
	(void)loop_run(s->scratch.loop, NULL);
	return s->r;
}

static void pause_ms(struct rig *s, int64_t ms)
{
	struct loop_timer timer;

	loop_timer_init(&timer, s->scratch.loop, stop, s->scratch.loop);
	loop_timer_set(&timer, loop_now_ms(s->scratch.loop) + ms);
	(void)loop_run(s->scratch.loop, NULL);
}

static void tell(struct observe_log *log, int from, int to)
{
	static char data[4096];

	for (int i = from; i < to; i++) {
		int n = snprintf(data, sizeof data, "{\"i\":%d,\"pad\":\"%01000d\"}", i, 0);

		observe_event(log, &(struct observe_event){ .actor = "system",
					   .kind = "told",
					   .subject = "a",
					   .team_id = "t1",
					   .data = str_make(data, (size_t)n) });
	}
}

struct tally {
	int64_t told, lost, in_order, next, said;
	struct rig *rig;
};

static int tally_row(void *arg, const struct store_row *row, struct err *e)
{
	struct tally *t = arg;
	struct str data = store_text(row, 1);
	int64_t i = -1;

	(void)e;
	if (str_is(store_text(row, 0), "events.lost")) {
		t->lost++;
		(void)str_to_int(str_make(data.p + 5, data.n - 6), 0, INT64_MAX, &t->said);
		return 0;
	}
	t->told++;
	data = str_from(data, 5);
	(void)str_to_int(str_make(data.p, (size_t)str_find(data, ',')), 0, INT64_MAX, &i);
	t->in_order += i == t->next++;
	return 0;
}

static int count_rows(struct store_tx *tx, void *arg, struct err *e)
{
	struct tally *t = arg;

	t->told = t->lost = t->in_order = t->next = t->said = 0;
	return store_query(tx, "SELECT kind, data FROM events ORDER BY seq", NULL, 0, tally_row, t,
		e);
}

static void counted(void *arg, int r, const struct err *e)
{
	done(((struct tally *)arg)->rig, r, e);
}

static void wait_for_told(struct rig *s, struct tally *t, int64_t want)
{
	t->rig = s;
	for (int i = 0; i < 300 && (t->told < want || i == 0); i++) {
		pause_ms(s, 100);
		store_read(s->scratch.store, count_rows, counted, t);
		(void)loop_run(s->scratch.loop, NULL);
	}
}

TEST(events_wait_for_room_on_a_full_disk)
{
	CLEANUP(rig_done) struct rig s = { 0 };
	CLEANUP(observe_log_freep) struct observe_log *log = NULL;
	struct tally t = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&s, &e), 0);
	log = observe_log_new(s.scratch.loop, s.scratch.store);
	ASSERT_EQ(run_work(&s, fill), 0);
	tell(log, 0, 200);
	pause_ms(&s, 500);
	tell(log, 200, 400);
	pause_ms(&s, 1500);
	wait_for_told(&s, &t, 0);
	ASSERT(t.told < 200); /* it is full */
	ASSERT_EQ(run_work(&s, make_room), 0);
	wait_for_told(&s, &t, 400);
	ASSERT_EQ(t.told, 400);
	ASSERT_EQ(t.in_order, 400);
	ASSERT_EQ(t.lost, 0);
}

TEST(how_many_events_were_too_many_for_a_full_disk_is_an_event)
{
	CLEANUP(rig_done) struct rig s = { 0 };
	CLEANUP(observe_log_freep) struct observe_log *log = NULL;
	struct tally t = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&s, &e), 0);
	log = observe_log_new(s.scratch.loop, s.scratch.store);
	ASSERT_EQ(run_work(&s, fill), 0);
	tell(log, 0, 10400);
	pause_ms(&s, 1500); /* it was tried, and some may have fitted */
	wait_for_told(&s, &t, 0);
	ASSERT(t.told < 1000);
	ASSERT_EQ(run_work(&s, make_room), 0);
	wait_for_told(&s, &t, 10000);
	ASSERT_EQ(t.told, 10000);
	ASSERT_EQ(t.in_order, 10000);
	ASSERT_EQ(t.lost, 1);
	ASSERT_EQ(t.said, 400);
}
