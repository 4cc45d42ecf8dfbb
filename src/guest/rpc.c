#include "guest/rpc.h"

#include "guest/schema.h"

static const struct rpc_method methods[] = {
	{ "/process.Process/Start", RPC_SERVER_STREAM, true, rpc_process_start,
		&schema_process_start, &schema_process_followed },
	{ "/process.Process/Connect", RPC_SERVER_STREAM, false, rpc_process_connect,
		&schema_process_connect, &schema_process_followed },
	{ "/process.Process/List", RPC_UNARY, false, rpc_process_list, &schema_empty,
		&schema_process_listed },
	{ "/process.Process/Update", RPC_UNARY, false, rpc_process_update, &schema_process_update,
		&schema_empty },
	{ "/process.Process/SendInput", RPC_UNARY, false, rpc_process_send_input,
		&schema_process_send_input, &schema_empty },
	{ "/process.Process/StreamInput", RPC_CLIENT_STREAM, false, rpc_process_stream_input,
		&schema_process_stream_input, &schema_empty },
	{ "/process.Process/SendSignal", RPC_UNARY, false, rpc_process_send_signal,
		&schema_process_send_signal, &schema_empty },
	{ "/process.Process/CloseStdin", RPC_UNARY, false, rpc_process_close_stdin,
		&schema_process_close_stdin, &schema_empty },
	{ "/process.Process/Forget", RPC_UNARY, false, rpc_process_forget,
		&schema_process_close_stdin, &schema_empty },
	{ "/filesystem.Filesystem/Stat", RPC_UNARY, true, rpc_filesystem_stat,
		&schema_filesystem_path, &schema_filesystem_entry },
	{ "/filesystem.Filesystem/MakeDir", RPC_UNARY, true, rpc_filesystem_make_dir,
		&schema_filesystem_path, &schema_filesystem_entry },
	{ "/filesystem.Filesystem/Move", RPC_UNARY, true, rpc_filesystem_move,
		&schema_filesystem_move, &schema_filesystem_entry },
	{ "/filesystem.Filesystem/ListDir", RPC_UNARY, true, rpc_filesystem_list_dir,
		&schema_filesystem_list, &schema_filesystem_listed },
	{ "/filesystem.Filesystem/Remove", RPC_UNARY, true, rpc_filesystem_remove,
		&schema_filesystem_path, &schema_empty },
	{ "/filesystem.Filesystem/WatchDir", RPC_SERVER_STREAM, true, rpc_filesystem_watch_dir,
		&schema_filesystem_watch, &schema_filesystem_watched },
	{ "/filesystem.Filesystem/CreateWatcher", RPC_UNARY, true, rpc_filesystem_create_watcher,
		&schema_filesystem_watch, &schema_filesystem_watcher },
	{ "/filesystem.Filesystem/GetWatcherEvents", RPC_UNARY, false,
		rpc_filesystem_get_watcher_events, &schema_filesystem_watcher,
		&schema_filesystem_events },
	{ "/filesystem.Filesystem/RemoveWatcher", RPC_UNARY, false, rpc_filesystem_remove_watcher,
		&schema_filesystem_watcher, &schema_empty },
};

static const struct content_type {
	const char *json, *proto, *both;
} content_types[] = {
	[RPC_UNARY] = { "application/json", "application/proto",
		"application/json, application/proto" },
	[RPC_SERVER_STREAM] = { FEED_JSON, FEED_PROTO, FEED_JSON ", " FEED_PROTO },
	[RPC_CLIENT_STREAM] = { FEED_JSON, FEED_PROTO, FEED_JSON ", " FEED_PROTO },
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

const struct proto_message *rpc_codec(const struct rpc *rpc)
{
	return rpc->is_proto ? rpc->method->reply : NULL;
}

static const char *content_type(const struct rpc *rpc)
{
	const struct content_type *types = &content_types[rpc->method->kind];

	return rpc->is_proto ? types->proto : types->json;
}

int rpc_encode(const struct proto_message *codec, struct buf *message, struct err *e)
{
	struct buf out = BUF_INIT(2 * message->n);
	int r;

	if (!codec || message->failed)
		return 0;
	r = proto_from_json(codec, buf_str(message), &out, e);
	buf_done(message);
	*message = out;
	return r;
}

void rpc_reply_encoded(struct rpc *rpc, const struct buf *message)
{
	const char *type = content_type(rpc);

	if (message->failed)
		rpc_fail(rpc, CONNECT_RESOURCE_EXHAUSTED, "the answer is larger than %zu bytes",
			message->max);
	else
		http_reply(rpc_take_exchange(rpc), 200, type, buf_str(message));
}

void rpc_reply(struct rpc *rpc, struct buf *message)
{
	struct err e = { 0 };
	int r = rpc_encode(rpc_codec(rpc), message, &e);

	if (r < 0)
		rpc_fail(rpc, r == -ENOBUFS ? CONNECT_RESOURCE_EXHAUSTED : CONNECT_INTERNAL, "%s",
			e.msg);
	else
		rpc_reply_encoded(rpc, message);
}

void rpc_reply_empty(struct rpc *rpc)
{
	struct str message = rpc->is_proto ? STR("") : STR("{}");
	const char *type = content_type(rpc);

	if (rpc->method->kind == RPC_UNARY) {
		http_reply(rpc_take_exchange(rpc), 200, type, message);
	} else { /* a client stream: one message and the end of the stream */
		CLEANUP(buf_done) struct buf out = BUF_INIT(ERROR_MAX_BYTES);
		size_t mark = connect_frame_begin(&out);

		buf_add_str(&out, message);
		connect_frame_end(&out, mark, 0);
		connect_end_ok(&out);
		http_reply(rpc_take_exchange(rpc), 200, type, buf_str(&out));
	}
}

/* Errors are JSON whatever the client speaks. */

void rpc_fail(struct rpc *rpc, enum connect_code code, const char *fmt, ...)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(ERROR_MAX_BYTES);
	char message[ERROR_MAX_BYTES / 4];
	bool is_unary = rpc->method->kind == RPC_UNARY;
	const char *type = is_unary ? "application/json" : content_type(rpc);
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(message, sizeof message, fmt, args);
	va_end(args);
	if (is_unary) {
		connect_error_body(&out, code, message);
		http_reply(rpc_take_exchange(rpc), connect_code_http(code), type, buf_str(&out));
	} else {
		connect_end_error(&out, code, message);
		http_reply(rpc_take_exchange(rpc), 200, type, buf_str(&out));
	}
}

int rpc_to_json(const struct rpc *rpc, struct str *message, struct buf *text, struct err *e)
{
	int r;

	if (!rpc->is_proto)
		return 0;
	r = proto_to_json(rpc->method->request, *message, text, e);
	*message = buf_str(text);
	return r;
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

bool rpc_stream_options(struct rpc *rpc, struct feed_options *ret)
{
	struct str timeout = http_header(rpc->x, "Connect-Timeout-Ms");
	struct str interval = http_header(rpc->x, "Keepalive-Ping-Interval");
	int64_t seconds;

	*ret = (struct feed_options){ .proto = rpc_codec(rpc) };
	/* Ten digits at most, says the Connect protocol. */
	if (timeout.n && str_to_int(timeout, 0, 9999999999, &ret->deadline_ms) < 0) {
		rpc_fail(rpc, CONNECT_INVALID_ARGUMENT, "invalid Connect-Timeout-Ms '%.*s'",
			STR_ARG(timeout));
		return false;
	}
	if (str_to_int(interval, 1, 86400, &seconds) < 0)
		seconds = RPC_KEEPALIVE_S;
	ret->keepalive_ms = seconds * 1000;
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
	CLEANUP(buf_done) struct buf text = BUF_INIT(RPC_JSON_BYTES);
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
	if (r == 0)
		r = rpc_to_json(rpc, &message, &text, &e);
	if (r < 0)
		rpc_fail(rpc, connect_code_of(r), "%s", e.msg);
	else if (choose_user(rpc))
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
	struct str type = http_header(x, "Content-Type");
	struct rpc *rpc;
	bool is_proto;

	if (!method)
		return false;
	if (!str_is(http_method(x), "POST")) {
		http_add_header(x, "Allow", STR("POST"));
		http_reply(x, 405, NULL, STR_NONE);
		return true;
	}
	is_proto = is_type(type, content_types[method->kind].proto);
	if (!is_proto && !is_type(type, content_types[method->kind].json)) {
		http_add_header(x, "Accept-Post", str_of(content_types[method->kind].both));
		http_reply(x, 415, NULL, STR_NONE);
		return true;
	}
	rpc = XNEW(struct rpc);
	*rpc = (struct rpc){ .guest = g,
		.x = x,
		.method = method,
		.is_proto = is_proto,
		.arena = arena_new(RPC_ARENA_BYTES) };
	if (method->kind != RPC_CLIENT_STREAM)
		http_read_body(x, RPC_MAX_BYTES + CONNECT_HEAD, on_body, rpc);
	else if (choose_user(rpc))
		method->call(rpc, STR_NONE);
	return true;
}
