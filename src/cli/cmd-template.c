/* Templates: what sandboxes start from. */
#include "cli/cli-internal.h"

struct template_info {
	struct str id, name, kind, user, workdir, start, runtime, created_at, last_used_at;
	struct json_strs tags;
	struct json_map limits;
	struct json_int uses;
};
#define TEMPLATE_FIELD(member, name, kind) \
	JSON_FIELD(struct template_info, member, name, kind, .flags = JSON_LAX)
static const struct json_field template_fields[] = {
	JSON_FIELD(struct template_info, id, "id", JSON_STR, .flags = JSON_REQUIRED),
	TEMPLATE_FIELD(name, "name", JSON_STR),
	TEMPLATE_FIELD(kind, "kind", JSON_STR),
	TEMPLATE_FIELD(tags, "tags", JSON_STRS),
	TEMPLATE_FIELD(user, "user", JSON_STR),
	TEMPLATE_FIELD(workdir, "workdir", JSON_STR),
	TEMPLATE_FIELD(start, "start", JSON_STR),
	TEMPLATE_FIELD(runtime, "runtime", JSON_STR),
	TEMPLATE_FIELD(limits, "limits", JSON_RAW_MAP),
	TEMPLATE_FIELD(created_at, "created_at", JSON_STR),
	TEMPLATE_FIELD(uses, "uses", JSON_INT),
	TEMPLATE_FIELD(last_used_at, "last_used_at", JSON_STR),
};
static const struct json_shape template_shape =
	JSON_SHAPE(struct template_info, template_fields, .ignore_unknown = true);

static struct str shown_name(const void *item)
{
	const struct template_info *t = item;

	return t->name.n ? t->name : t->id;
}

static void tags_cell(const struct json_strs *tags, char cell[OUT_CELL])
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(64 << 10);

	for (size_t i = 0; i < tags->n; i++)
		(void)buf_printf(&text, "%s%.*s", i ? "," : "", STR_ARG(tags->v[i]));
	out_text(buf_str(&text), cell);
}

static void number_cell(struct json_int n, char cell[OUT_CELL])
{
	if (n.is_set)
		(void)snprintf(cell, OUT_CELL, "%" PRId64, n.value);
	else
		out_text(STR_NONE, cell);
}

static void show_row(struct cli *cli, const void *item, struct out_table *t, size_t row)
{
	const struct template_info *info = item;
	const struct sandbox_info as = { .limits = info->limits };

	out_text(shown_name(info), out_table_cell(t, row, 0));
	tags_cell(&info->tags, out_table_cell(t, row, 1));
	(void)snprintf(out_table_cell(t, row, 2), OUT_CELL, "%" PRId64,
		cli_sandbox_limit(&as, "cpu"));
	out_size((uint64_t)cli_sandbox_limit(&as, "memory_mb") << 20, out_table_cell(t, row, 3));
	out_size((uint64_t)cli_sandbox_limit(&as, "disk_mb") << 20, out_table_cell(t, row, 4));
	out_text(info->runtime, out_table_cell(t, row, 5));
	out_time(&cli->out, info->created_at, out_table_cell(t, row, 6));
	number_cell(info->uses, out_table_cell(t, row, 7));
	out_time(&cli->out, info->last_used_at, out_table_cell(t, row, 8));
}

int cmd_template_ls(struct cli *cli)
{
	static const char *const titles[] = { "NAME", "TAGS", "CPU", "MEMORY", "DISK", "RUNTIME",
		"MADE", "USES", "LAST USED" };
	const struct cli_listing listing = { .path = "/api/v1/templates?limit=100",
		.shape = &template_shape,
		.titles = titles,
		.n_titles = ARRAY_SIZE(titles),
		.row = show_row,
		.id = shown_name,
		.none = "no templates: the server's templates directory is empty" };

	return cli_show_listing(cli, &listing);
}

static int find(struct cli *cli, struct template_info *ret, struct str *ret_body)
{
	int r = cli_get(cli, cli_path(cli, "/api/v1/templates/", str_of(cli->args.words[0]), ""),
		&template_shape, ret, ret_body);

	if (r == -ENOENT)
		(void)snprintf(cli->hint, sizeof cli->hint,
			"'atoll template ls' and 'atoll snapshot ls' list them");
	return r;
}

int cmd_template_info(struct cli *cli)
{
	struct template_info info = { 0 };
	char cell[OUT_CELL];
	struct str body = STR_NONE;
	int r = find(cli, &info, &body);

	if (r < 0)
		return r;
	if (cli->out.json)
		return cli_show_body(cli, body);
	if (cli->out.quiet) {
		out_line(&cli->out, "%.*s", STR_ARG(shown_name(&info)));
		return EXIT_OK;
	}
	cli_pair(cli, "id", info.id);
	cli_pair(cli, "name", info.name);
	cli_pair(cli, "kind", info.kind);
	tags_cell(&info.tags, cell);
	out_pair(&cli->out, "tags", cell);
	cli_pair(cli, "user", info.user);
	cli_pair(cli, "workdir", info.workdir);
	cli_pair(cli, "start", info.start);
	cli_pair(cli, "runtime", info.runtime);
	cli_pair_limits(cli, &info.limits);
	out_time(&cli->out, info.created_at, cell);
	out_pair(&cli->out, "made", cell);
	number_cell(info.uses, cell);
	out_pair(&cli->out, "uses", cell);
	out_time(&cli->out, info.last_used_at, cell);
	out_pair(&cli->out, "last used", cell);
	return EXIT_OK;
}

int cmd_template_rm(struct cli *cli)
{
	struct api_request request = { .method = "DELETE" };
	struct template_info info = { 0 };
	struct api_reply reply;
	int r = find(cli, &info, NULL);

	if (r < 0)
		return r;
	request.path = cli_path(cli, "/api/v1/templates/", str_of(cli->args.words[0]), "");
	r = cli_api_call(cli, &request, &reply, &cli->e);
	return r < 0 ? r : cli_show_gone(cli, "id", info.id);
}
