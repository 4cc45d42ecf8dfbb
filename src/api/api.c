#include "api/api-internal.h"

struct api *api_new(const struct api_config *config)
{
	struct api *api = XNEW(struct api);

	api->config = *config;
	uuid_make(api->node.service_id);
	api->node.changed_us = time_wall_us();
	return api;
}

struct api *api_free(struct api *api)
{
	free(api);
	return NULL;
}

/* ---- answers ---- */

int api_status_of(int err_code)
{
	static const struct {
		int code, status;
	} table[] = {
		{ EINVAL, 400 },
		{ ERANGE, 400 },
		{ EOPNOTSUPP, 400 },
		{ ESTALE, 400 },  /* a volume that is gone */
		{ ENOTDIR, 400 }, /* no place for a volume */
		{ EACCES, 401 },
		{ EPERM, 403 },
		{ ENOENT, 404 },
		{ EEXIST, 409 },
		{ EBUSY, 409 },
		{ E2BIG, 413 },
		{ EDQUOT, 429 },
		{ EPIPE, 503 },
		{ EAGAIN, 503 },
		{ ETIMEDOUT, 504 },
		{ ENOSPC, 507 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (-err_code == table[i].code)
			return table[i].status;
	return 500;
}

/* Every answer of a route that makes sandboxes passes here once. */
static void count_answer(struct api_call *call, int status)
{
	struct api_node *node = &call->api->node;

	if (!call->is_counted)
		return;
	call->is_counted = false;
	node->starting--;
	node->created += status < 300;
	node->failed += status >= 500;
}

void api_reply_json(struct api_call *call, int status, const struct buf *body)
{
	if (body->failed) {
		api_fail_status(call, 500, "the answer is larger than the server allows");
		return;
	}
	count_answer(call, status);
	http_reply(call->x, status, "application/json; charset=utf-8", buf_str(body));
}

void api_reply_empty(struct api_call *call, int status)
{
	count_answer(call, status);
	http_reply(call->x, status, NULL, STR_NONE);
}

void api_fail_status(struct api_call *call, int status, const char *message)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(4096);
	struct jsonw w;

	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	jsonw_int(&w, "code", status);
	jsonw_strz(&w, "message", message);
	jsonw_end_object(&w);
	count_answer(call, status);
	http_reply(call->x, status, "application/json; charset=utf-8", buf_str(&body));
}

void api_fail(struct api_call *call, const struct err *e)
{
	int status = api_status_of(e->code);

	if (status >= 500)
		log_error("api.failed", "method=%.*s path=%s status=%d err=%s",
			STR_ARG(http_method(call->x)), log_quote(http_path(call->x)), status,
			log_quote(str_of(e->msg)));
	api_fail_status(call, status, e->msg);
}

bool api_answer_begin(struct api_call *call, struct api_answer *answer, int r, const struct err *e)
{
	if (r < 0) {
		api_fail(call, e);
		return false;
	}
	answer->body = BUF_INIT(API_ANSWER_BYTES);
	jsonw_init(&answer->w, &answer->body);
	return true;
}

void api_answer_send(struct api_call *call, struct api_answer *answer, int status)
{
	api_reply_json(call, status, &answer->body);
	buf_done(&answer->body);
}

void api_done_empty(void *arg, int r, const struct err *e)
{
	if (r < 0)
		api_fail(arg, e);
	else
		api_reply_empty(arg, 204);
}

int api_decode(struct api_call *call, const struct json_shape *shape, void *out, bool optional)
{
	struct str body = optional && call->body.n == 0 ? STR("{}") : call->body;
	struct err e = { 0 };
	int r = json_decode(http_arena(call->x), body, shape, out, &e);

	if (r < 0) {
		(void)err_wrap(&e, r, "validation error");
		api_fail_status(call, r == -ENOBUFS ? 413 : 400, e.msg);
	}
	return r;
}

int api_query_int(struct api_call *call, const char *name, int64_t min, int64_t max, int64_t *ret)
{
	struct str text = http_query_value(call->x, name);
	struct err e = { 0 };

	if (!text.p || str_to_int(text, min, max, ret) == 0)
		return 0;
	(void)err_set(&e, -EINVAL,
		"validation error: %s must be a whole number from %" PRId64 " to %" PRId64, name,
		min, max);
	api_fail(call, &e);
	return -EINVAL;
}

int api_query_range(struct api_call *call, int64_t *start_s, int64_t *end_s)
{
	static const int64_t last_s =
		10413791999; /* 2299-12-31T23:59:59Z: E2B's store ends there */
	const char *wrong = NULL;

	if (api_query_int(call, "start", 0, INT64_MAX, start_s) < 0 ||
		api_query_int(call, "end", 0, INT64_MAX, end_s) < 0)
		return -EINVAL;
	if (*start_s > last_s)
		wrong = "start time cannot be after 2299-12-31 23:59:59 UTC";
	else if (*end_s > last_s)
		wrong = "end time cannot be after 2299-12-31 23:59:59 UTC";
	else if (*start_s > *end_s)
		wrong = "start time cannot be after end time";
	if (wrong)
		api_fail_status(call, 400, wrong);
	return wrong ? -EINVAL : 0;
}

/* ---- routing ---- */

/* Matches segment by segment on the raw path, since an encoded '/' belongs to its segment. Returns
 * false when it does not fit; bad escapes do not fit either. */
static bool match(struct api_call *call, const char *pattern)
{
	struct str want = str_from(str_of(pattern), 1), got = str_from(http_path(call->x), 1);
	size_t n = 0;

	for (;;) {
		struct str w, g;
		bool more = str_split(&want, '/', &w);

		if (more != str_split(&got, '/', &g))
			return false;
		if (!more)
			return true;
		if (w.p[0] == '{') {
			CLEANUP(buf_done) struct buf text = BUF_INIT(1024);
			char *kept;

			if (g.n == 0 || n == API_MAX_PARAMS ||
				percent_decode(g, false, &text) < 0 || !str_is_utf8(buf_str(&text)))
				return false;
			kept = arena_dup(http_arena(call->x), buf_str(&text));
			if (!kept)
				return false;
			call->params[n++] = (struct str){ kept, text.n };
		} else if (!str_eq(w, g)) {
			return false;
		}
	}
}

/* Finds the route; *ret_other says that the path exists with another method. */
static const struct api_route *route_of(struct api_call *call, bool *ret_other)
{
	*ret_other = false;
	for (const struct api_route *route = api_e2b_routes; route->method; route++) {
		if (!match(call, route->pattern))
			continue;
		if (str_is(http_method(call->x), route->method))
			return route;
		*ret_other = true;
	}
	return NULL;
}

/* A 405 says which methods the path takes. */
static void fail_method(struct api_call *call)
{
	CLEANUP(buf_done) struct buf allow = BUF_INIT(256);

	for (const struct api_route *route = api_e2b_routes; route->method; route++)
		if (match(call, route->pattern))
			(void)buf_printf(&allow, "%s%s", allow.n ? ", " : "", route->method);
	http_add_header(call->x, "Allow", buf_str(&allow));
	api_fail_status(call, 405, "this path does not take that method");
}

struct str api_bearer(const struct http_exchange *x)
{
	struct str value = http_header(x, "Authorization"), scheme;

	if (!str_split(&value, ' ', &scheme) || !str_eq_nocase(scheme, STR("Bearer")))
		return STR_NONE;
	return str_trim(value);
}

/* Compared by digest, so that not even the token's length shows in the time it takes. */
static bool is_admin(const struct api_call *call)
{
	struct str sent = http_header(call->x, "X-Admin-Token");
	uint8_t a[SHA256_SIZE], b[SHA256_SIZE];

	if (!sent.p || !call->api->config.admin_token)
		return false;
	sha256(sent.p, sent.n, a);
	sha256(call->api->config.admin_token, strlen(call->api->config.admin_token), b);
	return mem_equal_ct(a, b, sizeof a);
}

/* The operator may act for any team by naming it. */
static bool admin_as_team(struct api_call *call)
{
	struct str id = http_header(call->x, "X-Team-ID");
	const struct access_team *team = access_team(call->api->config.access, id);

	if (!team || !is_admin(call))
		return false;
	(void)snprintf(call->key.id, sizeof call->key.id, "admin");
	(void)snprintf(call->key.team_id, sizeof call->key.team_id, "%s", team->id);
	return true;
}

static bool authenticate_admin(struct api_call *call)
{
	if (is_admin(call)) {
		(void)snprintf(call->key.id, sizeof call->key.id, "admin");
		return true;
	}
	api_fail_status(call, 401,
		call->api->config.admin_token
			? "X-Admin-Token is missing or wrong"
			: "this server has no operator's token: start it with --admin-token-file");
	return false;
}

static bool authenticate(struct api_call *call)
{
	struct str sent = http_header(call->x, "X-API-Key");
	const struct access_key *key;

	if (call->route->flags & API_ADMIN)
		return authenticate_admin(call);
	if (!sent.p)
		sent = api_bearer(call->x);
	if (!sent.p && http_header(call->x, "X-Admin-Token").p && admin_as_team(call))
		return true;
	if (!sent.p) {
		api_fail_status(call, 401, "authorization header is missing");
		return false;
	}
	key = access_check(call->api->config.access, sent);
	if (!key) {
		api_fail_status(call, 401, "Invalid API key: it is unknown, revoked or misspelt");
		return false;
	}
	call->key = *key;
	return true;
}

static void run_handler(struct api_call *call)
{
	if (call->route->flags & API_STARTS) {
		call->is_counted = true;
		call->api->node.starting++;
	}
	call->route->fn(call);
}

static void body_read(void *arg, int r, struct str body)
{
	struct api_call *call = arg;

	if (r == -E2BIG) {
		api_fail_status(call, 413, "the request body is larger than 16 MiB");
	} else if (r == -EPROTO) {
		api_fail_status(call, 400, "the request body is framed wrongly");
	} else if (r < 0) {
		http_abort(call->x);
	} else {
		call->body = body;
		run_handler(call);
	}
}

/* A value that cannot be decoded would count as absent, and a filter that was asked for be none. */
static bool query_is_decodable(const struct http_exchange *x)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(1 << 20);

	return !http_query(x).n ||
	       (percent_decode(http_query(x), true, &text) >= 0 && str_is_utf8(buf_str(&text)));
}

void api_handle(struct api *api, struct http_exchange *x)
{
	struct api_call *call = arena_alloc(http_arena(x), sizeof *call);
	bool other;

	if (cors_handle(x))
		return;
	if (!call || http_path(x).n == 0 || http_path(x).p[0] != '/') {
		http_reply(x, 400, NULL, STR_NONE);
		return;
	}
	call->api = api;
	call->x = x;
	call->route = route_of(call, &other);
	if (!call->route && other)
		fail_method(call);
	else if (!call->route)
		api_fail_status(call, 404, "no such path");
	else if (!query_is_decodable(x))
		api_fail_status(call, 400,
			"validation error: the query is not percent-encoded UTF-8");
	else if (!(call->route->flags & API_OPEN) && !authenticate(call))
		return;
	else if (call->route->flags & (API_STARTS | API_HEALTH) && api->node.draining)
		api_fail_status(call, 503, "this node is draining: it starts no sandboxes");
	else if (call->route->flags & API_BODY)
		http_read_body(x, API_BODY_BYTES, body_read, call);
	else
		run_handler(call);
}
