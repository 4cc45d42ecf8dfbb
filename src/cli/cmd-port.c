/* A port of a sandbox: its address, or the port itself brought to this machine. */
#include "cli/cli-internal.h"

enum {
	MAX_PORT = 65535,
};

const char *cli_port_url(struct cli *cli, const struct sandbox_info *info, const char *port)
{
	char domain[OUT_CELL];

	if (!info->access.domain.n)
		return NULL;
	out_text(info->access.domain, domain);
	return arena_printf(cli->arena, "%s://%s-%.*s.%s",
		str_has_prefix(str_of(cli->config.api_url), STR("https:")) ? "https" : "http", port,
		STR_ARG(info->id), domain);
}

static int show_address(struct cli *cli, const struct sandbox_info *info, int64_t port)
{
	const char *url = cli_port_url(cli, info, arena_printf(cli->arena, "%" PRId64, port));
	struct jsonw *w = &cli->out.json_writer;

	if (!url)
		return err_set(&cli->e, -EACCES,
			"this key is not told where sandboxes' ports are: it lacks execute or "
			"files");
	if (!cli->out.json) {
		out_line(&cli->out, "%s", url);
		return EXIT_OK;
	}
	jsonw_object(w, NULL);
	jsonw_str(w, "sandboxID", info->id);
	jsonw_int(w, "port", port);
	jsonw_strz(w, "url", url);
	jsonw_end_object(w);
	(void)buf_addc(&cli->out.text, '\n');
	return EXIT_OK;
}

int cmd_sandbox_port(struct cli *cli)
{
	const char *local = args_value(&cli->args, "forward");
	struct sandbox_info info = { 0 };
	struct target target = { 0 };
	int64_t port, local_port = 0;
	int r = args_number("PORT", cli->args.words[1], 1, MAX_PORT, &port, &cli->e);

	if (r == 0 && local)
		r = args_number("--forward", local, 0, MAX_PORT, &local_port, &cli->e);
	if (r == 0)
		r = sandbox_look_up_running(cli, cli->args.words[0], &info, &cli->e);
	if (r < 0)
		return r;
	if (!local)
		return show_address(cli, &info, port);
	r = cli_sandbox_target(&info, &target, &cli->e);
	return r < 0 ? r : forward_run(cli, &target, (int)port, (int)local_port);
}
