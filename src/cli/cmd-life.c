/* What changes the life of one sandbox: pause, resume, extend, fork. */
#include "cli/cli-internal.h"

enum {
	MAX_FORKS = 100,
};

static void show_state(struct cli *cli, const char *id, const char *state)
{
	struct jsonw *w = &cli->out.json_writer;

	if (!cli->out.json) {
		out_line(&cli->out, "%s", id);
		return;
	}
	jsonw_object(w, NULL);
	jsonw_strz(w, "sandboxID", id);
	jsonw_strz(w, "state", state);
	jsonw_end_object(w);
	(void)buf_addc(&cli->out.text, '\n');
}

/* ---- pause and resume ---- */

static bool is_paused(struct cli *cli, const char *id)
{
	struct sandbox_info info = { 0 };
	struct err ignored;

	return sandbox_look_up(cli, id, &info, &ignored) == 0 && str_is(info.state, "paused");
}

int cmd_sandbox_pause(struct cli *cli)
{
	struct api_request request = { .method = "POST" };
	struct api_reply reply;
	char id[CLI_ID];
	int r = cli_sandbox_resolve(cli, cli->args.words[0], id, &cli->e);

	if (r < 0)
		return r;
	request.path = arena_printf(cli->arena, "/sandboxes/%s/pause", id);
	request.body = args_has(&cli->args, "disk") ? STR("{\"memory\":false}") : STR("{}");
	r = cli_api_call(cli, &request, &reply, &cli->e);
	if (r < 0 && !(r == -EBUSY && is_paused(cli, id))) /* safe to repeat */
		return r;
	show_state(cli, id, "paused");
	out_note(&cli->out, "go on: atoll sandbox resume %s", id);
	return EXIT_OK;
}

int cmd_sandbox_resume(struct cli *cli)
{
	const char *timeout = args_value(&cli->args, "timeout");
	struct cli_wake how = { .cold = args_has(&cli->args, "cold") };
	struct target target = { 0 };
	int r = timeout ? args_seconds("timeout", timeout, &how.timeout_s, &cli->e) : 0;

	if (r == 0)
		r = cli_sandbox_wake(cli, cli->args.words[0], &how, &target, &cli->e);
	if (r < 0)
		return r;
	show_state(cli, target.id, "running");
	return EXIT_OK;
}

/* ---- extend ---- */

/* Never shortens: whoever asks for an hour more must not lose the two that were left. */
static int move_end(struct cli *cli, const struct sandbox_info *info, int64_t seconds,
	struct err *e)
{
	struct api_request request = { .method = "POST" };
	struct api_reply reply;
	int64_t end_us = 0;

	if (time_parse_rfc3339(info->end_at, &end_us) == 0 &&
		end_us >= cli->out.now_us + seconds * 1000000)
		return 0;
	request.path = arena_printf(cli->arena, "/api/v1/sandboxes/%.*s/extend", STR_ARG(info->id));
	request.body = str_of(arena_printf(cli->arena, "{\"timeout\":%" PRId64 "}", seconds));
	return cli_api_call(cli, &request, &reply, e);
}

static void show_end(struct cli *cli, const struct sandbox_info *info)
{
	struct jsonw *w = &cli->out.json_writer;
	char cell[OUT_CELL];

	if (!cli->out.json) {
		out_time(&cli->out, info->end_at, cell);
		if (cli->out.quiet)
			out_text(info->id, cell);
		out_line(&cli->out, "%s", cell);
		return;
	}
	jsonw_object(w, NULL);
	jsonw_str(w, "sandboxID", info->id);
	jsonw_str(w, "endAt", info->end_at);
	jsonw_end_object(w);
	(void)buf_addc(&cli->out.text, '\n');
}

int cmd_sandbox_extend(struct cli *cli)
{
	struct sandbox_info info = { 0 };
	int64_t seconds;
	int r;

	if (args_seconds("TIME", cli->args.words[1], &seconds, NULL) < 0)
		return err_set(&cli->e, -EINVAL,
			"'%s' is not a time; seconds, or like 90s, 5m, 2h, 1d", cli->args.words[1]);
	r = sandbox_look_up_running(cli, cli->args.words[0], &info, &cli->e);
	if (r < 0)
		return r;
	r = move_end(cli, &info, seconds, &cli->e);
	if (r == 0)
		r = sandbox_look_up(cli, cli->args.words[0], &info, &cli->e);
	if (r < 0)
		return r;
	show_end(cli, &info);
	return EXIT_OK;
}

/* ---- fork ---- */

struct fork_error {
	struct json_int status;
	struct str message;
};
struct fork_sandbox {
	struct str id, template_id;
};
struct fork_entry {
	struct fork_sandbox sandbox;
	struct fork_error error;
};
static const struct json_field fork_error_fields[] = {
	JSON_FIELD(struct fork_error, status, "code", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct fork_error, message, "message", JSON_STR, .flags = JSON_LAX),
};
static const struct json_shape fork_error_shape =
	JSON_SHAPE(struct fork_error, fork_error_fields, .ignore_unknown = true);
static const struct json_field fork_sandbox_fields[] = {
	JSON_FIELD(struct fork_sandbox, id, "sandboxID", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct fork_sandbox, template_id, "templateID", JSON_STR, .flags = JSON_LAX),
};
static const struct json_shape fork_sandbox_shape =
	JSON_SHAPE(struct fork_sandbox, fork_sandbox_fields, .ignore_unknown = true);
static const struct json_field fork_fields[] = {
	JSON_FIELD(struct fork_entry, sandbox, "sandbox", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &fork_sandbox_shape),
	JSON_FIELD(struct fork_entry, error, "error", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &fork_error_shape),
};
static const struct json_shape fork_shape =
	JSON_SHAPE(struct fork_entry, fork_fields, .ignore_unknown = true);

static int fork_call(struct cli *cli, const char *id, struct json_list *ret, struct err *e)
{
	const char *count_text = args_value(&cli->args, "count");
	const char *timeout_text = args_value(&cli->args, "timeout");
	struct api_request request = { .method = "POST" };
	struct api_reply reply;
	int64_t count = 1, seconds = 300;
	int r = 0;

	if (count_text)
		r = args_number("--count", count_text, 1, MAX_FORKS, &count, e);
	if (r == 0 && timeout_text)
		r = args_seconds("timeout", timeout_text, &seconds, e);
	if (r < 0)
		return r;
	request.path = arena_printf(cli->arena, "/sandboxes/%s/fork", id);
	request.body = str_of(arena_printf(cli->arena,
		"{\"count\":%" PRId64 ",\"timeout\":%" PRId64 "}", count, seconds));
	r = cli_api_call(cli, &request, &reply, e);
	if (r < 0)
		return r;
	r = json_decode_list(cli->arena, reply.body, &fork_shape, ret, e);
	return r < 0 ? err_wrap(e, -EPROTO, "forks of %s", id) : 0;
}

static void show_fork(struct cli *cli, const struct fork_entry *entry)
{
	struct jsonw *w = &cli->out.json_writer;
	char cell[OUT_CELL];

	if (!cli->out.json) {
		out_text(entry->sandbox.id.n ? entry->sandbox.id : entry->error.message, cell);
		if (entry->sandbox.id.n)
			out_line(&cli->out, "%s", cell);
		else
			out_warn(&cli->out, "one fork failed: %s", cell);
		return;
	}
	jsonw_object(w, NULL);
	if (entry->sandbox.id.n) {
		jsonw_str(w, "sandboxID", entry->sandbox.id);
		jsonw_str(w, "templateID", entry->sandbox.template_id);
	} else {
		jsonw_strz(w, "code",
			cli_failure_of(cli_api_code_of((int)entry->error.status.value))->name);
		jsonw_str(w, "message", entry->error.message);
	}
	jsonw_end_object(w);
}

int cmd_sandbox_fork(struct cli *cli)
{
	struct json_list forks = { 0 };
	const struct fork_entry *v;
	int exit_code = EXIT_OK;
	char id[CLI_ID];
	int r = cli_sandbox_resolve(cli, cli->args.words[0], id, &cli->e);

	if (r == 0)
		r = fork_call(cli, id, &forks, &cli->e);
	if (r < 0)
		return r;
	v = forks.v;
	if (cli->out.json)
		jsonw_array(&cli->out.json_writer, NULL);
	for (size_t i = 0; i < forks.n; i++) {
		show_fork(cli, &v[i]);
		if (!v[i].sandbox.id.n && exit_code == EXIT_OK)
			exit_code =
				(int)cli_failure_of(cli_api_code_of((int)v[i].error.status.value))
					->exit;
	}
	if (cli->out.json) {
		jsonw_end_array(&cli->out.json_writer);
		(void)buf_addc(&cli->out.text, '\n');
	}
	return exit_code;
}
