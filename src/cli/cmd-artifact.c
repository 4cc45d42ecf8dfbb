/* What runs left behind: listed, and brought here. */
#include "cli/cli-internal.h"

#include <sys/stat.h>

enum {
	PATH_BYTES = 64 << 10,
	ERROR_BYTES = 64 << 10,
	IDLE_MS = 60 * 1000,
};

struct artifact {
	struct str id, sandbox_id, agent_id, task_id, path, created_at, expires_at;
	struct json_int bytes;
};
#define ARTIFACT_FIELD(member, name, kind) \
	JSON_FIELD(struct artifact, member, name, kind, .flags = JSON_LAX)
static const struct json_field artifact_fields[] = {
	JSON_FIELD(struct artifact, id, "id", JSON_STR, .flags = JSON_REQUIRED),
	ARTIFACT_FIELD(sandbox_id, "sandbox_id", JSON_STR),
	ARTIFACT_FIELD(agent_id, "agent_id", JSON_STR),
	ARTIFACT_FIELD(task_id, "task_id", JSON_STR),
	ARTIFACT_FIELD(path, "path", JSON_STR),
	ARTIFACT_FIELD(bytes, "bytes", JSON_INT),
	ARTIFACT_FIELD(created_at, "created_at", JSON_STR),
	ARTIFACT_FIELD(expires_at, "expires_at", JSON_STR),
};
static const struct json_shape artifact_shape =
	JSON_SHAPE(struct artifact, artifact_fields, .ignore_unknown = true);

/* ---- artifacts ---- */

static void show_row(struct cli *cli, const void *item, struct out_table *t, size_t row)
{
	const struct artifact *a = item;

	out_text(a->id, out_table_cell(t, row, 0));
	out_text(a->path, out_table_cell(t, row, 1));
	out_size((uint64_t)MAX(a->bytes.value, 0), out_table_cell(t, row, 2));
	out_time(&cli->out, a->created_at, out_table_cell(t, row, 3));
	out_time(&cli->out, a->expires_at, out_table_cell(t, row, 4));
	out_text(a->sandbox_id, out_table_cell(t, row, 5));
	out_text(a->agent_id, out_table_cell(t, row, 6));
	out_text(a->task_id, out_table_cell(t, row, 7));
}

static struct str show_id(const void *item)
{
	return ((const struct artifact *)item)->id;
}

int cmd_execution_artifacts(struct cli *cli)
{
	static const char *const titles[] = { "ID", "PATH", "SIZE", "CREATED", "EXPIRES", "SANDBOX",
		"AGENT", "TASK" };
	CLEANUP(buf_done) struct buf path = BUF_INIT(PATH_BYTES);
	struct cli_listing listing = { .shape = &artifact_shape,
		.titles = titles,
		.n_titles = ARRAY_SIZE(titles),
		.row = show_row,
		.id = show_id,
		.none = "no artifacts: POST /api/v1/run keeps what its \"artifacts\" name" };
	char id[CLI_ID];
	int r = 0;

	(void)buf_adds(&path, "/api/v1/artifacts?limit=200");
	cli_add_query(&path, "task_id", args_value(&cli->args, "task"));
	if (cli->args.n_words)
		r = cli_sandbox_resolve(cli, cli->args.words[0], id, &cli->e);
	if (r < 0)
		return r;
	cli_add_query(&path, "sandbox_id", cli->args.n_words ? id : NULL);
	if (path.failed)
		return err_set(&cli->e, -EINVAL, "--task is too long");
	listing.path = path.p;
	return cli_show_listing(cli, &listing);
}

/* ---- fetch ---- */

struct fetch {
	struct cli *cli;
	int fd; /* -EBADF: stdout */
	int64_t bytes;
	int status, r;
	struct buf error; /* of an answer that is one */
	struct err *e;
};

static void fetch_data(void *arg, struct client_call *call, struct str bytes)
{
	struct fetch *f = arg;
	int r = 0;

	f->status = client_status(call);
	f->bytes += (int64_t)bytes.n;
	if (f->status >= 300) {
		(void)buf_add_str(&f->error, bytes);
	} else if (f->fd >= 0) {
		r = fd_write_all(f->fd, bytes.p, bytes.n);
		if (r < 0)
			(void)err_sys(f->e, r, "write the file");
	} else {
		out_body(&f->cli->out, bytes);
		r = out_flush(&f->cli->out, f->e);
	}
	if (r < 0) {
		f->r = r;
		client_cancel(call);
	}
}

static void fetch_done(void *arg, int r, const struct err *e)
{
	struct fetch *f = arg;

	if (f->r >= 0 && r < 0) {
		f->r = r;
		(void)err_set(f->e, r, "%s: %s", f->cli->config.api_url,
			r == -ECONNREFUSED ? "no server answers there" : e->msg);
	}
	loop_stop(f->cli->loop);
}

static int fetch_run(struct fetch *f, const char *path)
{
	struct cli *cli = f->cli;
	const char *headers[] = { "User-Agent: atoll/" ATOLL_VERSION,
		arena_printf(cli->arena, "X-API-Key: %s", cli->config.api_key), NULL };
	struct client_request request = { .method = "GET",
		.url = arena_printf(cli->arena, "%s%s", cli->config.api_url, path),
		.headers = headers,
		.idle_timeout_ms = IDLE_MS };
	const struct client_handlers handlers = { .data = fetch_data,
		.done = fetch_done,
		.arg = f };
	int r;

	(void)client_start(cli->client, &request, &handlers);
	r = loop_run(cli->loop, f->e);
	if (r == 0)
		r = f->r;
	if (r >= 0 && f->status >= 300) {
		cli_api_message(cli, f->status, buf_str(&f->error), f->e);
		r = f->e->code;
	}
	return r;
}

/* Nothing that is there is written over, and what broke off is not left. */
static int fetch_file(struct fetch *f, const char *path, const char *file)
{
	int r;

	f->fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (f->fd < 0)
		return err_sys(f->e, -errno, "make %s", file);
	r = fetch_run(f, path);
	if (close(f->fd) < 0 && r >= 0)
		r = err_sys(f->e, -errno, "write %s", file);
	if (r < 0)
		(void)unlink(file);
	return r;
}

int cmd_execution_fetch(struct cli *cli)
{
	const char *path = cli_path(cli, "/api/v1/artifacts/", str_of(cli->args.words[0]), "");
	const char *file = cli->args.words[1];
	struct fetch f = { .cli = cli, .fd = -EBADF, .error = BUF_INIT(ERROR_BYTES), .e = &cli->e };
	bool to_stdout = strcmp(file, "-") == 0;
	struct jsonw *w = &cli->out.json_writer;
	int r = cli_api_open(cli, &cli->e);

	if (r == 0 && !path)
		r = err_set(&cli->e, -EINVAL, "the id is too long");
	if (r == 0 && to_stdout && cli->out.json)
		r = err_set(&cli->e, -EINVAL, "--json needs a FILE: stdout is the document's");
	if (r == 0)
		r = to_stdout ? fetch_run(&f, path) : fetch_file(&f, path, file);
	buf_done(&f.error);
	if (r == -ENOENT)
		(void)snprintf(cli->hint, sizeof cli->hint,
			"'atoll execution artifacts' lists them");
	if (r < 0)
		return r;
	if (to_stdout)
		return EXIT_OK;
	if (!cli->out.json) {
		out_line(&cli->out, "%s", file);
		return EXIT_OK;
	}
	jsonw_object(w, NULL);
	jsonw_strz(w, "id", cli->args.words[0]);
	jsonw_strz(w, "file", file);
	jsonw_int(w, "bytes", f.bytes);
	jsonw_end_object(w);
	(void)buf_addc(&cli->out.text, '\n');
	return EXIT_OK;
}
