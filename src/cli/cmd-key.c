#include "cli/cli-internal.h"

enum {
	BODY_MAX = 64 << 10
};

struct key_info {
	struct str id, name, mask, created_at, last_used, expires_at, key, agent_id, state;
	struct json_strs scopes;
};

#define KEY_FIELD(member, name) \
	JSON_FIELD(struct key_info, member, name, JSON_STR, .flags = JSON_LAX)
static const struct json_field key_fields[] = {
	JSON_FIELD(struct key_info, id, "id", JSON_STR, .flags = JSON_REQUIRED),
	KEY_FIELD(name, "name"),
	KEY_FIELD(mask, "mask"),
	KEY_FIELD(created_at, "created_at"),
	KEY_FIELD(last_used, "last_used_at"),
	KEY_FIELD(expires_at, "expires_at"),
	KEY_FIELD(key, "key"),
	KEY_FIELD(agent_id, "agent_id"),
	KEY_FIELD(state, "state"),
	JSON_FIELD(struct key_info, scopes, "scopes", JSON_STRS, .flags = JSON_LAX),
};
static const struct json_shape key_shape =
	JSON_SHAPE(struct key_info, key_fields, .ignore_unknown = true);

struct key_page {
	struct json_list items;
};
static const struct json_field page_fields[] = {
	JSON_FIELD(struct key_page, items, "items", JSON_OBJECTS, .flags = JSON_REQUIRED,
		.shape = &key_shape),
};
static const struct json_shape page_shape =
	JSON_SHAPE(struct key_page, page_fields, .ignore_unknown = true);

static void optional_json(struct jsonw *w, const char *name, struct str value)
{
	if (value.p)
		jsonw_str(w, name, value);
}

static void key_json(struct jsonw *w, const struct key_info *key)
{
	jsonw_object(w, NULL);
	jsonw_str(w, "id", key->id);
	jsonw_str(w, "name", key->name);
	optional_json(w, "key", key->key);
	jsonw_str(w, "createdAt", key->created_at);
	optional_json(w, "lastUsed", key->last_used);
	optional_json(w, "expiresAt", key->expires_at);
	optional_json(w, "agentId", key->agent_id);
	jsonw_str(w, "state", key->state);
	jsonw_array(w, "scopes");
	for (size_t i = 0; i < key->scopes.n; i++)
		jsonw_str(w, NULL, key->scopes.v[i]);
	jsonw_end_array(w);
	jsonw_end_object(w);
}

/* What was made, this once. */
static int tell_made(struct cli *cli, const struct api_request *request)
{
	struct key_info key;
	struct api_reply reply;
	int r = cli_api_call(cli, request, &reply, &cli->e);

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

/* --expires or --overlap, in seconds. */
static int time_option(struct cli *cli, const char *option, const char *member, struct jsonw *w)
{
	const char *text = args_value(&cli->args, option);
	int64_t seconds = 0;
	int r = text && strcmp(text, "0") != 0 ? args_seconds(option, text, &seconds, &cli->e) : 0;

	if (r == 0 && text)
		jsonw_int(w, member, seconds);
	return r;
}

int cmd_key_create(struct cli *cli)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(BODY_MAX);
	struct api_request request = { .method = "POST", .path = "/api/v1/keys" };
	const char *agent = args_value(&cli->args, "agent"), *scope;
	struct jsonw w;
	size_t at = 0;
	int r;

	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "name", cli->args.n_words ? cli->args.words[0] : "cli");
	if (agent)
		jsonw_strz(&w, "agent_id", agent);
	if (args_has(&cli->args, "scope")) {
		jsonw_array(&w, "scopes");
		while ((scope = args_next(&cli->args, "scope", &at)))
			jsonw_strz(&w, NULL, scope);
		jsonw_end_array(&w);
	}
	r = time_option(cli, "expires", "expires_in", &w);
	jsonw_end_object(&w);
	request.body = buf_str(&body);
	return r < 0 ? r : tell_made(cli, &request);
}

static int list(struct cli *cli, struct json_list *ret)
{
	struct api_request request = { .method = "GET", .path = "/api/v1/keys" };
	struct key_page page = { 0 };
	struct api_reply reply;
	int r = cli_api_call(cli, &request, &reply, &cli->e);

	if (r < 0)
		return r;
	r = json_decode(cli->arena, reply.body, &page_shape, &page, &cli->e);
	*ret = page.items;
	return r < 0 ? err_wrap(&cli->e, -EPROTO, "list of keys") : 0;
}

static void list_table(struct cli *cli, const struct key_info *keys, size_t n)
{
	static const char *const titles[] = { "ID", "NAME", "KEY", "CREATED", "LAST USED", "AGENT",
		"STATE", "EXPIRES" };
	CLEANUP(out_table_done) struct out_table t;

	out_table_init(&t, titles, ARRAY_SIZE(titles));
	for (size_t i = 0; i < n; i++) {
		size_t row = out_table_add(&t);

		out_text(keys[i].id, out_table_cell(&t, row, 0));
		out_text(keys[i].name, out_table_cell(&t, row, 1));
		out_text(keys[i].mask, out_table_cell(&t, row, 2));
		out_time(&cli->out, keys[i].created_at, out_table_cell(&t, row, 3));
		out_time(&cli->out, keys[i].last_used, out_table_cell(&t, row, 4));
		out_text(keys[i].agent_id.n ? keys[i].agent_id : STR("-"),
			out_table_cell(&t, row, 5));
		out_text(keys[i].state, out_table_cell(&t, row, 6));
		out_time(&cli->out, keys[i].expires_at, out_table_cell(&t, row, 7));
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
	(void)buf_adds(&path, "/api/v1/keys/");
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

int cmd_key_rotate(struct cli *cli)
{
	CLEANUP(buf_done) struct buf path = BUF_INIT(4096), body = BUF_INIT(BODY_MAX);
	struct api_request request = { .method = "POST" };
	struct str id = STR_NONE;
	struct jsonw w;
	int r = find(cli, cli->args.words[0], &id);

	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	if (r == 0)
		r = time_option(cli, "overlap", "overlap_s", &w);
	jsonw_end_object(&w);
	if (r < 0)
		return r;
	(void)buf_adds(&path, "/api/v1/keys/");
	(void)percent_encode(id, &path);
	(void)buf_adds(&path, "/rotate");
	request.path = path.p;
	request.body = buf_str(&body);
	return tell_made(cli, &request);
}
