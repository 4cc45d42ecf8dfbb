/* Sandboxes as the API shows them, and how a word on the command line becomes one. */
#include "cli/cli-internal.h"

enum {
	MAX_CANDIDATES = 8, /* named when a prefix is not unique */
	GUEST_PORT = 49983,
	USUAL_TIMEOUT_S = 300,
};

#define ACCESS_FIELD(member) \
	JSON_FIELD(struct sandbox_access, member, #member, JSON_STR, .flags = JSON_LAX)
static const struct json_field access_fields[] = { ACCESS_FIELD(token), ACCESS_FIELD(domain),
	ACCESS_FIELD(traffic_token) };
static const struct json_shape access_shape =
	JSON_SHAPE(struct sandbox_access, access_fields, .ignore_unknown = true);

#define INFO_FIELD(member, name, kind, ...) \
	JSON_FIELD(struct sandbox_info, member, name, kind, .flags = JSON_LAX, __VA_ARGS__)
static const struct json_field info_fields[] = {
	JSON_FIELD(struct sandbox_info, id, "id", JSON_STR, .flags = JSON_REQUIRED),
	INFO_FIELD(template_id, "template_id", JSON_STR),
	INFO_FIELD(template_name, "template", JSON_STR),
	INFO_FIELD(runtime, "runtime", JSON_STR),
	INFO_FIELD(state, "state", JSON_STR),
	INFO_FIELD(agent_id, "agent_id", JSON_STR),
	INFO_FIELD(task_id, "task_id", JSON_STR),
	INFO_FIELD(started_at, "created_at", JSON_STR),
	INFO_FIELD(end_at, "ends_at", JSON_STR),
	INFO_FIELD(ended_at, "ended_at", JSON_STR),
	INFO_FIELD(ended_by, "ended_by", JSON_STR),
	INFO_FIELD(ended_why, "ended_why", JSON_STR),
	INFO_FIELD(on_timeout, "on_timeout", JSON_STR),
	INFO_FIELD(access, "access", JSON_OBJECT, .shape = &access_shape),
	INFO_FIELD(limits, "limits", JSON_RAW_MAP),
	INFO_FIELD(metadata, "metadata", JSON_MAP),
	INFO_FIELD(internet, "internet", JSON_BOOL),
	INFO_FIELD(network, "network", JSON_RAW),
	INFO_FIELD(volumes, "volumes", JSON_RAW),
};
const struct json_shape cli_sandbox_shape =
	JSON_SHAPE(struct sandbox_info, info_fields, .ignore_unknown = true);

int64_t cli_sandbox_limit(const struct sandbox_info *info, const char *name)
{
	int64_t n = 0;

	for (size_t i = 0; i < info->limits.n; i++)
		if (str_is(info->limits.v[i].key, name))
			(void)str_to_int(info->limits.v[i].value, 0, INT64_MAX, &n);
	return n;
}

/* An id goes into paths and headers, wherever it came from. */
static bool is_id(const char *text)
{
	size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return n > 0 && n < CLI_ID && !text[n];
}

struct collection {
	struct sandbox_info *all;
	size_t n;
};

static int collect(void *arg, const struct json_list *rows, struct err *e)
{
	struct collection *c = arg;
	struct sandbox_info *grown = reallocarray(c->all, c->n + rows->n + 1, sizeof *grown);

	if (!grown)
		return err_set(e, -ENOMEM, "too many sandboxes for this memory");
	if (rows->n)
		memcpy(grown + c->n, rows->v, rows->n * sizeof *grown);
	c->all = grown;
	c->n += rows->n;
	return 0;
}

int cli_sandbox_list(struct cli *cli, struct sandbox_info **ret, size_t *ret_n, struct err *e)
{
	struct collection c = { 0 };
	int r = cli_api_each_item(cli, "/api/v1/sandboxes?limit=500", &cli_sandbox_shape, collect,
		&c, e);

	if (r < 0) {
		free(c.all);
		return r;
	}
	*ret = c.all;
	*ret_n = c.n;
	return 0;
}

static int ambiguous(struct cli *cli, const char *typed, const struct sandbox_info *all, size_t n,
	struct err *e)
{
	size_t at = (size_t)snprintf(cli->hint, sizeof cli->hint, "one of:");
	size_t shown = 0;

	for (size_t i = 0; i < n && at < sizeof cli->hint; i++)
		if (str_has_prefix(all[i].id, str_of(typed)) && shown++ < MAX_CANDIDATES)
			at += (size_t)snprintf(cli->hint + at, sizeof cli->hint - at, " %.*s",
				STR_ARG(all[i].id));
	return err_set(e, -ENOTUNIQ, "'%s' is the beginning of several sandbox ids", typed);
}

int cli_sandbox_resolve(struct cli *cli, const char *typed, char id[CLI_ID], struct err *e)
{
	cleanup_free struct sandbox_info *all = NULL;
	const struct sandbox_info *match = NULL;
	size_t n = 0, matches = 0;
	int r;

	if (!is_id(typed))
		return err_set(e, -EINVAL, "'%s' is not a sandbox id", typed);
	if (strlen(typed) >= CLI_ID_WHOLE) {
		(void)snprintf(id, CLI_ID, "%s", typed);
		return 0;
	}
	r = cli_sandbox_list(cli, &all, &n, e);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++)
		if (str_has_prefix(all[i].id, str_of(typed))) {
			match = &all[i];
			matches++;
		}
	if (matches == 0) {
		(void)snprintf(cli->hint, sizeof cli->hint, "'atoll sandbox ls' lists them");
		return err_set(e, -ENOENT, "there is no sandbox '%s'", typed);
	}
	if (matches > 1)
		return ambiguous(cli, typed, all, n, e);
	(void)snprintf(id, CLI_ID, "%.*s", STR_ARG(match->id));
	return is_id(id) ? 0 : err_set(e, -EPROTO, "the server named a sandbox in a strange way");
}

int sandbox_look_up_any(struct cli *cli, const char *typed, struct sandbox_info *ret, struct err *e)
{
	struct api_request request = { .method = "GET" };
	struct api_reply reply;
	char id[CLI_ID];
	int r = cli_sandbox_resolve(cli, typed, id, e);

	if (r < 0)
		return r;
	request.path = arena_printf(cli->arena, "/api/v1/sandboxes/%s", id);
	r = cli_api_call(cli, &request, &reply, e);
	if (r < 0)
		return r;
	r = json_decode(cli->arena, reply.body, &cli_sandbox_shape, ret, e);
	return r < 0 ? err_wrap(e, -EPROTO, "%s", request.path) : 0;
}

int sandbox_look_up(struct cli *cli, const char *typed, struct sandbox_info *ret, struct err *e)
{
	int r = sandbox_look_up_any(cli, typed, ret, e);

	if (r < 0 || !str_is(ret->state, "ended"))
		return r;
	(void)snprintf(cli->hint, sizeof cli->hint, "atoll sandbox info --all %.*s shows it",
		STR_ARG(ret->id));
	return err_set(e, -ENOENT, "sandbox %.*s has ended: %.*s (%.*s)", STR_ARG(ret->id),
		STR_ARG(ret->ended_why), STR_ARG(ret->ended_by));
}

int cli_sandbox_target(const struct sandbox_info *info, struct target *ret, struct err *e)
{
	(void)snprintf(ret->id, sizeof ret->id, "%.*s", STR_ARG(info->id));
	(void)snprintf(ret->token, sizeof ret->token, "%.*s", STR_ARG(info->access.token));
	if (!is_id(ret->id) || info->id.n >= sizeof ret->id ||
		info->access.token.n >= sizeof ret->token)
		return err_set(e, -EPROTO, "the server named a sandbox in a strange way");
	return 0;
}

int sandbox_look_up_running(struct cli *cli, const char *typed, struct sandbox_info *ret,
	struct err *e)
{
	int r = sandbox_look_up(cli, typed, ret, e);

	if (r < 0 || !ret->state.n || str_is(ret->state, "running"))
		return r;
	if (str_has_prefix(ret->state, STR("paus")))
		(void)snprintf(cli->hint, sizeof cli->hint, "go on: atoll sandbox resume %.*s",
			STR_ARG(ret->id));
	return err_set(e, -EBUSY, "sandbox %.*s is %.*s", STR_ARG(ret->id), STR_ARG(ret->state));
}

int cli_sandbox_open(struct cli *cli, const char *typed, struct target *ret, struct err *e)
{
	struct sandbox_info info;
	int r = sandbox_look_up_running(cli, typed, &info, e);

	return r < 0 ? r : cli_sandbox_target(&info, ret, e);
}

struct own_timeout {
	struct json_int seconds;
	struct str state;
};
static const struct json_field own_timeout_fields[] = {
	JSON_FIELD(struct own_timeout, seconds, "timeout", JSON_INT, .flags = JSON_REQUIRED),
	JSON_FIELD(struct own_timeout, state, "state", JSON_STR, .flags = JSON_REQUIRED),
};
static const struct json_shape own_timeout_shape =
	JSON_SHAPE(struct own_timeout, own_timeout_fields, .ignore_unknown = true);

/* One that is paused goes on for as many seconds as it was made with: E2B's usual ones would cut
 * the life of a longer one short. */
static int own_timeout(struct cli *cli, const char *id, int64_t *ret_s, struct err *e)
{
	struct api_request request = { .method = "GET" };
	struct own_timeout in;
	struct api_reply reply;
	int r;

	request.path = arena_printf(cli->arena, "/api/v1/sandboxes/%s", id);
	r = cli_api_call(cli, &request, &reply, e);
	if (r == 0)
		r = json_decode(cli->arena, reply.body, &own_timeout_shape, &in, e);
	if (r == 0)
		*ret_s = str_is(in.state, "paused") ? in.seconds.value : USUAL_TIMEOUT_S;
	return r;
}

struct connected {
	struct str id, token;
};
static const struct json_field connected_fields[] = {
	JSON_FIELD(struct connected, id, "sandboxID", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct connected, token, "envdAccessToken", JSON_STR, .flags = JSON_LAX),
};
static const struct json_shape connected_shape =
	JSON_SHAPE(struct connected, connected_fields, .ignore_unknown = true);

int cli_sandbox_wake(struct cli *cli, const char *typed, const struct cli_wake *how,
	struct target *ret, struct err *e)
{
	struct api_request request = { .method = "POST" };
	int64_t timeout_s = how->timeout_s;
	struct connected connected;
	struct api_reply reply;
	char id[CLI_ID];
	int r = cli_sandbox_resolve(cli, typed, id, e);

	if (r == 0 && !timeout_s)
		r = own_timeout(cli, id, &timeout_s, e);
	if (r < 0)
		return r;
	request.path = arena_printf(cli->arena, "/v2/sandboxes/%s/connect", id);
	request.body = str_of(arena_printf(cli->arena, "{\"timeout\":%" PRId64 "%s}", timeout_s,
		how->cold ? ",\"memory\":false" : ""));
	r = cli_api_call(cli, &request, &reply, e);
	if (r == 0 && json_decode(cli->arena, reply.body, &connected_shape, &connected, e) < 0)
		r = err_wrap(e, -EPROTO, "%s", request.path);
	return r < 0 ? r
		     : cli_sandbox_target(&(struct sandbox_info){ .id = connected.id,
						  .access.token = connected.token },
			       ret, e);
}

int cli_sandbox_remove(struct cli *cli, const char *id, struct err *e)
{
	struct api_request request = { .method = "DELETE" };
	struct api_reply reply;

	request.path = arena_printf(cli->arena, "/sandboxes/%s", id);
	return cli_api_call(cli, &request, &reply, e);
}

static const char *user_header(struct cli *cli, const char *user)
{
	size_t n = strlen(user) + 1;
	char *plain = arena_printf(cli->arena, "%s:", user);
	char *encoded = arena_alloc(cli->arena, base64_size(n) + 1);

	if (!plain || !encoded)
		return NULL;
	base64_encode(plain, n, encoded);
	return arena_printf(cli->arena, "Authorization: Basic %s", encoded);
}

const char *const *cli_port_headers(struct cli *cli, const struct target *target, int port,
	const char *user, const char *const *more)
{
	const char **lines = arena_alloc(cli->arena, 16 * sizeof *lines);
	size_t n = 0;

	if (!lines)
		return NULL;
	lines[n++] = "User-Agent: atoll/" ATOLL_VERSION;
	lines[n++] = arena_printf(cli->arena, "E2b-Sandbox-Port: %d", port);
	lines[n++] = arena_printf(cli->arena, "E2b-Sandbox-Id: %s", target->id);
	if (target->token[0])
		lines[n++] = arena_printf(cli->arena, "X-Access-Token: %s", target->token);
	if (user)
		lines[n++] = user_header(cli, user);
	for (; more && *more; more++) {
		assert(n < 15);
		lines[n++] = *more;
	}
	return lines;
}

const char *const *cli_sandbox_headers(struct cli *cli, const struct target *target,
	const char *user, const char *const *more)
{
	return cli_port_headers(cli, target, GUEST_PORT, user, more);
}
