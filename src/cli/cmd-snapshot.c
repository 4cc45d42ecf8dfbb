/* Snapshots: made of a running sandbox, listed, shown, removed. New sandboxes start from them by
 * their id, as from a template. */
#include "cli/cli-internal.h"

enum {
	MAX_BODY = 4096,
	MAX_PATH = 64 << 10,
};

struct snapshot_info {
	struct str id, name, tag, sandbox_id, agent_id, base, runtime, created_at;
	struct json_int size_mb;
};
#define SNAPSHOT_FIELD(member, name, kind) \
	JSON_FIELD(struct snapshot_info, member, name, kind, .flags = JSON_LAX)
static const struct json_field snapshot_fields[] = {
	JSON_FIELD(struct snapshot_info, id, "snapshot", JSON_STR, .flags = JSON_REQUIRED),
	SNAPSHOT_FIELD(name, "name", JSON_STR),
	SNAPSHOT_FIELD(tag, "tag", JSON_STR),
	SNAPSHOT_FIELD(sandbox_id, "sandbox_id", JSON_STR),
	SNAPSHOT_FIELD(agent_id, "agent_id", JSON_STR),
	SNAPSHOT_FIELD(base, "base_template", JSON_STR),
	SNAPSHOT_FIELD(runtime, "runtime", JSON_STR),
	SNAPSHOT_FIELD(size_mb, "size_mb", JSON_INT),
	SNAPSHOT_FIELD(created_at, "created_at", JSON_STR),
};
static const struct json_shape snapshot_shape =
	JSON_SHAPE(struct snapshot_info, snapshot_fields, .ignore_unknown = true);

static void optional_json(struct jsonw *w, const char *name, struct str value)
{
	if (value.n)
		jsonw_str(w, name, value);
	else
		jsonw_null(w, name);
}

static void snapshot_json(struct jsonw *w, const void *item)
{
	const struct snapshot_info *info = item;

	jsonw_object(w, NULL);
	jsonw_str(w, "snapshotID", info->id);
	jsonw_array(w, "names");
	if (info->name.n)
		jsonw_str(w, NULL, info->name);
	jsonw_end_array(w);
	jsonw_str(w, "tag", info->tag);
	jsonw_str(w, "sandboxID", info->sandbox_id);
	optional_json(w, "agentID", info->agent_id);
	optional_json(w, "baseTemplate", info->base);
	optional_json(w, "runtime", info->runtime);
	if (info->size_mb.is_set)
		jsonw_int(w, "sizeMB", info->size_mb.value);
	else
		jsonw_null(w, "sizeMB");
	optional_json(w, "createdAt", info->created_at);
	jsonw_end_object(w);
}

static int make_snapshot(struct cli *cli, const char *id, struct snapshot_info *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(MAX_BODY);
	const char *name = args_value(&cli->args, "name");
	struct api_request request = { .method = "POST" };
	struct api_reply reply;
	struct jsonw w;
	int r;

	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	if (name)
		jsonw_strz(&w, "name", name);
	jsonw_end_object(&w);
	if (body.failed)
		return err_set(e, -EINVAL, "--name is too long");
	request.path = arena_printf(cli->arena, "/api/v1/sandboxes/%s/snapshot", id);
	request.body = buf_str(&body);
	r = cli_api_call(cli, &request, &reply, e);
	if (r < 0)
		return r;
	r = json_decode(cli->arena, reply.body, &snapshot_shape, ret, e);
	return r < 0 ? err_wrap(e, -EPROTO, "snapshot of %s", id) : 0;
}

int cmd_sandbox_snapshot(struct cli *cli)
{
	struct snapshot_info info = { 0 };
	char id[CLI_ID], cell[OUT_CELL];
	int r = cli_sandbox_resolve(cli, cli->args.words[0], id, &cli->e);

	if (r == 0)
		r = make_snapshot(cli, id, &info, &cli->e);
	if (r < 0)
		return r;
	if (cli->out.json) {
		snapshot_json(&cli->out.json_writer, &info);
		(void)buf_addc(&cli->out.text, '\n');
		return EXIT_OK;
	}
	out_text(info.id, cell);
	out_line(&cli->out, "%s", cell);
	out_note(&cli->out, "start from it: atoll sandbox create %s", cell);
	return EXIT_OK;
}

/* ---- ls ---- */

static void size_cell(const struct snapshot_info *info, char cell[OUT_CELL])
{
	if (info->size_mb.is_set)
		out_size((uint64_t)info->size_mb.value << 20, cell);
	else
		out_text(STR_NONE, cell);
}

static void show_row(struct cli *cli, const void *item, struct out_table *t, size_t row)
{
	const struct snapshot_info *info = item;

	out_text(info->id, out_table_cell(t, row, 0));
	out_text(info->name, out_table_cell(t, row, 1));
	size_cell(info, out_table_cell(t, row, 2));
	out_time(&cli->out, info->created_at, out_table_cell(t, row, 3));
	out_text(info->sandbox_id, out_table_cell(t, row, 4));
	out_text(info->base, out_table_cell(t, row, 5));
	out_text(info->agent_id, out_table_cell(t, row, 6));
}

static struct str show_id(const void *item)
{
	return ((const struct snapshot_info *)item)->id;
}

int cmd_snapshot_ls(struct cli *cli)
{
	static const char *const titles[] = { "ID", "NAME", "SIZE", "CREATED", "SANDBOX", "BASE",
		"AGENT" };
	CLEANUP(buf_done) struct buf path = BUF_INIT(MAX_PATH);
	struct cli_listing listing = { .shape = &snapshot_shape,
		.titles = titles,
		.n_titles = ARRAY_SIZE(titles),
		.row = show_row,
		.id = show_id,
		.json = snapshot_json,
		.none = "no snapshots; 'atoll sandbox snapshot SANDBOX' makes one" };

	(void)buf_adds(&path, "/api/v1/snapshots?limit=200");
	cli_add_query(&path, "sandbox_id", args_value(&cli->args, "sandbox"));
	cli_add_query(&path, "name", args_value(&cli->args, "name"));
	if (path.failed)
		return err_set(&cli->e, -EINVAL, "too much to look for");
	listing.path = path.p;
	return cli_show_listing(cli, &listing);
}

/* ---- one ---- */

static int find(struct cli *cli, const char *typed, struct snapshot_info *ret)
{
	int r = cli_get(cli, cli_path(cli, "/api/v1/snapshots/", str_of(typed), ""),
		&snapshot_shape, ret, NULL);

	if (r == -ENOENT)
		(void)snprintf(cli->hint, sizeof cli->hint, "'atoll snapshot ls' lists them");
	return r;
}

int cmd_snapshot_info(struct cli *cli)
{
	struct snapshot_info info = { 0 };
	char cell[OUT_CELL];
	int r = find(cli, cli->args.words[0], &info);

	if (r < 0)
		return r;
	if (cli->out.json) {
		snapshot_json(&cli->out.json_writer, &info);
		(void)buf_addc(&cli->out.text, '\n');
		return EXIT_OK;
	}
	if (cli->out.quiet) {
		out_line(&cli->out, "%.*s", STR_ARG(info.id));
		return EXIT_OK;
	}
	cli_pair(cli, "id", info.id);
	cli_pair(cli, "name", info.name);
	cli_pair(cli, "tag", info.tag);
	size_cell(&info, cell);
	out_pair(&cli->out, "size", cell);
	out_time(&cli->out, info.created_at, cell);
	out_pair(&cli->out, "created", cell);
	cli_pair(cli, "sandbox", info.sandbox_id);
	cli_pair(cli, "base", info.base);
	cli_pair(cli, "runtime", info.runtime);
	cli_pair(cli, "agent", info.agent_id);
	return EXIT_OK;
}

int cmd_snapshot_name(struct cli *cli)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(MAX_BODY);
	struct api_request request = { .method = "PATCH" };
	struct snapshot_info info = { 0 };
	struct api_reply reply;
	struct jsonw w;
	int r;

	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "name", cli->args.words[1]);
	jsonw_end_object(&w);
	request.path = cli_path(cli, "/api/v1/snapshots/", str_of(cli->args.words[0]), "");
	request.body = buf_str(&body);
	if (body.failed || !request.path)
		return err_set(&cli->e, -EINVAL, "a name is too long");
	r = cli_api_call(cli, &request, &reply, &cli->e);
	if (r < 0)
		return r;
	if (json_decode(cli->arena, reply.body, &snapshot_shape, &info, &cli->e) < 0)
		return err_wrap(&cli->e, -EPROTO, "the snapshot");
	if (!cli->out.json) {
		out_line(&cli->out, "%.*s", STR_ARG(info.id));
		return EXIT_OK;
	}
	snapshot_json(&cli->out.json_writer, &info);
	(void)buf_addc(&cli->out.text, '\n');
	return EXIT_OK;
}

/* One at a time: a name without a tag means its newest. */
int cmd_snapshot_rm(struct cli *cli)
{
	struct api_request request = { .method = "DELETE" };
	struct snapshot_info info = { 0 };
	struct api_reply reply;
	int r = find(cli, cli->args.words[0], &info);

	if (r < 0)
		return r;
	request.path = cli_path(cli, "/api/v1/snapshots/", info.id, "");
	r = request.path
		    ? cli_api_call(cli, &request, &reply, &cli->e)
		    : err_set(&cli->e, -EPROTO, "the server named a snapshot in a strange way");
	return r < 0 ? r : cli_show_gone(cli, "snapshotID", info.id);
}
