/* Commands that were run through /api/v1, as the server has recorded them. */
#include "cli/cli-internal.h"

enum {
	LISTED = 50,
	MOST_LISTED = 10000,
	PAGE = 200,
	CHUNKS = 1000, /* of one answer */
	POLL_MS = 500,
};

struct execution {
	struct str sandbox_id, state, started_at, ended_at, signal, ended_by, ended_why, agent_id,
		task_id, user, cwd, command; /* command: JSON */
	struct json_int n, exit_code, duration_ms;
};
#define EXECUTION_FIELD(member, name, kind) \
	JSON_FIELD(struct execution, member, name, kind, .flags = JSON_LAX)
static const struct json_field execution_fields[] = {
	JSON_FIELD(struct execution, n, "execution", JSON_INT, .flags = JSON_REQUIRED),
	EXECUTION_FIELD(sandbox_id, "sandbox_id", JSON_STR),
	EXECUTION_FIELD(state, "state", JSON_STR),
	EXECUTION_FIELD(command, "command", JSON_RAW),
	EXECUTION_FIELD(cwd, "cwd", JSON_STR),
	EXECUTION_FIELD(user, "user", JSON_STR),
	EXECUTION_FIELD(agent_id, "agent_id", JSON_STR),
	EXECUTION_FIELD(task_id, "task_id", JSON_STR),
	EXECUTION_FIELD(started_at, "started_at", JSON_STR),
	EXECUTION_FIELD(ended_at, "ended_at", JSON_STR),
	EXECUTION_FIELD(duration_ms, "duration_ms", JSON_INT),
	EXECUTION_FIELD(exit_code, "exit_code", JSON_INT),
	EXECUTION_FIELD(signal, "signal", JSON_STR),
	EXECUTION_FIELD(ended_by, "ended_by", JSON_STR),
	EXECUTION_FIELD(ended_why, "ended_why", JSON_STR),
};
static const struct json_shape execution_shape =
	JSON_SHAPE(struct execution, execution_fields, .ignore_unknown = true);

/* ---- cells ---- */

struct command {
	struct str shell;
	struct json_strs argv;
};
static const struct json_field command_fields[] = {
	JSON_FIELD(struct command, shell, "shell", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct command, argv, "argv", JSON_STRS, .flags = JSON_LAX),
};
static const struct json_shape command_shape =
	JSON_SHAPE(struct command, command_fields, .ignore_unknown = true);

static void command_cell(struct cli *cli, const struct execution *ex, char cell[OUT_CELL])
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4 << 20);
	struct command c = { 0 };

	if (ex->command.n)
		(void)json_decode(cli->arena, ex->command, &command_shape, &c, NULL);
	(void)buf_add_str(&text, c.shell);
	for (size_t i = 0; i < c.argv.n; i++)
		(void)buf_printf(&text, "%s%.*s", i ? " " : "", STR_ARG(c.argv.v[i]));
	out_text(buf_str(&text), cell);
}

static void exit_cell(const struct execution *ex, char cell[OUT_CELL])
{
	if (ex->signal.n)
		out_text(ex->signal, cell);
	else if (ex->exit_code.is_set)
		(void)snprintf(cell, OUT_CELL, "%" PRId64, ex->exit_code.value);
	else
		out_text(STR_NONE, cell);
}

static void took_cell(const struct execution *ex, char cell[OUT_CELL])
{
	if (ex->duration_ms.is_set)
		(void)snprintf(cell, OUT_CELL, "%" PRId64 ".%03d s", ex->duration_ms.value / 1000,
			(int)(ex->duration_ms.value % 1000));
	else
		out_text(STR_NONE, cell);
}

/* ---- ls ---- */

static void show_row(struct cli *cli, const void *item, struct out_table *t, size_t row)
{
	const struct execution *ex = item;

	(void)snprintf(out_table_cell(t, row, 0), OUT_CELL, "%" PRId64, ex->n.value);
	out_text(ex->state, out_table_cell(t, row, 1));
	exit_cell(ex, out_table_cell(t, row, 2));
	out_time(&cli->out, ex->started_at, out_table_cell(t, row, 3));
	took_cell(ex, out_table_cell(t, row, 4));
	out_text(ex->task_id, out_table_cell(t, row, 5));
	command_cell(cli, ex, out_table_cell(t, row, 6));
}

static struct str show_id(const void *item)
{
	static char text[24];

	(void)snprintf(text, sizeof text, "%" PRId64, ((const struct execution *)item)->n.value);
	return str_of(text);
}

int cmd_execution_ls(struct cli *cli)
{
	static const char *const titles[] = { "N", "STATE", "EXIT", "STARTED", "TOOK", "TASK",
		"COMMAND" };
	const char *limit = args_value(&cli->args, "limit");
	struct cli_listing listing = { .shape = &execution_shape,
		.titles = titles,
		.n_titles = ARRAY_SIZE(titles),
		.row = show_row,
		.id = show_id,
		.none = "no commands were recorded there: those of 'atoll run', 'exec' and the "
			"SDKs "
			"are events",
		.most = LISTED };
	char id[CLI_ID];
	int r = limit ? args_number("--limit", limit, 1, MOST_LISTED, &listing.most, &cli->e) : 0;

	if (r == 0)
		r = cli_sandbox_resolve(cli, cli->args.words[0], id, &cli->e);
	if (r < 0)
		return r;
	listing.path = arena_printf(cli->arena, "/api/v1/sandboxes/%s/executions?limit=%" PRId64,
		id, MIN(listing.most, (int64_t)PAGE));
	return cli_show_listing(cli, &listing);
}

/* ---- one ---- */

/* SANDBOX N; NULL: the failure is in cli->e. */
static const char *path_of(struct cli *cli, const char *after)
{
	char id[CLI_ID];
	int64_t n;

	if (args_number("N", cli->args.words[1], 1, INT32_MAX, &n, &cli->e) < 0 ||
		cli_sandbox_resolve(cli, cli->args.words[0], id, &cli->e) < 0)
		return NULL;
	return arena_printf(cli->arena, "/api/v1/sandboxes/%s/executions/%" PRId64 "%s", id, n,
		after);
}

static int show_execution(struct cli *cli, const struct execution *ex, struct str body)
{
	char cell[OUT_CELL];

	if (cli->out.json)
		return cli_show_body(cli, body);
	if (cli->out.quiet) {
		out_line(&cli->out, "%" PRId64, ex->n.value);
		return EXIT_OK;
	}
	cli_pair(cli, "sandbox", ex->sandbox_id);
	(void)snprintf(cell, sizeof cell, "%" PRId64, ex->n.value);
	out_pair(&cli->out, "execution", cell);
	command_cell(cli, ex, cell);
	out_pair(&cli->out, "command", cell);
	cli_pair(cli, "directory", ex->cwd);
	cli_pair(cli, "user", ex->user);
	cli_pair(cli, "agent", ex->agent_id);
	cli_pair(cli, "task", ex->task_id);
	cli_pair(cli, "state", ex->state);
	exit_cell(ex, cell);
	out_pair(&cli->out, "exit", cell);
	cli_pair(cli, "ended by", ex->ended_by);
	cli_pair(cli, "because", ex->ended_why);
	out_time(&cli->out, ex->started_at, cell);
	out_pair(&cli->out, "started", cell);
	took_cell(ex, cell);
	out_pair(&cli->out, "took", cell);
	return EXIT_OK;
}

int cmd_execution_info(struct cli *cli)
{
	const char *path = path_of(cli, "");
	struct execution ex = { 0 };
	struct str body = STR_NONE;
	int r = path ? cli_get(cli, path, &execution_shape, &ex, &body) : cli->e.code;

	return r < 0 ? r : show_execution(cli, &ex, body);
}

int cmd_execution_cancel(struct cli *cli)
{
	struct api_request request = { .method = "POST", .path = path_of(cli, "/cancel") };
	const char *signal = args_value(&cli->args, "signal");
	CLEANUP(buf_done) struct buf body = BUF_INIT(4096);
	struct execution ex = { 0 };
	struct api_reply reply;
	struct jsonw w;
	int r;

	if (!request.path)
		return cli->e.code;
	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	if (signal)
		jsonw_strz(&w, "signal", signal);
	jsonw_end_object(&w);
	request.body = buf_str(&body);
	r = cli_api_call(cli, &request, &reply, &cli->e);
	if (r == 0 && json_decode(cli->arena, reply.body, &execution_shape, &ex, &cli->e) < 0)
		r = err_wrap(&cli->e, -EPROTO, "the execution");
	return r < 0 ? r : show_execution(cli, &ex, reply.body);
}

/* ---- logs ---- */

struct chunk {
	struct json_int seq;
	struct str at, stream, text, bytes;
};
static const struct json_field chunk_fields[] = {
	JSON_FIELD(struct chunk, seq, "seq", JSON_INT, .flags = JSON_REQUIRED),
	JSON_FIELD(struct chunk, at, "at", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct chunk, stream, "stream", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct chunk, text, "text", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct chunk, bytes, "base64", JSON_BYTES, .flags = JSON_LAX),
};
static const struct json_shape chunk_shape =
	JSON_SHAPE(struct chunk, chunk_fields, .ignore_unknown = true);

struct output {
	struct json_list items;
	struct json_int next;
	struct json_bool complete, truncated;
};
static const struct json_field output_fields[] = {
	JSON_FIELD(struct output, items, "items", JSON_OBJECTS, .flags = JSON_REQUIRED,
		.shape = &chunk_shape),
	JSON_FIELD(struct output, next, "next", JSON_INT, .flags = JSON_REQUIRED),
	JSON_FIELD(struct output, complete, "complete", JSON_BOOL, .flags = JSON_REQUIRED),
	JSON_FIELD(struct output, truncated, "truncated", JSON_BOOL, .flags = JSON_LAX),
};
static const struct json_shape output_shape =
	JSON_SHAPE(struct output, output_fields, .ignore_unknown = true);

struct reading {
	struct cli *cli;
	const char *path;
	bool follows, is_complete, is_truncated;
	int64_t from;
	struct loop_timer timer;
};

static int show_chunk(struct reading *g, const struct chunk *c, struct err *e)
{
	struct out *out = &g->cli->out;
	struct jsonw *w = &out->json_writer;
	struct str bytes = c->text.p ? c->text : c->bytes;
	int r;

	if (out->json) {
		if (g->follows)
			jsonw_init(w, &out->text);
		jsonw_object(w, NULL);
		jsonw_int(w, "seq", c->seq.value);
		jsonw_str(w, "at", c->at);
		jsonw_str(w, "stream", c->stream);
		if (c->text.p)
			jsonw_str(w, "text", c->text);
		else
			jsonw_base64(w, "base64", c->bytes);
		jsonw_end_object(w);
		if (g->follows)
			(void)buf_addc(&out->text, '\n');
		return 0;
	}
	if (!str_is(c->stream, "stderr")) {
		out_body(out, bytes);
		return 0;
	}
	r = out_flush(out, e); /* in the order in which it was written */
	if (r == 0)
		out_error_body(out, bytes);
	return r;
}

/* What there is: true while there may be more at once. */
static int read_some(struct reading *g, bool *ret_more, struct err *e)
{
	struct cli *cli = g->cli;
	struct api_request request = { .method = "GET" };
	const struct chunk *v;
	struct api_reply reply;
	struct output output;
	int r;

	request.path =
		arena_printf(cli->arena, "%s?from=%" PRId64 "&limit=%d", g->path, g->from, CHUNKS);
	r = cli_api_call(cli, &request, &reply, e);
	if (r < 0)
		return r;
	if (json_decode(cli->arena, reply.body, &output_shape, &output, e) < 0)
		return err_wrap(e, -EPROTO, "%s", g->path);
	v = output.items.v;
	for (size_t i = 0; r == 0 && i < output.items.n; i++)
		r = show_chunk(g, &v[i], e);
	g->from = output.next.value;
	g->is_complete = output.complete.value;
	g->is_truncated = output.truncated.value;
	*ret_more = !g->is_complete && output.items.n > 0;
	return r;
}

/* Each answer has an arena of its own: what a command prints may be long. */
static int read_once(struct reading *g, bool *ret_more, struct err *e)
{
	struct cli *cli = g->cli;
	struct arena *whole_run = cli->arena;
	int r;

	cli->arena = arena_new(CLI_ARENA);
	r = read_some(g, ret_more, e);
	(void)arena_free(cli->arena);
	cli->arena = whole_run;
	if (r == 0 && (g->follows || !cli->out.json))
		r = out_flush(&cli->out, e);
	return r;
}

static void on_poll(void *arg)
{
	struct reading *g = arg;

	loop_stop(g->cli->loop);
}

static int read_all(struct reading *g, struct err *e)
{
	int r = cli_api_open(g->cli, e);
	bool more = true;

	if (r < 0)
		return r;
	loop_timer_init(&g->timer, g->cli->loop, on_poll, g);
	while (r == 0 && (more || (g->follows && !g->is_complete))) {
		r = read_once(g, &more, e);
		if (r < 0 || more || g->is_complete)
			continue;
		if (g->follows) {
			loop_timer_set(&g->timer, time_now_ms() + POLL_MS);
			r = loop_run(g->cli->loop, e);
		}
	}
	return r;
}

int cmd_execution_logs(struct cli *cli)
{
	struct reading g = { .cli = cli,
		.path = path_of(cli, "/logs"),
		.follows = args_has(&cli->args, "follow"),
		.from = 1 };
	bool is_array = cli->out.json && !g.follows;
	int r;

	if (!g.path)
		return cli->e.code;
	if (is_array)
		jsonw_array(&cli->out.json_writer, NULL);
	r = read_all(&g, &cli->e);
	if (r < 0)
		return r;
	if (is_array) {
		jsonw_end_array(&cli->out.json_writer);
		(void)buf_addc(&cli->out.text, '\n');
	}
	if (g.is_truncated)
		out_note(&cli->out, "the middle was not kept: it printed more than is recorded");
	if (!g.is_complete)
		out_note(&cli->out, "it runs on; -f follows it");
	return EXIT_OK;
}
