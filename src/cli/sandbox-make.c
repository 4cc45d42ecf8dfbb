/* A new sandbox, as the options of `sandbox create` and `run` describe it. */
#include "cli/cli-internal.h"

enum {
	BODY_MAX = 1 << 20,
};

static int write_pairs(struct cli *cli, const char *option, struct jsonw *w, struct err *e)
{
	const char *pair;
	size_t at = 0;

	while ((pair = args_next(&cli->args, option, &at))) {
		const char *equals = strchr(pair, '=');

		if (!equals || equals == pair)
			return err_set(e, -EINVAL, "--%s: '%s' is not of the form K=V", option,
				pair);
		if (!str_is_utf8(str_of(pair)))
			return err_set(e, -EINVAL, "--%s: a value is not UTF-8", option);
		jsonw_pair(w, str_make(pair, (size_t)(equals - pair)), str_of(equals + 1));
	}
	return 0;
}

int cli_pairs(struct cli *cli, const char *option, const char *key, struct jsonw *w, struct err *e)
{
	int r;

	jsonw_object(w, key);
	r = write_pairs(cli, option, w, e);
	jsonw_end_object(w);
	return r;
}

/* ---- what it may use ---- */

static int write_size(struct cli *cli, const char *option, const char *member, struct jsonw *w,
	struct err *e)
{
	const char *text = args_value(&cli->args, option);
	int64_t mib;

	if (!text)
		return 0;
	if (args_mib(text, &mib) < 0)
		return err_set(e, -EINVAL, "--%s must be a size like 512MiB or 4GiB, not '%s'",
			option, text);
	jsonw_int(w, member, mib);
	return 0;
}

static int write_limits(struct cli *cli, struct jsonw *w, struct err *e)
{
	const char *cpu = args_value(&cli->args, "cpu");
	int64_t n = 0;
	int r = cpu ? args_number("--cpu", cpu, 1, 256, &n, e) : 0;

	if (r == 0 && cpu)
		jsonw_int(w, "cpu", n);
	if (r == 0)
		r = write_size(cli, "memory", "memory_mb", w, e);
	return r == 0 ? write_size(cli, "disk", "disk_mb", w, e) : r;
}

/* ---- what it may reach ---- */

void cli_write_list(struct cli *cli, const char *option, const char *member, struct jsonw *w)
{
	const char *text;
	size_t at = 0;

	if (!args_has(&cli->args, option))
		return;
	jsonw_array(w, member);
	while ((text = args_next(&cli->args, option, &at))) {
		struct str rest = str_of(text), one;

		while (rest.n && str_split(&rest, ',', &one))
			if (one.n)
				jsonw_str(w, NULL, one);
	}
	jsonw_end_array(w);
}

static void write_network(struct cli *cli, struct jsonw *w)
{
	if (args_has(&cli->args, "no-internet"))
		jsonw_bool(w, "internet", false);
	if (!args_has(&cli->args, "allow") && !args_has(&cli->args, "deny"))
		return;
	jsonw_object(w, "network");
	cli_write_list(cli, "allow", "allow_out", w);
	cli_write_list(cli, "deny", "deny_out", w);
	jsonw_end_object(w);
}

void cli_hint_network(struct cli *cli)
{
	if (cli->e.code == -EBADMSG && strstr(cli->e.msg, "allow_out") &&
		!args_has(&cli->args, "no-internet"))
		(void)snprintf(cli->hint, sizeof cli->hint,
			"with --no-internet, what --allow names is all that can be reached");
}

/* ---- what is given to it ---- */

/* NAME:PATH. */
static int write_volumes(struct cli *cli, struct jsonw *w, struct err *e)
{
	const char *text;
	size_t at = 0;

	if (!args_has(&cli->args, "volume"))
		return 0;
	jsonw_array(w, "volumes");
	while ((text = args_next(&cli->args, "volume", &at))) {
		struct str path = str_of(text), name;

		if (!str_split(&path, ':', &name) || !name.n || !path.n || path.p[0] != '/')
			return err_set(e, -EINVAL, "--volume: '%s' is not of the form NAME:/PATH",
				text);
		if (str_find(path, ':') >= 0)
			return err_set(e, -EINVAL,
				"--volume: '%s': volumes are mounted for reading and writing, "
				"and nothing else is offered: NAME:/PATH",
				text);
		jsonw_object(w, NULL);
		jsonw_str(w, "name", name);
		jsonw_str(w, "path", path);
		jsonw_end_object(w);
	}
	jsonw_end_array(w);
	return 0;
}

static bool is_variable(struct str name)
{
	for (size_t i = 0; i < name.n; i++) {
		char c = name.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
			    (i && c >= '0' && c <= '9')))
			return false;
	}
	return name.n > 0;
}

/* NAME, or NAME=VARIABLE. */
static int write_secrets(struct cli *cli, struct jsonw *w, struct err *e)
{
	const char *text;
	size_t at = 0;

	if (!args_has(&cli->args, "secret"))
		return 0;
	jsonw_object(w, "secrets");
	while ((text = args_next(&cli->args, "secret", &at))) {
		struct str variable = str_of(text), name;

		(void)str_split(&variable, '=', &name);
		if (!strchr(text, '='))
			variable = name;
		if (!name.n || !is_variable(variable))
			return err_set(e, -EINVAL,
				"--secret: '%s' does not say which variable: "
				"--secret NAME=VARIABLE",
				text);
		jsonw_pair(w, variable, name);
	}
	jsonw_end_object(w);
	return 0;
}

/* ---- all of it ---- */

static void write_text(struct cli *cli, const char *option, const char *member, struct jsonw *w)
{
	const char *text = args_value(&cli->args, option);

	if (text)
		jsonw_strz(w, member, text);
}

static int write_body(struct cli *cli, struct jsonw *w, struct err *e)
{
	int r;

	write_text(cli, "runtime", "runtime", w);
	write_text(cli, "agent", "agent_id", w);
	write_text(cli, "task", "task_id", w);
	if (args_has(&cli->args, "nested"))
		jsonw_bool(w, "nested", true);
	write_network(cli, w);
	r = write_limits(cli, w, e);
	if (r == 0)
		r = write_volumes(cli, w, e);
	if (r == 0)
		r = write_secrets(cli, w, e);
	if (r == 0)
		r = cli_pairs(cli, "meta", "metadata", w, e);
	return r == 0 ? cli_pairs(cli, "env", "envs", w, e) : r;
}

int cli_sandbox_make(struct cli *cli, const char *template_id, int64_t timeout_s,
	struct target *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(BODY_MAX);
	struct api_request request = { .method = "POST", .path = "/api/v1/sandboxes" };
	struct sandbox_info info;
	struct api_reply reply;
	struct jsonw w;
	int r;

	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "template", template_id);
	if (timeout_s)
		jsonw_int(&w, "timeout", timeout_s);
	r = write_body(cli, &w, e);
	jsonw_end_object(&w);
	if (r < 0)
		return r;
	if (body.failed)
		return err_set(e, -EINVAL, "too much metadata and environment");
	request.body = buf_str(&body);
	r = cli_api_call(cli, &request, &reply, e);
	if (r < 0) {
		cli_hint_network(cli);
		return r;
	}
	if (json_decode(cli->arena, reply.body, &cli_sandbox_shape, &info, e) < 0)
		return err_wrap(e, -EPROTO, "%s", request.path);
	return cli_sandbox_target(&info, ret, e);
}
