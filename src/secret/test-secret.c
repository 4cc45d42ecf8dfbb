#include "secret/secret.h"
#include "loop/loop.h"

#include "database.h"
#include "test.h"

struct scratch {
	char dir[40], url[256];
	struct loop *loop;
	struct store *store;
	struct secret_book *book;
	int r;
	struct secret secret;
	char text[SECRET_VALUE_MAX + 1]; /* metadata, value, or the names of a page */
	bool more;
};

static int add_teams(struct store_tx *tx, void *arg, struct err *e)
{
	(void)arg;
	return store_exec(tx,
		"INSERT INTO teams (id, name, created_us) VALUES ('t1', 'one', 1), ('t2', 'two', "
		"2)",
		NULL, 0, e);
}

static void open_book(struct scratch *s, uint8_t seed_byte)
{
	uint8_t seed[SHA256_SIZE] = { seed_byte };

	s->book = secret_book_free(s->book);
	s->book = secret_book_new(s->loop, s->store, NULL, seed);
}

static int scratch_open(struct scratch *s, struct err *e)
{
	int r;

	(void)snprintf(s->dir, sizeof s->dir, "/tmp/atoll-secret-XXXXXX");
	if (!mkdtemp(s->dir))
		return -errno;
	(void)database_url(s->dir, s->url, sizeof s->url);
	r = loop_new(&s->loop, e);
	if (r >= 0)
		r = store_open(s->loop, s->url, &s->store, e);
	if (r >= 0)
		r = store_run_now(s->store, add_teams, NULL, e);
	open_book(s, 1);
	return MIN(r, 0);
}

static void scratch_done(struct scratch *s)
{
	struct err e;

	s->book = secret_book_free(s->book);
	s->store = store_free(s->store);
	s->loop = loop_free(s->loop);
	(void)dir_remove_tree(AT_FDCWD, s->dir, &e);
}

static void took(struct scratch *s, int r, struct str text)
{
	s->r = r;
	(void)snprintf(s->text, sizeof s->text, "%.*s", STR_ARG(text));
	loop_stop(s->loop);
}

static void got(void *arg, int r, const struct secret *secret, const struct err *e)
{
	struct scratch *s = arg;

	s->secret = *secret;
	took(s, r, r < 0 ? str_of(e->msg) : secret->metadata);
}

static void opened(void *arg, int r, struct str value, const struct err *e)
{
	took(arg, r, r < 0 ? str_of(e->msg) : value);
}

static void done(void *arg, int r, const struct err *e)
{
	(void)e;
	took(arg, r, STR_NONE);
}

static void listed(void *arg, int r, const struct secret *v, size_t n, bool more,
	const struct err *e)
{
	CLEANUP(buf_done) struct buf names = BUF_INIT(4096);
	struct scratch *s = arg;

	(void)e;
	for (size_t i = 0; i < n; i++)
		(void)buf_printf(&names, "%s ", v[i].name);
	s->more = more;
	took(s, r, buf_str(&names));
}

static int run(struct scratch *s)
{
	struct err e = { 0 };

	return loop_run(s->loop, &e) < 0 ? -1 : s->r;
}

static struct secret_in input(const char *team, const char *which, const char *value)
{
	return (struct secret_in){ .team_id = team,
		.actor = "test",
		.which = str_of(which),
		.value = str_of(value) };
}

TEST(a_value_is_kept_sealed_and_each_update_is_a_version)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct json_pair pair = { STR("used-by"), STR("ci \"quoted\"") };
	struct secret_in in = input("t1", "Token", "first value");
	char id[SECRET_ID_SIZE];
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	in.metadata = (struct json_map){ &pair, 1, true };
	secret_create(s.book, &in, got, &s);
	ASSERT_EQ(run(&s), 0);
	ASSERT_STR(s.secret.name, "token");
	ASSERT_EQ(s.secret.version, 1);
	ASSERT_STR(s.text, "{\"used-by\":\"ci \\\"quoted\\\"\"}");
	memcpy(id, s.secret.id, sizeof id);
	secret_create(s.book, &in, got, &s);
	ASSERT_EQ(run(&s), -EEXIST);

	in = input("t1", id, "second value");
	secret_update(s.book, &in, got, &s);
	ASSERT_EQ(run(&s), 0);
	ASSERT_EQ(s.secret.version, 2);
	ASSERT_STR(s.text, "{\"used-by\":\"ci \\\"quoted\\\"\"}");
	secret_open(s.book, "t1", STR("TOKEN"), opened, &s);
	ASSERT_EQ(run(&s), 0);
	ASSERT_STR(s.text, "second value");

	open_book(&s, 2);
	secret_open(s.book, "t1", STR("token"), opened, &s);
	ASSERT_EQ(run(&s), -EBADMSG);
}

static int find_text(void *arg, const struct store_row *row, struct err *e)
{
	(void)e;
	*(bool *)arg |= strstr(store_text(row, 0).p, "plain") != NULL;
	return 0;
}

static int look_for_value(struct store_tx *tx, void *arg, struct err *e)
{
	return store_query(tx, "SELECT box FROM secret_versions", NULL, 0, find_text, arg, e);
}

static int swap_boxes(struct store_tx *tx, void *arg, struct err *e)
{
	(void)arg;
	return store_exec(tx,
		"UPDATE secret_versions SET box = (SELECT o.box FROM secret_versions o "
		"WHERE o.secret_id <> secret_versions.secret_id)",
		NULL, 0, e);
}

TEST(a_row_moved_to_another_secret_does_not_open)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct secret_in in = input("t1", "a", "plain value");
	struct err e = { 0 };
	bool found = false;

	ASSERT_EQ(scratch_open(&s, &e), 0);
	secret_create(s.book, &in, got, &s);
	ASSERT_EQ(run(&s), 0);
	in.which = STR("b");
	secret_create(s.book, &in, got, &s);
	ASSERT_EQ(run(&s), 0);
	ASSERT_EQ(store_run_now(s.store, look_for_value, &found, &e), 0);
	ASSERT(!found);
	ASSERT_EQ(store_run_now(s.store, swap_boxes, NULL, &e), 2);
	secret_open(s.book, "t1", STR("a"), opened, &s);
	ASSERT_EQ(run(&s), -EBADMSG);
}

TEST(another_team_has_nothing_of_it)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct secret_in in = input("t1", "a", "v");
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	secret_create(s.book, &in, got, &s);
	ASSERT_EQ(run(&s), 0);
	secret_get(s.book, "t2", str_of(s.secret.id), got, &s);
	ASSERT_EQ(run(&s), -ENOENT);
	in = input("t2", "a", "w");
	secret_update(s.book, &in, got, &s);
	ASSERT_EQ(run(&s), -ENOENT);
	secret_remove(s.book, "t2", STR("a"), "test", done, &s);
	ASSERT_EQ(run(&s), -ENOENT);
	secret_create(s.book, &in, got, &s);
	ASSERT_EQ(run(&s), 0);
	secret_remove(s.book, "t1", STR("a"), "test", done, &s);
	ASSERT_EQ(run(&s), 0);
	secret_open(s.book, "t1", STR("a"), opened, &s);
	ASSERT_EQ(run(&s), -ENOENT);
	secret_open(s.book, "t2", STR("a"), opened, &s);
	ASSERT_EQ(run(&s), 0);
	ASSERT_STR(s.text, "w");
}

TEST(pages_follow_each_other_by_name)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	static const char *const names[] = { "c", "a", "b" };
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct secret_in in = input("t1", names[i], "v");

		secret_create(s.book, &in, got, &s);
		ASSERT_EQ(run(&s), 0);
	}
	secret_list(s.book, "t1", STR_NONE, 2, listed, &s);
	ASSERT_EQ(run(&s), 0);
	ASSERT_STR(s.text, "a b ");
	ASSERT(s.more);
	secret_list(s.book, "t1", STR("b"), 2, listed, &s);
	ASSERT_EQ(run(&s), 0);
	ASSERT_STR(s.text, "c ");
	ASSERT(!s.more);
}

TEST(limits_are_kept_and_named)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct json_pair pairs[SECRET_MAX_PAIRS + 1];
	char big[2 * SECRET_VALUE_MAX];
	struct err e = { 0 };
	const struct {
		const char *name;
		size_t value_n, n_pairs, key_n, text_n;
		const char *says;
	} cases[] = {
		{ "", 1, 0, 0, 0, "name must have" },
		{ "a b", 1, 0, 0, 0, "letters, digits" },
		{ "SEC_x", 1, 0, 0, 0, "sec_" },
		{ "n", 0, 0, 0, 0, "value must have" },
		{ "n", SECRET_VALUE_MAX + 1, 0, 0, 0, "value must have" },
		{ "n", 1, SECRET_MAX_PAIRS + 1, 1, 1, "at most 32 entries" },
		{ "n", 1, 1, 0, 1, "a key must have" },
		{ "n", 1, 1, SECRET_MAX_KEY + 1, 1, "a key must have" },
		{ "n", 1, 1, 1, SECRET_MAX_TEXT + 1, "a value must have" },
		{ "n", 1, 9, 1, SECRET_MAX_TEXT, "in total" },
	};

	memset(big, 'x', sizeof big);
	ASSERT_EQ(scratch_open(&s, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct secret_in in = input("t1", cases[i].name, "");

		for (size_t k = 0; k < cases[i].n_pairs; k++)
			pairs[k] = (struct json_pair){ { big, cases[i].key_n },
				{ big, cases[i].text_n } };
		in.value = str_make(big, cases[i].value_n);
		in.metadata = (struct json_map){ pairs, cases[i].n_pairs, true };
		secret_create(s.book, &in, got, &s);
		ASSERT_EQ(run(&s), -EINVAL);
		if (!strstr(s.text, cases[i].says))
			TEST_FAIL("'%s' does not say '%s'", s.text, cases[i].says);
	}
}
