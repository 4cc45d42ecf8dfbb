#include "cli/cli.h"
#include "cli/cli-internal.h"

#include <signal.h>

static void cli_done(struct cli *cli)
{
	cli->client = client_free(cli->client);
	cli->loop = loop_free(cli->loop);
	cli->arena = arena_free(cli->arena);
	out_done(&cli->out);
	args_done(&cli->args);
}

/* This file is the only one that reads the environment. */
int cli_load_config(struct cli *cli, struct err *e)
{
	const struct config_input in = {
		.flag_api_url = args_value(&cli->args, "api-url"),
		.flag_data = args_value(&cli->args, "data"),
		.flag_ca_file = args_value(&cli->args, "ca-file"),
		.env_api_url = getenv("E2B_API_URL"),
		.env_sandbox_url = getenv("E2B_SANDBOX_URL"),
		.env_api_key = getenv("E2B_API_KEY"),
		.env_data = getenv("ATOLL_DATA"),
		.env_ca_file = getenv("ATOLL_CA_FILE"),
		.env_ssl_cert_file = getenv("SSL_CERT_FILE"),
	};

	return cli_config_load(&in, &cli->config, e);
}

static void note_signal(void *arg, int signo)
{
	struct cli *cli = arg;

	if (cli->on_signal)
		cli->on_signal(cli->signal_arg, signo);
	else if (signo != SIGWINCH)
		cli->signal_seen = signo;
}

int cli_catch_signals(struct cli *cli, struct err *e)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH };
	int r = cli_api_open(cli, e);

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(signals); i++)
		r = loop_signal(cli->loop, signals[i], note_signal, cli, e);
	return r;
}

static int init_output(struct cli *cli)
{
	const char *no_color = getenv("NO_COLOR");

	cli->out.json = args_has(&cli->args, "json");
	cli->out.quiet = args_has(&cli->args, "quiet");
	return out_init(&cli->out, args_value(&cli->args, "color"), no_color && *no_color,
		cli->term, &cli->e);
}

static int run(struct cli *cli, int argc, char **argv)
{
	struct args *args = &cli->args;
	int parsed = args_parse(argc, argv, args, cli->hint, sizeof cli->hint, &cli->e);
	struct err usage = cli->e;
	int r = init_output(cli);

	if (parsed < 0) {
		cli->e = usage; /* the first mistake is the one to mend first */
		return parsed;
	}
	if (r < 0)
		return r;
	if (args->wants_help || argc == 1)
		return help_print(cli, args->group, args->command);
	if (!args->command) {
		(void)snprintf(cli->hint, sizeof cli->hint, "'atoll help%s%s' lists them",
			args->group ? " " : "", args->group ? args->group->name : "");
		return err_set(&cli->e, -EINVAL, "a command is missing");
	}
	return args->command->run(cli);
}

/* What every program answers to. */
static void spell_out_version(int argc, char **argv)
{
	static char version[] = "version";

	if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0))
		argv[1] = version;
}

int cli_main(int argc, char **argv, const struct cli_parts *parts)
{
	CLEANUP(cli_done) struct cli cli = { .parts = parts };
	int r;

	(void)signal(SIGPIPE,
		SIG_IGN); /* a reader that left is an error of write, told by -EPIPE */
	spell_out_version(argc, argv);
	cli.arena = arena_new(CLI_ARENA);
	cli.term = getenv("TERM");
	cli.env_data = getenv("ATOLL_DATA");
	cli.admin_token_file = getenv("ATOLL_ADMIN_TOKEN_FILE");
	r = run(&cli, argc, argv);
	if (r < 0)
		r = cli_report(&cli);
	if (out_flush(&cli.out, &cli.e) < 0)
		return cli_report(&cli);
	return r;
}

int cmd_serve(struct cli *cli)
{
	return err_set(&cli->e, -EINVAL, "'serve' must be the first word: atoll serve [OPTIONS]");
}
