/* Secrets: written, never read back. */
#include "api/e2b/e2b.h"

static void write_secret(struct jsonw *w, const struct secret *s)
{
	char at[RFC3339_SIZE];

	jsonw_object(w, NULL);
	jsonw_strz(w, "secretID", s->id);
	jsonw_strz(w, "name", s->name);
	jsonw_int(w, "currentVersion", s->version);
	jsonw_raw(w, "metadata", s->metadata.n ? s->metadata : STR("{}"));
	time_rfc3339(s->created_us, at);
	jsonw_strz(w, "createdAt", at);
	time_rfc3339(s->updated_us, at);
	jsonw_strz(w, "updatedAt", at);
	jsonw_end_object(w);
}

static void reply(struct api_call *call, int status, int r, const struct secret *s,
	const struct err *e)
{
	struct api_answer answer;

	if (!api_answer_begin(call, &answer, r, e))
		return;
	write_secret(&answer.w, s);
	api_answer_send(call, &answer, status);
}

static void reply_created(void *arg, int r, const struct secret *s, const struct err *e)
{
	reply(arg, 201, r, s, e);
}

static void reply_found(void *arg, int r, const struct secret *s, const struct err *e)
{
	reply(arg, 200, r, s, e);
}

struct secret_body {
	struct str name, value;
	struct json_map metadata;
};
static const struct json_field create_fields[] = {
	JSON_FIELD(struct secret_body, name, "name", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct secret_body, value, "value", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct secret_body, metadata, "metadata", JSON_MAP, .flags = JSON_NULLABLE),
};
static const struct json_shape create_shape = JSON_SHAPE(struct secret_body, create_fields);
static const struct json_field update_fields[] = {
	JSON_FIELD(struct secret_body, value, "value", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct secret_body, metadata, "metadata", JSON_MAP, .flags = JSON_NULLABLE),
};
static const struct json_shape update_shape = JSON_SHAPE(struct secret_body, update_fields);

static struct secret_in input(const struct api_call *call, struct str which,
	const struct secret_body *body)
{
	return (struct secret_in){ .team_id = call->key.team_id,
		.actor = call->actor,
		.which = which,
		.value = body->value,
		.metadata = body->metadata };
}

void e2b_secrets_create(struct api_call *call)
{
	struct secret_body body;
	struct secret_in in;

	if (api_decode(call, &create_shape, &body, false) < 0)
		return;
	in = input(call, body.name, &body);
	secret_create(call->api->config.secrets, &in, reply_created, call);
}

void e2b_secrets_update(struct api_call *call)
{
	struct secret_body body;
	struct secret_in in;

	if (api_decode(call, &update_shape, &body, false) < 0)
		return;
	in = input(call, call->params[0], &body);
	secret_update(call->api->config.secrets, &in, reply_found, call);
}

void e2b_secrets_get(struct api_call *call)
{
	secret_get(call->api->config.secrets, call->key.team_id, call->params[0], reply_found,
		call);
}

void e2b_secrets_remove(struct api_call *call)
{
	secret_remove(call->api->config.secrets, call->key.team_id, call->params[0], call->actor,
		api_done_empty, call);
}

static void reply_page(void *arg, int r, const struct secret *v, size_t n, bool more,
	const struct err *e)
{
	struct api_call *call = arg;
	struct api_answer answer;

	if (!api_answer_begin(call, &answer, r, e))
		return;
	jsonw_array(&answer.w, NULL);
	for (size_t i = 0; i < n; i++)
		write_secret(&answer.w, &v[i]);
	jsonw_end_array(&answer.w);
	if (more)
		http_add_header(call->x, "X-Next-Token", str_of(v[n - 1].name));
	api_answer_send(call, &answer, 200);
}

/* The cursor is the last name that was shown. */
void e2b_secrets_list(struct api_call *call)
{
	struct str after = http_query_value(call->x, "nextToken");
	int64_t limit = 100;

	if (api_query_int(call, "limit", 1, 100, &limit) < 0)
		return;
	if (after.n >= SECRET_NAME_SIZE)
		api_fail_status(call, 400,
			"validation error: nextToken is not one of this listing");
	else
		secret_list(call->api->config.secrets, call->key.team_id, after, (size_t)limit,
			reply_page, call);
}
