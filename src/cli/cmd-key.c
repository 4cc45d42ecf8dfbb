#include "cli/cli-internal.h"

struct key_mask {
	struct str prefix, first, last;
};
struct key_info {
	struct str id, name, created_at, last_used, key;
	struct key_mask mask;
};

static const struct json_field mask_fields[] = {
	JSON_FIELD(struct key_mask, prefix, "prefix", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct key_mask, first, "maskedValuePrefix", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct key_mask, last, "maskedValueSuffix", JSON_STR, .flags = JSON_LAX),
};
static const struct json_shape mask_shape =
	JSON_SHAPE(struct key_mask, mask_fields, .ignore_unknown = true);
static const struct json_field key_fields[] = {
	JSON_FIELD(struct key_info, id, "id", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct key_info, name, "name", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct key_info, created_at, "createdAt", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct key_info, last_used, "lastUsed", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct key_info, key, "key", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct key_info, mask, "mask", JSON_OBJECT, .shape = &mask_shape,
		.flags = JSON_LAX),
};
static const struct json_shape key_shape =
	JSON_SHAPE(struct key_info, key_fields, .ignore_unknown = true);

static void key_json(struct jsonw *w, const struct key_info *key)
{
	jsonw_object(w, NULL);
	jsonw_str(w, "id", key->id);
	jsonw_str(w, "name", key->name);
	if (key->key.p)
		jsonw_str(w, "key", key->key);
	jsonw_str(w, "createdAt", key->created_at);
	if (key->last_used.p)
		jsonw_str(w, "lastUsed", key->last_used);
	jsonw_end_object(w);
}

int cmd_key_create(struct cli *cli)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(64 << 10);
	struct api_request request = { .method = "POST", .path = "/api-keys" };
	struct key_info key;
	struct api_reply reply;
	struct jsonw w;
	int r;

	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "name", cli->args.n_words ? cli->args.words[0] : "cli");
	jsonw_end_object(&w);
	request.body = buf_str(&body);
	r = cli_api_call(cli, &request, &reply, &cli->e);
	if (r < 0)
		return r;
	r = json_decode(cli->arena, reply.body, &key_shape, &key, &cli->e);
	if (r < 0 || !key.key.n)
		return err_set(&cli->e, -EPROTO, "the server made a key and did not say which");
	if (cli->out.json) {
		key_json(&cli->out.json_writer, &key);
		(void)buf_addc(&cli->out.text, '\n');
	} else {
		out_line(&cli->out, "%.*s", STR_ARG(key.key));
		out_note(&cli->out, "shown this once; revoke: atoll key revoke %.*s",
			STR_ARG(key.id));
	}
	return EXIT_OK;
}

static int list(struct cli *cli, struct json_list *ret)
{
	struct api_request request = { .method = "GET", .path = "/api-keys" };
	struct api_reply reply;
	int r = cli_api_call(cli, &request, &reply, &cli->e);

	if (r < 0)
		return r;
	r = json_decode_list(cli->arena, reply.body, &key_shape, ret, &cli->e);
	return r < 0 ? err_wrap(&cli->e, -EPROTO, "list of keys") : 0;
}

static void list_table(struct cli *cli, const struct key_info *keys, size_t n)
{
	static const char *const titles[] = { "ID", "NAME", "KEY", "CREATED", "LAST USED" };
	CLEANUP(out_table_done) struct out_table t;

	out_table_init(&t, titles, ARRAY_SIZE(titles));
	for (size_t i = 0; i < n; i++) {
		size_t row = out_table_add(&t);
		char mask[OUT_CELL];

		(void)snprintf(mask, sizeof mask, "%.*s%.*s...%.*s", STR_ARG(keys[i].mask.prefix),
			STR_ARG(keys[i].mask.first), STR_ARG(keys[i].mask.last));
		out_text(keys[i].id, out_table_cell(&t, row, 0));
		out_text(keys[i].name, out_table_cell(&t, row, 1));
		out_text(str_of(mask), out_table_cell(&t, row, 2));
		out_time(&cli->out, keys[i].created_at, out_table_cell(&t, row, 3));
		out_time(&cli->out, keys[i].last_used, out_table_cell(&t, row, 4));
	}
	out_table_print(&cli->out, &t);
}

int cmd_key_ls(struct cli *cli)
{
	struct json_list keys = { 0 };
	int r = list(cli, &keys);
	const struct key_info *v = keys.v;

	if (r < 0)
		return r;
	if (cli->out.json) {
		jsonw_array(&cli->out.json_writer, NULL);
		for (size_t i = 0; i < keys.n; i++)
			key_json(&cli->out.json_writer, &v[i]);
		jsonw_end_array(&cli->out.json_writer);
		(void)buf_addc(&cli->out.text, '\n');
	} else if (cli->out.quiet) {
		for (size_t i = 0; i < keys.n; i++)
			out_line(&cli->out, "%.*s", STR_ARG(v[i].id));
	} else {
		list_table(cli, v, keys.n);
	}
	return EXIT_OK;
}

/* By prefix of the id, or by the whole name. */
static int find(struct cli *cli, const char *typed, struct str *ret)
{
	const struct key_info *v, *match = NULL;
	struct json_list keys;
	size_t at = 0, matches = 0;
	int r = list(cli, &keys);

	if (r < 0)
		return r;
	v = keys.v;
	for (size_t i = 0; i < keys.n; i++) {
		if (!str_has_prefix(v[i].id, str_of(typed)) && !str_is(v[i].name, typed))
			continue;
		match = &v[i];
		if (at < sizeof cli->hint)
			at += (size_t)snprintf(cli->hint + at, sizeof cli->hint - at, "%s%.*s",
				matches ? " " : "one of: ", STR_ARG(v[i].id));
		matches++;
	}
	if (matches > 1)
		return err_set(&cli->e, -ENOTUNIQ, "several keys are called or begin with '%s'",
			typed);
	cli->hint[0] = '\0';
	if (!match)
		return err_set(&cli->e, -ENOENT, "there is no key '%s'", typed);
	*ret = match->id;
	return 0;
}

int cmd_key_revoke(struct cli *cli)
{
	CLEANUP(buf_done) struct buf path = BUF_INIT(4096);
	struct api_request request = { .method = "DELETE" };
	struct jsonw *w = &cli->out.json_writer;
	struct api_reply reply;
	struct str id = STR_NONE;
	int r = find(cli, cli->args.words[0], &id);

	if (r < 0)
		return r;
	(void)buf_adds(&path, "/api-keys/");
	(void)percent_encode(id, &path);
	request.path = path.p;
	r = cli_api_call(cli, &request, &reply, &cli->e);
	if (r < 0)
		return r;
	if (!cli->out.json) {
		out_line(&cli->out, "%.*s", STR_ARG(id));
		return EXIT_OK;
	}
	jsonw_object(w, NULL);
	jsonw_str(w, "id", id);
	jsonw_bool(w, "revoked", true);
	jsonw_end_object(w);
	(void)buf_addc(&cli->out.text, '\n');
	return EXIT_OK;
}
