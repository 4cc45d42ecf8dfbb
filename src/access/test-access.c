#include "access/access.h"
#include "loop/loop.h"

#include "database.h"
#include "test.h"

struct scratch {
	char dir[32], url[256];
	struct loop *loop;
	struct store *store;
	struct access_book *book;
	char key[ACCESS_KEY_SIZE], id[ACCESS_ID_SIZE];
	int r, ends;
};

static int open_book(struct scratch *s, struct err *e)
{
	int r = 0;

	s->book = access_book_free(s->book);
	if (!s->store) {
		memcpy(s->dir, "/tmp/atoll-access-XXXXXX", 25);
		if (!mkdtemp(s->dir))
			return -errno;
		(void)database_url(s->dir, s->url, sizeof s->url);
		r = loop_new(&s->loop, e);
		if (r >= 0)
			r = store_open(s->loop, s->url, &s->store, e);
	}
	return r < 0 ? r : access_book_new(s->store, &s->book, e);
}

static void scratch_done(struct scratch *s)
{
	struct err e;

	s->book = access_book_free(s->book);
	s->store = store_free(s->store);
	s->loop = loop_free(s->loop);
	(void)dir_remove_tree(AT_FDCWD, s->dir, &e);
}

static void created(void *arg, int r, const struct access_key *made, const char *key,
	const struct err *e)
{
	struct scratch *s = arg;

	(void)e;
	s->r = r;
	(void)snprintf(s->key, sizeof s->key, "%s", key);
	(void)snprintf(s->id, sizeof s->id, "%s", made->id);
	loop_stop(s->loop);
}

static void done(void *arg, int r, const struct err *e)
{
	struct scratch *s = arg;

	(void)e;
	s->r = r;
	loop_stop(s->loop);
}

TEST(a_key_works_until_it_is_revoked_also_after_a_restart)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	char first[ACCESS_KEY_SIZE], team[ACCESS_ID_SIZE];
	struct err e = { 0 };

	access_make_key(first);
	ASSERT_EQ(open_book(&s, &e), 0);
	ASSERT_EQ(access_ensure_key(s.book, first, &e), 0);
	ASSERT_EQ(access_ensure_key(s.book, first, &e), 0);
	ASSERT(access_check(s.book, str_of(first)));
	(void)snprintf(team, sizeof team, "%s", access_check(s.book, str_of(first))->team_id);

	access_create_key(s.book,
		&(struct access_key_spec){ .team_id = team, .actor = "test", .name = STR("ci") },
		created, &s);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(s.r, 0);
	ASSERT(access_check(s.book, str_of(s.key)));
	ASSERT_EQ(open_book(&s, &e), 0);
	ASSERT_STR(access_check(s.book, str_of(s.key))->name, "ci");

	access_revoke_key(s.book, team, str_of(s.id), "test", done, &s);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(s.r, 0);
	ASSERT(!access_check(s.book, str_of(s.key)));
	access_revoke_key(s.book, team, str_of(s.id), "test", done, &s);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(s.r, -ENOENT);
	ASSERT_EQ(open_book(&s, &e), 0);
	ASSERT(!access_check(s.book, str_of(s.key)));

	access_revoke_key(s.book, team, str_of(access_check(s.book, str_of(first))->id), "test",
		done, &s);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(s.r, -EBUSY);
	ASSERT(access_check(s.book, str_of(first)));
}

static int take_count(void *arg, const struct store_row *row, struct err *e)
{
	(void)e;
	*(int64_t *)arg = store_int(row, 0);
	return 0;
}

static int rows_of_keys(struct store_tx *tx, void *arg, struct err *e)
{
	return store_query(tx, "SELECT COUNT(*) FROM api_keys", NULL, 0, take_count, arg, e);
}

static int make_key(struct scratch *s, const char *actor)
{
	struct err e = { 0 };

	access_create_key(s->book,
		&(struct access_key_spec){ .team_id = access_first_team(s->book),
			.actor = actor,
			.name = STR("ci") },
		created, s);
	return loop_run(s->loop, &e) < 0 ? -EIO : s->r;
}

static int revoke_key(struct scratch *s, const char *id)
{
	char copy[ACCESS_ID_SIZE];
	struct err e = { 0 };

	(void)snprintf(copy, sizeof copy, "%s", id);
	access_revoke_key(s->book, access_first_team(s->book), str_of(copy), "test", done, s);
	return loop_run(s->loop, &e) < 0 ? -EIO : s->r;
}

TEST(a_team_has_so_many_keys_and_remembers_as_many_that_were)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	char first[ACCESS_KEY_SIZE], actor[ACTOR_SIZE];
	struct err e = { 0 };
	int64_t n = 0;

	access_make_key(first);
	ASSERT_EQ(open_book(&s, &e), 0);
	ASSERT_EQ(access_ensure_key(s.book, first, &e), 0);
	(void)snprintf(actor, sizeof actor, "%s", access_check(s.book, str_of(first))->id);
	access_set_server_ceilings(s.book,
		&(struct limit_ceilings){ .v = { [LIMIT_API_KEYS] = 3 } });
	ASSERT_EQ(make_key(&s, actor), 0);
	ASSERT_EQ(revoke_key(&s, actor), 0); /* the first one; another is left */
	ASSERT_EQ(make_key(&s, actor), 0);
	ASSERT_EQ(make_key(&s, actor), 0);
	ASSERT_EQ(make_key(&s, actor), -EDQUOT);
	for (int i = 0; i < 6; i++) {
		ASSERT_EQ(make_key(&s, actor), i ? 0 : -EDQUOT);
		if (i == 0) {
			ASSERT_EQ(open_book(&s, &e), 0);
			access_set_server_ceilings(s.book,
				&(struct limit_ceilings){ .v = { [LIMIT_API_KEYS] = 4 } });
		} else {
			ASSERT_EQ(revoke_key(&s, s.id), 0);
		}
	}
	ASSERT_EQ(store_run_now(s.store, rows_of_keys, &n, &e), 0);
	ASSERT_EQ(n, 3 + 4 + 1); /* that live, that were, and the first */
	/* Which is revoked for ever, and in nobody's way when the server starts. */
	ASSERT_EQ(open_book(&s, &e), 0);
	access_set_server_ceilings(s.book,
		&(struct limit_ceilings){ .v = { [LIMIT_API_KEYS] = 1 } });
	ASSERT_EQ(access_ensure_key(s.book, first, &e), 0);
	ASSERT(!access_check(s.book, str_of(first)));
}

TEST(what_is_no_key_is_none)
{
	static const char *const bad[] = { "", "e2b_", "e2b_zz",
		"e2b_0123456789abcdef0123456789abcdef0123456",
		"e2b_0123456789abcdef0123456789abcdef01234567",
		"E2B_0123456789abcdef0123456789abcdef01234567" };
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(open_book(&s, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ASSERT(!access_check(s.book, str_of(bad[i])));
}

TEST(a_key_is_renamed_and_says_who_made_it_and_when_it_was_used)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	char first[ACCESS_KEY_SIZE], made_by[ACCESS_ID_SIZE];
	const struct access_key *key;
	struct err e = { 0 };
	const char *team;

	access_make_key(first);
	ASSERT_EQ(open_book(&s, &e), 0);
	ASSERT_EQ(access_ensure_key(s.book, first, &e), 0);
	team = access_first_team(s.book);
	ASSERT(access_team(s.book, str_of(team)));
	ASSERT(!access_team(s.book, STR("nobody")));
	key = access_check(s.book, str_of(first));
	ASSERT_STR(key->created_by, "");
	ASSERT(key->last_used_us > 0);
	(void)snprintf(made_by, sizeof made_by, "%s", key->id);

	access_create_key(s.book,
		&(struct access_key_spec){ .team_id = team, .actor = made_by, .name = STR("ci") },
		created, &s);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	access_rename_key(s.book, team, str_of(s.id), STR("new name"), made_by, done, &s);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(s.r, 0);
	ASSERT_STR(access_check(s.book, str_of(s.key))->name, "new name");
	access_rename_key(s.book, "another team", str_of(s.id), STR("x"), made_by, done, &s);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(s.r, -ENOENT);

	ASSERT_EQ(open_book(&s, &e), 0);
	key = access_check(s.book, str_of(s.key));
	ASSERT_STR(key->name, "new name");
	ASSERT_STR(key->created_by, made_by);
}

static void stop(void *arg)
{
	loop_stop(arg);
}

static void last_use(void *arg, const struct access_key *key)
{
	*(int64_t *)arg = key->last_used_us;
}

TEST(when_a_key_was_used_is_written_a_little_later)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	char first[ACCESS_KEY_SIZE];
	struct loop_timer timer = { 0 };
	struct err e = { 0 };
	int64_t at_us = -1;

	access_make_key(first);
	ASSERT_EQ(open_book(&s, &e), 0);
	ASSERT_EQ(access_ensure_key(s.book, first, &e), 0);
	access_keep_use(s.book, s.loop, 10);
	ASSERT(access_check(s.book, str_of(first)));
	loop_timer_init(&timer, s.loop, stop, s.loop);
	loop_timer_set(&timer, time_now_ms() + 300);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(open_book(&s, &e), 0);
	access_each_key(s.book, access_first_team(s.book), last_use, &at_us);
	ASSERT(at_us > 0);
}

TEST(ceilings_are_kept_and_unknown_teams_have_none)
{
	struct limit_ceilings ceilings = { .v = { [LIMIT_MEMORY] = 512 } };
	struct scratch s = { 0 };
	struct err e = { 0 };
	char team[ACCESS_ID_SIZE];
	int64_t kept = 0;

	ASSERT_EQ(open_book(&s, &e), 0);
	memcpy(team, access_first_team(s.book), sizeof team);
	ASSERT_EQ(access_team(s.book, str_of(team))->ceilings.v[LIMIT_MEMORY], 0);
	access_set_ceilings(s.book, STR("nobody"), &ceilings, "admin", done, &s);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(s.r, -ENOENT);
	access_set_ceilings(s.book, str_of(team), &ceilings, "admin", done, &s);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(s.r, 0);
	ASSERT_EQ(access_team(s.book, str_of(team))->ceilings.v[LIMIT_MEMORY], 512);
	ASSERT_EQ(open_book(&s, &e), 0); /* as the next start finds it */
	kept = access_team(s.book, str_of(team))->ceilings.v[LIMIT_MEMORY];
	scratch_done(&s);
	ASSERT_EQ(kept, 512);
}

/* ---- scopes, agents, ends ---- */

TEST(scopes_have_one_name_each_and_read_back)
{
	CLEANUP(buf_done) struct buf all = BUF_INIT(1024);

	access_scopes_write(&all, ACCESS_ALL, " ");
	ASSERT_EQ(access_scopes_read(buf_str(&all), false), ACCESS_ALL);
	ASSERT_EQ(access_scopes_read(STR("execute files"), false), ACCESS_EXECUTE | ACCESS_FILES);
	ASSERT_EQ(access_scopes_read(STR("execute fly"), false), ACCESS_EXECUTE);
	ASSERT_EQ(access_scopes_read(STR("fly"), false), 0);
	ASSERT_EQ(access_scopes_read(STR(""), false), ACCESS_ALL);
	ASSERT_EQ(access_scopes_read(STR(""), true) & ACCESS_NEVER_AGENTS, 0);
	ASSERT_EQ(access_scopes_read(STR("keys files admin"), true), ACCESS_FILES);
	ASSERT_EQ(access_scope_find(STR("sandboxes")), 0);
}

TEST(names_of_agents_are_plain)
{
	static const char *const good[] = { "a", "agent-7", "team/agent:7@v1.2", "A_b" };
	static const char *const bad[] = { "", "-a", " a", "a b", "a\n", "\xc3\xa4", ".a", "a;b",
		"a\"", "/a" };
	char big[ACCESS_AGENT_SIZE + 1];

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		ASSERT(access_is_agent(str_of(good[i])));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ASSERT(!access_is_agent(str_of(bad[i])));
	memset(big, 'a', sizeof big);
	ASSERT(access_is_agent(str_make(big, ACCESS_AGENT_SIZE - 1)));
	ASSERT(!access_is_agent(str_make(big, ACCESS_AGENT_SIZE)));
}

static void make(struct scratch *s, const struct access_key_spec *spec)
{
	struct err e = { 0 };

	access_create_key(s->book, spec, created, s);
	(void)loop_run(s->loop, &e);
}

TEST(a_key_has_its_agent_scopes_and_end_also_after_a_restart)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	const struct access_key *key;
	int64_t end_us = time_wall_us() + 3600 * 1000000LL;
	struct err e = { 0 };

	ASSERT_EQ(open_book(&s, &e), 0);
	make(&s, &(struct access_key_spec){ .team_id = access_first_team(s.book),
			 .actor = "test",
			 .name = STR("agent's"),
			 .agent_id = STR("agent-7"),
			 .scopes = ACCESS_EXECUTE | ACCESS_SANDBOXES_READ,
			 .expires_us = end_us });
	ASSERT_EQ(s.r, 0);
	for (int i = 0; i < 2; i++) {
		key = access_check(s.book, str_of(s.key));
		ASSERT(key);
		ASSERT_STR(key->agent_id, "agent-7");
		ASSERT_EQ(key->scopes, ACCESS_EXECUTE | ACCESS_SANDBOXES_READ);
		ASSERT_EQ(key->expires_us, end_us);
		ASSERT_EQ(open_book(&s, &e), 0);
	}
	make(&s, &(struct access_key_spec){ .team_id = access_first_team(s.book),
			 .actor = "test",
			 .name = STR("short"),
			 .expires_us = time_wall_us() - 1 });
	ASSERT_EQ(s.r, 0);
	ASSERT(!access_check(s.book, str_of(s.key)));
	ASSERT(access_is_expired(s.book, str_of(s.key)));
	ASSERT_EQ(open_book(&s, &e), 0);
	ASSERT(!access_check(s.book, str_of(s.key)));
}

TEST(a_rotated_key_works_beside_the_new_one_until_the_overlap_ends)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	char old[ACCESS_KEY_SIZE], id[ACCESS_ID_SIZE];
	const char *team;
	struct err e = { 0 };

	ASSERT_EQ(open_book(&s, &e), 0);
	team = access_first_team(s.book);
	make(&s, &(struct access_key_spec){ .team_id = team,
			 .actor = "test",
			 .name = STR("ci"),
			 .agent_id = STR("a"),
			 .scopes = ACCESS_FILES });
	memcpy(old, s.key, sizeof old);
	memcpy(id, s.id, sizeof id);
	access_rotate_key(s.book, team, str_of(id), 3600, "test", created, &s);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(s.r, 0);
	ASSERT(strcmp(old, s.key) != 0);
	ASSERT(access_check(s.book, str_of(old)));
	ASSERT_STR(access_check(s.book, str_of(old))->replaced_by, s.id);
	ASSERT_STR(access_check(s.book, str_of(s.key))->agent_id, "a");
	ASSERT_EQ(access_check(s.book, str_of(s.key))->scopes, ACCESS_FILES);

	access_rotate_key(s.book, team, str_of(id), 0, "test", created, &s); /* once is enough */
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(s.r, -EEXIST);
	access_rotate_key(s.book, team, STR("nobody"), 0, "test", created, &s);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(s.r, -ENOENT);
}

TEST(a_key_rotated_without_overlap_ends_at_once)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	char old[ACCESS_KEY_SIZE], id[ACCESS_ID_SIZE];
	struct err e = { 0 };

	ASSERT_EQ(open_book(&s, &e), 0);
	make(&s, &(struct access_key_spec){ .team_id = access_first_team(s.book),
			 .actor = "test",
			 .name = STR("ci") });
	memcpy(old, s.key, sizeof old);
	memcpy(id, s.id, sizeof id);
	access_rotate_key(s.book, access_first_team(s.book), str_of(id), 0, "test", created, &s);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(s.r, 0);
	ASSERT(!access_check(s.book, str_of(old)));
	ASSERT(access_check(s.book, str_of(s.key)));
	ASSERT_EQ(open_book(&s, &e), 0);
	ASSERT(!access_check(s.book, str_of(old)));
	ASSERT(access_check(s.book, str_of(s.key)));
}

static void count_end(void *arg)
{
	struct scratch *s = arg;

	s->ends++;
	loop_stop(s->loop);
}

/* A key of the first team, held once. */
static const struct access_key *hold_new(struct scratch *s, int64_t expires_us, struct notice *held)
{
	struct access_key_spec spec = { .team_id = access_first_team(s->book),
		.actor = "test",
		.name = STR("held"),
		.expires_us = expires_us };
	const struct access_key *key;

	access_create_key(s->book, &spec, created, s);
	(void)loop_run(s->loop, NULL);
	key = access_check(s->book, str_of(s->key));
	access_hold(s->book, key, held, count_end, s);
	return key;
}

TEST(whoever_holds_a_key_is_told_of_its_end)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct notice revoked = { 0 }, dropped = { 0 }, over = { 0 }, rotated = { 0 };
	char team[ACCESS_ID_SIZE];
	struct err e = { 0 };

	ASSERT_EQ(open_book(&s, &e), 0);
	access_make_key(s.key);
	ASSERT_EQ(access_ensure_key(s.book, s.key, &e), 0);
	access_keep_use(s.book, s.loop, 60000);
	(void)snprintf(team, sizeof team, "%s", access_first_team(s.book));

	access_hold(s.book, hold_new(&s, 0, &revoked), &dropped, count_end, &s);
	notice_drop(&dropped);
	access_revoke_key(s.book, team, str_of(s.id), "test", done, &s);
	(void)loop_run(s.loop, NULL);
	ASSERT_EQ(s.r, 0);
	ASSERT_EQ(s.ends, 1); /* told once, and after the one who asked for it */

	(void)hold_new(&s, time_wall_us() + 300000, &over);
	(void)loop_run(s.loop, NULL);
	ASSERT_EQ(s.ends, 2);
	ASSERT(!access_check(s.book, str_of(s.key)));

	(void)hold_new(&s, 0, &rotated);
	access_rotate_key(s.book, team, str_of(s.id), 0, "test", created, &s);
	(void)loop_run(s.loop, NULL);
	if (s.ends == 2)
		(void)loop_run(s.loop, NULL);
	ASSERT_EQ(s.ends, 3);
}

TEST(what_begins_with_an_id_is_none)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	char longer[ACCESS_ID_SIZE + 1], key[ACCESS_KEY_SIZE];
	const char *team;
	struct err e = { 0 };

	ASSERT_EQ(open_book(&s, &e), 0);
	team = access_first_team(s.book);
	make(&s, &(struct access_key_spec){ .team_id = team,
			 .actor = "test",
			 .name = STR("ci"),
			 .scopes = ACCESS_FILES });
	memcpy(key, s.key, sizeof key);
	(void)snprintf(longer, sizeof longer, "%sx", s.id);
	access_rotate_key(s.book, team, str_of(longer), 0, "test", created, &s);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(s.r, -ENOENT);
	access_rename_key(s.book, team, str_of(longer), STR("new"), "test", done, &s);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(s.r, -ENOENT);
	access_revoke_key(s.book, team, str_of(longer), "test", done, &s);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(s.r, -ENOENT);
	ASSERT_EQ(open_book(&s, &e), 0);
	ASSERT_STR(access_check(s.book, str_of(key))->name, "ci");
}

static void count_key(void *arg, const struct access_key *key)
{
	(void)key;
	++*(int *)arg;
}

static int count_keys(const struct scratch *s)
{
	int n = 0;

	access_each_key(s->book, access_first_team(s->book), count_key, &n);
	return n;
}

TEST(keys_that_ended_long_ago_are_forgotten)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct loop_timer timer = { 0 };
	char first[ACCESS_KEY_SIZE];
	struct err e = { 0 };

	access_make_key(first);
	ASSERT_EQ(open_book(&s, &e), 0);
	ASSERT_EQ(access_ensure_key(s.book, first, &e), 0);
	for (int i = 0; i < 2; i++) /* one yesterday, one long before */
		make(&s, &(struct access_key_spec){ .team_id = access_first_team(s.book),
				 .actor = "test",
				 .name = STR("short"),
				 .expires_us = time_wall_us() -
					       (i ? 24 : 31 * 24) * 3600 * INT64_C(1000000) });
	ASSERT_EQ(count_keys(&s), 3);
	access_keep_use(s.book, s.loop, 10);
	ASSERT(access_check(s.book, str_of(first)));
	loop_timer_init(&timer, s.loop, stop, s.loop);
	loop_timer_set(&timer, time_now_ms() + 300);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(count_keys(&s), 2);
	ASSERT(!access_check(s.book, str_of(s.key)));
	ASSERT(access_is_expired(s.book, str_of(s.key)));
	ASSERT_EQ(open_book(&s, &e), 0);
	ASSERT_EQ(count_keys(&s), 2);
}

TEST(the_quota_is_the_teams_where_it_has_one_and_else_the_servers)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct limit_quota
		servers = { .v = { [LIMIT_QUOTA_SANDBOXES] = 9, [LIMIT_QUOTA_DISK] = 99 } },
		teams = { .v = { [LIMIT_QUOTA_SANDBOXES] = 3 } }, got;
	struct err e = { 0 };

	ASSERT_EQ(open_book(&s, &e), 0);
	access_set_quota(s.book, access_first_team(s.book), &teams, "test", done, &s);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(s.r, 0);
	for (int i = 0; i < 2; i++) {
		access_set_server_quota(s.book, &servers);
		access_quota(s.book, access_first_team(s.book), &got);
		ASSERT_EQ(got.v[LIMIT_QUOTA_SANDBOXES], 3);
		ASSERT_EQ(got.v[LIMIT_QUOTA_DISK], 99);
		ASSERT_EQ(got.v[LIMIT_QUOTA_MEMORY], 0);
		ASSERT_EQ(open_book(&s, &e), 0);
	}
	access_set_quota(s.book, "nobody", &teams, "test", done, &s);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(s.r, -ENOENT);
}

static int set_env(struct scratch *s, const char *team, const struct json_map *env)
{
	struct err e = { 0 };

	access_set_env(s->book, team, env, "test", done, s);
	return loop_run(s->loop, &e) < 0 ? -EIO : s->r;
}

TEST(a_teams_variables_stay_over_a_restart_and_go_when_they_are_replaced)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct json_pair pairs[ACCESS_MAX_ENV + 1];
	struct json_map env = { pairs, 2, true }, got;
	char names[ACCESS_MAX_ENV + 1][8], team[ACCESS_ID_SIZE];

	ASSERT_EQ(open_book(&s, NULL), 0);
	(void)snprintf(team, sizeof team, "%s", access_first_team(s.book));
	access_env(s.book, team, &got);
	ASSERT_EQ(got.n, 0);
	pairs[0] = (struct json_pair){ STR("PIP_INDEX_URL"), STR("https://m/simple") };
	pairs[1] = (struct json_pair){ STR("_b1"), STR("") };
	ASSERT_EQ(set_env(&s, team, &env), 0);
	ASSERT_EQ(open_book(&s, NULL), 0);
	access_env(s.book, team, &got);
	ASSERT(got.n == 2 && str_is(got.v[0].key, "PIP_INDEX_URL") &&
		str_is(got.v[0].value, "https://m/simple"));
	access_env(s.book, "another", &got);
	ASSERT_EQ(got.n, 0);
	ASSERT_EQ(set_env(&s, "another", &env), -ENOENT);
	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		(void)snprintf(names[i], sizeof names[i], "A%zu", i);
		pairs[i] = (struct json_pair){ str_of(names[i]), STR("x") };
	}
	env.n = ARRAY_SIZE(pairs);
	ASSERT_EQ(set_env(&s, team, &env), -E2BIG);
	env.n = 1;
	pairs[0].key = STR("A-B");
	ASSERT_EQ(set_env(&s, team, &env), -EINVAL);
	access_env(s.book, team, &got);
	ASSERT_EQ(got.n, 2);
	env.n = 0;
	ASSERT_EQ(set_env(&s, team, &env), 0);
	access_env(s.book, team, &got);
	ASSERT_EQ(got.n, 0);
}
