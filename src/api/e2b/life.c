/* One sandbox: looked at, extended, paused, resumed, ended. */
#include "api/e2b/e2b.h"

void e2b_health(struct api_call *call)
{
	struct err e = { 0 };

	if (sandbox_ready(call->api->config.sandboxes, &e) < 0)
		api_fail_status(call, 503, e.msg);
	else
		http_reply(call->x, 200, "text/plain; charset=utf-8",
			STR("Health check successful"));
}

void e2b_get(struct api_call *call)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(8 << 20);
	const struct sandbox *sb;
	struct jsonw w;
	struct str id;

	if (e2b_id(call, &id) < 0)
		return;
	sb = sandbox_find_any(call->api->config.sandboxes, &call->owner, id);
	if (!sb) {
		e2b_not_found(call, id);
		return;
	}
	jsonw_init(&w, &body);
	e2b_write_detail(call, &w, sb);
	api_reply_json(call, 200, &body);
}

void e2b_kill(struct api_call *call)
{
	struct str id;

	if (e2b_id(call, &id) == 0)
		sandbox_kill(call->api->config.sandboxes, &call->owner, id, call->actor,
			api_done_empty, call);
}

struct life_in {
	struct json_int timeout, duration;
	struct json_bool memory, auto_pause;
};
static const struct json_field timeout_fields[] = {
	JSON_FIELD(struct life_in, timeout, "timeout", JSON_INT, .flags = JSON_REQUIRED,
		.min = INT32_MIN, .max = INT32_MAX),
};
static const struct json_shape timeout_shape = JSON_SHAPE(struct life_in, timeout_fields);
static const struct json_field refresh_fields[] = {
	JSON_FIELD(struct life_in, duration, "duration", JSON_INT, .flags = JSON_NULLABLE, .min = 0,
		.max = 3600),
};
static const struct json_shape refresh_shape = JSON_SHAPE(struct life_in, refresh_fields);
static const struct json_field pause_fields[] = {
	JSON_FIELD(struct life_in, memory, "memory", JSON_BOOL, .flags = JSON_NULLABLE),
};
static const struct json_shape pause_shape = JSON_SHAPE(struct life_in, pause_fields);
static const struct json_field connect_fields[] = {
	JSON_FIELD(struct life_in, timeout, "timeout", JSON_INT, .flags = JSON_NULLABLE, .min = 0,
		.max = INT32_MAX),
	JSON_FIELD(struct life_in, memory, "memory", JSON_BOOL, .flags = JSON_NULLABLE),
};
static const struct json_shape connect_shape = JSON_SHAPE(struct life_in, connect_fields);
static const struct json_field resume_fields[] = {
	JSON_FIELD(struct life_in, timeout, "timeout", JSON_INT, .flags = JSON_NULLABLE, .min = 0,
		.max = INT32_MAX),
	JSON_FIELD(struct life_in, memory, "memory", JSON_BOOL, .flags = JSON_NULLABLE),
	JSON_FIELD(struct life_in, auto_pause, "autoPause", JSON_BOOL, .flags = JSON_NULLABLE),
};
static const struct json_shape resume_shape = JSON_SHAPE(struct life_in, resume_fields);

void e2b_timeout(struct api_call *call)
{
	struct life_in in;
	struct str id;

	if (e2b_id(call, &id) < 0 || api_decode(call, &timeout_shape, &in, false) < 0)
		return;
	sandbox_set_timeout(call->api->config.sandboxes, &call->owner, id, in.timeout.value,
		api_done_empty, call);
}

void e2b_refresh(struct api_call *call)
{
	const struct sandbox *sb;
	struct life_in in;
	int64_t timeout_s;
	struct str id;

	if (e2b_id(call, &id) < 0 || api_decode(call, &refresh_shape, &in, true) < 0)
		return;
	timeout_s = MAX(in.duration.value, 15);
	sb = sandbox_find(call->api->config.sandboxes, &call->owner, id);
	if (sb && sb->end_us >= time_wall_us() + timeout_s * 1000000)
		api_reply_empty(call, 204); /* never shortened */
	else
		sandbox_set_timeout(call->api->config.sandboxes, &call->owner, id, timeout_s,
			api_done_empty, call);
}

void e2b_pause(struct api_call *call)
{
	struct sandbox_pause how = { .asker = http_peer(call->x), .actor = call->actor };
	struct life_in in;
	struct str id;

	if (e2b_id(call, &id) < 0 || api_decode(call, &pause_shape, &in, true) < 0)
		return;
	how.keep_memory = !in.memory.is_set || in.memory.value;
	sandbox_pause(call->api->config.sandboxes, &call->owner, id, &how, api_done_empty, call);
}

static void connected(void *arg, int r, bool resumed, const struct sandbox *sb, const struct err *e)
{
	struct api_call *call = arg;

	if (r < 0)
		api_fail(call, e);
	else
		e2b_reply_sandbox(call, resumed ? 201 : 200, sb);
}

static void wake(struct api_call *call, int64_t default_timeout_s, bool only_paused)
{
	struct sandbox_resume how = { .only_paused = only_paused, .actor = call->actor };
	struct life_in in;
	struct str id;

	if (e2b_id(call, &id) < 0 || api_decode(call, only_paused ? &resume_shape : &connect_shape,
					     &in, default_timeout_s > 0) < 0)
		return;
	how.timeout_s = in.timeout.is_set ? in.timeout.value : default_timeout_s;
	how.cold = in.memory.is_set && !in.memory.value;
	if (only_paused) /* connecting leaves that as it was */
		how.auto_pause = in.auto_pause;
	if (default_timeout_s == 0 && !in.timeout.is_set)
		api_fail_status(call, 400, "validation error: timeout: is required");
	else if (only_paused && how.timeout_s == 0)
		api_fail_status(call, 400, "Timeout must be greater than 0");
	else if (how.timeout_s > call->api->config.max_timeout_s)
		api_fail_status(call, 400,
			"validation error: timeout: longer than this server allows");
	else
		sandbox_connect(call->api->config.sandboxes, &call->owner, id, &how, connected,
			call);
}

void e2b_connect_v1(struct api_call *call)
{
	wake(call, 0, false);
}

void e2b_connect_v2(struct api_call *call)
{
	wake(call, 300, false);
}

void e2b_resume(struct api_call *call)
{
	wake(call, 15, true);
}
