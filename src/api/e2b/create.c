/* POST /sandboxes and /v2/sandboxes. */
#include "api/e2b/e2b.h"

struct auto_resume_in {
	struct json_bool enabled;
};
static const struct json_field auto_resume_fields[] = {
	JSON_FIELD(struct auto_resume_in, enabled, "enabled", JSON_BOOL, .flags = JSON_REQUIRED),
};
static const struct json_shape auto_resume_shape =
	JSON_SHAPE(struct auto_resume_in, auto_resume_fields);

struct create_in {
	struct str template_id, network, iam, mcp, runtime;
	struct json_int timeout;
	struct json_map metadata, env_vars;
	struct json_bool secure, internet, auto_pause, auto_pause_memory, nested;
	struct auto_resume_in auto_resume;
	struct json_list volume_mounts;
	struct limit_in limits;
};
static const struct json_field create_fields[] = {
	JSON_FIELD(struct create_in, template_id, "templateID", JSON_STR, .flags = JSON_REQUIRED,
		.max = 256),
	JSON_FIELD(struct create_in, timeout, "timeout", JSON_INT, .flags = JSON_NULLABLE),
	JSON_FIELD(struct create_in, metadata, "metadata", JSON_MAP, .flags = JSON_NULLABLE,
		.max = 1024),
	JSON_FIELD(struct create_in, env_vars, "envVars", JSON_MAP, .flags = JSON_NULLABLE,
		.max = 4096),
	JSON_FIELD(struct create_in, secure, "secure", JSON_BOOL, .flags = JSON_NULLABLE),
	JSON_FIELD(struct create_in, internet, "allow_internet_access", JSON_BOOL,
		.flags = JSON_NULLABLE),
	JSON_FIELD(struct create_in, auto_pause, "autoPause", JSON_BOOL, .flags = JSON_NULLABLE),
	JSON_FIELD(struct create_in, auto_pause_memory, "autoPauseMemory", JSON_BOOL,
		.flags = JSON_NULLABLE),
	JSON_FIELD(struct create_in, auto_resume, "autoResume", JSON_OBJECT, .flags = JSON_NULLABLE,
		.shape = &auto_resume_shape),
	JSON_FIELD(struct create_in, network, "network", JSON_RAW, .flags = JSON_NULLABLE),
	JSON_FIELD(struct create_in, iam, "iam", JSON_RAW, .flags = JSON_NULLABLE),
	/* Where it is set the client itself starts a gateway, by a command. */
	JSON_FIELD(struct create_in, mcp, "mcp", JSON_RAW, .flags = JSON_NULLABLE),
	JSON_FIELD(struct create_in, runtime, "runtime", JSON_STR, .flags = JSON_NULLABLE,
		.max = RUNTIME_NAME_SIZE - 1),
	JSON_FIELD(struct create_in, nested, "nested", JSON_BOOL, .flags = JSON_NULLABLE),
	JSON_FIELD(struct create_in, limits, "limits", JSON_OBJECT, .flags = JSON_NULLABLE,
		.shape = &limit_shape),
	JSON_FIELD(struct create_in, volume_mounts, "volumeMounts", JSON_OBJECTS,
		.flags = JSON_NULLABLE, .shape = &api_mount_shape, .max = 64),
};
static const struct json_shape create_shape = JSON_SHAPE(struct create_in, create_fields);

static void created(void *arg, int r, const struct sandbox *sb, const struct err *e)
{
	struct api_call *call = arg;

	if (r < 0)
		api_fail(call, e);
	else
		e2b_reply_sandbox(call, 201, sb);
}

static bool env_names_ok(const struct json_map *env)
{
	for (size_t i = 0; i < env->n; i++)
		if (env->v[i].key.n == 0 || str_find(env->v[i].key, '=') >= 0)
			return false;
	return true;
}

static const char *wrong(const struct create_in *in, bool secure,
	const struct sandbox_options *options)
{
	bool to_disk = in->auto_pause_memory.is_set && !in->auto_pause_memory.value;

	if (!env_names_ok(&in->env_vars))
		return "validation error: envVars: a name is empty or holds '='";
	if (in->mcp.n && in->mcp.p[0] != '{')
		return "validation error: mcp: must be an object";
	if (to_disk && !in->auto_pause.value)
		return "autoPauseMemory=false only applies when autoPause is true.";
	if (to_disk && in->auto_resume.enabled.value)
		return "autoPauseMemory=false (filesystem-only auto-pause) cannot be combined with "
		       "autoResume: traffic cannot wake what has no memory.";
	if (options->is_private && !secure)
		return "You cannot create a sandbox without public access unless you enable "
		       "secure envd access via 'secure' flag.";
	return NULL;
}

static struct sandbox_options options_of(const struct create_in *in)
{
	struct sandbox_options options = { .auto_resume = in->auto_resume.enabled.value,
		.internet = in->internet,
		.nested = in->nested };

	if (in->auto_pause.value)
		options.on_timeout = in->auto_pause_memory.is_set && !in->auto_pause_memory.value
					     ? SANDBOX_TIMEOUT_TO_DISK
					     : SANDBOX_TIMEOUT_PAUSE;
	return options;
}

/* Answers 400 itself. */
static int read_template(struct api_call *call, struct str text, struct api_name *ret)
{
	struct err e = { 0 };
	int r = api_name_read(http_arena(call->x), text, ret, &e);

	if (r < 0) {
		(void)err_wrap(&e, r, "Invalid template reference");
		api_fail(call, &e);
	}
	return r;
}

/* E2B's request has no place for them but the metadata. Answers 400 or 403 itself. */
static int read_labels(struct api_call *call, const struct json_map *metadata,
	struct api_labels *ret)
{
	struct str agent_id = STR_NONE, task_id = STR_NONE;

	for (size_t i = 0; i < metadata->n; i++) {
		if (str_is(metadata->v[i].key, "atoll.agent_id"))
			agent_id = metadata->v[i].value;
		if (str_is(metadata->v[i].key, "atoll.task_id"))
			task_id = metadata->v[i].value;
	}
	return api_labels(call, agent_id, task_id, ret);
}

static void create(struct api_call *call, int64_t default_timeout_s, bool always_secure)
{
	struct limit_ceilings ceilings;
	struct api_labels labels;
	struct sandbox_spec spec;
	struct api_name name;
	struct create_in in;
	const char *problem;

	if (api_decode(call, &create_shape, &in, false) < 0 ||
		read_template(call, in.template_id, &name) < 0 || e2b_iam_check(call, in.iam) < 0 ||
		read_labels(call, &in.metadata, &labels) < 0)
		return;
	spec = (struct sandbox_spec){
		.team_id = call->key.team_id,
		.actor = call->actor,
		.agent_id = labels.agent_id,
		.task_id = labels.task_id,
		.traceparent = call->traceparent,
		.bound_agent = call->key.agent_id,
		.template_name = name.clean,
		.runtime = in.runtime,
		.timeout_s = in.timeout.is_set ? in.timeout.value : default_timeout_s,
		/* Who may not act inside must not leave it open to everybody, either. */
		.secure = always_secure || in.secure.value ||
			  !api_may(call, ACCESS_EXECUTE | ACCESS_FILES),
		.metadata = in.metadata,
		.env_vars = in.env_vars,
		.options = options_of(&in),
		.ceilings = e2b_ceilings(call, &ceilings),
	};
	limit_set_read(&in.limits, &spec.limits);
	spec.options.request = str_of(call->once_request);
	if (api_network_read(call, in.network, &spec.options) < 0)
		return;
	problem = wrong(&in, spec.secure, &spec.options);
	if (problem)
		api_fail_status(call, 400, problem);
	else if (api_mounts_read(call, &in.volume_mounts, &spec.options) == 0)
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
