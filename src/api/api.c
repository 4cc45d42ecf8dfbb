#include "api/api-internal.h"

int api_new(const struct api_config *config, struct api **ret, struct err *e)
{
	CLEANUP(api_freep) struct api *api = XNEW(struct api);
	int r;

	api->config = *config;
	uuid_make(api->node.service_id);
	random_id(api->start_id, sizeof api->start_id - 1);
	list_init(&api->once.all);
	api->node.changed_us = time_wall_us();
	hmac_sha256(config->seed, STR("requests"), api->once.key);
	explicit_bzero(api->config.seed, sizeof api->config.seed);
	r = queries_new(&api->queries, e);
	if (r >= 0)
		r = once_load(api, e);
	if (r < 0)
		return r;
	*ret = TAKE(api);
	return 0;
}

struct api *api_free(struct api *api)
{
	if (!api)
		return NULL;
	once_done(api);
	api->queries = queries_free(api->queries);
	explicit_bzero(api->once.key, sizeof api->once.key);
	free(api);
	return NULL;
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

static const struct api_route *routes_of(const struct api_call *call)
{
	return call->is_v1 ? api_v1_routes : api_e2b_routes;
}

/* Finds the route; *ret_other says that the path exists with another method. */
static const struct api_route *route_of(struct api_call *call, bool *ret_other)
{
	*ret_other = false;
	for (const struct api_route *route = routes_of(call); route->method; route++) {
		if (!match(call, route->pattern))
			continue;
		if (str_is(http_method(call->x), route->method))
			return route;
		*ret_other = true;
	}
	return NULL;
}

static bool is_absent(struct api_call *call)
{
	for (const struct api_absent *a = api_e2b_absent; !call->is_v1 && a->method; a++)
		if (str_is(http_method(call->x), a->method) && match(call, a->pattern))
			return true;
	return false;
}

/* A 405 says which methods the path takes. */
static void fail_method(struct api_call *call)
{
	CLEANUP(buf_done) struct buf allow = BUF_INIT(256);

	for (const struct api_route *route = routes_of(call); route->method; route++)
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

static void be_operator(struct api_call *call)
{
	(void)snprintf(call->key.id, sizeof call->key.id, "admin");
	call->key.scopes = ACCESS_ALL;
	call->is_operator = true;
}

/* The operator may act for any team by naming it; answers when it is named wrongly. */
static bool admin_as_team(struct api_call *call)
{
	struct str id = http_header(call->x, "X-Team-ID");
	const struct access_team *team = access_team(call->api->config.access, id);

	be_operator(call);
	if (team)
		(void)snprintf(call->key.team_id, sizeof call->key.team_id, "%s", team->id);
	else if (id.n || !(call->route->flags & API_ALL_TEAMS))
		api_fail_status(call, call->is_v1 ? 400 : 401,
			"X-Team-ID must name the team that the operator acts for");
	return team || (!id.n && call->route->flags & API_ALL_TEAMS);
}

static bool authenticate_admin(struct api_call *call)
{
	if (is_admin(call)) {
		be_operator(call);
		return true;
	}
	api_fail_status(call, 401,
		call->api->config.admin_token
			? "X-Admin-Token is missing or wrong"
			: "this server has no operator's token: start it with --admin-token-file");
	return false;
}

void api_revoked(void *arg)
{
	struct api_call *call = arg;

	http_dismiss(call->x);
}

static void call_ended(void *arg)
{
	struct api_call *call = arg;

	notice_drop(&call->opened_by);
	api_file_over(call);
	call->decoded = arena_free(call->decoded);
}

void api_holds(struct api_call *call)
{
	http_on_end(call->x, call_ended, call);
}

static bool authenticate_key(struct api_call *call, struct str sent)
{
	const struct access_key *key = access_check(call->api->config.access, sent);

	if (key) {
		call->key = *key;
		access_hold(call->api->config.access, key, &call->opened_by, api_revoked, call);
		api_holds(call);
	} else if (access_is_expired(call->api->config.access, sent)) {
		api_fail_as(call, 401, "key_expired", "Invalid API key: its time is up",
			"use the key that it was rotated to, or make a new one");
	} else {
		api_fail_status(call, 401, "Invalid API key: it is unknown, revoked or misspelt");
	}
	return key;
}

/* A wrong id and a wrong token look the same. */
static bool authenticate_volume(struct api_call *call)
{
	const struct volume_book *volumes = call->api->config.volumes;
	const struct volume *v = volume_find(volumes, NULL, call->params[0]);
	bool opens = volume_opens(volumes, v, api_bearer(call->x));

	if (!opens) {
		api_fail_status(call, 401, "the volume's token is missing or wrong");
		return false;
	}
	(void)snprintf(call->key.team_id, sizeof call->key.team_id, "%s", v->team_id);
	volume_hold(volumes, v, &call->opened_by, api_revoked, call);
	api_holds(call);
	return true;
}

static bool authenticate(struct api_call *call)
{
	struct str sent = http_header(call->x, "X-API-Key");

	if (call->route->flags & API_ADMIN)
		return authenticate_admin(call);
	if (call->route->flags & API_VOLUME)
		return authenticate_volume(call);
	if (!sent.p)
		sent = api_bearer(call->x);
	if (sent.p)
		return authenticate_key(call, sent);
	if (is_admin(call))
		return admin_as_team(call);
	api_fail_status(call, 401, "authorization header is missing");
	return false;
}

bool api_may(const struct api_call *call, unsigned scopes)
{
	return (call->key.scopes & scopes) == scopes;
}

/* Who does what follows, in the words of the event log. The port says nothing to anybody later. */
static void name_actor(struct api_call *call)
{
	struct str source = http_peer_host(call->x);

	(void)snprintf(call->actor, sizeof call->actor, "%s%s%.*s", call->key.id,
		source.n ? " " : "", STR_ARG(source));
}

/* Answers 403 itself. */
static bool authorise(struct api_call *call)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(1024);

	call->owner = (struct sandbox_owner){ call->key.team_id, call->key.agent_id };
	call->volume_owner = (struct volume_owner){ call->key.team_id, call->key.agent_id };
	name_actor(call);
	if (api_may(call, call->route->scope))
		return true;
	(void)buf_adds(&text, "this key lacks the scope ");
	access_scopes_write(&text, call->route->scope & ~call->key.scopes, ", ");
	api_fail_as(call, 403, "missing_scope", buf_str(&text).p,
		"make a key with this scope, or use another one");
	return false;
}

/* From here on its connection is counted for who asks. Answers 429 itself. */
static bool admit(struct api_call *call)
{
	struct http_claim claim = {
		.holder = call->is_operator ? STR_NONE : str_of(call->key.team_id),
		.use = call->route->flags & API_STREAM ? HTTP_STREAM : HTTP_CALL,
		.is_admin = api_may(call, ACCESS_ADMIN),
	};
	struct err e = { 0 };

	if (http_admit(call->x, &claim, &e) >= 0)
		return true;
	api_fail_as(call, 429, "too_many_connections", e.msg,
		"close connections that you do not need, then wait for Retry-After");
	return false;
}

void api_run(struct api_call *call)
{
	if (call->route->flags & API_STARTS) {
		call->is_counted = true;
		call->api->node.starting++;
	}
	call->route->fn(call);
}

static void run_handler(struct api_call *call)
{
	if (!(call->route->flags & API_ONCE) || !once_begin(call))
		api_run(call);
}

static size_t body_max(const struct api_call *call)
{
	return call->route->flags & API_LARGE ? API_LARGE_BODY_BYTES : API_BODY_BYTES;
}

static void body_read(void *arg, int r, struct str body)
{
	struct api_call *call = arg;

	if (r == -E2BIG) {
		api_fail_status(call, 413,
			body_max(call) == API_BODY_BYTES
				? "the request body is larger than 1 MiB"
				: "the request body is larger than 16 MiB");
	} else if (r == -EDQUOT) {
		api_fail_as(call, 429, "too_much_unread",
			"your team has as much in the server's memory as it may have now",
			"send less at once, and read the replies");
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

/* ---- what a request says of itself ---- */

/* Theirs if it is sane, else one of ours; E2B's surface answers with it only when asked. */
static void name_request(struct api_call *call)
{
	struct str sent = http_header(call->x, "X-Request-Id");

	if (request_id_is_sane(sent))
		(void)snprintf(call->request_id, sizeof call->request_id, "%.*s", STR_ARG(sent));
	else
		(void)snprintf(call->request_id, sizeof call->request_id, "req_%s%" PRIx64,
			call->api->start_id, ++call->api->n_requests);
	if (call->is_v1 || sent.n)
		http_add_header(call->x, "X-Request-Id", str_of(call->request_id));
}

static bool is_below(struct str path, struct str prefix)
{
	return str_has_prefix(path, prefix) && (path.n == prefix.n || path.p[prefix.n] == '/');
}

static bool is_open(const struct api_call *call)
{
	return call->route->flags & API_OPEN ||
	       (call->route->flags & API_METRICS && call->api->config.metrics_open);
}

void api_handle(struct api *api, struct http_exchange *x)
{
	struct api_call *call = arena_alloc(http_arena(x), sizeof *call);
	bool other;

	if (cors_handle(x))
		return;
	/* Nothing here is a page: what sandboxes wrote is in much of it. */
	http_add_inert(x);
	if (!call || http_path(x).n == 0 || http_path(x).p[0] != '/') {
		http_reply(x, 400, NULL, STR_NONE);
		return;
	}
	call->api = api;
	call->x = x;
	call->began_us = time_now_us();
	call->is_v1 = is_below(http_path(x), STR("/api/v1"));
	name_request(call);
	(void)request_trace(http_header(x, "traceparent"), call->traceparent);
	call->route = route_of(call, &other);
	if (http_wants_worker(x))
		api_fail_as(call, 403, NULL, "no service worker is served here", NULL);
	else if (!call->route && is_absent(call))
		api_fail_status(call, 501,
			"this server does not build templates yet: make a directory of your own "
			"instead, or a snapshot of a sandbox; docs/templates.md says how");
	else if (!call->route && other)
		fail_method(call);
	else if (!call->route)
		api_fail_as(call, 404, NULL, "no such path", "/api/v1/openapi.json has all paths");
	else if (!query_is_decodable(x))
		api_fail_status(call, 400,
			"validation error: the query is not percent-encoded UTF-8");
	else if (!is_open(call) && (!authenticate(call) || !authorise(call) || !admit(call)))
		return;
	else if (call->is_v1 && !query_is_known(call))
		return;
	else if (call->route->flags & (API_STARTS | API_HEALTH) && api->node.draining)
		api_fail_status(call, 503, "this node is draining: it starts no sandboxes");
	else if (call->route->flags & API_BODY)
		http_read_body(x, body_max(call), body_read, call);
	else
		run_handler(call);
}
