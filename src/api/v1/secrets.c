/* Secrets: set by name, never read back. */
#include "api/v1/v1.h"

static void write_secret(struct jsonw *w, const struct secret *s)
{
	jsonw_object(w, NULL);
	jsonw_strz(w, "id", s->id);
	jsonw_strz(w, "name", s->name);
	jsonw_int(w, "version", s->version);
	jsonw_raw(w, "metadata", s->metadata.n ? s->metadata : STR("{}"));
	v1_time(w, "created_at", s->created_us);
	v1_time(w, "updated_at", s->updated_us);
	jsonw_end_object(w);
}

static void reply_page(void *arg, int r, const struct secret *v, size_t n, bool more,
	const struct err *e)
{
	struct api_call *call = arg;
	struct api_answer answer;

	if (!api_answer_begin(call, &answer, r, e))
		return;
	v1_page_begin(&answer.w);
	for (size_t i = 0; i < n; i++)
		write_secret(&answer.w, &v[i]);
	v1_page_end(&answer.w, more ? v[n - 1].name : NULL);
	api_answer_send(call, &answer, 200);
}

/* The cursor is the last name that was shown. */
void v1_secrets_list(struct api_call *call)
{
	struct v1_page page;

	if (v1_page_read(call, 100, 100, &page) < 0)
		return;
	if (page.cursor.n >= SECRET_NAME_SIZE)
		api_fail_as(call, 400, "invalid_cursor",
			"validation error: cursor is not one of this listing", NULL);
	else
		secret_list(call->api->config.secrets, call->key.team_id, page.cursor,
			(size_t)page.limit, reply_page, call);
}

struct secret_body {
	struct str value;
	struct json_map metadata;
};
static const struct json_field body_fields[] = {
	JSON_FIELD(struct secret_body, value, "value", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct secret_body, metadata, "metadata", JSON_MAP),
};
static const struct json_shape body_shape = JSON_SHAPE(struct secret_body, body_fields);

struct put_call { /* lives in the exchange's arena */
	struct api_call *call;
	struct secret_in in;
};

static void reply_put(struct put_call *p, int status, int r, const struct secret *s,
	const struct err *e)
{
	struct api_answer answer;

	if (!api_answer_begin(p->call, &answer, r, e))
		return;
	write_secret(&answer.w, s);
	api_answer_send(p->call, &answer, status);
}

static void created(void *arg, int r, const struct secret *s, const struct err *e)
{
	reply_put(arg, 201, r, s, e);
}

/* A new version of one that is there, else the first of a new one. */
static void updated(void *arg, int r, const struct secret *s, const struct err *e)
{
	struct put_call *p = arg;

	if (r == -ENOENT)
		secret_create(p->call->api->config.secrets, &p->in, created, p);
	else
		reply_put(p, 200, r, s, e);
}

void v1_secrets_put(struct api_call *call)
{
	struct put_call *p = arena_alloc(http_arena(call->x), sizeof *p);
	struct secret_body body;

	if (api_decode(call, &body_shape, &body, false) < 0)
		return;
	if (!p) {
		api_fail_status(call, 500, "out of memory");
		return;
	}
	p->call = call;
	p->in = (struct secret_in){ .team_id = call->key.team_id,
		.actor = call->actor,
		.which = call->params[0],
		.value = body.value,
		.metadata = body.metadata };
	secret_update(call->api->config.secrets, &p->in, updated, p);
}

void v1_secrets_delete(struct api_call *call)
{
	secret_remove(call->api->config.secrets, call->key.team_id, call->params[0], call->actor,
		api_done_empty, call);
}
