/* Volumes: made, listed, looked at, removed. What is in them is reached by their token, below
 * /volumecontent. */
#include "api/v1/v1.h"

enum {
	MOST_LISTED = 200
};

static void write_members(struct api_call *call, struct jsonw *w, const struct volume *v)
{
	jsonw_strz(w, "id", v->id);
	jsonw_strz(w, "name", v->name);
	v1_text(w, "agent_id", v->agent_id);
	v1_time(w, "created_at", v->created_us);
	jsonw_bool(w, "hard_limit", volume_is_hard(call->api->config.volumes, v));
}

/* With what it takes, as far as that is known, and what opens it. */
static void reply_volume(struct api_call *call, int status, const struct volume *v)
{
	char token[VOLUME_TOKEN_SIZE];
	struct api_answer answer;
	struct volume_use use;

	volume_token(call->api->config.volumes, v, token);
	volume_use(call->api->config.volumes, v, &use);
	(void)api_answer_begin(call, &answer, 0, NULL);
	jsonw_object(&answer.w, NULL);
	write_members(call, &answer.w, v);
	if (use.used_bytes >= 0)
		jsonw_int(&answer.w, "used_bytes", use.used_bytes);
	else
		jsonw_null(&answer.w, "used_bytes");
	jsonw_int(&answer.w, "size_limit_mb", use.most_bytes >> 20);
	jsonw_strz(&answer.w, "token", token);
	jsonw_end_object(&answer.w);
	api_answer_send(call, &answer, status);
}

static void fail(struct api_call *call, const struct err *e)
{
	if (e->code == -ENOENT)
		api_fail_as(call, 404, "not_found",
			arena_printf(http_arena(call->x),
				"volume '%.*s' does not exist, or is another's",
				(int)MIN(call->params[0].n, (size_t)64), call->params[0].p),
			"GET /api/v1/volumes lists them");
	else
		api_fail(call, e);
}

/* ---- list ---- */

struct list_page {
	struct api_call *call;
	struct jsonw *w;
	int64_t before_us; /* as the cursor says */
	struct str before_id;
	int64_t left;
	bool has_more;
	const struct volume *last;
};

static void list_one(void *arg, const struct volume *v)
{
	struct list_page *list = arg;

	if (!v1_is_behind(list->before_us, list->before_id, v->created_us, v->id))
		return;
	if (list->left == 0) {
		list->has_more = true;
		return;
	}
	list->left--;
	list->last = v;
	jsonw_object(list->w, NULL);
	write_members(list->call, list->w, v);
	jsonw_end_object(list->w);
}

void v1_volumes_list(struct api_call *call)
{
	struct list_page list = { .call = call };
	struct api_answer answer;
	struct v1_page page;

	if (v1_page_read(call, 100, MOST_LISTED, &page) < 0 ||
		v1_cursor_us(call, &page, &list.before_us, &list.before_id) < 0)
		return;
	(void)api_answer_begin(call, &answer, 0, NULL);
	list.w = &answer.w;
	list.left = page.limit;
	v1_page_begin(&answer.w);
	volume_each(call->api->config.volumes, &call->volume_owner, list_one, &list);
	v1_page_end_us(&answer.w, list.has_more, list.last ? list.last->created_us : 0,
		list.last ? list.last->id : "");
	api_answer_send(call, &answer, 200);
}

/* ---- one ---- */

struct volume_in {
	struct str name;
};
static const struct json_field volume_fields[] = {
	JSON_FIELD(struct volume_in, name, "name", JSON_STR, .flags = JSON_REQUIRED,
		.max = VOLUME_NAME_SIZE - 1),
};
static const struct json_shape volume_shape = JSON_SHAPE(struct volume_in, volume_fields);

static void created(void *arg, int r, const struct volume *v, const struct err *e)
{
	if (r < 0)
		api_fail(arg, e);
	else
		reply_volume(arg, 201, v);
}

void v1_volumes_create(struct api_call *call)
{
	struct volume_in in;

	if (api_decode(call, &volume_shape, &in, false) == 0)
		volume_create(call->api->config.volumes, &call->volume_owner, in.name, call->actor,
			created, call);
}

void v1_volumes_get(struct api_call *call)
{
	const struct volume *v =
		volume_find(call->api->config.volumes, &call->volume_owner, call->params[0]);

	if (v)
		reply_volume(call, 200, v);
	else
		fail(call, &(struct err){ .code = -ENOENT });
}

static void removed(void *arg, int r, const struct err *e)
{
	if (r < 0)
		fail(arg, e);
	else
		api_reply_empty(arg, 204);
}

void v1_volumes_delete(struct api_call *call)
{
	volume_remove(call->api->config.volumes, &call->volume_owner, call->params[0], call->actor,
		removed, call);
}

static void rotated(void *arg, int r, const struct volume *v, const struct err *e)
{
	struct api_call *call = arg;
	char token[VOLUME_TOKEN_SIZE];
	struct api_answer answer;

	if (r < 0) {
		fail(call, e);
		return;
	}
	volume_token(call->api->config.volumes, v, token);
	(void)api_answer_begin(call, &answer, 0, NULL);
	jsonw_object(&answer.w, NULL);
	jsonw_strz(&answer.w, "id", v->id);
	jsonw_strz(&answer.w, "name", v->name);
	jsonw_strz(&answer.w, "token", token);
	jsonw_end_object(&answer.w);
	api_answer_send(call, &answer, 200);
}

void v1_volumes_rotate_token(struct api_call *call)
{
	volume_rotate_token(call->api->config.volumes, &call->volume_owner, call->params[0],
		call->actor, rotated, call);
}
