#include "cli/args.h"

enum {
	MAX_WORD = 64, /* of a name that is compared; a longer one is nobody's typo */
	MAX_SECONDS = 366 * 24 * 3600,
	MAX_MIB = 1 << 30,
};

struct parser {
	struct args *args;
	char *hint;
	size_t hint_size;
	struct err *e;
	bool options_over;
};

void args_done(struct args *args)
{
	free(args->options);
	free(args->words);
	*args = (struct args){ 0 };
}

/* ---- looking things up ---- */

const struct cli_group *args_find_group(const char *name)
{
	for (size_t i = 0; i < cli_n_groups; i++)
		if (strcmp(cli_groups[i].name, name) == 0 ||
			(cli_groups[i].alias && strcmp(cli_groups[i].alias, name) == 0))
			return &cli_groups[i];
	return NULL;
}

static bool same_group(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

const struct cli_command *args_find(const char *group, const char *name)
{
	const struct cli_command *c;

	for (size_t i = 0; (c = cli_command(i)); i++) {

		if (same_group(c->group, group) &&
			(strcmp(c->name, name) == 0 || (c->guess && strcmp(c->guess, name) == 0)))
			return c;
	}
	return NULL;
}

static const struct cli_option *find_in(const struct cli_option *options, size_t n,
	const char *name, size_t name_n, char letter)
{
	for (size_t i = 0; i < n; i++)
		if (letter ? options[i].letter == letter
			   : strlen(options[i].name) == name_n &&
					memcmp(options[i].name, name, name_n) == 0)
			return &options[i];
	return NULL;
}

static const struct cli_option *find_option(const struct cli_command *command, const char *name,
	size_t name_n, char letter)
{
	const struct cli_option *found = NULL;

	if (command)
		found = find_in(command->options, command->n_options, name, name_n, letter);
	return found ? found
		     : find_in(cli_common_options, cli_n_common_options, name, name_n, letter);
}

size_t args_distance(const char *a, const char *b)
{
	size_t rows[3][MAX_WORD + 1], na = strlen(a), nb = strlen(b);

	if (na > MAX_WORD || nb > MAX_WORD)
		return MAX_WORD;
	for (size_t j = 0; j <= nb; j++)
		rows[0][j] = j;
	for (size_t i = 1; i <= na; i++) {
		size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_up = rows[(i + 1) % 3];

		row[0] = i;
		for (size_t j = 1; j <= nb; j++) {
			row[j] = MIN(MIN(above[j], row[j - 1]) + 1,
				above[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = MIN(row[j], two_up[j - 2] + 1);
		}
	}
	return rows[na % 3][nb];
}

/* ---- "did you mean" ---- */

struct nearest {
	const char *typed;
	const char *group, *name;
	size_t distance;
};

static void consider(struct nearest *best, const char *word, const char *group, const char *name)
{
	size_t d = word ? args_distance(best->typed, word) : MAX_WORD;

	/* Two edits at most, and fewer in short words: `ls` is not near `rm`. */
	if (d >= best->distance || d > 2 || d * 2 > strlen(best->typed))
		return;
	*best = (struct nearest){ best->typed, group, name, d };
}

static void nearest_command(struct nearest *best, const char *group)
{
	const struct cli_command *c;

	for (size_t i = 0; (c = cli_command(i)); i++) {

		if (same_group(c->group, group)) {
			consider(best, c->name, group, c->name);
			consider(best, c->guess, group, c->name);
		} else if (!group && strcmp(c->name, best->typed) == 0) {
			/* `atoll exec` for `atoll sandbox exec`. */
			*best = (struct nearest){ best->typed, c->group, c->name, 0 };
		}
	}
	for (size_t i = 0; !group && i < cli_n_groups; i++) {
		consider(best, cli_groups[i].name, NULL, cli_groups[i].name);
		consider(best, cli_groups[i].alias, NULL, cli_groups[i].name);
	}
}

int args_unknown(const char *group, const char *typed, char *hint, size_t hint_size, struct err *e)
{
	const char *space = group ? " " : "";
	struct nearest best = { .typed = typed, .distance = MAX_WORD };

	nearest_command(&best, group);
	if (best.name)
		(void)snprintf(hint, hint_size, "did you mean 'atoll %s%s%s'?",
			best.group ? best.group : "", best.group ? " " : "", best.name);
	else
		(void)snprintf(hint, hint_size, "'atoll help%s%s' lists them", space,
			group ? group : "");
	return err_set(e, -EINVAL, "unknown command '%s%s%s'", group ? group : "", space, typed);
}

static int unknown_option(struct parser *p, const char *typed)
{
	const struct cli_command *c = p->args->command;
	size_t n = strcspn(typed, "=");
	char name[MAX_WORD + 1];
	struct nearest best = { .typed = name, .distance = MAX_WORD };

	(void)snprintf(name, sizeof name, "%.*s", (int)MIN(n - 2, sizeof name - 1), typed + 2);
	for (size_t i = 0; c && i < c->n_options; i++)
		consider(&best, c->options[i].name, NULL, c->options[i].name);
	for (size_t i = 0; i < cli_n_common_options; i++)
		consider(&best, cli_common_options[i].name, NULL, cli_common_options[i].name);
	if (best.name)
		(void)snprintf(p->hint, p->hint_size, "did you mean '--%s'?", best.name);
	return err_set(p->e, -EINVAL, "unknown option '%.*s'", (int)n, typed);
}

/* ---- parsing ---- */

static void put_option(struct args *args, const struct cli_option *option, const char *value)
{
	args->options[args->n_options++] = (struct arg_option){ option, value };
	if (strcmp(option->name, "help") == 0)
		args->wants_help = true;
}

/* A value that looks like an option is a forgotten one; `--name=--value` says that it is meant. */
static bool has_value(char **argv, int left)
{
	return left >= 2 && strncmp(argv[1], "--", 2) != 0;
}

static int long_option(struct parser *p, char **argv, int left)
{
	const char *typed = argv[0] + 2, *equals = strchr(typed, '=');
	size_t n = equals ? (size_t)(equals - typed) : strlen(typed);
	const struct cli_option *o = find_option(p->args->command, typed, n, 0);

	if (!o)
		return unknown_option(p, argv[0]);
	if (!o->value && equals)
		return err_set(p->e, -EINVAL, "option --%s takes no value", o->name);
	if (!o->value || equals) {
		put_option(p->args, o, o->value ? equals + 1 : NULL);
		return 1;
	}
	if (!has_value(argv, left))
		return err_set(p->e, -EINVAL, "option --%s needs a value: %s", o->name, o->value);
	put_option(p->args, o, argv[1]);
	return 2;
}

static int short_options(struct parser *p, char **argv, int left)
{
	for (const char *at = argv[0] + 1; *at; at++) {
		const struct cli_option *o = find_option(p->args->command, NULL, 0, *at);

		if (!o)
			return err_set(p->e, -EINVAL, "unknown option '-%c'", *at);
		if (!o->value) {
			put_option(p->args, o, NULL);
			continue;
		}
		if (at[1]) {
			put_option(p->args, o, at + 1);
			return 1;
		}
		if (!has_value(argv, left))
			return err_set(p->e, -EINVAL, "option -%c needs a value: %s", *at,
				o->value);
		put_option(p->args, o, argv[1]);
		return 2;
	}
	return 1;
}

static int command_word(struct parser *p, const char *word)
{
	struct args *args = p->args;

	if (!args->group) {
		args->group = args_find_group(word);
		if (args->group)
			return 1;
	}
	args->command = args_find(args->group ? args->group->name : NULL, word);
	if (args->command)
		return 1;
	return args_unknown(args->group ? args->group->name : NULL, word, p->hint, p->hint_size,
		p->e);
}

static void rest_is_command(struct args *args, char **argv, int left)
{
	args->command_line = argv;
	args->n_command_line = (size_t)left;
}

/* Takes one argument or an option with its value: how many were used, all for a command line. */
static int step(struct parser *p, char **argv, int left)
{
	struct args *args = p->args;
	const struct cli_command *c = args->command;
	const char *word = argv[0];

	if (!p->options_over && word[0] == '-' && word[1]) {
		if (word[1] != '-')
			return short_options(p, argv, left);
		if (word[2])
			return long_option(p, argv, left);
		p->options_over = true;
		if (c && c->takes_command)
			rest_is_command(args, argv + 1, left - 1);
		return c && c->takes_command ? left : 1;
	}
	if (!c)
		return command_word(p, word);
	if (c->takes_command && args->n_words >= 1) {
		rest_is_command(args, argv, left);
		return left;
	}
	args->words[args->n_words++] = argv[0];
	return 1;
}

static int check_words(struct parser *p)
{
	const struct cli_command *c = p->args->command;
	size_t n = p->args->n_words;

	if (!c || p->args->wants_help)
		return 0;
	(void)snprintf(p->hint, p->hint_size, "usage: atoll %s%s%s %s", c->group ? c->group : "",
		c->group ? " " : "", c->name, c->words);
	if (n < (size_t)c->min_words)
		return err_set(p->e, -EINVAL, "too few arguments");
	if (c->max_words >= 0 && n > (size_t)c->max_words)
		return err_set(p->e, -EINVAL, "unexpected argument '%s'",
			p->args->words[c->max_words]);
	p->hint[0] = '\0';
	return 0;
}

/* A script that wants documents gets one also for a mistake that stands before its --json. */
static void salvage_json(struct args *args, char **argv, int left)
{
	for (int i = 0; i < left && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--json") == 0) {
			put_option(args, find_option(NULL, "json", 4, 0), NULL);
			return;
		}
}

int args_parse(int argc, char **argv, struct args *ret, char *hint, size_t hint_size, struct err *e)
{
	struct parser p = { .args = ret, .hint = hint, .hint_size = hint_size, .e = e };
	size_t n_switches = 0;

	/* Letters can be bundled: no argument holds more options than it has characters. */
	for (int i = 1; i < argc; i++)
		n_switches += strlen(argv[i]) + 1;
	*ret = (struct args){ 0 };
	ret->options = XNEW_N(struct arg_option, n_switches + 1);
	ret->words = XNEW_N(char *, (size_t)argc + 1);
	for (int at = 1; at < argc;) {
		int used = step(&p, argv + at, argc - at);

		if (used < 0) {
			salvage_json(ret, argv + at, argc - at);
			return used;
		}
		at += used;
	}
	return check_words(&p);
}

/* ---- asking ---- */

const char *args_next(const struct args *args, const char *option, size_t *at)
{
	for (; *at < args->n_options; (*at)++)
		if (strcmp(args->options[*at].option->name, option) == 0)
			return args->options[(*at)++].value;
	return NULL;
}

bool args_has(const struct args *args, const char *option)
{
	for (size_t i = 0; i < args->n_options; i++)
		if (strcmp(args->options[i].option->name, option) == 0)
			return true;
	return false;
}

const char *args_value(const struct args *args, const char *option)
{
	const char *value = NULL, *next;
	size_t at = 0;

	while ((next = args_next(args, option, &at)))
		value = next;
	return value;
}

int args_number(const char *what, const char *text, int64_t min, int64_t max, int64_t *ret,
	struct err *e)
{
	if (str_to_int(str_of(text), min, max, ret) == 0)
		return 0;
	return err_set(e, -EINVAL, "%s: '%s' is not a number from %" PRId64 " to %" PRId64, what,
		text, min, max);
}

int args_seconds(const char *option, const char *text, int64_t *ret, struct err *e)
{
	static const struct {
		char unit;
		int64_t seconds;
	} units[] = { { 's', 1 }, { 'm', 60 }, { 'h', 3600 }, { 'd', 86400 } };
	struct str s = str_of(text);
	int64_t n, factor = 1;

	for (size_t i = 0; s.n > 1 && i < ARRAY_SIZE(units); i++)
		if (text[strlen(text) - 1] == units[i].unit) {
			factor = units[i].seconds;
			s.n = strlen(text) - 1;
		}
	if (str_to_int(s, 1, MAX_SECONDS / factor, &n) < 0)
		return err_set(e, -EINVAL,
			"--%s: '%s' is not a time; seconds, or like 90s, 5m, 2h, 1d", option, text);
	*ret = n * factor;
	return 0;
}

int args_mib(const char *text, int64_t *ret)
{
	static const struct {
		const char *unit;
		int64_t mib;
	} units[] = { { "", 1 }, { "M", 1 }, { "MiB", 1 }, { "G", 1 << 10 }, { "GiB", 1 << 10 },
		{ "T", 1 << 20 }, { "TiB", 1 << 20 } };
	size_t digits = strspn(text, "0123456789");
	int64_t n;

	for (size_t i = 0; digits && i < ARRAY_SIZE(units); i++)
		if (strcmp(text + digits, units[i].unit) == 0 &&
			str_to_int(str_make(text, digits), 1, MAX_MIB / units[i].mib, &n) >= 0) {
			*ret = n * units[i].mib;
			return 0;
		}
	return -EINVAL;
}
