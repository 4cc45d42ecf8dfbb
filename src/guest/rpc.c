#include "guest/rpc.h"

static const struct rpc_method methods[] = {
	{ "/process.Process/Start", RPC_SERVER_STREAM, true, rpc_process_start },
	{ "/process.Process/Connect", RPC_SERVER_STREAM, false, rpc_process_connect },
	{ "/process.Process/List", RPC_UNARY, false, rpc_process_list },
	{ "/process.Process/Update", RPC_UNARY, false, rpc_process_update },
	{ "/process.Process/SendInput", RPC_UNARY, false, rpc_process_send_input },
	{ "/process.Process/StreamInput", RPC_CLIENT_STREAM, false, rpc_process_stream_input },
	{ "/process.Process/SendSignal", RPC_UNARY, false, rpc_process_send_signal },
	{ "/process.Process/CloseStdin", RPC_UNARY, false, rpc_process_close_stdin },
	{ "/filesystem.Filesystem/Stat", RPC_UNARY, true, rpc_filesystem_stat },
	{ "/filesystem.Filesystem/MakeDir", RPC_UNARY, true, rpc_filesystem_make_dir },
	{ "/filesystem.Filesystem/Move", RPC_UNARY, true, rpc_filesystem_move },
	{ "/filesystem.Filesystem/ListDir", RPC_UNARY, true, rpc_filesystem_list_dir },
	{ "/filesystem.Filesystem/Remove", RPC_UNARY, true, rpc_filesystem_remove },
	{ "/filesystem.Filesystem/WatchDir", RPC_SERVER_STREAM, true, rpc_filesystem_watch_dir },
	{ "/filesystem.Filesystem/CreateWatcher", RPC_UNARY, true, rpc_filesystem_create_watcher },
	{ "/filesystem.Filesystem/GetWatcherEvents", RPC_UNARY, false,
		rpc_filesystem_get_watcher_events },
	{ "/filesystem.Filesystem/RemoveWatcher", RPC_UNARY, false, rpc_filesystem_remove_watcher },
};

static const char *const content_types[] = {
	[RPC_UNARY] = "application/json",
	[RPC_SERVER_STREAM] = "application/connect+json",
	[RPC_CLIENT_STREAM] = "application/connect+json",
};

enum {
	ERROR_MAX_BYTES = 16 << 10,
	USER_MAX_BYTES = 1024,
};

struct http_exchange *rpc_take_exchange(struct rpc *take_rpc)
{
	struct http_exchange *x = take_rpc->x;

	(void)arena_free(take_rpc->arena);
	free(take_rpc);
	return x;
}

void rpc_reply(struct rpc *rpc, const struct buf *message)
{
	if (message->failed) {
		rpc_fail(rpc, CONNECT_RESOURCE_EXHAUSTED, "the answer is larger than %zu bytes",
			message->max);
		return;
	}
	http_reply(rpc_take_exchange(rpc), 200, "application/json", buf_str(message));
}

void rpc_reply_empty(struct rpc *rpc)
{
	if (rpc->method->kind == RPC_UNARY) {
		http_reply(rpc_take_exchange(rpc), 200, "application/json", STR("{}"));
	} else { /* a client stream: one message and the end of the stream */
		CLEANUP(buf_done) struct buf out = BUF_INIT(ERROR_MAX_BYTES);
		size_t mark = connect_frame_begin(&out);

		buf_adds(&out, "{}");
		connect_frame_end(&out, mark, 0);
		connect_end_ok(&out);
		http_reply(rpc_take_exchange(rpc), 200, "application/connect+json", buf_str(&out));
	}
}

void rpc_fail(struct rpc *rpc, enum connect_code code, const char *fmt, ...)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(ERROR_MAX_BYTES);
	char message[ERROR_MAX_BYTES / 4];
	bool is_unary = rpc->method->kind == RPC_UNARY;
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(message, sizeof message, fmt, args);
	va_end(args);
	if (is_unary) {
		connect_error_body(&out, code, message);
		http_reply(rpc_take_exchange(rpc), connect_code_http(code), "application/json",
			buf_str(&out));
	} else {
		connect_end_error(&out, code, message);
		http_reply(rpc_take_exchange(rpc), 200, "application/connect+json", buf_str(&out));
	}
}

bool rpc_decode(struct rpc *rpc, struct str message, const struct json_shape *shape, void *out)
{
	struct err e = { 0 };
	int r = json_decode(rpc->arena, message.n ? message : STR("{}"), shape, out, &e);

	if (r == 0)
		return true;
	rpc_fail(rpc, r == -ENOBUFS ? CONNECT_RESOURCE_EXHAUSTED : CONNECT_INVALID_ARGUMENT, "%s",
		e.msg);
	return false;
}

bool rpc_resolve(struct rpc *rpc, struct str path, char out[PATH_MAX])
{
	struct err e = { 0 };

	if (guest_resolve(rpc->guest, &rpc->user, path, out, &e) == 0)
		return true;
	rpc_fail(rpc, CONNECT_INVALID_ARGUMENT, "%s", e.msg);
	return false;
}

bool rpc_stream_options(struct rpc *rpc, int64_t *ret_timeout_ms, int64_t *ret_keepalive_ms)
{
	struct str timeout = http_header(rpc->x, "Connect-Timeout-Ms");
	struct str interval = http_header(rpc->x, "Keepalive-Ping-Interval");
	int64_t seconds;

	*ret_timeout_ms = 0;
	/* Ten digits at most, says the Connect protocol. */
	if (timeout.n && str_to_int(timeout, 0, 9999999999, ret_timeout_ms) < 0) {
		rpc_fail(rpc, CONNECT_INVALID_ARGUMENT, "invalid Connect-Timeout-Ms '%.*s'",
			STR_ARG(timeout));
		return false;
	}
	if (str_to_int(interval, 1, 86400, &seconds) < 0)
		seconds = RPC_KEEPALIVE_S;
	*ret_keepalive_ms = seconds * 1000;
	return true;
}

/* ---- who, and how the body comes ---- */

static bool is_type(struct str header, const char *want)
{
	struct str type;

	if (!str_split(&header, ';', &type))
		return false;
	return str_eq_nocase(str_trim(type), str_of(want));
}

/* The user of `Authorization: Basic base64(user:)`; p NULL when there is none. */
static struct str basic_user(struct http_exchange *x, struct buf *decoded)
{
	struct str header = http_header(x, "Authorization"), user;
	static const struct str scheme = { "Basic ", 6 };

	if (header.n < scheme.n || !str_eq_nocase(str_make(header.p, scheme.n), scheme))
		return STR_NONE;
	if (base64_decode(str_trim(str_from(header, scheme.n)), decoded) < 0)
		return STR_NONE;
	header = buf_str(decoded);
	if (str_find(header, ':') < 0 || !str_split(&header, ':', &user))
		return STR_NONE;
	return user;
}

static bool choose_user(struct rpc *rpc)
{
	CLEANUP(buf_done) struct buf decoded = BUF_INIT(USER_MAX_BYTES);
	struct str name = basic_user(rpc->x, &decoded);
	struct guest *g = rpc->guest;

	if (!name.p && !rpc->method->needs_user)
		return true;
	if (guest_find_user(g, name, &rpc->user, NULL) == 0)
		return true;
	if (name.p)
		rpc_fail(rpc, CONNECT_UNAUTHENTICATED, "invalid username: '%.*s'", STR_ARG(name));
	else
		rpc_fail(rpc, CONNECT_UNAUTHENTICATED, "invalid default user: '%s'",
			g->settings.default_user);
	return false;
}

struct unwrapped {
	struct arena *arena;
	struct str message; /* p NULL: none yet */
};

static int keep_message(void *arg, unsigned flags, struct str payload, struct err *e)
{
	struct unwrapped *u = arg;

	if (flags & CONNECT_FLAG_END)
		return 0;
	if (u->message.p)
		return err_set(e, -EINVAL, "expected one message, got another");
	u->message = str_make(arena_dup(u->arena, payload), payload.n);
	return u->message.p ? 0 : err_set(e, -EMSGSIZE, "message is too large");
}

/* Takes the one envelope of a server stream's request apart. */
static int unwrap(struct rpc *rpc, struct str body, struct str *ret, struct err *e)
{
	struct unwrapped u = { .arena = rpc->arena };
	struct connect_reader reader;
	int r;

	connect_reader_init(&reader, RPC_MAX_BYTES);
	r = connect_reader_feed(&reader, body, keep_message, &u, e);
	if (r == 0)
		r = connect_reader_finish(&reader, e);
	if (r == 0 && !u.message.p)
		r = err_set(e, -EINVAL, "expected one message, got none");
	connect_reader_done(&reader);
	*ret = u.message;
	return r;
}

static void on_body(void *arg, int r, struct str body)
{
	struct rpc *rpc = arg;
	struct err e = { 0 };
	struct str message = body;

	if (r == -E2BIG) {
		rpc_fail(rpc, CONNECT_RESOURCE_EXHAUSTED, "message is larger than %d bytes",
			RPC_MAX_BYTES);
		return;
	}
	if (r < 0) {
		http_abort(rpc_take_exchange(rpc));
		return;
	}
	if (rpc->method->kind == RPC_SERVER_STREAM)
		r = unwrap(rpc, body, &message, &e);
	if (r < 0) {
		rpc_fail(rpc,
			r == -EMSGSIZE ? CONNECT_RESOURCE_EXHAUSTED : CONNECT_INVALID_ARGUMENT,
			"%s", e.msg);
		return;
	}
	if (choose_user(rpc))
		rpc->method->call(rpc, message);
}

static const struct rpc_method *find_method(struct str path)
{
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
		if (str_is(path, methods[i].path))
			return &methods[i];
	return NULL;
}

bool rpc_handle(struct guest *g, struct http_exchange *x)
{
	const struct rpc_method *method = find_method(http_path(x));
	struct rpc *rpc;

	if (!method)
		return false;
	if (!str_is(http_method(x), "POST")) {
		http_add_header(x, "Allow", STR("POST"));
		http_reply(x, 405, NULL, STR_NONE);
		return true;
	}
	if (!is_type(http_header(x, "Content-Type"), content_types[method->kind])) {
		http_add_header(x, "Accept-Post", str_of(content_types[method->kind]));
		http_reply(x, 415, NULL, STR_NONE);
		return true;
	}
	rpc = XNEW(struct rpc);
	*rpc = (struct rpc){ .guest = g,
		.x = x,
		.method = method,
		.arena = arena_new(RPC_ARENA_BYTES) };
	if (method->kind != RPC_CLIENT_STREAM)
		http_read_body(x, RPC_MAX_BYTES + CONNECT_HEAD, on_body, rpc);
	else if (choose_user(rpc))
		method->call(rpc, STR_NONE);
	return true;
}
