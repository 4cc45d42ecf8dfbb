/* Snapshots: made of a running sandbox, listed, removed. New sandboxes start from them by their id,
 * as from a template. */
#include "cli/cli-internal.h"

enum {
	MAX_BODY = 4096,
	MAX_PATH = 4096,
};

struct snapshot_info {
	struct str id;
	struct json_strs names;
};
static const struct json_field snapshot_fields[] = {
	JSON_FIELD(struct snapshot_info, id, "snapshotID", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct snapshot_info, names, "names", JSON_STRS, .flags = JSON_LAX),
};
static const struct json_shape snapshot_shape =
	JSON_SHAPE(struct snapshot_info, snapshot_fields, .ignore_unknown = true);

static void snapshot_json(struct jsonw *w, const struct snapshot_info *info)
{
	jsonw_object(w, NULL);
	jsonw_str(w, "snapshotID", info->id);
	jsonw_array(w, "names");
	for (size_t i = 0; i < info->names.n; i++)
		jsonw_str(w, NULL, info->names.v[i]);
	jsonw_end_array(w);
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
	request.path = arena_printf(cli->arena, "/sandboxes/%s/snapshots", id);
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

typedef void (*snapshot_fn)(struct cli *cli, const struct snapshot_info *info, void *arg);

static void show_row(struct cli *cli, const struct snapshot_info *info, void *arg)
{
	struct out_table *table = arg;
	size_t row;

	if (cli->out.json) {
		snapshot_json(&cli->out.json_writer, info);
	} else if (cli->out.quiet) {
		out_line(&cli->out, "%.*s", STR_ARG(info->id));
	} else {
		row = out_table_add(table);
		out_text(info->id, out_table_cell(table, row, 0));
		out_text(info->names.n ? info->names.v[0] : STR_NONE,
			out_table_cell(table, row, 1));
	}
}

struct visit {
	struct cli *cli;
	snapshot_fn fn;
	void *arg;
};

static int visit_page(void *arg, const struct json_list *rows, struct err *e)
{
	struct visit *visit = arg;
	const struct snapshot_info *v = rows->v;

	(void)e;
	for (size_t i = 0; i < rows->n; i++)
		visit->fn(visit->cli, &v[i], visit->arg);
	return 0;
}

static int each_snapshot(struct cli *cli, snapshot_fn fn, void *arg, struct err *e)
{
	struct visit visit = { cli, fn, arg };

	return cli_api_each_page(cli, "/snapshots?limit=100", &snapshot_shape, visit_page, &visit,
		e);
}

int cmd_snapshot_ls(struct cli *cli)
{
	static const char *const titles[] = { "ID", "NAME" };
	CLEANUP(out_table_done) struct out_table table;
	int r;

	out_table_init(&table, titles, ARRAY_SIZE(titles));
	if (cli->out.json)
		jsonw_array(&cli->out.json_writer, NULL);
	r = each_snapshot(cli, show_row, &table, &cli->e);
	if (r < 0)
		return r;
	if (cli->out.json) {
		jsonw_end_array(&cli->out.json_writer);
		(void)buf_addc(&cli->out.text, '\n');
	} else if (table.n_rows) {
		out_table_print(&cli->out, &table);
	} else if (!cli->out.quiet) {
		out_note(&cli->out, "no snapshots; 'atoll sandbox snapshot SANDBOX' makes one");
	}
	return EXIT_OK;
}

/* ---- rm ---- */

struct search {
	struct str typed;
	struct str id; /* n 0: not found */
};

static bool is_named(struct str name, struct str typed)
{
	return str_eq(name, typed) ||
	       (str_has_prefix(name, typed) && str_is(str_from(name, typed.n), ":default"));
}

static void match(struct cli *cli, const struct snapshot_info *info, void *arg)
{
	struct search *s = arg;

	(void)cli;
	if (is_named(info->id, s->typed))
		s->id = info->id;
	for (size_t i = 0; i < info->names.n; i++)
		if (is_named(info->names.v[i], s->typed))
			s->id = info->id;
}

/* The API removes snapshots as the templates they are. Templates that are none must not go by a
 * word that was meant for a snapshot. */
static int find_snapshot(struct cli *cli, const char *typed, struct str *ret, struct err *e)
{
	struct search s = { .typed = str_of(typed) };
	int r = each_snapshot(cli, match, &s, e);

	if (r < 0)
		return r;
	if (!s.id.n) {
		(void)snprintf(cli->hint, sizeof cli->hint, "'atoll snapshot ls' lists them");
		return err_set(e, -ENOENT, "there is no snapshot '%s'", typed);
	}
	*ret = s.id;
	return 0;
}

int cmd_snapshot_rm(struct cli *cli)
{
	CLEANUP(buf_done) struct buf path = BUF_INIT(MAX_PATH);
	struct api_request request = { .method = "DELETE" };
	struct jsonw *w = &cli->out.json_writer;
	struct api_reply reply;
	char cell[OUT_CELL];
	struct str id = STR_NONE;
	int r = find_snapshot(cli, cli->args.words[0], &id, &cli->e);

	if (r < 0)
		return r;
	(void)buf_adds(&path, "/templates/");
	(void)percent_encode(id, &path);
	if (path.failed)
		return err_set(&cli->e, -EPROTO, "the server named a snapshot in a strange way");
	request.path = path.p;
	r = cli_api_call(cli, &request, &reply, &cli->e);
	if (r < 0)
		return r;
	if (!cli->out.json) {
		out_text(id, cell);
		out_line(&cli->out, "%s", cell);
		return EXIT_OK;
	}
	jsonw_object(w, NULL);
	jsonw_str(w, "snapshotID", id);
	jsonw_bool(w, "removed", true);
	jsonw_end_object(w);
	(void)buf_addc(&cli->out.text, '\n');
	return EXIT_OK;
}
