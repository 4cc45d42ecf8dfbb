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

int e2b_id(struct api_call *call, struct str *ret)
{
	struct str id = call->params[0];
	ptrdiff_t dash = str_find(id, '-');

	if (dash >= 0 && str_find(str_from(id, (size_t)dash + 1), '-') < 0)
		id.n = (size_t)dash; /* old ids carried a "-clientID" */
	for (size_t i = 0; i < id.n; i++)
		if (!((id.p[i] >= 'a' && id.p[i] <= 'z') || (id.p[i] >= '0' && id.p[i] <= '9')))
			id.n = 0;
	if (id.n == 0) {
		api_fail_status(call, 400, "Invalid sandbox ID");
		return -EINVAL;
	}
	*ret = id;
	return 0;
}

void e2b_not_found(struct api_call *call, struct str id)
{
	struct err e = { 0 };

	(void)err_set(&e, -ENOENT, "Sandbox \"%.*s\" doesn't exist or you don't have access to it",
		STR_ARG(id));
	api_fail(call, &e);
}

/* ---- objects ---- */

static void write_sandbox(struct api_call *call, struct jsonw *w, const struct sandbox *sb)
{
	char token[SANDBOX_TOKEN_SIZE];

	jsonw_object(w, NULL);
	jsonw_strz(w, "sandboxID", sb->id);
	jsonw_strz(w, "templateID", sb->template_id);
	jsonw_strz(w, "alias", sb->template_name);
	jsonw_strz(w, "clientID", E2B_CLIENT_ID);
	jsonw_strz(w, "envdVersion", E2B_ENVD_VERSION);
	if (sb->secure) {
		sandbox_token(call->api->config.sandboxes, sb->id, token);
		jsonw_strz(w, "envdAccessToken", token);
	}
	jsonw_null(w, "trafficAccessToken");
	jsonw_strz(w, "domain", call->api->config.domain);
	jsonw_end_object(w);
}

static void reply_sandbox(struct api_call *call, int status, const struct sandbox *sb)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(64 << 10);
	struct jsonw w;

	jsonw_init(&w, &body);
	write_sandbox(call, &w, sb);
	api_reply_json(call, status, &body);
}

static void write_detail(struct api_call *call, struct jsonw *w, const struct sandbox *sb)
{
	char started[RFC3339_SIZE], end[RFC3339_SIZE], token[SANDBOX_TOKEN_SIZE];

	time_rfc3339(sb->started_us, started);
	time_rfc3339(sb->end_us, end);
	jsonw_object(w, NULL);
	jsonw_strz(w, "sandboxID", sb->id);
	jsonw_strz(w, "templateID", sb->template_id);
	jsonw_strz(w, "alias", sb->template_name);
	jsonw_strz(w, "clientID", E2B_CLIENT_ID);
	jsonw_strz(w, "startedAt", started);
	jsonw_strz(w, "endAt", end);
	jsonw_strz(w, "envdVersion", E2B_ENVD_VERSION);
	jsonw_int(w, "cpuCount", sb->cpu_count);
	jsonw_int(w, "memoryMB", sb->memory_mb);
	jsonw_int(w, "diskSizeMB", sb->disk_mb);
	jsonw_strz(w, "state", "running");
	jsonw_map(w, "metadata", &sb->metadata);
	if (call) {
		if (sb->secure) {
			sandbox_token(call->api->config.sandboxes, sb->id, token);
			jsonw_strz(w, "envdAccessToken", token);
		}
		jsonw_strz(w, "domain", call->api->config.domain);
		jsonw_null(w, "allowInternetAccess");
		jsonw_object(w, "lifecycle");
		jsonw_bool(w, "autoResume", false);
		jsonw_strz(w, "onTimeout", "kill");
		jsonw_end_object(w);
	}
	jsonw_array(w, "volumeMounts");
	jsonw_end_array(w);
	jsonw_end_object(w);
}

void e2b_get(struct api_call *call)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(2 << 20);
	const struct sandbox *sb;
	struct jsonw w;
	struct str id;

	if (e2b_id(call, &id) < 0)
		return;
	sb = sandbox_find(call->api->config.sandboxes, call->key.team_id, id);
	if (!sb) {
		e2b_not_found(call, id);
		return;
	}
	jsonw_init(&w, &body);
	write_detail(call, &w, sb);
	api_reply_json(call, 200, &body);
}

/* ---- create ---- */

struct auto_resume_in {
	struct json_bool enabled;
};
static const struct json_field auto_resume_fields[] = {
	JSON_FIELD(struct auto_resume_in, enabled, "enabled", JSON_BOOL),
};
static const struct json_shape auto_resume_shape =
	JSON_SHAPE(struct auto_resume_in, auto_resume_fields, .ignore_unknown = true);

struct mount_in {
	struct str name, path;
};
static const struct json_field mount_fields[] = {
	JSON_FIELD(struct mount_in, name, "name", JSON_STR),
	JSON_FIELD(struct mount_in, path, "path", JSON_STR),
};
static const struct json_shape mount_shape =
	JSON_SHAPE(struct mount_in, mount_fields, .ignore_unknown = true);

struct create_in {
	struct str template_id, network;
	struct json_int timeout;
	struct json_map metadata, env_vars;
	struct json_bool secure, internet, auto_pause;
	struct auto_resume_in auto_resume;
	struct json_list volume_mounts;
};
static const struct json_field create_fields[] = {
	JSON_FIELD(struct create_in, template_id, "templateID", JSON_STR, .flags = JSON_REQUIRED,
		.max = 256),
	JSON_FIELD(struct create_in, timeout, "timeout", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct create_in, metadata, "metadata", JSON_MAP, .flags = JSON_LAX,
		.max = 1024),
	JSON_FIELD(struct create_in, env_vars, "envVars", JSON_MAP, .flags = JSON_LAX, .max = 4096),
	JSON_FIELD(struct create_in, secure, "secure", JSON_BOOL, .flags = JSON_LAX),
	JSON_FIELD(struct create_in, internet, "allow_internet_access", JSON_BOOL,
		.flags = JSON_LAX),
	JSON_FIELD(struct create_in, auto_pause, "autoPause", JSON_BOOL, .flags = JSON_LAX),
	JSON_FIELD(struct create_in, auto_resume, "autoResume", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &auto_resume_shape),
	JSON_FIELD(struct create_in, network, "network", JSON_RAW, .flags = JSON_LAX),
	JSON_FIELD(struct create_in, volume_mounts, "volumeMounts", JSON_OBJECTS, .flags = JSON_LAX,
		.shape = &mount_shape, .max = 64),
};
static const struct json_shape create_shape =
	JSON_SHAPE(struct create_in, create_fields, .ignore_unknown = true);

/* What would change a sandbox's safety or life and is not there yet is refused, never ignored. */
static const char *unsupported(const struct create_in *in)
{
	if (in->internet.is_set && !in->internet.value)
		return "allow_internet_access: false is not supported by this server's runtime "
		       "'local' yet";
	if (in->network.n > 2)
		return "network rules are not supported by this server's runtime 'local' yet";
	if (in->auto_pause.value || in->auto_resume.enabled.value)
		return "auto-pause and auto-resume are not supported by this server's runtime "
		       "'local' yet";
	if (in->volume_mounts.n)
		return "volumes are not supported by this server's runtime 'local' yet";
	return NULL;
}

static void created(void *arg, int r, const struct sandbox *sb, const struct err *e)
{
	struct api_call *call = arg;

	if (r < 0)
		api_fail(call, e);
	else
		reply_sandbox(call, 201, sb);
}

static bool env_names_ok(const struct json_map *env)
{
	for (size_t i = 0; i < env->n; i++)
		if (env->v[i].key.n == 0 || str_find(env->v[i].key, '=') >= 0)
			return false;
	return true;
}

static void create(struct api_call *call, int64_t default_timeout_s, bool always_secure)
{
	struct create_in in;
	struct sandbox_spec spec;

	if (api_decode(call, &create_shape, &in, false) < 0)
		return;
	if (unsupported(&in)) {
		api_fail_status(call, 400, unsupported(&in));
		return;
	}
	if (!env_names_ok(&in.env_vars)) {
		api_fail_status(call, 400,
			"validation error: envVars: a name is empty or holds '='");
		return;
	}
	spec = (struct sandbox_spec){
		.team_id = call->key.team_id,
		.actor = call->key.id,
		.template_name = in.template_id,
		.timeout_s = in.timeout.is_set ? in.timeout.value : default_timeout_s,
		.secure = always_secure || in.secure.value,
		.metadata = in.metadata,
		.env_vars = in.env_vars,
	};
	sandbox_create(call->api->config.sandboxes, &spec, created, call);
}

void e2b_create_v1(struct api_call *call)
{
	create(call, 15, false);
}

void e2b_create_v2(struct api_call *call)
{
	create(call, 300, true);
}

/* ---- ending and extending ---- */

void e2b_kill(struct api_call *call)
{
	struct str id;

	if (e2b_id(call, &id) == 0)
		sandbox_kill(call->api->config.sandboxes, call->key.team_id, id, call->key.id,
			api_done_empty, call);
}

struct timeout_in {
	struct json_int timeout, duration;
	struct json_bool memory;
};
static const struct json_field timeout_fields[] = {
	JSON_FIELD(struct timeout_in, timeout, "timeout", JSON_INT, .flags = JSON_REQUIRED),
};
static const struct json_shape timeout_shape =
	JSON_SHAPE(struct timeout_in, timeout_fields, .ignore_unknown = true);
static const struct json_field refresh_fields[] = {
	JSON_FIELD(struct timeout_in, duration, "duration", JSON_INT, .flags = JSON_LAX, .min = 0,
		.max = 3600),
};
static const struct json_shape refresh_shape =
	JSON_SHAPE(struct timeout_in, refresh_fields, .ignore_unknown = true);
static const struct json_field connect_fields[] = {
	JSON_FIELD(struct timeout_in, timeout, "timeout", JSON_INT, .flags = JSON_LAX, .min = 0,
		.max = INT32_MAX),
	JSON_FIELD(struct timeout_in, memory, "memory", JSON_BOOL, .flags = JSON_LAX),
};
static const struct json_shape connect_shape =
	JSON_SHAPE(struct timeout_in, connect_fields, .ignore_unknown = true);

void e2b_timeout(struct api_call *call)
{
	struct timeout_in in;
	struct str id;

	if (e2b_id(call, &id) < 0 || api_decode(call, &timeout_shape, &in, false) < 0)
		return;
	sandbox_set_timeout(call->api->config.sandboxes, call->key.team_id, id, in.timeout.value,
		api_done_empty, call);
}

/* Seconds that make the end later than it is, or -1 when it already is later than that. */
static int64_t later_only(const struct sandbox *sb, int64_t timeout_s)
{
	return time_wall_us() + timeout_s * 1000000 > sb->end_us ? timeout_s : -1;
}

void e2b_refresh(struct api_call *call)
{
	const struct sandbox *sb;
	struct timeout_in in;
	int64_t timeout_s;
	struct str id;

	if (e2b_id(call, &id) < 0 || api_decode(call, &refresh_shape, &in, true) < 0)
		return;
	sb = sandbox_find(call->api->config.sandboxes, call->key.team_id, id);
	timeout_s = sb ? later_only(sb, MAX(in.duration.value, 15)) : 0;
	if (timeout_s < 0)
		api_reply_empty(call, 204);
	else
		sandbox_set_timeout(call->api->config.sandboxes, call->key.team_id, id, timeout_s,
			api_done_empty, call);
}

static void connected(void *arg, int r, const struct err *e)
{
	struct api_call *call = arg;
	const struct sandbox *sb;
	struct str id;

	if (r < 0) {
		api_fail(call, e);
		return;
	}
	if (e2b_id(call, &id) < 0)
		return;
	sb = sandbox_find(call->api->config.sandboxes, call->key.team_id, id);
	if (sb)
		reply_sandbox(call, 200, sb);
	else
		e2b_not_found(call, id);
}

/* To a running sandbox only: the end time is moved later, never earlier. */
static void connect_running(struct api_call *call, bool timeout_needed)
{
	const struct sandbox *sb;
	struct timeout_in in;
	int64_t timeout_s;
	struct str id;

	if (e2b_id(call, &id) < 0 || api_decode(call, &connect_shape, &in, !timeout_needed) < 0)
		return;
	if (timeout_needed && !in.timeout.is_set) {
		api_fail_status(call, 400, "validation error: timeout: is required");
		return;
	}
	sb = sandbox_find(call->api->config.sandboxes, call->key.team_id, id);
	timeout_s = sb ? later_only(sb, in.timeout.is_set ? in.timeout.value : 300) : 0;
	if (sb && timeout_s < 0)
		connected(call, 0, NULL);
	else
		sandbox_set_timeout(call->api->config.sandboxes, call->key.team_id, id, timeout_s,
			connected, call);
}

void e2b_connect_v1(struct api_call *call)
{
	connect_running(call, true);
}

void e2b_connect_v2(struct api_call *call)
{
	connect_running(call, false);
}

void e2b_write_listed(struct jsonw *w, const struct sandbox *sb)
{
	write_detail(NULL, w, sb);
}
