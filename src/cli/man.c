/* Manual pages, made from the table that --help is made from. */
#include "cli/cli-internal.h"

enum {
	MAX_PAGE = 1 << 20,
};

/* Text as troff shall show it: no minus becomes a hyphen, no line becomes a request. */
static void add_text(struct buf *page, struct str text)
{
	bool at_start = true;

	for (size_t i = 0; i < text.n; i++) {
		char c = text.p[i];

		if (at_start && (c == '.' || c == '\''))
			(void)buf_adds(page, "\\&");
		if (c == '\\')
			(void)buf_adds(page, "\\e");
		else if (c == '-')
			(void)buf_adds(page, "\\-");
		else if (c == '\'')
			(void)buf_adds(page, "\\(aq");
		else if (c == '"')
			(void)buf_adds(page, "\\(dq");
		else
			(void)buf_addc(page, c);
		at_start = c == '\n';
	}
}

static void add(struct buf *page, const char *text)
{
	add_text(page, str_of(text));
}

static void add_name(struct buf *page, const struct cli_command *c)
{
	if (c->group) {
		add(page, c->group);
		(void)buf_addc(page, ' ');
	}
	add(page, c->name);
}

static void add_options(struct buf *page, const struct cli_option *options, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct cli_option *o = &options[i];

		(void)buf_adds(page, ".TP\n");
		if (o->letter) {
			(void)buf_adds(page, "\\fB\\-");
			(void)buf_addc(page, o->letter);
			(void)buf_adds(page, "\\fR, ");
		}
		(void)buf_adds(page, "\\fB\\-\\-");
		add(page, o->name);
		(void)buf_adds(page, "\\fR");
		if (o->value) {
			(void)buf_adds(page, " \\fI");
			add(page, o->value);
			(void)buf_adds(page, "\\fR");
		}
		(void)buf_addc(page, '\n');
		add(page, o->help);
		(void)buf_addc(page, '\n');
	}
}

static void add_command(struct buf *page, const struct cli_command *c)
{
	(void)buf_adds(page, ".SS ");
	add_name(page, c);
	(void)buf_adds(page, "\n.B atoll ");
	add_name(page, c);
	(void)buf_adds(page, "\n[OPTIONS] ");
	add(page, c->words);
	(void)buf_adds(page, "\n.PP\n");
	add(page, c->summary);
	(void)buf_adds(page, ".\n");
	if (c->detail) {
		add(page, c->detail);
		(void)buf_addc(page, '\n');
	}
	add_options(page, c->options, c->n_options);
	(void)buf_adds(page, ".PP\nExamples:\n.PP\n.nf\n.RS\n");
	add(page, c->examples);
	(void)buf_adds(page, "\n.RE\n.fi\n");
}

/* The other pages: there is one for each group, and one for all. */
static void add_see_also(struct buf *page, const struct cli_group *group)
{
	const char *comma = "";

	(void)buf_adds(page, ".SH SEE ALSO\n");
	if (group)
		(void)buf_adds(page, "\\fBatoll\\fR(1)\n");
	for (size_t i = 0; !group && i < cli_n_groups; i++) {
		(void)buf_printf(page, "%s\\fBatoll\\-%s\\fR(1)", comma, cli_groups[i].name);
		comma = ",\n";
	}
	(void)buf_addc(page, '\n');
}

static bool is_on_page(const struct cli_command *c, const struct cli_group *group,
	const struct cli_command *command)
{
	if (command)
		return c == command;
	return group ? c->group && strcmp(c->group, group->name) == 0 : true;
}

static void add_head(struct buf *page, const char *title, const char *summary)
{
	(void)buf_adds(page, ".TH \"");
	for (const char *p = title; *p; p++)
		(void)buf_addc(page, *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p);
	(void)buf_adds(page, "\" 1 \"\" \"atoll " ATOLL_VERSION "\" \"Atoll\"\n.SH NAME\n");
	add(page, title);
	(void)buf_adds(page, " \\- ");
	add(page, summary);
	(void)buf_adds(page, "\n.SH SYNOPSIS\n.B atoll\n[COMMAND] [OPTIONS] [WORD...]\n");
}

static void add_tail(struct buf *page)
{
	static const struct {
		const char *code, *meaning;
	} exits[] = { { "0", "it was done" }, { "1", "it failed" }, { "2", "wrong usage" },
		{ "3", "there is no such thing" }, { "4", "the key is missing or wrong" },
		{ "5", "the sandbox is in the wrong state" }, { "6", "a limit was reached" },
		{ "7", "the server cannot be reached" },
		{ "124, 125, 126, 127, 128+N",
			"of run, exec and connect, which otherwise pass the command's own code on: "
			"--timeout was reached, atoll failed, it cannot be started, it is not "
			"there, signal N ended it" } };

	(void)buf_adds(page, ".SH OPTIONS OF EVERY COMMAND\nBut of \\fBatoll serve\\fR.\n");
	add_options(page, cli_common_options, cli_n_common_options);
	(void)buf_adds(page, ".SH EXIT STATUS\n");
	for (size_t i = 0; i < ARRAY_SIZE(exits); i++) {
		(void)buf_adds(page, ".TP\n");
		add(page, exits[i].code);
		(void)buf_addc(page, '\n');
		add(page, exits[i].meaning);
		(void)buf_addc(page, '\n');
	}
	(void)buf_adds(page,
		".SH ENVIRONMENT\n.TP\n.B E2B_API_URL, E2B_API_KEY, E2B_SANDBOX_URL\n"
		"the server and the key\n.TP\n.B ATOLL_DATA\n"
		"a data directory, whose file env names them\n.TP\n"
		".B ATOLL_CA_FILE, SSL_CERT_FILE\n"
		"the authorities to trust instead of the system's, PEM; \\-\\-ca\\-file "
		"goes before both\n.TP\n.B NO_COLOR\n"
		"no colours\n");
}

int man_print(struct cli *cli, const struct cli_group *group, const struct cli_command *command)
{
	CLEANUP(buf_done) struct buf page = BUF_INIT(MAX_PAGE);
	struct jsonw *w = &cli->out.json_writer;
	const struct cli_command *c;
	const char *first = command && command->group ? command->group : group ? group->name : NULL;
	const char *title = arena_printf(cli->arena, "atoll%s%s%s%s", first ? "-" : "",
		first ? first : "", command ? "-" : "", command ? command->name : "");

	add_head(&page, title,
		command ? command->summary
		: group ? group->summary
			: "every agent gets its own computer");
	(void)buf_adds(&page, ".SH COMMANDS\n");
	for (size_t i = 0; (c = cli_command(i)); i++)
		if (is_on_page(c, group, command))
			add_command(&page, c);
	add_tail(&page);
	add_see_also(&page, first ? args_find_group(first) : NULL);
	if (page.failed)
		return err_set(&cli->e, -ENOBUFS, "the page is too long");
	if (cli->out.json) {
		jsonw_object(w, NULL);
		jsonw_strz(w, "name", title);
		jsonw_str(w, "text", buf_str(&page));
		jsonw_end_object(w);
		(void)buf_addc(&cli->out.text, '\n');
	} else {
		(void)buf_add_str(&cli->out.text, buf_str(&page));
	}
	return EXIT_OK;
}
