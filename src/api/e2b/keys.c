/* API keys: listed without their secret, shown once when made. */
#include "api/e2b/e2b.h"

/* Atoll has keys and no users: who made a key is the key that was used to make it. */
static void write_maker(struct jsonw *w, const char *key_id)
{
	if (!key_id[0]) {
		jsonw_null(w, "createdBy");
		return;
	}
	jsonw_object(w, "createdBy");
	jsonw_strz(w, "id", key_id);
	jsonw_null(w, "email");
	jsonw_end_object(w);
}

static void write_key(struct jsonw *w, const struct access_key *key, const char *secret)
{
	char at[RFC3339_SIZE];

	time_rfc3339(key->created_us, at);
	jsonw_object(w, NULL);
	jsonw_strz(w, "id", key->id);
	jsonw_strz(w, "name", key->name);
	if (secret)
		jsonw_strz(w, "key", secret);
	jsonw_object(w, "mask");
	jsonw_strz(w, "prefix", "e2b_");
	jsonw_int(w, "valueLength", ACCESS_KEY_SIZE - 1 - 4);
	jsonw_strz(w, "maskedValuePrefix", key->mask_start);
	jsonw_strz(w, "maskedValueSuffix", key->mask_end);
	jsonw_end_object(w);
	jsonw_strz(w, "createdAt", at);
	write_maker(w, key->created_by);
	time_rfc3339(key->last_used_us, at);
	jsonw_strz(w, "lastUsed", key->last_used_us ? at : NULL);
	jsonw_end_object(w);
}

static void list_one(void *arg, const struct access_key *key)
{
	write_key(arg, key, NULL);
}

void e2b_keys_list(struct api_call *call)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(4 << 20);
	struct jsonw w;

	jsonw_init(&w, &body);
	jsonw_array(&w, NULL);
	access_each_key(call->api->config.access, call->key.team_id, list_one, &w);
	jsonw_end_array(&w);
	api_reply_json(call, 200, &body);
}

struct key_in {
	struct str name;
};
static const struct json_field key_fields[] = {
	JSON_FIELD(struct key_in, name, "name", JSON_STR, .flags = JSON_REQUIRED, .max = 100),
};
static const struct json_shape key_shape = JSON_SHAPE(struct key_in, key_fields);

static void key_created(void *arg, int r, const struct access_key *made, const char *secret,
	const struct err *e)
{
	struct api_call *call = arg;
	struct api_answer answer;

	if (!api_answer_begin(call, &answer, r, e))
		return;
	write_key(&answer.w, made, secret);
	http_add_header(call->x, "Cache-Control", STR("no-store"));
	api_answer_send(call, &answer, 201);
}

/* The name in the body; answers 400 itself. */
static int decode_name(struct api_call *call, struct key_in *in)
{
	if (api_decode(call, &key_shape, in, false) < 0)
		return -EINVAL;
	if (in->name.n)
		return 0;
	api_fail_status(call, 400, "validation error: name: must not be empty");
	return -EINVAL;
}

/* It may do what the key may that made it, for no longer. */
static void create_in_team(struct api_call *call, const char *team_id)
{
	struct access_key_spec spec = { .team_id = team_id,
		.actor = call->actor,
		.scopes = call->key.scopes,
		.expires_us = call->key.expires_us };
	struct key_in in;

	if (decode_name(call, &in) < 0)
		return;
	spec.name = in.name;
	access_create_key(call->api->config.access, &spec, key_created, call);
}

void e2b_keys_create(struct api_call *call)
{
	create_in_team(call, call->key.team_id);
}

static void key_renamed(void *arg, int r, const struct err *e)
{
	if (r < 0)
		api_fail(arg, e);
	else
		api_reply_empty(arg, 200);
}

void e2b_keys_rename(struct api_call *call)
{
	struct key_in in;

	if (decode_name(call, &in) == 0)
		access_rename_key(call->api->config.access, call->key.team_id, call->params[0],
			in.name, call->actor, key_renamed, call);
}

void e2b_keys_revoke(struct api_call *call)
{
	access_revoke_key(call->api->config.access, call->key.team_id, call->params[0], call->actor,
		api_done_empty, call);
}

/* ---- the operator, for any team ---- */

const struct access_team *e2b_admin_team(struct api_call *call)
{
	const struct access_team *team = access_team(call->api->config.access, call->params[0]);

	if (!team)
		api_fail_status(call, 404, "team not found");
	return team;
}

void e2b_admin_key_create(struct api_call *call)
{
	const struct access_team *team = e2b_admin_team(call);

	if (team)
		create_in_team(call, team->id);
}

void e2b_admin_key_revoke(struct api_call *call)
{
	const struct access_team *team = e2b_admin_team(call);

	if (team)
		access_revoke_key(call->api->config.access, team->id, call->params[1], call->actor,
			api_done_empty, call);
}

/* ---- access tokens: E2B no longer makes them, and Atoll never did ---- */

void e2b_tokens_create(struct api_call *call)
{
	api_fail_status(call, 410, "access tokens are no longer made: use an API key");
}

void e2b_tokens_delete(struct api_call *call)
{
	api_fail_status(call, 404, "access token not found");
}
