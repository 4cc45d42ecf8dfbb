#include "template/template.h"

#include "database.h"
#include "test.h"

static void put(const char *dir, const char *name, const char *toml)
{
	char path[128];
	struct err e;

	(void)snprintf(path, sizeof path, "%s/%s", dir, name);
	(void)dir_make(AT_FDCWD, path, 0755, &e);
	(void)snprintf(path, sizeof path, "%s/%s/rootfs", dir, name);
	(void)dir_make(AT_FDCWD, path, 0755, &e);
	if (toml) {
		(void)snprintf(path, sizeof path, "%s/%s/template.toml", dir, name);
		(void)file_replace(AT_FDCWD, path, str_of(toml), 0644, &e);
	}
}

TEST(a_template_is_found_by_name_and_id_in_every_spelling)
{
	static const char *const spellings[] = { "base", "BASE", "base:default", "team/base",
		"team/base:default" };
	char dir[] = "/tmp/atoll-template-XXXXXX";
	CLEANUP(template_book_freep) struct template_book *book = NULL;
	struct template t = { 0 }, by_id = { 0 };
	struct err e = { 0 };

	ASSERT(mkdtemp(dir));
	put(dir, "base",
		"cpu = 4\nmemory_mb = 512\nuser = \"root\"\nworkdir = '/srv'\nstart = \"sleep "
		"1\"\nruntime = \"gvisor\"\nnested = true\n");
	ASSERT_EQ(template_book_new(dir, &book, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(spellings); i++) {
		ASSERT_EQ(template_find(book, str_of(spellings[i]), &t, &e), 0);
		ASSERT_STR(t.name, "base");
	}
	ASSERT_EQ(t.limits.v[LIMIT_CPU], 4);
	ASSERT_EQ(t.limits.v[LIMIT_MEMORY], 512);
	ASSERT_STR(t.user, "root");
	ASSERT_STR(t.workdir, "/srv");
	ASSERT_STR(t.start, "sleep 1");
	ASSERT_STR(t.runtime, "gvisor");
	ASSERT(t.is_nested);
	ASSERT_EQ(template_find(book, str_of(t.id), &by_id, &e), 0);
	ASSERT_STR(by_id.name, "base");
	(void)dir_remove_tree(AT_FDCWD, dir, &e);
}

TEST(an_id_means_its_template_whatever_another_is_called)
{
	char dir[] = "/tmp/atoll-template-XXXXXX";
	CLEANUP(template_book_freep) struct template_book *book = NULL;
	struct template t = { 0 }, found = { 0 };
	struct err e = { 0 };

	ASSERT(mkdtemp(dir));
	put(dir, "base", NULL);
	put(dir, "twentylettersanddigit", NULL);
	put(dir, "twentylettersanddig1", NULL);
	ASSERT_EQ(template_book_new(dir, &book, &e), 0);
	ASSERT_EQ(template_find(book, STR("base"), &t, &e), 0);
	put(dir, t.id, NULL);
	ASSERT_EQ(template_find(book, str_of(t.id), &found, &e), 0);
	ASSERT_STR(found.name, "base");
	ASSERT_EQ(template_find(book, STR("TwentyLettersAndDig1"), &found, &e), 0);
	ASSERT_STR(found.name, "twentylettersanddig1");
	(void)dir_remove_tree(AT_FDCWD, dir, &e);
	ASSERT(template_is_id(STR("TwentyLettersAndDig1")));
	ASSERT(!template_is_id(STR("twentylettersanddigit")) &&
		!template_is_id(STR("twenty-letters-and-1")));
}

TEST(what_a_template_does_not_say_is_the_servers_default)
{
	static const struct limit_set defaults = {
		.v = { [LIMIT_CPU] = 1, [LIMIT_MEMORY] = 2048 }
	};
	char dir[] = "/tmp/atoll-template-XXXXXX";
	CLEANUP(template_book_freep) struct template_book *book = NULL;
	struct template t = { 0 };
	struct err e = { 0 };

	ASSERT(mkdtemp(dir));
	put(dir, "base", "cpu = 4\n");
	ASSERT_EQ(template_book_new(dir, &book, &e), 0);
	template_set_defaults(book, &defaults);
	ASSERT_EQ(template_find(book, STR("base"), &t, &e), 0);
	(void)dir_remove_tree(AT_FDCWD, dir, &e);
	ASSERT_EQ(t.limits.v[LIMIT_CPU], 4);
	ASSERT_EQ(t.limits.v[LIMIT_MEMORY], 2048);
	ASSERT_EQ(t.limits.v[LIMIT_SHM], 1024);
	ASSERT_EQ(t.limits.v[LIMIT_PROCESSES], 4096);
}

TEST(what_is_wrong_is_said)
{
	static const struct {
		const char *wanted;
		int r;
		const char *says;
	} cases[] = {
		{ "nope", -ENOENT, "template 'nope' not found" },
		{ "base:v2", -ENOENT, "tag 'v2' does not exist" },
		{ "../etc", -ENOENT, "template 'etc' not found" },
		{ "a/../etc", -EINVAL, "invalid template reference" },
		{ "..", -EINVAL, "invalid template reference" },
		{ "", -EINVAL, "invalid template reference" },
		{ "b ase", -EINVAL, "invalid template reference" },
		{ "broken", -EBADMSG, "cpu" },
		{ "unknown", -EBADMSG, "colour" },
	};
	char dir[] = "/tmp/atoll-template-XXXXXX";
	CLEANUP(template_book_freep) struct template_book *book = NULL;
	struct template t = { 0 };
	struct err e = { 0 };

	ASSERT(mkdtemp(dir));
	put(dir, "base", NULL);
	put(dir, "broken", "cpu = \"many\"\n");
	put(dir, "unknown", "colour = 3\n");
	ASSERT_EQ(template_book_new(dir, &book, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		ASSERT_EQ(template_find(book, str_of(cases[i].wanted), &t, &e), cases[i].r);
		if (!strstr(e.msg, cases[i].says))
			TEST_FAIL("'%s' does not say '%s'", e.msg, cases[i].says);
	}
	(void)dir_remove_tree(AT_FDCWD, dir, &e);
}

struct tagging { /* a book with one template, and a store for its tags */
	char dir[40], url[256];
	struct loop *loop;
	struct store *store;
	struct template_book *book;
	int r;
};

static int tagging_open(struct tagging *s, struct err *e)
{
	int r;

	(void)snprintf(s->dir, sizeof s->dir, "/tmp/atoll-template-XXXXXX");
	if (!mkdtemp(s->dir))
		return -errno;
	put(s->dir, "base", NULL);
	(void)database_url(s->dir, s->url, sizeof s->url);
	r = loop_new(&s->loop, e);
	if (r >= 0)
		r = store_open(s->loop, s->url, &s->store, e);
	if (r >= 0)
		r = template_book_new(s->dir, &s->book, e);
	return r < 0 ? r : template_load_tags(s->book, s->store, e);
}

static void tagging_done(struct tagging *s)
{
	struct err e;

	s->book = template_book_free(s->book);
	s->store = store_free(s->store);
	s->loop = loop_free(s->loop);
	(void)dir_remove_tree(AT_FDCWD, s->dir, &e);
}

static void stop_loop(void *arg, int r, const struct err *e)
{
	struct tagging *t = arg;

	(void)e;
	t->r = r;
	loop_stop(t->loop);
}

static void join_tag(void *arg, const char *tag, int64_t created_us)
{
	struct buf *out = arg;

	(void)created_us;
	(void)buf_printf(out, "%s ", tag);
}

TEST(tags_are_further_names_and_outlive_the_book)
{
	static const struct template_actor actor = { "test", "team" };
	static const struct str two[] = { { "v1", 2 }, { "latest.2", 8 } };
	static const struct str bad[] = { { "v1", 2 }, { "nope", 4 } };
	CLEANUP(tagging_done) struct tagging s = { 0 };
	CLEANUP(buf_done) struct buf names = BUF_INIT(256);
	struct template t = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(tagging_open(&s, &e), 0);
	ASSERT_EQ(template_find(s.book, STR("base"), &t, &e), 0);
	template_add_tags(s.book, t.id, two, 2, &actor, stop_loop, &s);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(s.r, 0);
	template_remove_tags(s.book, t.id, bad, 2, &actor, stop_loop, &s);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(s.r, -ENOENT);
	ASSERT_EQ(template_find(s.book, STR("base:v1"), &t, &e), 0);

	ASSERT_EQ(template_load_tags(s.book, s.store, &e), 0);
	template_each_tag(s.book, &t, join_tag, &names);
	ASSERT_BYTES(buf_str(&names), "default latest.2 v1 ");
	template_remove_tags(s.book, t.id, two, 1, &actor, stop_loop, &s);
	ASSERT_EQ(loop_run(s.loop, &e), 0);
	ASSERT_EQ(s.r, 0);
	ASSERT_EQ(template_find(s.book, STR("base:v1"), &t, &e), -ENOENT);
	ASSERT_EQ(template_find(s.book, STR("base:latest.2"), &t, &e), 0);
}

TEST(a_tag_has_legal_characters_and_is_no_uuid)
{
	static const struct {
		const char *tag;
		bool ok;
	} cases[] = { { "v1.0-rc_2", true }, { "", false }, { "V1", false }, { "a b", false },
		{ "a:b", false }, { "5e6a4c1e-1b2c-4d3e-8f4a-5b6c7d8e9f0a", false } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		ASSERT_EQ(template_tag_ok(str_of(cases[i].tag)), cases[i].ok);
}
