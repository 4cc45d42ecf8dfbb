/* Sandboxes as the API shows them, and how a word on the command line becomes one. */
#include "cli/cli-internal.h"

enum {
	MAX_PAGES = 1000,
	MAX_CANDIDATES = 8, /* named when a prefix is not unique */
};

static const struct json_field info_fields[] = {
	JSON_FIELD(struct sandbox_info, id, "sandboxID", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct sandbox_info, template_id, "templateID", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct sandbox_info, alias, "alias", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct sandbox_info, state, "state", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct sandbox_info, started_at, "startedAt", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct sandbox_info, end_at, "endAt", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct sandbox_info, token, "envdAccessToken", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct sandbox_info, domain, "domain", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct sandbox_info, cpu_count, "cpuCount", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct sandbox_info, memory_mb, "memoryMB", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct sandbox_info, disk_mb, "diskSizeMB", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct sandbox_info, metadata, "metadata", JSON_MAP, .flags = JSON_LAX),
};
static const struct json_shape info_shape =
	JSON_SHAPE(struct sandbox_info, info_fields, .ignore_unknown = true);

/* An id goes into paths and headers, wherever it came from. */
static bool is_id(const char *text)
{
	size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return n > 0 && n < CLI_ID && !text[n];
}

static const char *list_path(struct cli *cli, struct str next)
{
	CLEANUP(buf_done) struct buf path = BUF_INIT(64 << 10);
	const char *state = args_value(&cli->args, "state");
	char *copy;

	(void)buf_adds(&path, "/v2/sandboxes?limit=100");
	if (state) {
		(void)buf_adds(&path, "&state=");
		(void)percent_encode(str_of(state), &path);
	}
	if (next.n) {
		(void)buf_adds(&path, "&nextToken=");
		(void)percent_encode(next, &path);
	}
	copy = arena_dup(cli->arena, buf_str(&path));
	return copy ? copy : "";
}

static int append(struct sandbox_info **all, size_t *n, const struct json_list *page, struct err *e)
{
	struct sandbox_info *grown = reallocarray(*all, *n + page->n + 1, sizeof **all);

	if (!grown)
		return err_set(e, -ENOMEM, "too many sandboxes for this memory");
	if (page->n)
		memcpy(grown + *n, page->v, page->n * sizeof *grown);
	*all = grown;
	*n += page->n;
	return 0;
}

int cli_sandbox_list(struct cli *cli, struct sandbox_info **ret, size_t *ret_n, struct err *e)
{
	cleanup_free struct sandbox_info *all = NULL;
	struct api_reply reply = { 0 };
	size_t n = 0;

	for (int page = 0; page == 0 || reply.next.n; page++) {
		struct json_list rows;
		int r;

		if (page == MAX_PAGES)
			return err_set(e, -EPROTO, "the list of sandboxes does not end");
		r = cli_api_call(cli,
			&(struct api_request){ .method = "GET",
				.path = list_path(cli, reply.next) },
			&reply, e);
		if (r < 0)
			return r;
		r = json_decode_list(cli->arena, reply.body, &info_shape, &rows, e);
		if (r < 0)
			return err_wrap(e, -EPROTO, "list of sandboxes");
		r = append(&all, &n, &rows, e);
		if (r < 0)
			return r;
	}
	*ret = TAKE(all);
	*ret_n = n;
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

int sandbox_look_up(struct cli *cli, const char *typed, struct sandbox_info *ret, struct err *e)
{
	struct api_request request = { .method = "GET" };
	struct api_reply reply;
	char id[CLI_ID];
	int r = cli_sandbox_resolve(cli, typed, id, e);

	if (r < 0)
		return r;
	request.path = arena_printf(cli->arena, "/sandboxes/%s", id);
	r = cli_api_call(cli, &request, &reply, e);
	if (r < 0)
		return r;
	r = json_decode(cli->arena, reply.body, &info_shape, ret, e);
	return r < 0 ? err_wrap(e, -EPROTO, "sandbox %s", id) : 0;
}

static int target_of(const struct sandbox_info *info, struct target *ret, struct err *e)
{
	(void)snprintf(ret->id, sizeof ret->id, "%.*s", STR_ARG(info->id));
	(void)snprintf(ret->token, sizeof ret->token, "%.*s", STR_ARG(info->token));
	if (!is_id(ret->id) || info->id.n >= sizeof ret->id || info->token.n >= sizeof ret->token)
		return err_set(e, -EPROTO, "the server named a sandbox in a strange way");
	return 0;
}

int cli_sandbox_open(struct cli *cli, const char *typed, struct target *ret, struct err *e)
{
	struct sandbox_info info;
	int r = sandbox_look_up(cli, typed, &info, e);

	if (r < 0)
		return r;
	if (info.state.n && !str_is(info.state, "running"))
		return err_set(e, -EBUSY, "sandbox %.*s is %.*s", STR_ARG(info.id),
			STR_ARG(info.state));
	return target_of(&info, ret, e);
}

int cli_sandbox_wake(struct cli *cli, const char *typed, struct str body, struct target *ret,
	struct err *e)
{
	struct api_request request = { .method = "POST", .body = body };
	struct sandbox_info info;
	struct api_reply reply;
	char id[CLI_ID];
	int r = cli_sandbox_resolve(cli, typed, id, e);

	if (r < 0)
		return r;
	request.path = arena_printf(cli->arena, "/v2/sandboxes/%s/connect", id);
	r = cli_api_call(cli, &request, &reply, e);
	if (r < 0)
		return r;
	r = json_decode(cli->arena, reply.body, &info_shape, &info, e);
	return r < 0 ? err_wrap(e, -EPROTO, "sandbox %s", id) : target_of(&info, ret, e);
}

int cli_pairs(struct cli *cli, const char *option, const char *key, struct jsonw *w, struct err *e)
{
	const char *pair;
	size_t at = 0;

	jsonw_object(w, key);
	while ((pair = args_next(&cli->args, option, &at))) {
		const char *equals = strchr(pair, '=');

		if (!equals || equals == pair)
			return err_set(e, -EINVAL, "--%s: '%s' is not of the form K=V", option,
				pair);
		if (!str_is_utf8(str_of(pair)))
			return err_set(e, -EINVAL, "--%s: a value is not UTF-8", option);
		jsonw_pair(w, str_make(pair, (size_t)(equals - pair)), str_of(equals + 1));
	}
	jsonw_end_object(w);
	return 0;
}

static int make_body(struct cli *cli, const char *template_id, int64_t timeout_s, struct buf *body,
	struct err *e)
{
	struct jsonw w;
	int r;

	jsonw_init(&w, body);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "templateID", template_id);
	if (timeout_s)
		jsonw_int(&w, "timeout", timeout_s);
	r = cli_pairs(cli, "meta", "metadata", &w, e);
	if (r == 0)
		r = cli_pairs(cli, "env", "envVars", &w, e);
	jsonw_end_object(&w);
	return r < 0 ? r : body->failed ? err_set(e, -EINVAL, "too much metadata") : 0;
}

int cli_sandbox_make(struct cli *cli, const char *template_id, int64_t timeout_s,
	struct target *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(1 << 20);
	struct api_request request = { .method = "POST", .path = "/v2/sandboxes" };
	struct sandbox_info info;
	struct api_reply reply;
	int r = make_body(cli, template_id, timeout_s, &body, e);

	if (r < 0)
		return r;
	request.body = buf_str(&body);
	r = cli_api_call(cli, &request, &reply, e);
	if (r < 0)
		return r;
	r = json_decode(cli->arena, reply.body, &info_shape, &info, e);
	return r < 0 ? err_wrap(e, -EPROTO, "new sandbox") : target_of(&info, ret, e);
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

const char *const *cli_sandbox_headers(struct cli *cli, const struct target *target,
	const char *user, const char *const *more)
{
	const char **lines = arena_alloc(cli->arena, 16 * sizeof *lines);
	size_t n = 0;

	if (!lines)
		return NULL;
	lines[n++] = "User-Agent: atoll/" ATOLL_VERSION;
	lines[n++] = "E2b-Sandbox-Port: 49983";
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
