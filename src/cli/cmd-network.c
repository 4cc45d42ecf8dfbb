/* What a sandbox may reach: shown, and changed while it runs. */
#include "cli/cli-internal.h"

enum {
	BODY_MAX = 1 << 20,
};

struct denied {
	struct json_int packets, names_asked, names_dialled, addresses;
};
static const struct json_field denied_fields[] = {
	JSON_FIELD(struct denied, packets, "packets", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct denied, names_asked, "names_asked", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct denied, names_dialled, "names_dialled", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct denied, addresses, "addresses", JSON_INT, .flags = JSON_LAX),
};
static const struct json_shape denied_shape =
	JSON_SHAPE(struct denied, denied_fields, .ignore_unknown = true);

struct network {
	struct json_bool internet, public_traffic;
	struct json_strs allow, deny;
	struct str rules, mask, ports;
	struct denied denied;
};
#define NETWORK_FIELD(member, name, kind, ...) \
	JSON_FIELD(struct network, member, name, kind, .flags = JSON_LAX, __VA_ARGS__)
static const struct json_field network_fields[] = {
	NETWORK_FIELD(internet, "internet", JSON_BOOL),
	NETWORK_FIELD(allow, "allow_out", JSON_STRS),
	NETWORK_FIELD(deny, "deny_out", JSON_STRS),
	NETWORK_FIELD(rules, "rules", JSON_RAW),
	NETWORK_FIELD(public_traffic, "allow_public_traffic", JSON_BOOL),
	NETWORK_FIELD(mask, "mask_request_host", JSON_STR),
	NETWORK_FIELD(ports, "https_ports", JSON_RAW),
	NETWORK_FIELD(denied, "denied", JSON_OBJECT, .shape = &denied_shape),
};
static const struct json_shape network_shape =
	JSON_SHAPE(struct network, network_fields, .ignore_unknown = true);

/* ---- show ---- */

static void show_list(struct cli *cli, const char *name, const struct json_strs *list)
{
	char cell[OUT_CELL];

	for (size_t i = 0; i < list->n; i++) {
		out_text(list->v[i], cell);
		out_pair(&cli->out, name, cell);
	}
}

static void show_number(struct cli *cli, const char *name, struct json_int n)
{
	char cell[OUT_CELL];

	(void)snprintf(cell, sizeof cell, "%" PRId64, n.value);
	out_pair(&cli->out, name, cell);
}

int cmd_network_show(struct cli *cli)
{
	struct network n = { 0 };
	char id[CLI_ID];
	struct str body = STR_NONE;
	int r = cli_sandbox_resolve(cli, cli->args.words[0], id, &cli->e);

	if (r == 0)
		r = cli_get(cli, arena_printf(cli->arena, "/api/v1/sandboxes/%s/network", id),
			&network_shape, &n, &body);
	if (r < 0)
		return r;
	if (cli->out.json)
		return cli_show_body(cli, body);
	if (cli->out.quiet) {
		out_line(&cli->out, "%s", id);
		return EXIT_OK;
	}
	out_pair(&cli->out, "internet", n.internet.value ? "yes" : "no");
	show_list(cli, "allow", &n.allow);
	show_list(cli, "deny", &n.deny);
	cli_pair(cli, "rules", n.rules);
	if (n.public_traffic.is_set)
		out_pair(&cli->out, "ports open to", n.public_traffic.value ? "all" : "the token");
	cli_pair(cli, "host", n.mask);
	cli_pair(cli, "https ports", n.ports);
	show_number(cli, "refused packets", n.denied.packets);
	show_number(cli, "refused lookups", n.denied.names_asked);
	show_number(cli, "refused hosts", n.denied.names_dialled);
	show_number(cli, "refused by IP", n.denied.addresses);
	return EXIT_OK;
}

/* ---- set ---- */

static int write_rules(struct cli *cli, struct jsonw *w)
{
	static const struct json_shape object = { .ignore_unknown = true };
	CLEANUP(buf_done) struct buf text = BUF_INIT(BODY_MAX);
	const char *file = args_value(&cli->args, "rules");
	char nothing;
	int r;

	if (!file)
		return 0;
	r = file_read(AT_FDCWD, strcmp(file, "-") == 0 ? "/dev/stdin" : file, &text, &cli->e);
	if (r < 0)
		return r;
	if (text.failed)
		return err_set(&cli->e, -EINVAL, "--rules: %s is too long", file);
	if (json_decode(cli->arena, buf_str(&text), &object, &nothing, &cli->e) < 0)
		return err_wrap(&cli->e, -EINVAL, "--rules: %s", file);
	jsonw_raw(w, "rules", buf_str(&text));
	return 0;
}

static int write_change(struct cli *cli, struct jsonw *w)
{
	bool opens = args_has(&cli->args, "internet"), closes = args_has(&cli->args, "no-internet");
	int r;

	if (opens && closes)
		return err_set(&cli->e, -EINVAL, "--internet and --no-internet exclude each other");
	jsonw_object(w, NULL);
	if (opens || closes)
		jsonw_bool(w, "internet", opens);
	cli_write_list(cli, "allow", "allow_out", w);
	cli_write_list(cli, "deny", "deny_out", w);
	r = write_rules(cli, w);
	jsonw_end_object(w);
	return r;
}

/* What is not named stays as it is, unless all is to be as for a new sandbox. */
int cmd_network_set(struct cli *cli)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(BODY_MAX);
	bool reset = args_has(&cli->args, "reset");
	struct api_request request = { .method = reset ? "PUT" : "PATCH" };
	struct api_reply reply;
	struct jsonw w;
	char id[CLI_ID];
	int r;

	jsonw_init(&w, &body);
	r = write_change(cli, &w);
	if (r == 0 && body.failed)
		r = err_set(&cli->e, -EINVAL, "too many rules");
	if (r == 0 && !reset && str_is(buf_str(&body), "{}"))
		r = err_set(&cli->e, -EINVAL,
			"what is to change? --allow, --deny, --internet, --no-internet, --rules or "
			"--reset");
	if (r == 0)
		r = cli_sandbox_resolve(cli, cli->args.words[0], id, &cli->e);
	if (r < 0)
		return r;
	request.path = arena_printf(cli->arena, "/api/v1/sandboxes/%s/network", id);
	request.body = buf_str(&body);
	r = cli_api_call(cli, &request, &reply, &cli->e);
	if (r < 0) {
		cli_hint_network(cli);
		return r;
	}
	if (!cli->out.json) {
		out_line(&cli->out, "%s", id);
		return EXIT_OK;
	}
	request = (struct api_request){ .method = "GET", .path = request.path };
	r = cli_api_call(cli, &request, &reply, &cli->e);
	return r < 0 ? r : cli_show_body(cli, reply.body);
}
