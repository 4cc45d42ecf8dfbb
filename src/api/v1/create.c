/* POST /sandboxes: secrets are opened, the sandbox is made (or waited for), files are put into it,
 * and only then is it answered. What fails on the way leaves no sandbox behind. */
#include "api/v1/v1.h"
#include "execution/execution.h"

enum {
	USUAL_TIMEOUT_S = 300,
	MAX_WAIT_S = 600,
	MAX_FILES = 256,
	MAX_SECRETS = 64,
	MAX_ENVS = 1024,
};

struct file_in {
	struct str path, content, bytes, mode, user;
};
static const struct json_field file_fields[] = {
	JSON_FIELD(struct file_in, path, "path", JSON_STR, .flags = JSON_REQUIRED, .max = 4095),
	JSON_FIELD(struct file_in, content, "content", JSON_STR),
	JSON_FIELD(struct file_in, bytes, "content_base64", JSON_BYTES),
	JSON_FIELD(struct file_in, mode, "mode", JSON_STR, .max = 4),
	JSON_FIELD(struct file_in, user, "user", JSON_STR, .max = 64),
};
static const struct json_shape file_shape = JSON_SHAPE(struct file_in, file_fields);

struct create_in {
	struct str agent_id, task_id, template_name, language, runtime, on_timeout, network;
	struct json_int cpu, memory_mb, disk_mb, timeout, wait, idle_timeout, max_age;
	struct json_map envs, secrets, metadata;
	struct json_bool internet, auto_resume, nested;
	struct json_list files, volumes;
	struct limit_in limits;
};
#define CREATE_FIELD(member, name, kind, ...) \
	JSON_FIELD(struct create_in, member, name, kind, __VA_ARGS__)
static const struct json_field create_fields[] = {
	CREATE_FIELD(agent_id, "agent_id", JSON_STR, .max = ACCESS_AGENT_SIZE - 1),
	CREATE_FIELD(task_id, "task_id", JSON_STR, .max = ACCESS_AGENT_SIZE - 1),
	CREATE_FIELD(template_name, "template", JSON_STR, .max = 256),
	CREATE_FIELD(language, "language", JSON_STR, .max = 32),
	CREATE_FIELD(runtime, "runtime", JSON_STR, .max = RUNTIME_NAME_SIZE - 1),
	CREATE_FIELD(cpu, "cpu", JSON_INT, .min = 1, .max = 256),
	CREATE_FIELD(memory_mb, "memory_mb", JSON_INT, .min = 128, .max = 1 << 22),
	CREATE_FIELD(disk_mb, "disk_mb", JSON_INT, .min = 64, .max = 1 << 24),
	CREATE_FIELD(limits, "limits", JSON_OBJECT, .shape = &v1_limits_shape),
	CREATE_FIELD(timeout, "timeout", JSON_INT, .min = 1, .max = INT32_MAX),
	CREATE_FIELD(on_timeout, "on_timeout", JSON_STR),
	CREATE_FIELD(idle_timeout, "idle_timeout", JSON_INT, .min = 1, .max = INT32_MAX),
	CREATE_FIELD(max_age, "max_age", JSON_INT, .min = 1, .max = INT32_MAX),
	CREATE_FIELD(auto_resume, "auto_resume", JSON_BOOL),
	CREATE_FIELD(envs, "envs", JSON_MAP, .max = MAX_ENVS),
	CREATE_FIELD(secrets, "secrets", JSON_MAP, .max = MAX_SECRETS),
	CREATE_FIELD(metadata, "metadata", JSON_MAP, .max = MAX_ENVS),
	CREATE_FIELD(internet, "internet", JSON_BOOL),
	CREATE_FIELD(nested, "nested", JSON_BOOL),
	CREATE_FIELD(network, "network", JSON_RAW),
	CREATE_FIELD(volumes, "volumes", JSON_OBJECTS, .shape = &api_mount_shape, .max = 64),
	CREATE_FIELD(files, "files", JSON_OBJECTS, .shape = &file_shape, .max = MAX_FILES),
	CREATE_FIELD(wait, "wait", JSON_INT, .min = 0, .max = MAX_WAIT_S),
};
static const struct json_shape create_shape = JSON_SHAPE(struct create_in, create_fields);

struct creation { /* lives in the exchange's arena */
	struct api_call *call;
	struct create_in in;
	struct sandbox_spec spec;
	struct limit_ceilings ceilings;
	struct api_labels labels;
	struct v1_made made; /* fn NULL: nobody but the client waits for it */
	size_t at;           /* the secret that is opened, then the file that is written */
	char id[SANDBOX_ID_SIZE];
	struct err e; /* why it is taken away again */
};

/* ---- files ---- */

static void taken_away(void *arg, int r, const struct err *e)
{
	struct creation *c = arg;

	if (r < 0 && r != -ENOENT)
		log_error("v1.create_left", "sandbox_id=%s err=%s", c->id,
			log_quote(str_of(e->msg)));
	v1_guest_fail(c->call, &c->e);
}

static void give_up(struct creation *c, const struct err *e)
{
	c->e = *e;
	sandbox_kill(c->call->api->config.sandboxes, v1_owner(c->call), str_of(c->id),
		c->call->actor, taken_away, c);
}

static void next_file(struct creation *c);

static void file_written(void *arg, int r, const struct err *e)
{
	struct creation *c = arg;
	const struct file_in *files = c->in.files.v;
	struct err why = { 0 };

	if (r >= 0) {
		c->at++;
		next_file(c);
		return;
	}
	(void)err_set(&why, r, "files: '%.*s': %s", (int)MIN(files[c->at].path.n, (size_t)80),
		files[c->at].path.p, e->msg);
	give_up(c, &why);
}

static void next_file(struct creation *c)
{
	const struct file_in *files = c->in.files.v;
	const struct sandbox *sb =
		sandbox_find(c->call->api->config.sandboxes, v1_owner(c->call), str_of(c->id));
	struct err e = { 0 };

	if (!sb) {
		(void)err_set(&e, -EIO, "it ended before it was ready");
		api_fail(c->call, &e);
	} else if (c->at == c->in.files.n) {
		if (c->made.fn)
			c->made.fn(c->made.arg, sb);
		else
			v1_reply_sandbox(c->call, 201, sb);
	} else {
		const struct file_in *f = &files[c->at];
		const struct v1_file file = { .path = f->path,
			.user = f->user,
			.mode = f->mode,
			.bytes = f->content.p ? f->content : f->bytes };

		if (v1_guest_write(c->call, sb, &file, file_written, c) < 0) {
			(void)err_set(&e, -E2BIG, "files: they are too large for one request");
			give_up(c, &e);
		}
	}
}

/* ---- the sandbox ---- */

static void created(void *arg, int r, const struct sandbox *sb, const struct err *e)
{
	struct creation *c = arg;

	if (r < 0) {
		v1_quota_fail(c->call, e);
		return;
	}
	(void)snprintf(c->id, sizeof c->id, "%s", sb->id);
	c->at = 0;
	next_file(c);
}

static void client_gone(void *arg)
{
	struct creation *c = arg;

	if (!once_is_awaited(c->call)) /* it may have come again already, by another connection */
		sandbox_stop_waiting(c->call->api->config.sandboxes, c);
}

static void start(struct creation *c)
{
	bool is_alone = c->spec.wait_ms || !c->call->once; /* nobody else waits for the same */

	if (is_alone)
		http_on_gone(c->call->x, client_gone, c);
	sandbox_create(c->call->api->config.sandboxes, &c->spec, created, c);
	if (is_alone && http_is_gone(c->call->x)) /* while its secrets were opened */
		client_gone(c);
}

/* ---- secrets: each becomes a variable of its environment ---- */

static void next_secret(struct creation *c);

static void secret_opened(void *arg, int r, struct str value, const struct err *e)
{
	struct creation *c = arg;
	struct json_pair *pair = &c->in.secrets.v[c->at];
	struct json_map *env = &c->spec.env_vars;
	char *kept = r < 0 ? NULL : arena_dup(http_arena(c->call->x), value);

	if (r == -ENOENT) {
		v1_unprocessable(c->call, "secret_not_found",
			arena_printf(http_arena(c->call->x), "secrets: there is no secret '%.*s'",
				STR_ARG(pair->value)));
	} else if (r < 0) {
		api_fail(c->call, e);
	} else if (value.n < EXECUTION_MIN_SECRET_BYTES) {
		v1_unprocessable(c->call, "secret_too_short",
			arena_printf(http_arena(c->call->x),
				"secrets: '%.*s' is too short to be masked in output",
				STR_ARG(pair->value)));
	} else if (!kept) {
		api_fail_status(c->call, 413, "the secrets are too large");
	} else {
		env->v[env->n++] = (struct json_pair){ pair->key, str_make(kept, value.n) };
		c->at++;
		next_secret(c);
	}
}

static void next_secret(struct creation *c)
{
	if (c->at == c->in.secrets.n)
		start(c);
	else
		secret_open(c->call->api->config.secrets, c->spec.team_id,
			c->in.secrets.v[c->at].value, secret_opened, c);
}

/* Room for the variables of the request and those of secrets. */
static int merge_env(struct creation *c)
{
	struct arena *arena = http_arena(c->call->x);
	struct json_map *env = &c->spec.env_vars;
	CLEANUP(buf_done) struct buf names = BUF_INIT(64 << 10);
	struct jsonw w;

	env->v = arena_alloc(arena, (c->in.envs.n + c->in.secrets.n) * sizeof *env->v);
	if (!env->v)
		return -E2BIG;
	if (c->in.envs.n)
		memcpy(env->v, c->in.envs.v, c->in.envs.n * sizeof *env->v);
	env->n = c->in.envs.n;
	env->is_set = true;
	if (!c->in.secrets.n)
		return 0;
	jsonw_init(&w, &names);
	jsonw_map(&w, NULL, &c->in.secrets);
	c->spec.options.secrets = str_make(arena_dup(arena, buf_str(&names)), names.n);
	return names.failed || !c->spec.options.secrets.p ? -E2BIG : 0;
}

/* ---- what is asked for ---- */

static bool is_variable(struct str name)
{
	for (size_t i = 0; i < name.n; i++)
		if (name.p[i] == '=' || name.p[i] == '\0')
			return false;
	return name.n > 0;
}

static bool is_mode(struct str mode)
{
	for (size_t i = 0; i < mode.n; i++)
		if (mode.p[i] < '0' || mode.p[i] > '7')
			return false;
	return !mode.p || mode.n >= 3;
}

static const char *wrong_file(const struct json_list *list)
{
	const struct file_in *files = list->v;

	for (size_t i = 0; i < list->n; i++) {
		if (!files[i].path.n)
			return "validation error: files: a path is empty";
		if (!files[i].content.p == !files[i].bytes.p)
			return "validation error: files: each has either content or content_base64";
		if (!is_mode(files[i].mode))
			return "validation error: files: mode is three or four octal digits";
	}
	return NULL;
}

static bool has(const struct json_map *map, struct str key)
{
	for (size_t i = 0; i < map->n; i++)
		if (str_eq(map->v[i].key, key))
			return true;
	return false;
}

static const char *wrong(const struct create_in *in)
{
	if (has(&in->metadata, STR(EXECUTION_RUN_KEY)))
		return "validation error: metadata: " EXECUTION_RUN_KEY " is the server's own";
	for (size_t i = 0; i < in->envs.n; i++)
		if (!is_variable(in->envs.v[i].key))
			return "validation error: envs: a name is empty or holds '='";
	for (size_t i = 0; i < in->secrets.n; i++)
		if (!is_variable(in->secrets.v[i].key))
			return "validation error: secrets: a variable's name is empty or holds '='";
	for (size_t i = 0; i < in->secrets.n; i++)
		if (has(&in->envs, in->secrets.v[i].key))
			return "validation error: secrets: a variable of that name is in envs";
	return wrong_file(&in->files);
}

/* Answers 400 itself. */
static int read_timeout(struct creation *c)
{
	static const struct {
		const char *name;
		enum sandbox_timeout how;
	} names[] = { { "kill", SANDBOX_TIMEOUT_KILL }, { "pause", SANDBOX_TIMEOUT_PAUSE },
		{ "pause_to_disk", SANDBOX_TIMEOUT_TO_DISK } };
	const struct create_in *in = &c->in;
	int64_t usual = c->made.fn ? c->made.timeout_s : USUAL_TIMEOUT_S;

	c->spec.timeout_s = in->timeout.is_set ? in->timeout.value
					       : MIN(usual, c->call->api->config.max_timeout_s);
	c->spec.options.auto_resume = in->auto_resume.value;
	c->spec.options.internet = in->internet;
	c->spec.options.nested = in->nested;
	c->spec.options.idle_timeout_s = in->idle_timeout.value;
	c->spec.options.max_age_s = in->max_age.is_set ? in->max_age.value : SANDBOX_AGE_USUAL;
	if (in->auto_resume.value && str_is(in->on_timeout, "pause_to_disk")) {
		api_fail_status(c->call, 400,
			"validation error: auto_resume: traffic cannot wake what has no memory");
		return -EINVAL;
	}
	if (!in->on_timeout.p)
		return 0;
	if (c->made.fn) {
		api_fail_status(c->call, 400,
			"validation error: sandbox: on_timeout: a run's sandbox is ended");
		return -EINVAL;
	}
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (str_is(in->on_timeout, names[i].name)) {
			c->spec.options.on_timeout = names[i].how;
			return 0;
		}
	api_fail_status(c->call, 400,
		"validation error: on_timeout must be kill, pause or pause_to_disk");
	return -EINVAL;
}

/* A language is a template of that name where there is one; the base template speaks all three.
 * Answers 400 itself. */
static int read_template(struct creation *c)
{
	static const char *const languages[] = { "bash", "javascript", "python" };
	struct arena *arena = http_arena(c->call->x);
	struct str wanted = c->in.template_name.n ? c->in.template_name : STR("base");
	struct template found;
	struct api_name name;
	struct err e = { 0 };
	bool is_known = !c->in.language.p;

	for (size_t i = 0; i < ARRAY_SIZE(languages); i++)
		is_known = is_known || str_is(c->in.language, languages[i]);
	if (!is_known)
		(void)err_set(&e, -EINVAL,
			"validation error: language must be bash, javascript or python");
	else if (!c->in.template_name.n && c->in.language.n &&
		 template_find(c->call->api->config.templates, c->in.language, &found, NULL) >= 0)
		wanted = c->in.language;
	if (is_known && api_name_read(arena, wanted, &name, &e) < 0)
		(void)err_wrap(&e, -EINVAL, "validation error: template");
	if (e.code < 0)
		api_fail(c->call, &e);
	else
		c->spec.template_name = name.clean;
	return e.code;
}

static void read_limits(struct creation *c)
{
	const struct create_in *in = &c->in;
	int64_t *v = c->spec.limits.v;

	limit_set_read(&in->limits, &c->spec.limits);
	v[LIMIT_CPU] = in->cpu.is_set ? in->cpu.value : v[LIMIT_CPU];
	v[LIMIT_MEMORY] = in->memory_mb.is_set ? in->memory_mb.value : v[LIMIT_MEMORY];
	v[LIMIT_DISK] = in->disk_mb.is_set ? in->disk_mb.value : v[LIMIT_DISK];
	access_ceilings(c->call->api->config.access, c->call->key.team_id, &c->ceilings);
	c->spec.ceilings = &c->ceilings;
	c->spec.limits_by_key = true;
}

/* Answers itself when something is wrong. */
static int describe(struct creation *c)
{
	struct api_call *call = c->call;
	const char *problem = wrong(&c->in);

	if (problem) {
		api_fail_status(call, 400, problem);
		return -EINVAL;
	}
	if (c->in.secrets.n && !api_may(call, ACCESS_SECRETS_USE)) {
		api_fail_as(call, 403, "missing_scope", "this key lacks the scope secrets:use",
			NULL);
		return -EPERM;
	}
	if (c->in.files.n && !api_may(call, ACCESS_FILES)) {
		api_fail_as(call, 403, "missing_scope", "this key lacks the scope files", NULL);
		return -EPERM;
	}
	c->spec = (struct sandbox_spec){ .team_id = call->key.team_id,
		.actor = call->actor,
		.traceparent = call->traceparent,
		.bound_agent = call->key.agent_id,
		.runtime = c->in.runtime,
		.secure = true,
		.wait_ms = c->in.wait.value * 1000,
		.metadata = c->in.metadata };
	read_limits(c);
	if (api_labels(call, c->in.agent_id, c->in.task_id, &c->labels) < 0 ||
		read_timeout(c) < 0 || read_template(c) < 0 ||
		api_network_read(call, c->in.network, &c->spec.options) < 0 ||
		api_mounts_read(call, &c->in.volumes, &c->spec.options) < 0)
		return -EINVAL;
	c->spec.agent_id = c->labels.agent_id;
	c->spec.task_id = c->labels.task_id;
	/* Else it is not what was asked for, or not until its files are in it. */
	if (!c->in.files.n && !c->made.fn)
		c->spec.options.request = str_of(call->once_request);
	return 0;
}

/* What a restarted server finds and ends. */
static int mark_run(struct creation *c)
{
	struct json_map *metadata = &c->spec.metadata;
	struct json_pair *v = arena_alloc(http_arena(c->call->x), (metadata->n + 1) * sizeof *v);

	if (!v)
		return -E2BIG;
	if (metadata->n)
		memcpy(v, metadata->v, metadata->n * sizeof *v);
	v[metadata->n] = (struct json_pair){ str_of(EXECUTION_RUN_KEY), str_of(c->made.run_id) };
	*metadata = (struct json_map){ .v = v, .n = metadata->n + 1, .is_set = true };
	return 0;
}

static void described(void *arg)
{
	struct creation *c = arg;

	if (describe(c) < 0)
		return;
	if (c->made.fn && mark_run(c) < 0) {
		api_fail_status(c->call, 413, "the metadata is too large");
		return;
	}
	if (merge_env(c) < 0)
		api_fail_status(c->call, 413, "the environment is too large");
	else
		next_secret(c);
}

static void create(struct api_call *call, const struct v1_made *made)
{
	struct creation *c = arena_alloc(http_arena(call->x), sizeof *c);

	if (!c) {
		api_fail_status(call, 500, "out of memory");
		return;
	}
	c->call = call;
	c->made = *made;
	api_decode_then(call, &create_shape, &c->in, true, described, c);
}

void v1_sandbox_make(struct api_call *call, struct str body, const struct v1_made *made)
{
	call->body = body;
	create(call, made);
}

void v1_sandboxes_create(struct api_call *call)
{
	create(call, &(struct v1_made){ 0 });
}
