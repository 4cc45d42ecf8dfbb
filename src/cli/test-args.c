#include "cli/cli-internal.h"
#include "test.h"

struct parsed {
	struct args args;
	char hint[CLI_HINT];
	struct err e;
	char *argv[16];
	char text[512];
	int r;
};

static void parsed_done(struct parsed *p)
{
	args_done(&p->args);
}

/* Words separated by single spaces; "_" stands for an empty one. */
static void parse(struct parsed *p, const char *line)
{
	int n = 0;
	char *rest;

	*p = (struct parsed){ 0 };
	rest = p->text;
	(void)snprintf(p->text, sizeof p->text, "atoll%s%s", *line ? " " : "", line);
	for (char *word = strsep(&rest, " "); word; word = strsep(&rest, " "))
		p->argv[n++] = strcmp(word, "_") == 0 ? word + 1 : word;
	p->r = args_parse(n, p->argv, &p->args, p->hint, sizeof p->hint, &p->e);
}

TEST(finds_commands_by_name_alias_and_guess)
{
	static const struct {
		const char *line, *group, *name;
	} cases[] = {
		{ "version", NULL, "version" },
		{ "sandbox ls", "sandbox", "ls" },
		{ "sbx list", "sandbox", "ls" },
		{ "sbx rm x", "sandbox", "kill" },
		{ "sandbox get x", "sandbox", "info" },
		{ "key rm x", "key", "revoke" },
		{ "--json sandbox -q ls", "sandbox", "ls" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(parsed_done) struct parsed p = { 0 };

		parse(&p, cases[i].line);
		ASSERT_EQ(p.r, 0);
		ASSERT_STR(p.args.command->name, cases[i].name);
		ASSERT(cases[i].group ? strcmp(p.args.command->group, cases[i].group) == 0
				      : !p.args.command->group);
	}
}

TEST(takes_options_in_every_form)
{
	CLEANUP(parsed_done) struct parsed p = { 0 };
	size_t at = 0;

	parse(&p, "sandbox exec -itu root -eA=1 -e B=2 --env=C=3 --timeout 5m i1 ls");
	ASSERT_EQ(p.r, 0);
	ASSERT(args_has(&p.args, "interactive") && args_has(&p.args, "tty"));
	ASSERT_STR(args_value(&p.args, "user"), "root");
	ASSERT_STR(args_value(&p.args, "timeout"), "5m");
	ASSERT_STR(args_next(&p.args, "env", &at), "A=1");
	ASSERT_STR(args_next(&p.args, "env", &at), "B=2");
	ASSERT_STR(args_next(&p.args, "env", &at), "C=3");
	ASSERT(args_next(&p.args, "env", &at) == NULL);
	ASSERT(!args_value(&p.args, "cwd") && !args_has(&p.args, "json"));
}

TEST(command_line_after_the_border_is_left_alone)
{
	static const struct {
		const char *line;
		size_t n;
		const char *first;
		bool json;
	} cases[] = {
		{ "sbx exec i1 -- ls -l --json", 3, "ls", false },
		{ "sbx exec i1 --json -- -x", 1, "-x", true },
		{ "sbx exec i1 ls --json", 2, "ls", false },
		{ "sbx exec --json i1 ls -- x", 3, "ls", true },
		{ "run base", 0, NULL, false },
		{ "run base --", 0, NULL, false },
		{ "run base -- _ --", 2, "", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(parsed_done) struct parsed p = { 0 };

		parse(&p, cases[i].line);
		ASSERT_EQ(p.r, 0);
		ASSERT_EQ(p.args.n_words, 1);
		ASSERT_EQ(p.args.n_command_line, cases[i].n);
		ASSERT_EQ(args_has(&p.args, "json"), cases[i].json);
		if (cases[i].first)
			ASSERT_STR(p.args.command_line[0], cases[i].first);
	}
}

TEST(mistakes_are_named_and_mended)
{
	static const struct {
		const char *line, *message, *hint;
	} cases[] = {
		{ "sandbx ls", "unknown command 'sandbx'", "did you mean 'atoll sandbox'?" },
		{ "sbx lst", "unknown command 'sandbox lst'", "did you mean 'atoll sandbox ls'?" },
		{ "sbx ilst", "unknown command 'sandbox ilst'",
			"did you mean 'atoll sandbox ls'?" },
		{ "exec i1", "unknown command 'exec'", "did you mean 'atoll sandbox exec'?" },
		{ "frobnicate", "unknown command 'frobnicate'", "'atoll help' lists them" },
		{ "key frobnicate", "unknown command 'key frobnicate'",
			"'atoll help key' lists them" },
		{ "sbx ls --jsno", "unknown option '--jsno'", "did you mean '--json'?" },
		{ "sbx ls --frobnicate=1", "unknown option '--frobnicate'", "" },
		{ "sbx ls -z", "unknown option '-z'", "" },
		{ "sbx create --timeout", "option --timeout needs a value: TIME", "" },
		{ "sbx create --timeout --json", "option --timeout needs a value: TIME", "" },
		{ "sbx exec -u", "option -u needs a value: NAME", "" },
		{ "sbx ls --json=yes", "option --json takes no value", "" },
		{ "sbx info", "too few arguments", "usage: atoll sandbox info SANDBOX" },
		{ "sbx ls x", "unexpected argument 'x'", "usage: atoll sandbox ls " },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(parsed_done) struct parsed p = { 0 };

		parse(&p, cases[i].line);
		ASSERT_EQ(p.r, -EINVAL);
		ASSERT_STR(p.e.msg, cases[i].message);
		ASSERT_STR(p.hint, cases[i].hint);
	}
}

TEST(json_counts_even_behind_a_mistake)
{
	CLEANUP(parsed_done) struct parsed p = { 0 };
	CLEANUP(parsed_done) struct parsed q = { 0 };

	parse(&p, "sbx lst --json");
	ASSERT(p.r == -EINVAL && args_has(&p.args, "json"));
	parse(&q, "sbx exec --wrong i1 -- cat --json");
	ASSERT(q.r == -EINVAL && !args_has(&q.args, "json"));
}

TEST(help_is_understood_everywhere)
{
	static const char *const lines[] = { "--help", "sbx -h", "sandbox exec --help", "run -h" };

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		CLEANUP(parsed_done) struct parsed p = { 0 };

		parse(&p, lines[i]);
		ASSERT(p.r == 0 && p.args.wants_help);
	}
}

TEST(distance_counts_edits_and_swaps)
{
	ASSERT_EQ(args_distance("", ""), 0);
	ASSERT_EQ(args_distance("ls", ""), 2);
	ASSERT_EQ(args_distance("exec", "exce"), 1);
	ASSERT_EQ(args_distance("sandbox", "sandbx"), 1);
	ASSERT_EQ(args_distance("kitten", "sitting"), 3);
}

TEST(times_are_seconds_or_have_a_unit)
{
	static const struct {
		const char *text;
		int64_t seconds; /* 0: refused */
	} cases[] = { { "1", 1 }, { "90s", 90 }, { "5m", 300 }, { "2h", 7200 }, { "1d", 86400 },
		{ "0", 0 }, { "", 0 }, { "s", 0 }, { "-1", 0 }, { "1.5h", 0 }, { "5x", 0 },
		{ "99999999999", 0 }, { "367d", 0 } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int64_t got = 0;
		int r = args_seconds("timeout", cases[i].text, &got, NULL);

		ASSERT_EQ(r, cases[i].seconds ? 0 : -EINVAL);
		ASSERT_EQ(got, cases[i].seconds);
	}
}

TEST(sizes_are_mebibytes_or_have_a_unit)
{
	static const struct {
		const char *text;
		int64_t mib; /* 0: not one */
	} cases[] = { { "512", 512 }, { "512M", 512 }, { "512MiB", 512 }, { "4G", 4096 },
		{ "4GiB", 4096 }, { "1TiB", 1 << 20 }, { "1073741824", 1 << 30 }, { "", 0 },
		{ "0", 0 }, { "-1", 0 }, { "1 GiB", 0 }, { "1.5G", 0 }, { "GiB", 0 }, { "5KiB", 0 },
		{ "1073741825", 0 }, { "1025TiB", 0 }, { "99999999999999999999", 0 } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int64_t got = 0;
		int r = args_mib(cases[i].text, &got);

		if (r != (cases[i].mib ? 0 : -EINVAL) || got != cases[i].mib)
			TEST_FAIL("'%s': %d %" PRId64, cases[i].text, r, got);
	}
}

static bool options_are_in_order(const struct cli_command *c)
{
	for (size_t i = 0; i < c->n_options; i++)
		for (size_t j = i + 1; j < c->n_options; j++)
			if (strcmp(c->options[i].name, c->options[j].name) >= 0 ||
				(c->options[i].letter &&
					c->options[i].letter == c->options[j].letter))
				return false;
	return true;
}

/* The table itself: what the parser and the help take for granted. */
TEST(table_is_complete_and_without_clashes)
{
	const struct cli_command *c;

	for (size_t i = 0; (c = cli_command(i)); i++) {

		ASSERT(c->name && c->summary && c->words && c->examples && c->run);
		ASSERT(!c->group || args_find_group(c->group));
		ASSERT(args_find(c->group, c->name) == c);
		ASSERT(!c->guess || args_find(c->group, c->guess) == c);
		ASSERT(options_are_in_order(c));
	}
}
