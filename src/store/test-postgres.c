/* What only a database on the other side of a connection can do: go away, say no, be somebody
 * else's. The server is real, and its faults are made by it: triggers that fail once, sessions that
 * are ended. */
#include "store/store.h"

#include "database.h"
#include "test.h"

#include <sys/wait.h>

struct scratch {
	char url[256];
	struct loop *loop;
	struct store *store;
	PGconn *side; /* another connection, to make faults with */
	int64_t n;
	int done;
};

static int ask(const struct scratch *s, const char *sql)
{
	PGresult *res = PQexec(s->side, sql);
	bool is_fine =
		PQresultStatus(res) == PGRES_COMMAND_OK || PQresultStatus(res) == PGRES_TUPLES_OK;
	int n = PQntuples(res);

	if (!is_fine)
		printf("# %s", PQerrorMessage(s->side));
	PQclear(res);
	return is_fine ? n : -EIO;
}

static int scratch_open(struct scratch *s, struct err *e)
{
	int r = s->loop ? 0 : loop_new(&s->loop, e);

	if (r >= 0 && !s->url[0])
		r = database_url("", s->url, sizeof s->url);
	if (r >= 0 && !s->side)
		s->side = PQconnectdb(s->url);
	s->store = store_free(s->store);
	return r < 0 ? r : store_open(s->loop, s->url, &s->store, e);
}

static void scratch_done(struct scratch *s)
{
	s->store = store_free(s->store);
	s->loop = loop_free(s->loop);
	PQfinish(s->side);
}

/* All but the side connection. */
static int cut_connections(const struct scratch *s)
{
	return ask(s, "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks "
		      "WHERE locktype = 'advisory' AND classid = 1635020652 "
		      "AND objid::bigint = (hashtext(current_schema())::bigint & 4294967295)");
}

/* The first `times` inserts of teams fail so; the sequence counts on when the rest is undone. */
static int fail_first(const struct scratch *s, const char *how, int times)
{
	char sql[512];

	(void)snprintf(sql, sizeof sql,
		"CREATE SEQUENCE tries; CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql "
		"AS "
		"$$ BEGIN IF nextval('tries') <= %d THEN %s; END IF; RETURN NEW; END $$; "
		"CREATE TRIGGER fault BEFORE INSERT ON teams FOR EACH ROW EXECUTE FUNCTION fault()",
		times, how);
	return ask(s, sql);
}

struct two {
	struct scratch *s;
	const char *ids[2];
	bool cut;
	int runs;
};

static int add_team(struct store_tx *tx, const char *id, struct err *e)
{
	return store_exec(tx, "INSERT INTO teams (id, name, created_us) VALUES ($1, $2, $3)",
		STORE_PARAMS(P_TEXT(id), P_TEXT("n"), P_INT(7)), e);
}

static int add_two(struct store_tx *tx, void *arg, struct err *e)
{
	struct two *two = arg;
	int r = add_team(tx, two->ids[0], e);

	two->runs++;
	if (r >= 0 && two->cut && cut_connections(two->s) < 1)
		r = err_set(e, -EIO, "nobody was there to be cut");
	return r < 0 ? r : add_team(tx, two->ids[1], e);
}

static int count_row(void *arg, const struct store_row *row, struct err *e)
{
	(void)e;
	*(int64_t *)arg = store_int(row, 0);
	return 0;
}

static int count_teams(struct store_tx *tx, void *arg, struct err *e)
{
	return store_query(tx, "SELECT COUNT(*) FROM teams", NULL, 0, count_row, arg, e);
}

TEST(a_connection_that_was_cut_while_idle_is_made_anew)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct two two = { &s, { "a", "b" } };
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(cut_connections(&s), 1);
	ASSERT_EQ(store_run_now(s.store, add_two, &two, &e), 1);
	ASSERT_EQ(store_run_now(s.store, count_teams, &s.n, &e), 0);
	ASSERT_EQ(s.n, 2);
}

TEST(a_transaction_that_is_cut_in_the_middle_is_done_once_and_work_does_not_notice)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct two two = { &s, { "a", "b" }, .cut = true };
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(store_run_now(s.store, add_two, &two, &e), 1);
	ASSERT_EQ(two.runs, 1);
	ASSERT_EQ(store_run_now(s.store, count_teams, &s.n, &e), 0);
	ASSERT_EQ(s.n, 2);
}

struct reread {
	struct scratch *s;
	int64_t n;
};

static int read_cut_write(struct store_tx *tx, void *arg, struct err *e)
{
	struct reread *reread = arg;
	int r = count_teams(tx, &reread->n, e);

	/* Somebody else writes, which nobody should. */
	if (r >= 0)
		r = MIN(ask(reread->s, "INSERT INTO teams VALUES ('x', 'x', 1)"), 0);
	if (r >= 0)
		r = MIN(cut_connections(reread->s), 0);
	return r < 0 ? r : add_team(tx, "a", e);
}

TEST(a_transaction_that_read_what_has_changed_since_is_not_made_again)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct reread reread = { &s, -1 };
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(store_run_now(s.store, read_cut_write, &reread, &e), -EPIPE);
	ASSERT_EQ(store_run_now(s.store, count_teams, &s.n, &e), 0);
	ASSERT_EQ(s.n, 1);
}

TEST(who_stands_in_the_way_is_given_way_and_then_it_is_done)
{
	static const char *const states[] = { "40001", "40P01" };

	for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
		CLEANUP(scratch_done) struct scratch s = { 0 };
		struct two two = { &s, { "a", "b" } };
		struct err e = { 0 };
		char how[64];

		(void)snprintf(how, sizeof how, "RAISE SQLSTATE '%s'", states[i]);
		ASSERT_EQ(scratch_open(&s, &e), 0);
		ASSERT_EQ(fail_first(&s, how, 3), 0);
		ASSERT_EQ(store_run_now(s.store, add_two, &two, &e), 1);
		ASSERT_EQ(two.runs, 1);
		ASSERT_EQ(store_run_now(s.store, count_teams, &s.n, &e), 0);
		ASSERT_EQ(s.n, 2);
	}
}

/* As a deferred trigger it runs when the transaction commits. */
static int cut_first_commit(const struct scratch *s)
{
	return ask(s,
		"CREATE SEQUENCE tries; CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql "
		"SECURITY DEFINER AS $$ BEGIN IF nextval('tries') = 1 THEN PERFORM "
		"pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(1); END IF; RETURN NULL; "
		"END $$; CREATE CONSTRAINT TRIGGER fault AFTER INSERT ON teams DEFERRABLE "
		"INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fault()");
}

TEST(a_commit_that_is_cut_before_it_is_done_is_done_again)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct two two = { &s, { "a", "b" } };
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(cut_first_commit(&s), 0);
	ASSERT_EQ(store_run_now(s.store, add_two, &two, &e), 1);
	ASSERT_EQ(two.runs, 1);
	ASSERT_EQ(store_run_now(s.store, count_teams, &s.n, &e), 0);
	ASSERT_EQ(s.n, 2);
}

TEST(the_servers_complaints_are_the_usual_errors)
{
	static const struct {
		const char *state;
		int code;
	} cases[] = { { "23505", -EEXIST }, { "23503", -EEXIST }, { "53100", -ENOSPC },
		{ "53200", -ENOMEM }, { "57014", -ETIMEDOUT }, { "22021", -EINVAL },
		{ "42501", -EIO }, { "XX001", -EBADMSG }, { "40001", -EAGAIN } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(scratch_done) struct scratch s = { 0 };
		struct two two = { &s, { "a", "b" } };
		struct err e = { 0 };
		char how[64];
		int r;

		(void)snprintf(how, sizeof how, "RAISE SQLSTATE '%s'", cases[i].state);
		ASSERT_EQ(scratch_open(&s, &e), 0);
		ASSERT_EQ(fail_first(&s, how, 1000000), 0);
		r = store_run_now(s.store, add_two, &two, &e);
		if (r != cases[i].code)
			TEST_FAIL("%s: got %d, want %d: %s", cases[i].state, r, cases[i].code,
				e.msg);
		ASSERT_EQ(store_run_now(s.store, count_teams, &s.n, &e), 0);
		ASSERT_EQ(s.n, 0);
	}
}

/* Two of the same name are not one and the same, unless that is said. */
TEST(one_database_has_one_server)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct store_config config = { .url = s.url, .name = "atoll db" };
	struct two two = { &s, { "a", "b" } };
	struct store *other = NULL;
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	s.store = store_free(s.store);
	ASSERT_EQ(store_open_as(s.loop, &config, &s.store, &e), 0);
	ASSERT_EQ(store_open_as(s.loop, &config, &other, &e), -EBUSY);
	ASSERT(strstr(e.msg, "another program (atoll db) uses this database"));
	ASSERT_EQ(store_run_now(s.store, add_two, &two, &e), 1);
	s.store = store_free(s.store);
	ASSERT_EQ(scratch_open(&s, &e), 0);
}

TEST(a_session_that_a_dead_server_left_behind_is_ended)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct store_config config = { .url = s.url,
		.name = "atoll 1a2b3c4d",
		.is_own_name = true };
	struct store *before = NULL;
	struct err e = { 0 };
	int64_t began_ms;

	ASSERT_EQ(scratch_open(&s, &e), 0);
	s.store = store_free(s.store);
	ASSERT_EQ(store_open_as(s.loop, &config, &before, &e), 0);
	began_ms = time_now_ms();
	ASSERT_EQ(store_open_as(s.loop, &config, &s.store, &e), 0);
	ASSERT(time_now_ms() - began_ms < 3000);
	before = store_free(before);
}

TEST(who_finds_that_another_has_written_meanwhile_does_not_go_on)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct two two = { &s, { "a", "b" } };
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(ask(&s, "UPDATE store_session SET mark = 77"), 0);
	ASSERT_EQ(cut_connections(&s), 1);
	ASSERT_EQ(store_run_now(s.store, add_two, &two, &e), -EREMCHG);
	(void)usleep(100000);
	ASSERT_EQ(store_run_now(s.store, add_two, &two, &e), -EREMCHG);
	ASSERT_EQ(two.runs, 0);
	ASSERT_EQ(scratch_open(&s, &e), 0); /* a new start helps */
	ASSERT_EQ(store_run_now(s.store, add_two, &two, &e), 1);
}

static void open_and_leave(const char *url)
{
	struct loop *loop = NULL;
	struct store *store = NULL;
	struct err e = { 0 };

	if (loop_new(&loop, &e) < 0 || store_open(loop, url, &store, &e) < 0) {
		printf("# %s\n", e.msg);
		_exit(1);
	}
	store = store_free(store);
	_exit(0);
}

TEST(two_that_start_at_once_migrate_one_after_the_other)
{
	char url[256];
	int status, failed = 0;

	ASSERT_EQ(database_url("", url, sizeof url), 0);
	for (int i = 0; i < 4; i++)
		if (fork() == 0)
			open_and_leave(url);
	while (wait(&status) > 0)
		failed += status != 0;
	ASSERT_EQ(failed, 0);
}

TEST(a_password_is_in_no_message)
{
	static const char *const urls[] = {
		"postgresql://u:sesame@127.0.0.1:1/d",
		"postgresql://u:sesame@[::1/d",
		"postgresql://u:sesame@/d?nonsense=1",
		"postgresql://u:sesame@h:port/d",
		"postgresql://u:ses%zzame@h/d",
		"postgress://u:sesame@h/d",
		"postgresql:///d?password=sesame&host=/nowhere&bad",
	};
	CLEANUP(loop_freep) struct loop *loop = NULL;
	struct store *store = NULL;
	struct err e = { 0 };

	ASSERT_EQ(loop_new(&loop, &e), 0);
	for (size_t i = 1; i < ARRAY_SIZE(urls); i++) { /* the first would be waited for */
		ASSERT(store_open(loop, urls[i], &store, &e) < 0);
		ASSERT(!strstr(e.msg, "ses"));
	}
}

/* ---- on the loop ---- */

struct late {
	struct scratch *s;
	const char *id;
	int r, runs;
	int64_t ms; /* when it ended, from the start */
};

static int64_t began_ms;
static int waiting;

static void late_done(void *arg, int r, const struct err *e)
{
	struct late *late = arg;

	(void)e;
	late->r = r;
	late->ms = time_now_ms() - began_ms;
	if (--waiting == 0)
		loop_stop(late->s->loop);
}

static int add_late(struct store_tx *tx, void *arg, struct err *e)
{
	struct late *late = arg;

	late->runs++;
	return add_team(tx, late->id, e);
}

static int count_late(struct store_tx *tx, void *arg, struct err *e)
{
	struct late *late = arg;

	return count_teams(tx, &late->s->n, e);
}

/* A user that, unlike the tests' own, can be kept out. */
static int use_guest(struct scratch *s)
{
	char name[16] = "g", sql[256];
	size_t n = strlen(s->url);

	random_id(name + 1, 8);
	(void)snprintf(sql, sizeof sql,
		"CREATE ROLE %s LOGIN; DO $$ BEGIN EXECUTE format('GRANT ALL ON SCHEMA %%I TO %s', "
		"current_schema()); END $$; SET atoll.guest = '%s'",
		name, name, name);
	(void)snprintf(s->url + n, sizeof s->url - n, "&user=%s", name);
	return ask(s, sql);
}

static int let_in(const struct scratch *s, bool is_open)
{
	char sql[256];

	(void)snprintf(sql, sizeof sql,
		"DO $$ BEGIN EXECUTE format('ALTER ROLE %%I CONNECTION LIMIT %d', "
		"current_setting('atoll.guest')); END $$",
		is_open ? -1 : 0);
	return ask(s, sql);
}

static void open_door(void *arg)
{
	(void)let_in(arg, true);
}

static int guest_open(struct scratch *s, struct err *e)
{
	int r = database_url("", s->url, sizeof s->url);

	s->side = PQconnectdb(s->url);
	if (r >= 0)
		r = use_guest(s);
	return r < 0 ? r : scratch_open(s, e);
}

static void state_changed(void *arg, int r, const struct err *e)
{
	(void)e;
	*(int *)arg += r < 0 ? 100 : 1;
}

TEST(what_is_asked_for_while_it_is_away_waits_and_is_done_when_it_is_back)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct late calls[3] = { { &s, "a", -1 }, { &s, "b", -1 }, { &s, NULL, -1 } };
	struct loop_timer timer = { 0 };
	struct err e = { 0 };
	int states = 0;
	struct store_config config = { .url = s.url,
		.on_state = state_changed,
		.state_arg = &states };

	ASSERT_EQ(guest_open(&s, &e), 0);
	s.store = store_free(s.store);
	ASSERT_EQ(store_open_as(s.loop, &config, &s.store, &e), 0);
	ASSERT_EQ(let_in(&s, false), 0);
	ASSERT_EQ(cut_connections(&s), 1);
	began_ms = time_now_ms();
	waiting = 3;
	loop_timer_init(&timer, s.loop, open_door, &s);
	loop_timer_set(&timer, began_ms + 1500);
	store_run(s.store, add_late, late_done, &calls[0]);
	store_record(s.store, add_late, late_done, &calls[1]);
	store_read(s.store, count_late, late_done, &calls[2]);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	for (size_t i = 0; i < 3; i++) {
		ASSERT(calls[i].r >= 0);
		ASSERT(calls[i].ms > 1400 && calls[i].ms < 6000);
	}
	ASSERT_EQ(calls[0].runs, 1);
	ASSERT_EQ(states, 101); /* away and back, once each */
}

/* What the session is made with is refused, as on a standby before it is promoted. */
static int let_make(const struct scratch *s, bool is_open)
{
	char sql[256];

	(void)snprintf(sql, sizeof sql,
		"DO $$ BEGIN EXECUTE format('%s CREATE ON SCHEMA %%I %s %%I', current_schema(), "
		"current_setting('atoll.guest')); END $$",
		is_open ? "GRANT" : "REVOKE", is_open ? "TO" : "FROM");
	return ask(s, sql);
}

static void open_schema(void *arg)
{
	(void)let_make(arg, true);
}

TEST(what_worked_before_and_is_refused_now_counts_as_away)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct late calls[2] = { { &s, "a", -1 }, { &s, "b", -1 } };
	struct loop_timer timer = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(guest_open(&s, &e), 0);
	ASSERT_EQ(let_make(&s, false), 0);
	ASSERT_EQ(cut_connections(&s), 1);
	began_ms = time_now_ms();
	waiting = 2;
	loop_timer_init(&timer, s.loop, open_schema, &s);
	loop_timer_set(&timer, began_ms + 700);
	store_record(s.store, add_late, late_done, &calls[0]);
	store_run(s.store, add_late, late_done, &calls[1]);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	for (size_t i = 0; i < 2; i++) {
		ASSERT_EQ(calls[i].r, 1);
		ASSERT(calls[i].ms > 600 && calls[i].ms < 6000);
	}
}

static void ask_later(void *arg)
{
	struct late *calls = arg;

	store_run(calls->s->store, add_late, late_done, &calls[0]);
	store_read(calls->s->store, count_late, late_done, &calls[2]);
}

TEST(who_has_waited_too_long_is_told_and_what_must_be_written_waits_on)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct late calls[3] = { { &s, "a", -1 }, { &s, "b", -1 }, { &s, NULL, -1 } };
	struct loop_timer timer = { 0 }, later = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(guest_open(&s, &e), 0);
	ASSERT_EQ(let_in(&s, false), 0);
	ASSERT_EQ(cut_connections(&s), 1);
	began_ms = time_now_ms();
	waiting = 3;
	loop_timer_init(&timer, s.loop, open_door, &s);
	loop_timer_set(&timer, began_ms + 11000);
	loop_timer_init(&later, s.loop, ask_later, calls);
	loop_timer_set(&later, began_ms + 300); /* behind the record, which waits already */
	store_record(s.store, add_late, late_done, &calls[1]);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(calls[0].r, -EAGAIN);
	ASSERT_EQ(calls[0].runs, 0);
	ASSERT(calls[0].ms > 9000 && calls[0].ms < 11000);
	ASSERT_EQ(calls[2].r, -EAGAIN);
	ASSERT_EQ(calls[1].r, 1);
	ASSERT(calls[1].ms > 10900 && calls[1].ms < 15000);
	ASSERT_EQ(store_run_now(s.store, count_teams, &s.n, &e), 0);
	ASSERT_EQ(s.n, 1);
}

static void open_door_and_free(void *arg)
{
	struct scratch *s = arg;

	(void)let_in(s, true);
	s->store = store_free(s->store);
}

TEST(a_commit_that_nobody_knows_of_is_settled_before_the_store_is_gone)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct late calls[2] = { { &s, "a", -1 }, { &s, "b", -1 } };
	struct loop_timer timer = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(guest_open(&s, &e), 0);
	ASSERT_EQ(cut_first_commit(&s), 0);
	ASSERT_EQ(let_in(&s, false), 0);
	began_ms = time_now_ms();
	waiting = 2;
	loop_timer_init(&timer, s.loop, open_door_and_free, &s);
	loop_timer_set(&timer, began_ms + 1500);
	store_run(s.store, add_late, late_done, &calls[0]);
	store_record(s.store, add_late, late_done, &calls[1]);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(calls[0].r, 1);
	ASSERT_EQ(calls[1].r, 1);
	ASSERT(calls[0].ms > 1400);
	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(store_run_now(s.store, count_teams, &s.n, &e), 0);
	ASSERT_EQ(s.n, 2);
}
