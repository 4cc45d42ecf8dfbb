#include "store/store.h"

#include "test.h"

struct scratch {
	char dir[32], url[64];
	struct loop *loop;
	struct store *store;
};

static int scratch_open(struct scratch *s, struct err *e)
{
	int r;

	if (!s->loop) {
		r = loop_new(&s->loop, e);
		if (r < 0)
			return r;
		memcpy(s->dir, "/tmp/atoll-store-XXXXXX", 24);
		if (!mkdtemp(s->dir))
			return -errno;
		(void)snprintf(s->url, sizeof s->url, "sqlite:%s/t.db", s->dir);
	}
	s->store = store_free(s->store);
	return store_open(s->loop, s->url, &s->store, e);
}

static void scratch_done(struct scratch *s)
{
	struct err e;

	s->store = store_free(s->store);
	s->loop = loop_free(s->loop);
	(void)dir_remove_tree(AT_FDCWD, s->dir, &e);
}

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

TEST(what_is_no_database_is_refused)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	char path[80];
	struct err e = { 0 };

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
