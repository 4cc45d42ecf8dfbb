#include "api/e2b/e2b.h"

#include "test.h"

DEFINE_CLEANUP(struct arena, arena_free)

TEST(names_are_folded_and_cut_into_parts)
{
	static const struct {
		const char *text;
		int want;
		const char *space, *alias, *tag, *clean;
	} cases[] = {
		{ "base", 0, NULL, "base", NULL, "base" },
		{ " Base ", 0, NULL, "base", NULL, "base" },
		{ "Team/Base:V1.2", 0, "team", "base", "v1.2", "base:v1.2" },
		{ "a:default", 0, NULL, "a", "default", "a:default" },
		{ "a_b-c: x ", 0, NULL, "a_b-c", "x", "a_b-c:x" },
		{ "", -EINVAL, NULL, NULL, NULL, NULL },
		{ ":", -EINVAL, NULL, NULL, NULL, NULL },
		{ "a:", -EINVAL, NULL, NULL, NULL, NULL },
		{ ":a", -EINVAL, NULL, NULL, NULL, NULL },
		{ "/a", -EINVAL, NULL, NULL, NULL, NULL },
		{ "a/", -EINVAL, NULL, NULL, NULL, NULL },
		{ "a/b/c", -EINVAL, NULL, NULL, NULL, NULL },
		{ "a:b:c", -EINVAL, NULL, NULL, NULL, NULL },
		{ "a:b/c", -EINVAL, NULL, NULL, NULL, NULL },
		{ "a.b", -EINVAL, NULL, NULL, NULL, NULL },
		{ "..", -EINVAL, NULL, NULL, NULL, NULL },
		{ "a b", -EINVAL, NULL, NULL, NULL, NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(arena_freep) struct arena *arena = arena_new(4096);
		struct api_name name;
		struct err e = { 0 };
		int r = api_name_read(arena, str_of(cases[i].text), &name, &e);

		if (r != cases[i].want)
			TEST_FAIL("'%s': %d %s", cases[i].text, r, e.msg);
		if (r < 0)
			continue;
		ASSERT(str_eq(name.space, str_of(cases[i].space)));
		ASSERT(str_eq(name.tag, str_of(cases[i].tag)));
		ASSERT_BYTES(name.alias, cases[i].alias);
		ASSERT_BYTES(name.clean, cases[i].clean);
	}
}

TEST(rows_come_after_the_cursor_in_both_orders)
{
	struct e2b_cursor c = { .is_set = true, .at_us = 100, .id = STR("m") };

	ASSERT(e2b_cursor_passed(&c, 99, "a"));
	ASSERT(!e2b_cursor_passed(&c, 101, "z"));
	ASSERT(e2b_cursor_passed(&c, 100, "n"));
	ASSERT(!e2b_cursor_passed(&c, 100, "m"));
	c.ascending = true;
	ASSERT(!e2b_cursor_passed(&c, 99, "a"));
	ASSERT(e2b_cursor_passed(&c, 101, "z"));
	ASSERT(e2b_cursor_passed(&c, 100, "l"));
	ASSERT(!e2b_cursor_passed(&c, 100, "m"));
	c.is_set = false;
	ASSERT(e2b_cursor_passed(&c, 100, "m"));
}
