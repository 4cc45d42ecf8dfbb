/* Volumes: which there are, and a new token for one. */
#include "cli/cli-internal.h"

struct volume_info {
	struct str id, name, token;
	struct json_bool hard; /* of the list */
};

static const struct json_field listed_fields[] = {
	JSON_FIELD(struct volume_info, id, "volumeID", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct volume_info, name, "name", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct volume_info, hard, "hardLimit", JSON_BOOL),
};
static const struct json_shape listed_shape =
	JSON_SHAPE(struct volume_info, listed_fields, .ignore_unknown = true);

static const struct json_field rotated_fields[] = {
	JSON_FIELD(struct volume_info, id, "id", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct volume_info, name, "name", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct volume_info, token, "token", JSON_STR, .flags = JSON_REQUIRED),
};
static const struct json_shape rotated_shape =
	JSON_SHAPE(struct volume_info, rotated_fields, .ignore_unknown = true);

static int list(struct cli *cli, struct json_list *ret)
{
	struct api_request request = { .method = "GET", .path = "/volumes" };
	struct api_reply reply;
	int r = cli_api_call(cli, &request, &reply, &cli->e);

	if (r < 0)
		return r;
	r = json_decode_list(cli->arena, reply.body, &listed_shape, ret, &cli->e);
	return r < 0 ? err_wrap(&cli->e, -EPROTO, "list of volumes") : 0;
}

static void write_json(struct jsonw *w, const struct volume_info *v)
{
	jsonw_object(w, NULL);
	jsonw_str(w, "id", v->id);
	jsonw_str(w, "name", v->name);
	if (v->token.p)
		jsonw_str(w, "token", v->token);
	if (v->hard.is_set)
		jsonw_bool(w, "hard_limit", v->hard.value);
	jsonw_end_object(w);
}

static void list_table(struct cli *cli, const struct volume_info *v, size_t n)
{
	static const char *const titles[] = { "ID", "NAME", "LIMIT" };
	CLEANUP(out_table_done) struct out_table t;

	out_table_init(&t, titles, ARRAY_SIZE(titles));
	for (size_t i = 0; i < n; i++) {
		size_t row = out_table_add(&t);

		out_text(v[i].id, out_table_cell(&t, row, 0));
		out_text(v[i].name, out_table_cell(&t, row, 1));
		out_text(v[i].hard.value ? STR("hard") : STR("measured"),
			out_table_cell(&t, row, 2));
	}
	out_table_print(&cli->out, &t);
}

int cmd_volume_ls(struct cli *cli)
{
	struct json_list volumes = { 0 };
	int r = list(cli, &volumes);
	const struct volume_info *v = volumes.v;

	if (r < 0)
		return r;
	if (cli->out.json) {
		jsonw_array(&cli->out.json_writer, NULL);
		for (size_t i = 0; i < volumes.n; i++)
			write_json(&cli->out.json_writer, &v[i]);
		jsonw_end_array(&cli->out.json_writer);
		(void)buf_addc(&cli->out.text, '\n');
	} else if (cli->out.quiet) {
		for (size_t i = 0; i < volumes.n; i++)
			out_line(&cli->out, "%.*s", STR_ARG(v[i].id));
	} else {
		list_table(cli, v, volumes.n);
	}
	return EXIT_OK;
}

/* By prefix of the id, or by the whole name. */
static int find(struct cli *cli, const char *typed, struct str *ret)
{
	const struct volume_info *v;
	struct json_list volumes = { 0 };
	size_t matches = 0;
	int r = list(cli, &volumes);

	v = volumes.v;
	for (size_t i = 0; r >= 0 && i < volumes.n; i++) {
		if (!str_has_prefix(v[i].id, str_of(typed)) && !str_is(v[i].name, typed))
			continue;
		*ret = v[i].id;
		matches++;
	}
	if (r >= 0 && matches > 1)
		return err_set(&cli->e, -ENOTUNIQ, "several volumes are called or begin with '%s'",
			typed);
	if (r >= 0 && matches == 0)
		return err_set(&cli->e, -ENOENT, "there is no volume '%s'", typed);
	return r;
}

int cmd_volume_rotate_token(struct cli *cli)
{
	CLEANUP(buf_done) struct buf path = BUF_INIT(4096);
	struct api_request request = { .method = "POST" };
	struct volume_info made = { 0 };
	struct api_reply reply;
	struct str id = STR_NONE;
	int r = find(cli, cli->args.words[0], &id);

	if (r < 0)
		return r;
	(void)buf_adds(&path, "/api/v1/volumes/");
	(void)percent_encode(id, &path);
	(void)buf_adds(&path, "/rotate-token");
	request.path = path.p;
	r = cli_api_call(cli, &request, &reply, &cli->e);
	if (r >= 0)
		r = json_decode(cli->arena, reply.body, &rotated_shape, &made, &cli->e);
	if (r < 0)
		return r;
	if (!cli->out.json) {
		out_line(&cli->out, "%.*s", STR_ARG(made.token));
		return EXIT_OK;
	}
	write_json(&cli->out.json_writer, &made);
	(void)buf_addc(&cli->out.text, '\n');
	return EXIT_OK;
}
