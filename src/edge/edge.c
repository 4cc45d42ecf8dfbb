#include "edge/edge.h"
#include "json/json.h"

struct edge {
	struct sandbox_book *sandboxes;
};

struct edge_call { /* lives in the exchange's arena */
	struct edge *edge;
	struct http_exchange *x;
	char id[SANDBOX_ID_SIZE];
	int port;
};

struct edge *edge_new(struct sandbox_book *sandboxes)
{
	struct edge *edge = XNEW(struct edge);

	edge->sandboxes = sandboxes;
	return edge;
}

struct edge *edge_free(struct edge *edge)
{
	free(edge);
	return NULL;
}

/* A person who opened a preview link in a browser gets a page, every program gets JSON. */
static bool is_navigation(const struct http_exchange *x)
{
	struct str accept = http_header(x, "Accept");
	const char *at = accept.n ? memmem(accept.p, accept.n, "text/html", 9) : NULL;

	return at && str_is(http_method(x), "GET");
}

static void fail_page(struct http_exchange *x, int status, const char *message)
{
	CLEANUP(buf_done) struct buf page = BUF_INIT(4096);

	(void)buf_printf(&page,
		"<!doctype html><meta charset=utf-8><title>%d</title>"
		"<h1>%s</h1><p>Atoll could not pass this request on (%d).</p>\n",
		status, message, status);
	http_reply(x, status, "text/html; charset=utf-8", buf_str(&page));
}

static void fail(struct http_exchange *x, int status, struct str id, int port, const char *message)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(4096);
	struct jsonw w;

	if (is_navigation(x)) {
		fail_page(x, status, message);
		return;
	}
	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	if (id.p)
		jsonw_str(&w, "sandboxId", id);
	jsonw_strz(&w, "message", message);
	if (port)
		jsonw_int(&w, "port", port);
	jsonw_int(&w, "code", status);
	jsonw_end_object(&w);
	http_reply(x, status, "application/json; charset=utf-8", buf_str(&body));
}

static void fail_gone(struct http_exchange *x, struct str id)
{
	fail(x, 502, id, 0, "The sandbox was not found");
}

static void refused(void *arg, struct http_exchange *x, int r)
{
	struct edge_call *call = arg;

	(void)r;
	/* The guest itself always listens: when it refuses, the sandbox is on its way out. */
	if (call->port == RUNTIME_GUEST_PORT ||
		!sandbox_find(call->edge->sandboxes, NULL, str_of(call->id)))
		fail_gone(x, str_of(call->id));
	else
		fail(x, 502, str_of(call->id), call->port,
			"The sandbox is running but port is not open");
}

static void dialled(void *arg, int fd, const struct err *e)
{
	struct edge_call *call = arg;
	struct http_relay_options options = { .arg = call };

	if (fd < 0) {
		log_debug("edge.dial_failed", "sandbox=%s port=%d err=%s", call->id, call->port,
			log_quote(str_of(e->msg)));
		refused(call, call->x, fd);
		return;
	}
	(void)http_relay(call->x, fd, &options, refused);
}

/* The guest's private routes are the server's own: from outside they do not exist. */
static bool is_private(struct str path)
{
	static const char *const routes[] = { "/init", "/freeze", "/unfreeze", "/collapse",
		"/fsfreeze", "/fsthaw", "/upgrade" };

	for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
		struct str route = str_of(routes[i]);

		if (str_has_prefix(path, route) && (path.n == route.n || path.p[route.n] == '/'))
			return true;
	}
	return false;
}

static void fail_private(struct http_exchange *x)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(64 << 10);
	struct jsonw w;

	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "message", "Not found");
	jsonw_str(&w, "path", http_path(x));
	jsonw_int(&w, "code", 404);
	jsonw_end_object(&w);
	http_reply(x, 404, "application/json; charset=utf-8", buf_str(&body));
}

static void pass(struct edge *edge, struct http_exchange *x, const struct edge_target *target)
{
	const struct sandbox *sb = sandbox_find(edge->sandboxes, NULL, target->id);
	struct edge_call *call;

	if (!sb) {
		fail_gone(x, target->id);
		return;
	}
	if (target->port == RUNTIME_GUEST_PORT && is_private(http_path(x))) {
		fail_private(x);
		return;
	}
	call = arena_alloc(http_arena(x), sizeof *call);
	if (!call) {
		http_abort(x);
		return;
	}
	*call = (struct edge_call){ .edge = edge, .x = x, .port = target->port };
	(void)snprintf(call->id, sizeof call->id, "%s", sb->id);
	sandbox_dial(edge->sandboxes, sb, target->port, dialled, call);
}

bool edge_handle(struct edge *edge, struct http_exchange *x)
{
	struct edge_target target = edge_parse(http_header(x, "Host"),
		http_header(x, "E2b-Sandbox-Id"), http_header(x, "E2b-Sandbox-Port"));

	switch (target.kind) {
	case EDGE_OTHER:
		return false;
	case EDGE_BAD:
		http_reply(x, 400, "text/plain; charset=utf-8", str_of(target.why));
		return true;
	case EDGE_TARGET:
		pass(edge, x, &target);
		return true;
	}
	return false;
}
