/* The whole, and the way of a request: CORS, access token, route. */
#include "guest/guest.h"

#include "guest/auth.h"
#include "guest/env.h"
#include "guest/path.h"
#include "guest/rpc.h"
#include "guest/watch-book.h"
#include "guest/trust.h"

#include <sys/stat.h>

enum {
	REPLY_MAX_BYTES = 4 << 20,
	INIT_MAX_BODY = 4 << 20,
	START_ARENA_BYTES = 16 << 20,
	MESSAGE_BYTES = 8 << 10,
};

void reply_fail(struct http_exchange *x, int status, const char *fmt, ...)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(REPLY_MAX_BYTES);
	char message[MESSAGE_BYTES];
	struct jsonw w;
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(message, sizeof message, fmt, args);
	va_end(args);
	jsonw_init(&w, &out);
	jsonw_object(&w, NULL);
	jsonw_int(&w, "code", status);
	jsonw_strz(&w, "message", message);
	jsonw_end_object(&w);
	http_reply(x, status, "application/json; charset=utf-8", buf_str(&out));
}

int guest_find_user(struct guest *g, struct str name, struct user *ret, struct err *e)
{
	return users_find(&g->users, name.p ? name : str_of(g->settings.default_user), ret, e);
}

int guest_resolve(const struct guest *g, const struct user *user, struct str path,
	char out[PATH_MAX], struct err *e)
{
	return path_resolve(user, g->settings.workdir, path, out, e);
}

/* ---- small routes ---- */

static void health_get(struct guest *g, struct http_exchange *x)
{
	(void)g;
	http_add_header(x, "Cache-Control", STR("no-store"));
	http_reply(x, 204, NULL, STR_NONE);
}

static void metrics_get(struct guest *g, struct http_exchange *x)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(REPLY_MAX_BYTES);

	g->metrics.activity = g->activity.last;
	metrics_write(&g->metrics, &g->gauges, &g->settings, &out);
	seen_sample(&g->seen, &g->metrics);
	http_add_header(x, "Cache-Control", STR("no-store"));
	http_reply(x, 200, "application/json", buf_str(&out));
}

/* For the server alone, which keeps it from clients. */
static void activity_get(struct guest *g, struct http_exchange *x)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(REPLY_MAX_BYTES);
	struct str epoch = http_query_value(x, "epoch");
	int64_t after = 0;

	(void)str_to_int(http_query_value(x, "after"), 0, INT64_MAX, &after);
	activity_answer(&g->activity, epoch, after, &out);
	http_add_header(x, "Cache-Control", STR("no-store"));
	http_reply(x, 200, "application/json", buf_str(&out));
}

struct activity_asker guest_asker(const struct http_exchange *x)
{
	return (struct activity_asker){ .source = http_header(x, "Atoll-Source"),
		.is_recorded = http_header(x, "Atoll-Recorded").n > 0 };
}

struct activity_asker guest_asker_keep(const struct http_exchange *x, struct arena *arena)
{
	struct activity_asker asker = guest_asker(x);

	asker.source = str_of(asker.source.n ? arena_dup(arena, asker.source) : NULL);
	return asker;
}

static void envs_get(struct guest *g, struct http_exchange *x)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(REPLY_MAX_BYTES);
	struct jsonw w;

	jsonw_init(&w, &out);
	env_write_defaults(&w, &g->settings);
	http_add_header(x, "Cache-Control", STR("no-store"));
	http_reply(x, 200, "application/json", buf_str(&out));
}

struct init_call {
	struct guest *guest;
	struct http_exchange *x;
};

static void init_body(void *arg, int r, struct str body)
{
	struct init_call *call = arg;
	struct http_exchange *x = call->x;
	struct err e = { 0 };

	if (r == 0)
		r = settings_apply(&call->guest->settings, body.n ? body : STR("{}"), SETTINGS_INIT,
			&e);
	if (r == 0)
		trust_install(&call->guest->settings);
	free(call);
	if (r == -EPROTO || r == -ECONNRESET) {
		http_abort(x);
		return;
	}
	http_add_header(x, "X-Envd-Version", STR(GUEST_ENVD_VERSION));
	http_add_header(x, "Cache-Control", STR("no-store"));
	if (r < 0)
		reply_fail(x, r == -EACCES ? 401 : 400, "%s", r == -E2BIG ? "too large" : e.msg);
	else
		http_reply(x, 204, NULL, STR_NONE);
}

/* Checks the token by itself: this is how it gets one. */
void init_post(struct guest *g, struct http_exchange *x)
{
	struct init_call *call = XNEW(struct init_call);

	*call = (struct init_call){ g, x };
	http_read_body(x, INIT_MAX_BODY, init_body, call);
}

/* ---- routing ---- */

static const struct route {
	const char *method, *path;
	bool is_open; /* no access token needed, or checked by the route itself */
	void (*fn)(struct guest *g, struct http_exchange *x);
} routes[] = {
	{ "GET", "/health", true, health_get },
	{ "GET", "/files", true, files_get },
	{ "POST", "/files", true, files_post },
	{ "POST", "/files/compose", false, files_compose },
	{ "POST", "/init", true, init_post },
	{ "GET", "/metrics", false, metrics_get },
	{ "GET", "/envs", false, envs_get },
	{ "GET", "/activity", false, activity_get },
};

static const struct route *find_route(struct http_exchange *x, bool *ret_other_method)
{
	*ret_other_method = false;
	for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
		if (!str_is(http_path(x), routes[i].path))
			continue;
		if (str_is(http_method(x), routes[i].method))
			return &routes[i];
		*ret_other_method = true;
	}
	return NULL;
}

/* Browsers may use a sandbox from any page: its token is what protects it, never a cookie. True: it
 * was a preflight and is answered. */
static bool cors(struct http_exchange *x)
{
	struct str method = http_header(x, "Access-Control-Request-Method");
	struct str headers = http_header(x, "Access-Control-Request-Headers");

	if (!http_header(x, "Origin").p)
		return false;
	http_add_header(x, "Access-Control-Allow-Origin", STR("*"));
	if (!str_is(http_method(x), "OPTIONS") || !method.p) {
		http_add_header(x, "Access-Control-Expose-Headers",
			STR("Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, Location, "
			    "Cache-Control, X-Content-Type-Options"));
		return false;
	}
	http_add_header(x, "Access-Control-Allow-Methods", method);
	if (headers.n)
		http_add_header(x, "Access-Control-Allow-Headers", headers);
	http_add_header(x, "Access-Control-Max-Age", STR("7200"));
	http_reply(x, 204, NULL, STR_NONE);
	return true;
}

void guest_handle(void *arg, struct http_exchange *x)
{
	struct guest *g = arg;
	bool other_method;
	const struct route *route = find_route(x, &other_method);

	if (cors(x))
		return;
	if (!(route && route->is_open) &&
		!auth_token_matches(g->settings.token, http_header(x, "X-Access-Token"))) {
		reply_fail(x, 401,
			"unauthorized access, please provide a valid access token or method "
			"signing if supported");
		return;
	}
	if (route)
		route->fn(g, x);
	else if (other_method)
		reply_fail(x, 405, "method not allowed");
	else if (!rpc_handle(g, x))
		reply_fail(x, 404, "not found");
}

/* ---- the whole ---- */

int guest_init(struct guest *g, struct loop *loop, struct err *e)
{
	int r;

	*g = (struct guest){ .loop = loop, .seen = SEEN_INIT };
	settings_init(&g->settings);
	users_init(&g->users);
	watch_set_init(&g->watches, loop, &g->users);
	list_init(&g->watchers);
	list_init(&g->transfers);
	metrics_init(&g->metrics);
	gauges_init(&g->gauges);
	activity_init(&g->activity);
	r = process_table_init(&g->processes, loop, &g->gauges, &g->settings, e);
	g->processes.activity = &g->activity;
	return r;
}

void transfer_add(struct guest *g, struct transfer *t, void (*cancel)(struct transfer *t))
{
	t->cancel = cancel;
	list_append(&g->transfers, &t->node);
}

void guest_done(struct guest *g)
{
	LIST_EACH(&g->transfers, node)
	{
		struct transfer *t = container_of(node, struct transfer, node);

		list_remove(node); /* what ends later finds no list any more */
		t->cancel(t);
	}
	process_table_done(&g->processes);
	activity_done(&g->activity);
	watch_book_done(&g->watchers);
	watch_set_done(&g->watches);
	users_done(&g->users);
	settings_done(&g->settings);
	gauges_done(&g->gauges);
	seen_done(&g->seen);
}

void guest_run_start_command(struct guest *g)
{
	char shell[] = "/bin/bash", login[] = "-l", command[] = "-c";
	char *argv[] = { shell, login, command, g->settings.start_cmd, NULL };
	struct arena *arena;
	struct user user;
	struct err e = { 0 };
	struct process *p;
	char cwd[PATH_MAX];
	char **envp = NULL;
	int r;

	if (!g->settings.start_cmd)
		return;
	arena = arena_new(START_ARENA_BYTES);
	r = guest_find_user(g, STR_NONE, &user, &e);
	if (r == 0)
		r = guest_resolve(g, &user, STR_NONE, cwd, &e);
	if (r == 0)
		r = env_build(arena, &g->settings, &user, NULL, &envp);
	if (r == 0)
		r = process_start(&g->processes,
			&(struct process_spec){ .user = &user,
				.cwd = cwd,
				.argv = argv,
				.envp = envp,
				.config = STR("{}"),
				.hidden = true },
			&p, &e);
	if (r < 0)
		log_error("guest.start_command", "err=%s", log_quote(str_of(e.msg)));
	(void)arena_free(arena);
}
