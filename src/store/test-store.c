#include "store/test-scratch.h"

#include "test.h"

#include <sys/stat.h>

static int add_team(struct store_tx *tx, void *arg, struct err *e)
{
	return store_exec(tx, "INSERT INTO teams (id, name, created_us) VALUES ($1, $2, $3)",
		STORE_PARAMS(P_TEXT(arg), P_TEXT("a 'name'"), P_INT(7)), e);
}

static int add_team_then_fail(struct store_tx *tx, void *arg, struct err *e)
{
	int r = add_team(tx, arg, e);

	return r < 0 ? r : err_set(e, -ECANCELED, "changed my mind");
}

TEST(a_failed_transaction_leaves_nothing)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	char id[] = "t1";
	struct err e = { 0 };
	int64_t n = -1;

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(store_run_now(s.store, add_team_then_fail, id, &e), -ECANCELED);
	ASSERT_EQ(store_run_now(s.store, count_teams, &n, &e), 0);
	ASSERT_EQ(n, 0);
}

TEST(rows_survive_reopening_and_keys_are_unique)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	char id[] = "t1";
	struct err e = { 0 };
	int64_t n = -1;

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(store_run_now(s.store, add_team, id, &e), 1);
	ASSERT_EQ(store_run_now(s.store, add_team, id, &e), -EEXIST);
	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(store_run_now(s.store, count_teams, &n, &e), 0);
	ASSERT_EQ(n, 1);
}

/* More than a moment's worth of log. */
static int add_much(struct store_tx *tx, void *arg, struct err *e)
{
	char name[4001], id[16];
	int r = 0;

	(void)arg;
	memset(name, 'n', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	for (int i = 0; r >= 0 && i < 600; i++) {
		(void)snprintf(id, sizeof id, "t%d", i);
		r = store_exec(tx, "INSERT INTO teams (id, name, created_us) VALUES ($1, $2, $3)",
			STORE_PARAMS(P_TEXT(id), P_TEXT(name), P_INT(7)), e);
	}
	return r;
}

static void stop_loop(void *arg)
{
	struct scratch *s = arg;

	loop_stop(s->loop);
}

static void much_added(void *arg, int r, const struct err *e)
{
	(void)e;
	if (r < 0)
		stop_loop(arg);
}

TEST(the_log_is_folded_in_when_nobody_writes)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct loop_timer timer = { 0 };
	struct stat before, after;
	struct err e = { 0 };
	const char *path;

	ASSERT_EQ(scratch_open(&s, &e), 0);
	if (strncmp(s.url, "sqlite:", 7) != 0)
		TEST_SKIP("the database has a log of its own");
	path = s.url + 7;
	ASSERT_EQ(stat(path, &before), 0);
	loop_timer_init(&timer, s.loop, stop_loop, &s);
	store_run(s.store, add_much, much_added, &s);
	for (int i = 0; i < 100; i++) {
		loop_timer_set(&timer, time_now_ms() + 100);
		ASSERT_EQ(loop_run(s.loop, &e), 0);
		ASSERT_EQ(stat(path, &after), 0);
		if (after.st_size > before.st_size + (2 << 20))
			break;
	}
	ASSERT(after.st_size > before.st_size + (2 << 20));
}

static int claim_newer(struct store_tx *tx, void *arg, struct err *e)
{
	(void)arg;
	return store_exec(tx,
		"INSERT INTO migrations (version, name, applied_us) VALUES ($1, $2, $3)",
		STORE_PARAMS(P_INT(9999), P_TEXT("future"), P_INT(0)), e);
}

TEST(a_newer_database_is_refused_with_the_way_out)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(store_run_now(s.store, claim_newer, NULL, &e), 1);
	ASSERT_EQ(scratch_open(&s, &e), -ENOTSUP);
	ASSERT(strstr(e.msg, "start the newer program"));
}

TEST(its_version_can_be_looked_at_beside_its_server)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct store_report report = { 0 };
	struct store *beside = NULL;
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(store_open_offline(s.loop, &(struct store_config){ .url = s.url }, false, &beside,
			  &e),
		0);
	ASSERT_EQ(store_look(beside, &report, &e), 0);
	ASSERT_EQ(report.version, report.newest);
	ASSERT_EQ(store_run_now(s.store, claim_newer, NULL, &e), 1);
	ASSERT_EQ(store_look(beside, &report, &e), -ENOTSUP);
	beside = store_free(beside);
}

TEST(what_one_program_has_another_does_not_get)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	char id[] = "t1";
	struct store *other = NULL;
	struct err e = { 0 };

	if (database_server())
		TEST_SKIP("test-postgres.c has it");
	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(store_open(s.loop, s.url, &other, &e), -EBUSY);
	ASSERT(strstr(e.msg, "this database: stop it"));
	ASSERT_EQ(store_run_now(s.store, add_team, id, &e), 1);
	ASSERT_EQ(scratch_open(&s, &e), 0);
}

TEST(what_is_no_database_is_refused)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	char path[80];
	struct err e = { 0 };

	if (database_server())
		TEST_SKIP("about SQLite's file");
	ASSERT_EQ(scratch_open(&s, &e), 0);
	s.store = store_free(s.store);
	(void)snprintf(path, sizeof path, "%s/t.db", s.dir);
	ASSERT_EQ(file_replace(AT_FDCWD, path,
			  STR("this is a text, long enough to be looked at ......"), 0600, &e),
		0);
	ASSERT_EQ(scratch_open(&s, &e), -EBADMSG);
	ASSERT_EQ(store_open(s.loop, "mysql:x", &s.store, &e), -EPROTONOSUPPORT);
}

struct events {
	struct loop *loop;
	int64_t last;
	int done;
};

static int add_two_events(struct store_tx *tx, void *arg, struct err *e)
{
	struct store_event event = { .actor = "test", .kind = "team.created", .subject = "t" };
	int r = store_add_event(tx, &event, e);

	if (r >= 0)
		r = store_add_event(tx, &event, e);
	if (r >= 0)
		r = store_query(tx, "SELECT MAX(seq) FROM events WHERE kind = $1",
			STORE_PARAMS(P_TEXT("team.created")), count_row,
			&((struct events *)arg)->last, e);
	return r;
}

struct copies {
	char fits[8], is_cut[3], is_null[4];
	char *all;
};

static int copy_row(void *arg, const struct store_row *row, struct err *e)
{
	struct copies *c = arg;

	(void)e;
	store_copy_text(row, 0, c->fits, sizeof c->fits);
	store_copy_text(row, 0, c->is_cut, sizeof c->is_cut);
	store_copy_text(row, 1, c->is_null, sizeof c->is_null);
	c->all = store_dup_text(row, 0);
	return 0;
}

static int copy_texts(struct store_tx *tx, void *arg, struct err *e)
{
	return store_query(tx, "SELECT 'text', NULL", NULL, 0, copy_row, arg, e);
}

TEST(texts_are_copied_cut_and_never_null)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct copies c = { .is_null = "old" };
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(store_run_now(s.store, copy_texts, &c, &e), 0);
	ASSERT_STR(c.fits, "text");
	ASSERT_STR(c.is_cut, "te");
	ASSERT_STR(c.is_null, "");
	ASSERT_STR(c.all, "text");
	free(c.all);
}

static void events_added(void *arg, int r, const struct err *e)
{
	struct events *events = arg;

	(void)e;
	events->done = r;
	loop_stop(events->loop);
}

TEST(events_are_numbered_without_holes_from_a_job)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct events events = { .done = -1 };
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	events.loop = s.loop;
	for (int i = 1; i <= 3; i++) {
		store_run(s.store, add_two_events, events_added, &events);
		ASSERT_EQ(loop_run(s.loop, &e), 0);
		ASSERT_EQ(events.done, 0);
		ASSERT_EQ(events.last, 2 * i);
	}
}

static int add_team_in_spite(struct store_tx *tx, void *arg, struct err *e)
{
	char other[] = "t2";

	(void)add_team(tx, arg, e); /* is there already */
	(void)add_team(tx, other, e);
	return 0;
}

TEST(a_statement_that_failed_ends_its_transaction)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	char id[] = "t1";
	struct err e = { 0 };
	int64_t n = -1;

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(store_run_now(s.store, add_team, id, &e), 1);
	ASSERT_EQ(store_run_now(s.store, add_team_in_spite, id, &e), -EEXIST);
	ASSERT_EQ(store_run_now(s.store, count_teams, &n, &e), 0);
	ASSERT_EQ(n, 1);
}

static int add_nul(struct store_tx *tx, void *arg, struct err *e)
{
	(void)arg;
	return store_exec(tx, "INSERT INTO teams (id, name, created_us) VALUES ($1, $2, $3)",
		STORE_PARAMS(P_TEXT("t"), P_STR(str_make("a\0b", 3)), P_INT(0)), e);
}

TEST(texts_have_no_nul_in_either_database)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(store_run_now(s.store, add_nul, NULL, &e), -EINVAL);
}

/* ---- at the same time ---- */

struct meeting { /* of two transactions: each waits until the other has come */
	struct loop *loop;
	int mine[2], yours[2];
	int waiting;
	int r[2];
	int64_t n;
};

static int meet(const struct meeting *m, bool is_first)
{
	char c = 'x';

	if (write(is_first ? m->mine[1] : m->yours[1], &c, 1) != 1 ||
		read(is_first ? m->yours[0] : m->mine[0], &c, 1) != 1)
		return -EIO;
	return 0;
}

static int write_and_meet(struct store_tx *tx, void *arg, struct err *e)
{
	char id[] = "slow";
	int r = add_team(tx, id, e);

	return r < 0 ? r : meet(arg, true);
}

static int read_and_meet(struct store_tx *tx, void *arg, struct err *e)
{
	struct meeting *m = arg;
	int r = count_teams(tx, &m->n, e);

	return r < 0 ? r : meet(m, false);
}

static int read_and_meet_first(struct store_tx *tx, void *arg, struct err *e)
{
	int64_t n;
	int r = count_teams(tx, &n, e);

	return r < 0 ? r : meet(arg, true);
}

static void met(struct meeting *m, size_t who, int r)
{
	m->r[who] = r;
	if (--m->waiting == 0)
		loop_stop(m->loop);
}

static void first_met(void *arg, int r, const struct err *e)
{
	(void)e;
	met(arg, 0, r);
}

static void second_met(void *arg, int r, const struct err *e)
{
	(void)e;
	met(arg, 1, r);
}

static int meeting_init(struct meeting *m, struct loop *loop)
{
	*m = (struct meeting){ .loop = loop, .waiting = 2, .r = { -1, -1 }, .n = -1 };
	return pipe(m->mine) < 0 || pipe(m->yours) < 0 ? -errno : 0;
}

static void meeting_done(struct meeting *m)
{
	for (size_t i = 0; i < 2; i++) {
		(void)close(m->mine[i]);
		(void)close(m->yours[i]);
	}
}

TEST(a_read_does_not_wait_for_a_write_and_does_not_see_half_of_it)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct err e = { 0 };
	struct meeting m;

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(meeting_init(&m, s.loop), 0);
	store_run(s.store, write_and_meet, first_met, &m);
	store_read(s.store, read_and_meet, second_met, &m);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	meeting_done(&m);
	ASSERT_EQ(m.r[0], 0);
	ASSERT_EQ(m.r[1], 0);
	ASSERT_EQ(m.n, 0);
}

TEST(reads_run_at_the_same_time)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct err e = { 0 };
	struct meeting m;

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(meeting_init(&m, s.loop), 0);
	store_read(s.store, read_and_meet_first, first_met, &m);
	store_read(s.store, read_and_meet, second_met, &m);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	meeting_done(&m);
	ASSERT_EQ(m.r[0], 0);
	ASSERT_EQ(m.r[1], 0);
}

struct crowd {
	struct loop *loop;
	int waiting, failed;
};

static void crowd_one(void *arg, int r, const struct err *e)
{
	struct crowd *c = arg;

	(void)e;
	c->failed += r < 0;
	if (--c->waiting == 0)
		loop_stop(c->loop);
}

struct call { /* one of the crowd */
	struct crowd *crowd;
	struct store *store;
	char id[8];
	int64_t seen;
};

static int add_own_team(struct store_tx *tx, void *arg, struct err *e)
{
	struct call *call = arg;

	return add_team(tx, call->id, e);
}

static int look_for_own_team(struct store_tx *tx, void *arg, struct err *e)
{
	struct call *call = arg;

	return store_query(tx, "SELECT COUNT(*) FROM teams WHERE id = $1",
		STORE_PARAMS(P_TEXT(call->id)), count_row, &call->seen, e);
}

static void own_team_seen(void *arg, int r, const struct err *e)
{
	struct call *call = arg;

	crowd_one(call->crowd, r < 0 || call->seen != 1 ? -EIO : 0, e);
}

static void own_team_added(void *arg, int r, const struct err *e)
{
	struct call *call = arg;

	if (r < 0)
		crowd_one(call->crowd, r, e);
	else
		store_read(call->store, look_for_own_team, own_team_seen, call);
}

TEST(a_read_sees_what_was_done_when_it_was_asked_for)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct call calls[200] = { 0 };
	struct crowd c = { .waiting = ARRAY_SIZE(calls) };
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	c.loop = s.loop;
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		calls[i].crowd = &c;
		calls[i].store = s.store;
		(void)snprintf(calls[i].id, sizeof calls[i].id, "t%zu", i);
		store_run(s.store, add_own_team, own_team_added, &calls[i]);
	}
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(c.failed, 0);
}

static void note_result(void *arg, int r, const struct err *e)
{
	struct events *events = arg;

	(void)e;
	events->done = r;
	loop_stop(events->loop);
}

static int try_to_add_team(struct store_tx *tx, void *arg, struct err *e)
{
	char id[] = "t1";

	(void)arg;
	return add_team(tx, id, e);
}

TEST(what_only_reads_cannot_write)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct events events = { .done = -1 };
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	events.loop = s.loop;
	store_read(s.store, try_to_add_team, note_result, &events);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(events.done, -EROFS);
}

/* ---- turns ---- */

struct in_turn {
	struct loop *loop;
	char ended[1200]; /* whose, in the order they ended */
	size_t n, waiting, refused;
};
struct turn_call {
	struct in_turn *all;
	int number; /* of its team's */
	char team[2];
	int *last; /* of the team's that ended */
	bool is_in_order;
};

static int do_nothing(struct store_tx *tx, void *arg, struct err *e)
{
	(void)tx;
	(void)arg;
	(void)e;
	return 0;
}

static void turn_ended(void *arg, int r, const struct err *e)
{
	struct turn_call *call = arg;
	struct in_turn *all = call->all;

	(void)e;
	if (r < 0) {
		all->refused++;
	} else {
		call->is_in_order = *call->last == call->number - 1;
		*call->last = call->number;
		all->ended[all->n++] = call->team[0];
	}
	if (--all->waiting == 0)
		loop_stop(all->loop);
}

static void ask_in_turn(struct store *store, struct in_turn *all, struct turn_call *call,
	const char *team, int number, int *last)
{
	*call = (struct turn_call){ .all = all, .number = number, .last = last };
	(void)snprintf(call->team, sizeof call->team, "%s", team);
	all->waiting++;
	if (number % 2)
		store_run_for(store, team, do_nothing, turn_ended, call);
	else
		store_record_for(store, team, do_nothing, turn_ended, call);
}

TEST(a_team_with_much_to_write_keeps_no_other_waiting)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	static struct turn_call greedy[200], modest[3], nobodys;
	struct in_turn all = { 0 };
	int last_greedy = -1, last_modest = -1, last_nobody = -1;
	struct err e = { 0 };
	const char *at = all.ended;

	ASSERT_EQ(scratch_open(&s, &e), 0);
	all.loop = s.loop;
	for (int i = 0; i < 200; i++)
		ask_in_turn(s.store, &all, &greedy[i], "g", i, &last_greedy);
	for (int i = 0; i < 3; i++)
		ask_in_turn(s.store, &all, &modest[i], "m", i, &last_modest);
	ask_in_turn(s.store, &all, &nobodys, "", 0, &last_nobody);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(all.n, 204);
	for (int i = 0; i < 200; i++)
		ASSERT(greedy[i].is_in_order);
	for (int i = 0; i < 3; i++)
		ASSERT((at = memchr(at, 'm', 40)) && at++ - all.ended < 40);
	ASSERT(memchr(all.ended, '\0', 40)); /* nobody's */
}

TEST(one_team_may_not_take_all_places_to_wait)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	static struct turn_call greedy[1100], modest;
	struct in_turn all = { 0 };
	int last_greedy = 0, last_modest = 0;
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	all.loop = s.loop;
	for (int i = 0; i < 1100; i++) /* calls that may be refused: of odd numbers */
		ask_in_turn(s.store, &all, &greedy[i], "g", 2 * i + 1, &last_greedy);
	ask_in_turn(s.store, &all, &modest, "m", 1, &last_modest);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT(all.refused > 0 && all.refused < 100);
	ASSERT(memchr(all.ended, 'm', 40));
}

static void own_team_recorded(void *arg, int r, const struct err *e)
{
	crowd_one(((struct call *)arg)->crowd, r, e);
}

TEST(what_was_asked_for_is_done_when_the_store_is_freed)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct call calls[50] = { 0 };
	struct crowd c = { .waiting = ARRAY_SIZE(calls) + 1 };
	struct err e = { 0 };
	int64_t n = 0;

	ASSERT_EQ(scratch_open(&s, &e), 0);
	c.loop = s.loop;
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		calls[i].crowd = &c;
		(void)snprintf(calls[i].id, sizeof calls[i].id, "t%zu", i);
		store_record(s.store, add_own_team, own_team_recorded, &calls[i]);
	}
	s.store = store_free(s.store);
	s.loop = loop_free(s.loop);
	ASSERT_EQ(c.waiting, 1);
	ASSERT_EQ(c.failed, 0);
	ASSERT_EQ(loop_new(&s.loop, &e), 0);
	ASSERT_EQ(store_open(s.loop, s.url, &s.store, &e), 0);
	ASSERT_EQ(store_run_now(s.store, count_teams, &n, &e), 0);
	ASSERT_EQ(n, ARRAY_SIZE(calls));
}

/* ---- what teams' rows take ---- */

static int count_some(struct store_tx *tx, void *arg, struct err *e)
{
	struct store_event event = { .actor = "system", .kind = "k", .subject = "s" };
	int r = store_add_caused_event(tx, &event, &(struct store_cause){ .team_id = "t2" }, e);

	store_count(tx, "t1", STORE_USE_HISTORY, *(const int64_t *)arg);
	store_count(tx, "t1", STORE_USE_OUTPUT, 5);
	store_count(tx, "", STORE_USE_OUTPUT, 7);
	store_count(tx, NULL, STORE_USE_OUTPUT, 7);
	return *(const int64_t *)arg == 13 ? err_set(e, -ECANCELED, "changed my mind") : r;
}

static void add_up(void *arg, const char *team_id, int64_t bytes)
{
	*(int64_t *)arg += bytes + (team_id[0] == 't' ? 0 : 1000);
}

TEST(what_rows_take_is_counted_with_them_and_known_after_a_restart)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	int64_t more = 1000, undone = 13, less = -400, events, sum = 0;
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(store_run_now(s.store, count_some, &more, &e), 1);
	ASSERT_EQ(store_run_now(s.store, count_some, &undone, &e), -ECANCELED);
	ASSERT_EQ(store_run_now(s.store, count_some, &less, &e), 1);
	events = store_used(s.store, "t2", STORE_USE_EVENTS);
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(store_used(s.store, "t1", STORE_USE_HISTORY), 600);
		ASSERT_EQ(store_used(s.store, "t1", STORE_USE_OUTPUT), 10);
		ASSERT_EQ(store_used(s.store, "t1", STORE_USE_EVENTS), 0);
		ASSERT_EQ(store_used(s.store, "t2", STORE_USE_EVENTS), events);
		ASSERT(events > 2 * 100 && events < 2 * 1000);
		ASSERT_EQ(scratch_open(&s, &e), 0);
	}
	store_each_used(s.store, STORE_USE_OUTPUT, add_up, &sum);
	ASSERT_EQ(sum, 10);
}

static int add_event_of_key(struct store_tx *tx, void *arg, struct err *e)
{
	struct store_event event = { .actor = arg, .kind = "k", .subject = "s" };

	return store_add_caused_event(tx, &event, &(struct store_cause){ .team_id = "t3" }, e);
}

static int add_named_key(struct store_tx *tx, void *arg, struct err *e)
{
	int r = store_exec(tx, "INSERT INTO teams (id, name, created_us) VALUES ('t3', 'n', 1)",
		NULL, 0, e);

	return r < 0 ? r
		     : store_exec(tx,
			       "INSERT INTO api_keys (id, team_id, name, hash, mask_start, "
			       "mask_end, created_us) VALUES ('kn', 't3', $1, 'h', 'a', 'b', 1)",
			       STORE_PARAMS(P_TEXT(arg)), e);
}

static int add_bytes(void *arg, const struct store_row *row, struct err *e)
{
	(void)e;
	*(int64_t *)arg += store_int(row, 0);
	return 0;
}

static int sum_bytes(struct store_tx *tx, void *arg, struct err *e)
{
	return store_query(tx, "SELECT bytes FROM events WHERE team_id = 't3'", NULL, 0, add_bytes,
		arg, e);
}

/* What is trimmed gives back what the row says. */
TEST(an_event_counts_the_name_of_its_key)
{
	static char name[] = "the key of \xc3\xa4", stranger[] = "kx", key[] = "kn";
	CLEANUP(scratch_done) struct scratch s = { 0 };
	int64_t one, sum = 0;
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(store_run_now(s.store, add_named_key, name, &e), 1);
	ASSERT_EQ(store_run_now(s.store, add_event_of_key, stranger, &e), 1);
	one = store_used(s.store, "t3", STORE_USE_EVENTS);
	ASSERT_EQ(store_run_now(s.store, add_event_of_key, key, &e), 1);
	ASSERT_EQ(store_used(s.store, "t3", STORE_USE_EVENTS), 2 * one + (int64_t)strlen(name));
	ASSERT_EQ(store_run_now(s.store, sum_bytes, &sum, &e), 0);
	ASSERT_EQ(sum, 2 * one + (int64_t)strlen(name));
}

static void counted(void *arg, int r, const struct err *e)
{
	struct scratch *s = arg;

	(void)r;
	(void)e;
	loop_stop(s->loop);
}

static int count_one(struct store_tx *tx, void *arg, struct err *e)
{
	(void)arg;
	(void)e;
	store_count(tx, "t1", STORE_USE_COMMANDS, 64);
	return 0;
}

TEST(it_is_known_when_the_one_who_wrote_is_told)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	store_run(s.store, count_one, counted, &s);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(store_used(s.store, "t1", STORE_USE_COMMANDS), 64);
}
