/* Volumes: made, listed, shown, removed, and a new token for one. */
#include "cli/cli-internal.h"

struct volume_info {
	struct str id, name, agent_id, created_at, token;
	struct json_int used_bytes, size_limit_mb;
	struct json_bool hard;
};
#define VOLUME_FIELD(member, name, kind, flag) \
	JSON_FIELD(struct volume_info, member, name, kind, .flags = (flag))
static const struct json_field volume_fields[] = {
	VOLUME_FIELD(id, "id", JSON_STR, JSON_REQUIRED),
	VOLUME_FIELD(name, "name", JSON_STR, JSON_REQUIRED),
	VOLUME_FIELD(agent_id, "agent_id", JSON_STR, JSON_LAX),
	VOLUME_FIELD(created_at, "created_at", JSON_STR, JSON_LAX),
	VOLUME_FIELD(used_bytes, "used_bytes", JSON_INT, JSON_LAX),
	VOLUME_FIELD(size_limit_mb, "size_limit_mb", JSON_INT, JSON_LAX),
	VOLUME_FIELD(hard, "hard_limit", JSON_BOOL, JSON_LAX),
	VOLUME_FIELD(token, "token", JSON_STR, JSON_LAX),
};
static const struct json_shape volume_shape =
	JSON_SHAPE(struct volume_info, volume_fields, .ignore_unknown = true);

#define LIST_PATH "/api/v1/volumes?limit=200"

/* ---- ls ---- */

static struct str limit_of(const struct volume_info *v)
{
	return v->hard.value ? STR("hard") : STR("measured");
}

static void show_row(struct cli *cli, const void *item, struct out_table *t, size_t row)
{
	const struct volume_info *v = item;

	out_text(v->id, out_table_cell(t, row, 0));
	out_text(v->name, out_table_cell(t, row, 1));
	out_time(&cli->out, v->created_at, out_table_cell(t, row, 2));
	out_text(limit_of(v), out_table_cell(t, row, 3));
	out_text(v->agent_id, out_table_cell(t, row, 4));
}

static struct str show_id(const void *item)
{
	return ((const struct volume_info *)item)->id;
}

int cmd_volume_ls(struct cli *cli)
{
	static const char *const titles[] = { "ID", "NAME", "CREATED", "LIMIT", "AGENT" };
	const struct cli_listing listing = { .path = LIST_PATH,
		.shape = &volume_shape,
		.titles = titles,
		.n_titles = ARRAY_SIZE(titles),
		.row = show_row,
		.id = show_id,
		.none = "no volumes; 'atoll volume create NAME' makes one" };

	return cli_show_listing(cli, &listing);
}

/* ---- one ---- */

struct search {
	struct str typed, id;
	size_t matches;
};

static int look(void *arg, const struct json_list *rows, struct err *e)
{
	const struct volume_info *v = rows->v;
	struct search *s = arg;

	(void)e;
	for (size_t i = 0; i < rows->n; i++) {
		if (!str_has_prefix(v[i].id, s->typed) && !str_eq(v[i].name, s->typed))
			continue;
		s->id = v[i].id;
		s->matches++;
	}
	return 0;
}

/* By prefix of the id, or by the whole name. */
static int find(struct cli *cli, const char *typed, struct str *ret)
{
	struct search s = { .typed = str_of(typed) };
	int r = cli_api_each_item(cli, LIST_PATH, &volume_shape, look, &s, &cli->e);

	if (r < 0)
		return r;
	if (s.matches > 1)
		return err_set(&cli->e, -ENOTUNIQ, "several volumes are called or begin with '%s'",
			typed);
	if (s.matches == 0) {
		(void)snprintf(cli->hint, sizeof cli->hint, "'atoll volume ls' lists them");
		return err_set(&cli->e, -ENOENT, "there is no volume '%s'", typed);
	}
	*ret = s.id;
	return 0;
}

int cmd_volume_create(struct cli *cli)
{
	struct api_request request = { .method = "POST", .path = "/api/v1/volumes" };
	CLEANUP(buf_done) struct buf body = BUF_INIT(64 << 10);
	struct volume_info made = { 0 };
	struct api_reply reply;
	struct jsonw w;
	int r;

	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "name", cli->args.words[0]);
	jsonw_end_object(&w);
	if (body.failed)
		return err_set(&cli->e, -EINVAL, "the name is too long");
	request.body = buf_str(&body);
	r = cli_api_call(cli, &request, &reply, &cli->e);
	if (r < 0)
		return r;
	if (json_decode(cli->arena, reply.body, &volume_shape, &made, &cli->e) < 0)
		return err_wrap(&cli->e, -EPROTO, "the new volume");
	if (cli->out.json)
		return cli_show_body(cli, reply.body);
	out_line(&cli->out, "%.*s", STR_ARG(made.id));
	out_note(&cli->out, "give it to a sandbox: atoll sandbox create --volume %.*s:/data",
		STR_ARG(made.name));
	return EXIT_OK;
}

/* Its token opens its content: it is in the document alone. */
int cmd_volume_info(struct cli *cli)
{
	struct volume_info info = { 0 };
	struct str id = STR_NONE, body = STR_NONE;
	char cell[OUT_CELL];
	int r = find(cli, cli->args.words[0], &id);

	if (r >= 0)
		r = cli_get(cli, cli_path(cli, "/api/v1/volumes/", id, ""), &volume_shape, &info,
			&body);
	if (r < 0)
		return r;
	if (cli->out.json)
		return cli_show_body(cli, body);
	if (cli->out.quiet) {
		out_line(&cli->out, "%.*s", STR_ARG(info.id));
		return EXIT_OK;
	}
	cli_pair(cli, "id", info.id);
	cli_pair(cli, "name", info.name);
	cli_pair(cli, "agent", info.agent_id);
	out_time(&cli->out, info.created_at, cell);
	out_pair(&cli->out, "created", cell);
	if (info.used_bytes.is_set)
		out_size((uint64_t)MAX(info.used_bytes.value, 0), cell);
	out_pair(&cli->out, "used", info.used_bytes.is_set ? cell : "not measured yet");
	out_size((uint64_t)MAX(info.size_limit_mb.value, 0) << 20, cell);
	out_pair(&cli->out, "at most", cell);
	cli_pair(cli, "limit", limit_of(&info));
	return EXIT_OK;
}

int cmd_volume_rm(struct cli *cli)
{
	struct api_request request = { .method = "DELETE" };
	struct api_reply reply;
	struct str id = STR_NONE;
	int r = find(cli, cli->args.words[0], &id);

	if (r < 0)
		return r;
	request.path = cli_path(cli, "/api/v1/volumes/", id, "");
	r = cli_api_call(cli, &request, &reply, &cli->e);
	return r < 0 ? r : cli_show_gone(cli, "id", id);
}

int cmd_volume_rotate_token(struct cli *cli)
{
	struct api_request request = { .method = "POST" };
	struct volume_info made = { 0 };
	struct api_reply reply;
	struct str id = STR_NONE;
	int r = find(cli, cli->args.words[0], &id);

	if (r < 0)
		return r;
	request.path = cli_path(cli, "/api/v1/volumes/", id, "/rotate-token");
	r = cli_api_call(cli, &request, &reply, &cli->e);
	if (r >= 0)
		r = json_decode(cli->arena, reply.body, &volume_shape, &made, &cli->e);
	if (r < 0)
		return r;
	if (cli->out.json)
		return cli_show_body(cli, reply.body);
	out_line(&cli->out, "%.*s", STR_ARG(made.token));
	return EXIT_OK;
}
