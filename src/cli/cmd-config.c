/* `atoll config`: what the command line works with, and where each of it comes from. */
#include "cli/cli-internal.h"

enum {
	SHOWN = 8 /* of a key: "e2b_" and four more */
};

static const char *masked(struct cli *cli, const char *key)
{
	size_t n = strlen(key);

	if (n == 0)
		return "";
	return n <= (size_t)2 * SHOWN ? "..." : arena_printf(cli->arena, "%.*s...", SHOWN, key);
}

static void show(struct cli *cli, const char *name, const char *value, const char *source)
{
	struct jsonw *w = &cli->out.json_writer;

	if (cli->out.json) {
		jsonw_object(w, name);
		jsonw_strz(w, "value", value[0] ? value : NULL);
		jsonw_strz(w, "source", source);
		jsonw_end_object(w);
	} else {
		out_pair(&cli->out, name,
			arena_printf(cli->arena, "%s%s%s%s", value[0] ? value : "-",
				source ? "  (" : "", source ? source : "", source ? ")" : ""));
	}
}

int cmd_config_show(struct cli *cli)
{
	const struct config *c = &cli->config;
	int r = cli_load_config(cli, &cli->e);

	if (r < 0)
		return r;
	if (cli->out.json)
		jsonw_object(&cli->out.json_writer, NULL);
	show(cli, "api_url", c->api_url, c->api_url_source);
	show(cli, "api_key", masked(cli, c->api_key), c->api_key[0] ? c->api_key_source : NULL);
	show(cli, "sandbox_url", c->sandbox_url, c->sandbox_url_source);
	show(cli, "data", c->data, c->data[0] ? c->data_source : NULL);
	show(cli, "ca_file", c->ca_file, c->ca_file[0] ? c->ca_file_source : NULL);
	if (cli->out.json) {
		jsonw_end_object(&cli->out.json_writer);
		(void)buf_addc(&cli->out.text, '\n');
	}
	return EXIT_OK;
}

int cmd_config_path(struct cli *cli)
{
	struct jsonw *w = &cli->out.json_writer;
	const char *path;
	int r = cli_load_config(cli, &cli->e);

	if (r < 0)
		return r;
	if (!cli->config.data[0])
		return err_set(&cli->e, -ENOENT,
			"no env file is read: address and key come from %s",
			cli->config.api_url_source);
	path = arena_printf(cli->arena, "%s/env", cli->config.data);
	if (!cli->out.json) {
		out_line(&cli->out, "%s", path);
		return EXIT_OK;
	}
	jsonw_object(w, NULL);
	jsonw_strz(w, "path", path);
	jsonw_end_object(w);
	(void)buf_addc(&cli->out.text, '\n');
	return EXIT_OK;
}
