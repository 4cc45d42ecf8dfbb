/* One table says what an error means for scripts (exit code, name) and for people (hint). */
#include "cli/cli-internal.h"

static const struct cli_failure failures[] = {
	{ -EINVAL, EXIT_USAGE, "usage", NULL }, { -ENOTUNIQ, EXIT_USAGE, "ambiguous", NULL },
	{ -ENOENT, EXIT_NOT_FOUND, "not_found", NULL },
	{ -EACCES, EXIT_AUTH, "unauthorized",
		"set E2B_API_KEY, or --data DIR for the key of a server on this machine" },
	{ -EBUSY, EXIT_STATE, "wrong_state", NULL }, { -EDQUOT, EXIT_LIMIT, "limit", NULL },
	{ -ENOSPC, EXIT_LIMIT, "no_space", NULL },
	{ -ECONNREFUSED, EXIT_UNREACHABLE, "unreachable",
		"is it running? 'atoll serve' starts it" },
	{ -EHOSTUNREACH, EXIT_UNREACHABLE, "unreachable", NULL },
	{ -ECONNRESET, EXIT_UNREACHABLE, "unreachable", NULL },
	{ -ETIMEDOUT, EXIT_UNREACHABLE, "timeout", NULL },
	{ -EKEYREJECTED, EXIT_UNREACHABLE, "certificate",
		"trust its authority with --ca-file FILE, ATOLL_CA_FILE or SSL_CERT_FILE" },
	{ -EPROTO, EXIT_UNREACHABLE, "protocol", "is this the address of an Atoll or E2B server?" },
	{ -EBADMSG, EXIT_FAILED, "bad_request", NULL },
	{ -EAGAIN, EXIT_FAILED, "unavailable", "try again in a moment" },
	{ -EPIPE, EXIT_SIGNAL + 13, "pipe", NULL }, /* as a program that SIGPIPE ended */
};

const struct cli_failure *cli_failure_of(int code)
{
	static const struct cli_failure other = { 0, EXIT_FAILED, "failed", NULL };

	for (size_t i = 0; i < ARRAY_SIZE(failures); i++)
		if (failures[i].code == code)
			return &failures[i];
	return &other;
}

void cli_failure_members(struct cli *cli, struct jsonw *w)
{
	const struct cli_failure *f = cli_failure_of(cli->e.code);

	jsonw_strz(w, "code", f->name);
	jsonw_strz(w, "message", cli->e.msg);
	jsonw_strz(w, "hint", cli->hint[0] ? cli->hint : f->hint);
}

static void report_json(struct cli *cli, int exit_code)
{
	struct out *out = &cli->out;
	struct jsonw *w = &out->json_writer;

	buf_clear(&out->text); /* exactly one document: half of another does not count */
	jsonw_init(w, &out->text);
	jsonw_object(w, NULL);
	if (exit_code == EXIT_OURS) {
		jsonw_strz(w, "source", "atoll");
		jsonw_int(w, "exit_code", exit_code);
	}
	cli_failure_members(cli, w);
	jsonw_end_object(w);
	(void)buf_addc(&out->text, '\n');
}

static void report_text(const struct cli *cli)
{
	const struct cli_failure *f = cli_failure_of(cli->e.code);
	const char *hint = cli->hint[0] ? cli->hint : f->hint;

	out_warn(&cli->out, "%s", cli->e.msg);
	if (hint)
		out_aside(&cli->out, "  %s", hint);
}

int cli_report(struct cli *cli)
{
	const struct cli_command *c = cli->args.command;
	const struct cli_failure *f = cli_failure_of(cli->e.code);
	int exit_code = c && c->passes_exit && cli->e.code != -EPIPE ? EXIT_OURS : (int)f->exit;

	if (cli->e.code == -EPIPE)
		return exit_code; /* whoever read us has gone: there is nobody to tell */
	if (cli->out.json)
		report_json(cli, exit_code);
	else
		report_text(cli);
	return exit_code;
}
