#include "base/base.h"
#include "base/glob.h"

#include "test.h"

TEST(names_match_as_in_a_shell)
{
	static const struct {
		const char *pattern, *name;
		bool want;
	} cases[] = {
		{ "a", "a", true },
		{ "a", "ab", false },
		{ "", "", true },
		{ "", "a", false },
		{ "*", "", true },
		{ "*", "anything", true },
		{ "*", ".hidden", false },
		{ "?hidden", ".hidden", false },
		{ "[.]hidden", ".hidden", false },
		{ ".*", ".hidden", true },
		{ "\\.*", ".hidden", true },
		{ "*.c", "a.c", true },
		{ "*.c", "a.cc", false },
		{ "a*b*c", "aXbYc", true },
		{ "a*b*c", "aXbY", false },
		{ "**a**", "bab", true },
		{ "?", "a", true },
		{ "?", "", false },
		{ "??", "a", false },
		{ "[abc]x", "bx", true },
		{ "[a-c]x", "dx", false },
		{ "[!a-c]x", "dx", true },
		{ "[^a]", "a", false },
		{ "[]]", "]", true },
		{ "[!]]", "]", false },
		{ "[a-]", "-", true },
		{ "[z-a]", "m", false },
		{ "[ab", "[ab", true },
		{ "[", "[", true },
		{ "\\*", "*", true },
		{ "\\*", "a", false },
		{ "a\\", "a\\", true },
		{ "\xc3\xa9*", "\xc3\xa9t\xc3\xa9", true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct glob g;

		ASSERT_EQ(glob_compile(&g, str_of(cases[i].pattern)), 0);
		if (glob_matches(&g, str_of(cases[i].name)) != cases[i].want)
			TEST_FAIL("'%s' and '%s'", cases[i].pattern, cases[i].name);
	}
}

TEST(patterns_and_names_have_their_limits)
{
	char text[2 * GLOB_PARTS_MAX + 2];
	struct glob g;

	memset(text, 'a', sizeof text);
	ASSERT_EQ(glob_compile(&g, str_make(text, GLOB_PARTS_MAX)), 0);
	ASSERT(glob_matches(&g, str_make(text, GLOB_NAME_MAX)));
	ASSERT(!glob_matches(&g, str_make(text, GLOB_NAME_MAX - 1)));
	ASSERT_EQ(glob_compile(&g, str_make(text, GLOB_PARTS_MAX + 1)), -E2BIG);
	ASSERT_EQ(glob_compile(&g, STR("*")), 0);
	ASSERT(!glob_matches(&g, str_make(text, GLOB_NAME_MAX + 1)));
}

/* One that tries again behind every star would not end. */
TEST(many_stars_cost_nothing)
{
	char pattern[2 * GLOB_PARTS_MAX], name[GLOB_NAME_MAX];
	struct glob g;

	for (size_t i = 0; i < sizeof pattern; i++)
		pattern[i] = i % 2 ? 'a' : '*';
	pattern[sizeof pattern - 1] = 'b';
	memset(name, 'a', sizeof name);
	ASSERT_EQ(glob_compile(&g, str_make(pattern, sizeof pattern)), 0);
	for (int i = 0; i < 1000; i++)
		ASSERT(!glob_matches(&g, str_make(name, sizeof name)));
	name[sizeof name - 1] = 'b';
	ASSERT(glob_matches(&g, str_make(name, sizeof name)));
}
