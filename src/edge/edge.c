#include "edge/edge-internal.h"
#include "json/json.h"
#include "tls/tls.h"

struct edge *edge_new(const struct edge_config *config)
{
	struct edge *edge = XNEW(struct edge);

	edge->config = *config;
	tries_init(&edge->tries, time_now_ms());
	edge->tls = tls_server_new(config->loop, NULL, NULL, NULL);
	return edge;
}

struct edge *edge_free(struct edge *edge)
{
	if (!edge)
		return NULL;
	edge->tls = tls_server_free(edge->tls);
	free(edge);
	return NULL;
}

static void fail(struct http_exchange *x, enum edge_failure_kind kind, struct str id)
{
	struct edge_failure failure = { .kind = kind, .id = id };

	edge_fail(x, &failure);
}

static void left(void *arg)
{
	struct edge_call *call = arg;

	sandbox_leave(call->edge->config.sandboxes, call->id);
}

static void refused(void *arg, struct http_exchange *x, int r)
{
	struct edge_call *call = arg;
	struct edge_failure failure = { EDGE_PORT_CLOSED, str_of(call->id), call->port, NULL };

	(void)r;
	left(call);
	/* The guest itself always listens: when it refuses, the sandbox is on its way out. */
	if (call->port == RUNTIME_GUEST_PORT ||
		!sandbox_find(call->edge->config.sandboxes, NULL, str_of(call->id)))
		failure.kind = EDGE_GONE;
	edge_fail(x, &failure);
}

static void connected(void *arg, int fd, const struct err *e)
{
	struct edge_call *call = arg;
	struct http_relay_options options = { .host = call->host,
		.tunnel = call->is_tunnel,
		.request_field = fields_request,
		.reply_field = fields_reply,
		.reply_lines = fields_lines,
		.closed = left,
		.arg = call };

	if (fd < 0) {
		log_debug("edge.dial_failed", "sandbox_id=%s port=%d err=%s", call->id, call->port,
			log_quote(str_of(e->msg)));
		refused(call, call->x, fd);
		return;
	}
	if (call->port == RUNTIME_GUEST_PORT)
		options.add_headers = arena_printf(http_arena(call->x), "Atoll-Source: %.*s\r\n",
			STR_ARG(http_peer_host(call->x)));
	if (call->secured)
		options.carriage = tls_connect_carriage(call->secured);
	(void)http_relay(call->x, fd, &options, refused);
}

static void dialled(void *arg, int fd, const struct err *e)
{
	struct edge_call *call = arg;

	CRASH_POINT("exec.dialled");
	if (fd >= 0 && call->is_https && !call->is_tunnel)
		call->secured = tls_server_connect_unchecked(call->edge->tls, fd, connected, call);
	else
		connected(call, fd, e);
}

/* "[80,443]", as it was checked when it was asked for. */
static bool has_port(struct str ports, int port)
{
	struct str one;
	int64_t n;

	if (ports.n < 2)
		return false;
	ports = str_make(ports.p + 1, ports.n - 2);
	while (str_split(&ports, ',', &one))
		if (str_to_int(one, 1, 65535, &n) >= 0 && n == port)
			return true;
	return false;
}

/* The guest's private routes are the server's own: from outside they do not exist. */
static bool is_private(struct str path)
{
	static const char *const routes[] = { "/init", "/freeze", "/unfreeze", "/collapse",
		"/fsfreeze", "/fsthaw", "/upgrade", "/activity" };

	for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
		struct str route = str_of(routes[i]);

		if (str_has_prefix(path, route) && (path.n == route.n || path.p[route.n] == '/'))
			return true;
	}
	return false;
}

/* The Host that services inside shall see; empty: as the client sent it. */
static struct str masked_host(struct http_exchange *x, const struct sandbox *sb, int port)
{
	static const struct str mark = { "${PORT}", 7 };
	struct str mask = sb->options.mask_host;
	const char *at = mask.n ? memmem(mask.p, mask.n, mark.p, mark.n) : NULL;
	char *text;

	if (!mask.n || port == RUNTIME_GUEST_PORT)
		return STR_NONE;
	if (!at)
		text = arena_dup(http_arena(x), mask);
	else
		text = arena_printf(http_arena(x), "%.*s%d%s", (int)(at - mask.p), mask.p, port,
			at + mark.n);
	return str_of(text);
}

static bool has_token(struct http_exchange *x, const char *header, const char *token)
{
	struct str sent = http_header(x, header);

	return sent.n == strlen(token) && mem_equal_ct(sent.p, token, sent.n);
}

static bool wants_tunnel(const struct http_exchange *x)
{
	return str_eq_nocase(http_header(x, "Upgrade"), STR("atoll-tcp"));
}

/* Bytes to any port are its owner's alone: what listens there expects no strangers. Answers itself.
 */
static bool may_tunnel(struct edge *edge, struct http_exchange *x, const struct sandbox *sb,
	int port)
{
	struct edge_failure failure = { .kind = EDGE_NO_TUNNEL, .id = str_of(sb->id) };
	char token[SANDBOX_TOKEN_SIZE];

	sandbox_token(edge->config.sandboxes, sb->id, token);
	if (port == RUNTIME_GUEST_PORT)
		failure.message = "The sandbox's own API speaks HTTP: no tunnel leads to it";
	else if (!sb->secure || has_token(x, "X-Access-Token", token))
		return true;
	edge_fail(x, &failure);
	return false;
}

/* Who may reach this port at all: everybody, unless the sandbox was made private. Answers itself.
 */
static bool may_enter(struct edge *edge, struct http_exchange *x, const struct sandbox *sb,
	int port)
{
	static const char header[] = "E2B-Traffic-Access-Token";
	char token[SANDBOX_TOKEN_SIZE];

	if (wants_tunnel(x))
		return may_tunnel(edge, x, sb, port);
	if (port == RUNTIME_GUEST_PORT || !sb->options.is_private)
		return true;
	sandbox_traffic_token(edge->config.sandboxes, sb->id, token);
	if (has_token(x, header, token))
		return true;
	fail(x, http_header(x, header).n ? EDGE_TOKEN_WRONG : EDGE_TOKEN_MISSING, str_of(sb->id));
	return false;
}

/* Traffic wakes a sandbox that wants it; at the guest's own port only with its token or a URL that
 * was signed with it, since anything else would be refused inside as well. */
static bool may_wake(struct edge *edge, struct http_exchange *x, const struct sandbox *sb, int port)
{
	char token[SANDBOX_TOKEN_SIZE];

	if (port != RUNTIME_GUEST_PORT || !sb->secure)
		return true;
	sandbox_token(edge->config.sandboxes, sb->id, token);
	if (http_header(x, "X-Access-Token").p)
		return has_token(x, "X-Access-Token", token);
	return signed_by(edge->config.sandboxes, x, sb);
}

/* Whether the team itself is behind this: it has the sandbox's token, or a URL signed with it.
 * Where the sandbox asks for no token, who knows its name is taken for the team. */
static bool is_own(struct edge *edge, struct http_exchange *x, const struct sandbox *sb, int port)
{
	char token[SANDBOX_TOKEN_SIZE];

	if (!sb->secure)
		return port == RUNTIME_GUEST_PORT;
	sandbox_token(edge->config.sandboxes, sb->id, token);
	return has_token(x, "X-Access-Token", token) ||
	       (port == RUNTIME_GUEST_PORT && signed_by(edge->config.sandboxes, x, sb));
}

/* What goes to a sandbox is counted for its team, whoever asks. Answers itself. */
static bool admit(struct edge *edge, struct http_exchange *x, const struct sandbox *sb, int port)
{
	struct edge_failure failure = { .kind = EDGE_TOO_BUSY, .id = str_of(sb->id) };
	struct http_claim claim = { .holder = str_of(sb->team_id),
		.use = is_own(edge, x, sb, port) ? HTTP_STREAM : HTTP_VISIT };
	struct err e = { 0 };

	if (http_admit(x, &claim, &e) >= 0)
		return true;
	if (claim.use != HTTP_VISIT) /* what a team has is nothing to its visitors */
		failure.message = e.msg;
	edge_fail(x, &failure);
	return false;
}

static void forward(struct edge_call *call, const struct sandbox *sb)
{
	struct edge_failure failure = { .kind = EDGE_TOO_BUSY, .id = str_of(call->id) };
	struct err e = { 0 };

	if (sandbox_enter(call->edge->config.sandboxes, sb, call->port, &e) < 0) {
		failure.message = e.msg;
		edge_fail(call->x, &failure);
		return;
	}
	sandbox_visited(call->edge->config.sandboxes, call->id, call->port,
		http_peer_host(call->x));
	call->host = masked_host(call->x, sb, call->port);
	call->is_https = has_port(sb->options.https_ports, call->port);
	sandbox_dial(call->edge->config.sandboxes, sb, call->port, dialled, call);
}

static void woken(void *arg, int r, bool resumed, const struct sandbox *sb, const struct err *e)
{
	struct edge_call *call = arg;

	struct edge_failure failure = { .kind = EDGE_GONE, .id = str_of(call->id) };

	(void)resumed;
	if (r >= 0) {
		forward(call, sb);
		return;
	}
	if (r == -EDQUOT) {
		failure.kind = EDGE_TOO_MANY;
		failure.message = e->msg;
	} else if (r == -EBUSY || r == -EHOSTDOWN || r == -EAGAIN) {
		failure.kind = EDGE_BUSY; /* it is there, and may be woken a little later */
	}
	edge_fail(call->x, &failure);
}

static void wake(struct edge_call *call, const struct sandbox *sb)
{
	struct sandbox_resume how = { .timeout_s = MAX(sb->timeout_s, 300) };

	if (!sb->options.auto_resume || sb->image[0])
		fail(call->x, EDGE_GONE, str_of(call->id));
	else if (!may_wake(call->edge, call->x, sb, call->port))
		fail(call->x, EDGE_MAY_NOT_WAKE, str_of(call->id));
	else
		sandbox_connect(call->edge->config.sandboxes, NULL, str_of(call->id), &how, woken,
			call);
}

static void pass(struct edge *edge, struct http_exchange *x, const struct edge_target *target,
	bool is_signed)
{
	const struct sandbox *sb = sandbox_find_any(edge->config.sandboxes, NULL, target->id);
	struct edge_call *call;

	if (!sb) {
		fail(x, EDGE_GONE, target->id);
		return;
	}
	if (target->by_headers && http_wants_worker(x)) {
		fail(x, EDGE_NO_WORKER, target->id);
		return;
	}
	if (target->port == RUNTIME_GUEST_PORT && is_private(http_path(x))) {
		fail(x, EDGE_RESERVED, target->id);
		return;
	}
	if (!may_enter(edge, x, sb, target->port) || !admit(edge, x, sb, target->port))
		return;
	call = arena_alloc(http_arena(x), sizeof *call);
	if (!call) {
		http_abort(x);
		return;
	}
	*call = (struct edge_call){ .edge = edge,
		.x = x,
		.port = target->port,
		.is_shared = target->by_headers,
		.is_signed = is_signed,
		.is_tunnel = wants_tunnel(x) };
	(void)snprintf(call->id, sizeof call->id, "%s", sb->id);
	if (sb->state == SANDBOX_RUNNING)
		forward(call, sb);
	else
		wake(call, sb);
}

/* In the guest's own form: whoever signed the URL expects its answers. */
static void fail_signed(struct http_exchange *x, int status, const char *message)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(1024);
	struct jsonw w;

	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	jsonw_int(&w, "code", status);
	jsonw_strz(&w, "message", message);
	jsonw_end_object(&w);
	edge_allow_any_origin(x);
	http_add_inert(x);
	http_reply(x, status, "application/json; charset=utf-8", buf_str(&body));
}

static bool pass_signed(struct edge *edge, struct http_exchange *x)
{
	char id[SANDBOX_ID_SIZE];
	struct edge_target target = { .kind = EDGE_TARGET,
		.port = RUNTIME_GUEST_PORT,
		.by_headers = true };

	switch (signed_find(edge->config.sandboxes, &edge->tries, x, id)) {
	case SIGNED_NOT:
		return false;
	case SIGNED_FOUND:
		target.id = str_of(id);
		pass(edge, x, &target, true);
		break;
	case SIGNED_WRONG:
		fail_signed(x, 401, "invalid signature");
		break;
	case SIGNED_EXPIRATION:
		fail_signed(x, 400, "invalid signature_expiration query parameter");
		break;
	case SIGNED_TOO_MANY:
		http_add_header(x, "Retry-After", STR("1"));
		fail_signed(x, 429, "too many signed URLs that name no sandbox: try again later");
		break;
	}
	return true;
}

bool edge_handle(struct edge *edge, struct http_exchange *x)
{
	struct edge_target target = edge_parse(http_header(x, "Host"),
		http_header(x, "E2b-Sandbox-Id"), http_header(x, "E2b-Sandbox-Port"));

	switch (target.kind) {
	case EDGE_OTHER:
		return pass_signed(edge, x);
	case EDGE_BAD:
		http_add_inert(x);
		http_reply(x, 400, "text/plain; charset=utf-8", str_of(target.why));
		return true;
	case EDGE_TARGET:
		pass(edge, x, &target, false);
		return true;
	}
	return false;
}
