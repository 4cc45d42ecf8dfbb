#include "template/template.h"

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
		"1\"\n");
	ASSERT_EQ(template_book_new(dir, &book, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(spellings); i++) {
		ASSERT_EQ(template_find(book, str_of(spellings[i]), &t, &e), 0);
		ASSERT_STR(t.name, "base");
	}
	ASSERT_EQ(t.cpu, 4);
	ASSERT_EQ(t.memory_mb, 512);
	ASSERT_STR(t.user, "root");
	ASSERT_STR(t.workdir, "/srv");
	ASSERT_STR(t.start, "sleep 1");
	ASSERT_EQ(template_find(book, str_of(t.id), &by_id, &e), 0);
	ASSERT_STR(by_id.name, "base");
	(void)dir_remove_tree(AT_FDCWD, dir, &e);
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
