/* Rows of an older version, and what becomes of them. */
#include "store/store-internal.h"

#include "test-scratch.h"
#include "test.h"

/* A database as the program of that version would have left it. */
static int open_at(struct scratch *s, int64_t version, struct err *e)
{
	struct store_config config = { .url = s->url };
	int r = loop_new(&s->loop, e);

	if (r < 0)
		return r;
	memcpy(s->dir, "/tmp/atoll-test-XXXXXX", 23);
	if (!mkdtemp(s->dir))
		return -errno;
	r = database_url(s->dir, s->url, sizeof s->url);
	if (r >= 0)
		r = store_open_offline(s->loop, &config, true, &s->store, e);
	return r < 0 ? r : store_migrate(s->store, version, e);
}

static int run_script(struct store_tx *tx, void *arg, struct err *e)
{
	return store_script(tx, arg, e);
}

struct question {
	const char *sql;
	char text[256];
};

static int add_text(void *arg, const struct store_row *row, struct err *e)
{
	struct question *q = arg;
	size_t n = strlen(q->text);

	(void)e;
	(void)snprintf(q->text + n, sizeof q->text - n, "%s%.*s", n ? " " : "",
		STR_ARG(store_text(row, 0)));
	return 0;
}

static int ask(struct store_tx *tx, void *arg, struct err *e)
{
	struct question *q = arg;

	return store_query(tx, q->sql, NULL, 0, add_text, q, e);
}

TEST(names_that_look_like_ids_go_and_ids_are_one_owners)
{
	char rows[] =
		"INSERT INTO teams (id, name, created_us) VALUES ('t', 'team', 1);"
		"INSERT INTO snapshots (image, team_id, template_id, alias, tag, base_template, "
		"sandbox_id, cpu_count, memory_mb, disk_mb, created_us, agent_id) VALUES "
		"('sa', 't', 'sharedsharedshared01', 'shared', 'default', 'base', 'i', 1, 1, 1, 1, "
		"'agent'),"
		"('sb', 't', 'sharedsharedshared01', 'shared', 'v2', 'base', 'i', 1, 1, 1, 2, "
		"NULL),"
		"('sc', 't', 'thevictimthevictim01', NULL, 'default', 'base', 'i', 1, 1, 1, 3, "
		"NULL),"
		"('sd', 't', 'theattackerattacker1', 'thevictimthevictim01', 'default', 'base', "
		"'i', "
		"1, 1, 1, 4, 'agent'),"
		"('se', 't', 'withdashwithdash0001', 'twenty-characters-01', 'default', 'base', "
		"'i', "
		"1, 1, 1, 5, NULL),"
		"('sf', 't', 'withlinewithline0001', 'twenty_characters_01', 'default', 'base', "
		"'i', "
		"1, 1, 1, 6, NULL);";
	struct question names = { "SELECT image || '=' || COALESCE(alias, '?') || '/' || "
				  "COALESCE(named_by, '') FROM snapshots ORDER BY image",
		"" };
	struct question ids = { "SELECT template_id FROM snapshots WHERE alias = 'shared' "
				"ORDER BY image",
		"" };
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(open_at(&s, 7, &e), 0);
	ASSERT_EQ(store_run_now(s.store, run_script, rows, &e), 0);
	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(store_run_now(s.store, ask, &names, &e), 0);
	ASSERT_STR(names.text,
		"sa=shared/agent sb=shared/ sc=?/ sd=?/agent se=twenty-characters-01/ "
		"sf=twenty_characters_01/");
	ASSERT_EQ(store_run_now(s.store, ask, &ids, &e), 0);
	ASSERT_STR(ids.text, "a sharedsharedshared01");
}

TEST(rows_from_before_are_counted_and_ended_ones_lose_what_they_do_not_need)
{
	char rows[] =
		"INSERT INTO teams (id, name, created_us) VALUES ('t', 'team', 1), ('u', 'other', "
		"1);"
		"INSERT INTO sandboxes (id, team_id, template_id, template_name, runtime, state, "
		"secure, "
		"cpu_count, memory_mb, disk_mb, timeout_s, metadata, options, started_us, end_us, "
		"ended_us, env_sealed) VALUES "
		"('i1', 't', 'x', 'x', 'local', 'running', 1, 1, 1, 1, 1, '{}', '{\"a\":1}', 1, 1, "
		"NULL, "
		"'sealed'),"
		"('i2', 't', 'x', 'x', 'local', 'ended', 1, 1, 1, 1, 1, '{\"k\":\"v\"}', "
		"'{\"a\":1}', "
		"1, 1, 2, 'sealed');"
		"INSERT INTO sandbox_runs (sandbox_id, started_us) VALUES ('i1', 1), ('i1', 2);"
		"INSERT INTO executions (sandbox_id, n, team_id, actor, command, tag, state, "
		"started_us, "
		"deadline_us, stdout_bytes, stderr_bytes, last_seq, keep_bytes) VALUES "
		"('i1', 1, 't', 'a', '{}', 'g', 'ended', 1, 1, 3000, 300, 2, 600),"
		"('i1', 2, 't', 'a', '{}', 'g', 'ended', 1, 1, 3000, 300, 0, 600);"
		"INSERT INTO runs (id, team_id, actor, started_us) VALUES ('r', 't', 'a', 1);"
		"INSERT INTO events (seq, at_us, actor, kind, subject, data, team_id) VALUES "
		"(1, 1, 'a', 'k', 's', '{}', 't'), (2, 1, 'a', 'k', 's', '{}', 'u'), "
		"(3, 1, 'a', 'k', 's', '{}', NULL), (4, 1, 'a', 'k', 's', '{}', 't');";
	struct question left = { "SELECT id || options || COALESCE(env_sealed, '') FROM sandboxes "
				 "ORDER BY id",
		"" };
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(open_at(&s, 8, &e), 0);
	ASSERT_EQ(store_run_now(s.store, run_script, rows, &e), 0);
	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(store_run_now(s.store, ask, &left, &e), 0);
	ASSERT_STR(left.text, "i1{\"a\":1}sealed i2{}");
	ASSERT_EQ(store_used(s.store, "t", STORE_USE_HISTORY),
		(1024 + 2 + 7 + 6 + 2 * 256) + (1024 + 9 + 2));
	ASSERT_EQ(store_used(s.store, "t", STORE_USE_COMMANDS), 2 * (1024 + 2) + 512);
	ASSERT_EQ(store_used(s.store, "t", STORE_USE_OUTPUT), 2 * 128 + 900 * 4 / 3);
	ASSERT_EQ(store_used(s.store, "t", STORE_USE_EVENTS), 1024);
	ASSERT_EQ(store_used(s.store, "u", STORE_USE_EVENTS), 512);
	ASSERT_EQ(store_used(s.store, "u", STORE_USE_HISTORY), 0);
}

TEST(volumes_from_before_are_of_the_agent_whose_key_made_them)
{
	char rows[] =
		"INSERT INTO teams (id, name, created_us) VALUES ('t', 'team', 1), ('u', 'other', "
		"1);"
		"INSERT INTO api_keys (id, team_id, name, hash, mask_start, mask_end, created_us, "
		"agent_id) VALUES ('k1', 't', 'n', 'h1', 'a', 'b', 1, 'builder'), "
		"('k2', 't', 'n', 'h2', 'a', 'b', 1, NULL), "
		"('k3', 'u', 'n', 'h3', 'a', 'b', 1, 'builder');"
		"INSERT INTO volumes (id, team_id, name, created_us) VALUES ('v1', 't', 'a', 1), "
		"('v2', 't', 'b', 1), ('v3', 't', 'c', 1), ('v4', 't', 'd', 1);"
		"INSERT INTO events (seq, at_us, actor, kind, subject, data) VALUES "
		"(1, 1, 'k1', 'volume.created', 'v1', '{}'), "
		"(2, 1, 'k2', 'volume.created', 'v2', '{}'), "
		"(3, 1, 'k1', 'volume.token_rotated', 'v2', '{}'), "
		"(4, 1, 'k3', 'volume.created', 'v3', '{}');";
	struct question whose = { "SELECT id || '=' || COALESCE(agent_id, '') FROM volumes "
				  "ORDER BY id",
		"" };
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(open_at(&s, 11, &e), 0);
	ASSERT_EQ(store_run_now(s.store, run_script, rows, &e), 0);
	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(store_run_now(s.store, ask, &whose, &e), 0);
	ASSERT_STR(whose.text, "v1=builder v2= v3= v4=");
}
