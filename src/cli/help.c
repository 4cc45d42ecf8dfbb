/* Help is made from the table: at most one screen, examples first. */
#include "cli/cli-internal.h"

static void print_examples(struct out *out, const char *examples)
{
	struct str rest = str_of(examples), line;

	while (examples && str_split(&rest, '\n', &line))
		out_line(out, "  %.*s", STR_ARG(line));
}

static void print_options(struct out *out, const struct cli_option *options, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct cli_option *o = &options[i];
		char letter[8] = "   ", name[48];

		if (o->letter)
			(void)snprintf(letter, sizeof letter, "-%c,", o->letter);
		(void)snprintf(name, sizeof name, "--%s%s%s", o->name, o->value ? " " : "",
			o->value ? o->value : "");
		out_line(out, "  %s %-23s %s", letter, name, o->help);
	}
}

static void print_command(struct out *out, const struct cli_command *c)
{
	char name[64];

	(void)snprintf(name, sizeof name, "atoll %s%s%s", c->group ? c->group : "",
		c->group ? " " : "", c->name);
	out_marked(out, OUT_BOLD, name, ": %s\n", c->summary);
	print_examples(out, c->examples);
	out_line(out, "\nUsage: atoll %s%s%s [OPTIONS] %s", c->group ? c->group : "",
		c->group ? " " : "", c->name, c->words);
	if (c->detail)
		out_own(out, c->detail);
	out_line(out, "\nOptions:");
	print_options(out, c->options, c->n_options);
	if (!c->runs_alone)
		print_options(out, cli_common_options, cli_n_common_options);
	if (c->see_also)
		out_line(out, "\nSee also: %s", c->see_also);
}

static void print_list(struct out *out, const char *group)
{
	const struct cli_command *c;

	for (size_t i = 0; (c = cli_command(i)); i++) {
		char name[32];

		if (group && (!c->group || strcmp(c->group, group) != 0))
			continue;
		(void)snprintf(name, sizeof name, "%s%s%s", c->group ? c->group : "",
			c->group ? " " : "", c->name);
		out_line(out, "  %-19s %s", name, c->summary);
	}
}

static void print_all(struct out *out)
{
	out_line(out, "atoll: every agent gets its own computer\n");
	print_examples(out,
		"atoll serve\natoll run base -- uname -a\natoll sandbox exec -it ID bash");
	out_line(out, "\nCommands ('sbx' and 'tpl' are short for 'sandbox' and 'template'):");
	print_list(out, NULL);
	out_line(out, "\nOptions of every command:");
	print_options(out, cli_common_options, cli_n_common_options);
	out_line(out,
		"\nServer and key come from the first of:\n"
		"  1. DIR/env of --data DIR\n"
		"  2. E2B_API_URL, E2B_API_KEY and E2B_SANDBOX_URL in the environment\n"
		"  3. DIR/env of ATOLL_DATA\n"
		"  4. atoll-data/env in the current directory\n"
		"  5. http://127.0.0.1:3000\n"
		"A private authority of its certificate is named by --ca-file, ATOLL_CA_FILE\n"
		"or SSL_CERT_FILE.\n"
		"\nExit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 key, 5 wrong state,\n"
		"  6 limit, 7 server unreachable. run and exec pass the command's own on;\n"
		"  there 125 is a failure of atoll.");
}

static void json_options(struct jsonw *w, const struct cli_option *options, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char letter[2] = { options[i].letter, '\0' };

		jsonw_object(w, NULL);
		jsonw_strz(w, "name", options[i].name);
		jsonw_strz(w, "letter", letter[0] ? letter : NULL);
		jsonw_strz(w, "value", options[i].value);
		jsonw_strz(w, "help", options[i].help);
		jsonw_end_object(w);
	}
}

static void json_command(struct jsonw *w, const struct cli_command *c)
{
	jsonw_object(w, NULL);
	jsonw_strz(w, "group", c->group);
	jsonw_strz(w, "name", c->name);
	jsonw_strz(w, "alias", c->guess);
	jsonw_strz(w, "words", c->words);
	jsonw_strz(w, "summary", c->summary);
	jsonw_strz(w, "detail", c->detail);
	jsonw_strz(w, "examples", c->examples);
	jsonw_array(w, "options");
	json_options(w, c->options, c->n_options);
	if (!c->runs_alone)
		json_options(w, cli_common_options, cli_n_common_options);
	jsonw_end_array(w);
	jsonw_end_object(w);
}

static void json_help(struct out *out, const struct cli_group *group,
	const struct cli_command *command)
{
	struct jsonw *w = &out->json_writer;
	const struct cli_command *c;

	jsonw_object(w, NULL);
	jsonw_array(w, "commands");
	for (size_t i = 0; (c = cli_command(i)); i++) {

		if (command ? c == command
			    : !group || (c->group && strcmp(c->group, group->name) == 0))
			json_command(w, c);
	}
	jsonw_end_array(w);
	jsonw_end_object(w);
	(void)buf_addc(&out->text, '\n');
}

int help_print(struct cli *cli, const struct cli_group *group, const struct cli_command *command)
{
	struct out *out = &cli->out;

	if (out->json) {
		json_help(out, group, command);
	} else if (command) {
		print_command(out, command);
	} else if (group) {
		out_line(out, "atoll %s: %s\n\nCommands:", group->name, group->summary);
		print_list(out, group->name);
		out_line(out, "\n'atoll help %s COMMAND' tells more.", group->name);
	} else {
		print_all(out);
	}
	return EXIT_OK;
}

int cmd_help(struct cli *cli)
{
	const struct cli_group *group = NULL;
	const struct cli_command *command = NULL;
	size_t at = 0;

	if (cli->args.n_words > 0) {
		group = args_find_group(cli->args.words[0]);
		at = group ? 1 : 0;
	}
	if (at < cli->args.n_words) {
		command = args_find(group ? group->name : NULL, cli->args.words[at]);
		if (!command || at + 1 < cli->args.n_words)
			return args_unknown(group ? group->name : NULL,
				cli->args.words[cli->args.n_words - 1], cli->hint, sizeof cli->hint,
				&cli->e);
	}
	return args_has(&cli->args, "man") ? man_print(cli, group, command)
					   : help_print(cli, group, command);
}

int cmd_version(struct cli *cli)
{
	struct jsonw *w = &cli->out.json_writer;

	if (!cli->out.json) {
		out_line(&cli->out, "atoll %s", ATOLL_VERSION);
		return EXIT_OK;
	}
	jsonw_object(w, NULL);
	jsonw_strz(w, "version", ATOLL_VERSION);
	jsonw_end_object(w);
	(void)buf_addc(&cli->out.text, '\n');
	return EXIT_OK;
}
