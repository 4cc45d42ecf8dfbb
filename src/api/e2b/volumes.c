/* Volumes: the control plane. What is in them: volume-content.c. */
#include "api/e2b/e2b.h"

static void write_volume(struct jsonw *w, const struct volume *v, const char *token,
	const struct volume_use *use)
{
	jsonw_strz(w, "volumeID", v->id);
	jsonw_strz(w, "name", v->name);
	if (token)
		jsonw_strz(w, "token", token);
	if (use && use->used_bytes >= 0)
		jsonw_int(w, "usedBytes", use->used_bytes);
	if (use)
		jsonw_int(w, "sizeLimitMB", use->most_bytes >> 20);
	if (use)
		jsonw_bool(w, "hardLimit", use->is_hard);
}

static void reply_volume(struct api_call *call, int status, const struct volume *v)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(4096);
	char token[VOLUME_TOKEN_SIZE];
	struct volume_use use;
	struct jsonw w;

	volume_token(call->api->config.volumes, v, token);
	volume_use(call->api->config.volumes, v, &use);
	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	write_volume(&w, v, token, &use);
	jsonw_end_object(&w);
	api_reply_json(call, status, &body);
}

struct listing {
	struct api_call *call;
	struct jsonw w;
};

static void list_one(void *arg, const struct volume *v)
{
	struct listing *l = arg;

	jsonw_object(&l->w, NULL);
	write_volume(&l->w, v, NULL, NULL);
	jsonw_bool(&l->w, "hardLimit", volume_is_hard(l->call->api->config.volumes, v));
	jsonw_end_object(&l->w);
}

void e2b_volumes_list(struct api_call *call)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(1 << 20);
	struct listing l = { .call = call };

	jsonw_init(&l.w, &body);
	jsonw_array(&l.w, NULL);
	volume_each(call->api->config.volumes, &call->volume_owner, list_one, &l);
	jsonw_end_array(&l.w);
	api_reply_json(call, 200, &body);
}

struct volume_in {
	struct str name;
};
static const struct json_field volume_fields[] = {
	JSON_FIELD(struct volume_in, name, "name", JSON_STR, .flags = JSON_REQUIRED),
};
static const struct json_shape volume_shape = JSON_SHAPE(struct volume_in, volume_fields);

static void created(void *arg, int r, const struct volume *v, const struct err *e)
{
	if (r < 0)
		api_fail(arg, e);
	else
		reply_volume(arg, 201, v);
}

void e2b_volumes_create(struct api_call *call)
{
	struct volume_in in;

	if (api_decode(call, &volume_shape, &in, false) == 0)
		volume_create(call->api->config.volumes, &call->volume_owner, in.name, call->actor,
			created, call);
}

/* The id in the path; answers 400 itself. */
static int check_id(struct api_call *call)
{
	if (str_is_uuid(call->params[0]))
		return 0;
	api_fail_status(call, 400, "the volume's id must be a UUID");
	return -EINVAL;
}

void e2b_volumes_get(struct api_call *call)
{
	const struct volume *v;

	if (check_id(call) < 0)
		return;
	v = volume_find(call->api->config.volumes, &call->volume_owner, call->params[0]);
	if (v)
		reply_volume(call, 200, v);
	else
		api_fail_status(call, 404, "volume not found");
}

static void rotated(void *arg, int r, const struct volume *v, const struct err *e)
{
	if (r < 0)
		api_fail(arg, e);
	else
		reply_volume(arg, 200, v);
}

void e2b_volumes_rotate_token(struct api_call *call)
{
	if (check_id(call) == 0)
		volume_rotate_token(call->api->config.volumes, &call->volume_owner, call->params[0],
			call->actor, rotated, call);
}

void e2b_volumes_remove(struct api_call *call)
{
	if (check_id(call) == 0)
		volume_remove(call->api->config.volumes, &call->volume_owner, call->params[0],
			call->actor, api_done_empty, call);
}
