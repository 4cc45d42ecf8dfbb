/* The request side of an exchange: what was asked, and its body. */
#include "http/http-internal.h"

#include <arpa/inet.h>

enum {
	ARENA_MAX_BYTES = 16 * 1024 * 1024
};

struct http_exchange *exchange_new(struct conn *conn, const struct head *head, size_t head_n)
{
	size_t fields_n = head->n_fields * sizeof(struct field);
	struct http_exchange *x = malloc(sizeof *x + fields_n + head_n);
	char *text;

	if (!x)
		return NULL;
	*x = (struct http_exchange){
		.conn = conn,
		.head = *head,
		.file_fd = -EBADF,
		.reply_left = -1,
		.continued = !head->expect,
		.admitted = !conn->server->admission.tells_apart,
		.stranger_left = conn->server->limits.stranger_body_bytes,
	};
	if (fields_n > 0)
		memcpy(x->fields, head->fields, fields_n);
	text = (char *)x->fields + fields_n;
	memcpy(text, head->base, head_n);
	x->head.base = text;
	x->head.fields = x->fields;
	return x;
}

/* Once, and while what the handler keeps in the arena is still there. */
static void tell_end(struct http_exchange *x)
{
	loop_fn fn = x->end_fn;

	x->end_fn = NULL;
	if (fn)
		fn(x->end_arg);
}

struct http_exchange *exchange_free(struct http_exchange *x)
{
	if (!x)
		return NULL;
	tell_end(x);
	relay_free(x->relay);
	close_fdp(&x->file_fd);
	arena_free(x->arena);
	buf_done(&x->body);
	buf_done(&x->reply_headers);
	free(x);
	return NULL;
}

void exchange_release(struct http_exchange *x)
{
	buf_done(&x->body);
	if (x->file_left == 0) { /* a file may still be dismissed */
		tell_end(x);
		x->arena = arena_free(x->arena);
	}
	conn_account(x->conn);
}

int http_admit(struct http_exchange *x, const struct http_claim *claim, struct err *e)
{
	int r = admission_admit(&x->conn->slot, claim, e);

	x->admitted |= r >= 0;
	return r;
}

struct str http_method(const struct http_exchange *x)
{
	return str_make(x->head.base, x->head.method_n);
}

struct str http_target(const struct http_exchange *x)
{
	return str_make(x->head.base + x->head.target, x->head.target_n);
}

struct str http_path(const struct http_exchange *x)
{
	struct str target = http_target(x);
	ptrdiff_t mark = str_find(target, '?');

	return mark < 0 ? target : str_make(target.p, (size_t)mark);
}

struct str http_query(const struct http_exchange *x)
{
	struct str target = http_target(x);
	ptrdiff_t mark = str_find(target, '?');

	return mark < 0 ? str_from(target, target.n) : str_from(target, (size_t)mark + 1);
}

/* Form-decodes into the arena; p NULL when it is malformed. */
static struct str form_decode(struct http_exchange *x, struct str raw)
{
	struct buf out = BUF_INIT(raw.n + 1);
	struct str value = STR_NONE;
	char *copy = NULL;

	if (percent_decode(raw, true, &out) == 0)
		copy = arena_dup(http_arena(x), buf_str(&out));
	if (copy)
		value = str_make(copy, out.n);
	buf_done(&out);
	return value;
}

struct str http_query_value(struct http_exchange *x, const char *name)
{
	struct str rest = http_query(x), pair;

	while (str_split(&rest, '&', &pair)) {
		ptrdiff_t equals = str_find(pair, '=');
		struct str key = equals < 0 ? pair : str_make(pair.p, (size_t)equals);
		struct str value =
			equals < 0 ? str_from(pair, pair.n) : str_from(pair, (size_t)equals + 1);

		/* Few are encoded, and there may be thousands of them. */
		if (!str_is(key, name) && (str_find(key, '%') >= 0 || str_find(key, '+') >= 0))
			key = form_decode(x, key);
		if (key.p && str_is(key, name))
			return form_decode(x, value);
	}
	return STR_NONE;
}

struct str http_header(const struct http_exchange *x, const char *name)
{
	return head_get(&x->head, str_of(name));
}

bool http_header_at(const struct http_exchange *x, size_t i, struct str *name, struct str *value)
{
	if (i >= x->head.n_fields)
		return false;
	*name = head_name(&x->head, (uint32_t)i);
	*value = head_value(&x->head, (uint32_t)i);
	return true;
}

struct arena *http_arena(struct http_exchange *x)
{
	if (!x->arena)
		x->arena = arena_new(ARENA_MAX_BYTES);
	return x->arena;
}

struct loop *http_loop(struct http_exchange *x)
{
	return x->conn->server->loop;
}

struct http_server *http_server_of(const struct http_exchange *x)
{
	return x->conn->server;
}

static char *peer_text(const struct peer *peer)
{
	char address[INET6_ADDRSTRLEN], text[INET6_ADDRSTRLEN + 10];
	const struct in6_addr *in6 = &peer->address;
	const void *bytes = in6;
	int family = peer->family;

	if (family != AF_INET && family != AF_INET6)
		return xstrdup("unix");
	/* An IPv4 client of a socket that takes both is shown as what it is. */
	if (family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(in6)) {
		bytes = &in6->s6_addr[12];
		family = AF_INET;
	}
	if (!inet_ntop(family, bytes, address, sizeof address))
		return xstrdup("unknown");
	(void)snprintf(text, sizeof text, family == AF_INET ? "%s:%d" : "[%s]:%d", address,
		ntohs(peer->port));
	return xstrdup(text);
}

struct str http_peer(const struct http_exchange *x)
{
	struct conn *conn = x->conn;

	if (!conn->peer_text)
		conn->peer_text = peer_text(&conn->peer);
	return str_of(conn->peer_text);
}

struct str http_peer_host(const struct http_exchange *x)
{
	struct str peer = http_peer(x);
	size_t n = peer.n;

	while (n > 0 && peer.p[n - 1] != ':')
		n--;
	if (n == 0)
		return peer;
	return peer.p[0] == '[' ? str_make(peer.p + 1, n - 3) : str_make(peer.p, n - 1);
}

void http_set_data(struct http_exchange *x, void *data)
{
	x->data = data;
}

void *http_data(const struct http_exchange *x)
{
	return x->data;
}

int64_t http_body_length(const struct http_exchange *x)
{
	return x->head.chunked ? -1 : MAX(x->head.length, 0);
}

/* A client that asked first is told to go on only now, when somebody wants its body. */
static void say_continue(struct http_exchange *x)
{
	struct conn *conn = x->conn;
	struct iovec line = iov_of(STR("HTTP/1.1 100 Continue\r\n\r\n"));

	if (x->continued || x->body_error || x->begun || body_is_done(&conn->body))
		return;
	x->continued = true;
	if (conn->view.n == 0)
		conn_send(conn, &line, 1);
}

void http_stream_body(struct http_exchange *x, http_chunk_fn fn, void *arg)
{
	assert(!x->body_fn && !x->body_over && !x->ended);
	x->body_fn = fn;
	x->body_arg = arg;
	if (!x->admitted && x->head.length > (int64_t)x->stranger_left)
		x->body_error = -E2BIG;
	x->conn->fed = 0;
	x->conn->since_ms = loop_now_ms(x->conn->server->loop);
	say_continue(x);
	conn_wake(x->conn);
}

static void collect(void *arg, int r, struct str bytes)
{
	struct http_exchange *x = arg;

	if (bytes.n > 0) {
		if (!admission_may_collect(&x->conn->slot, bytes.n))
			x->body_error = -EDQUOT;
		else if (buf_add(&x->body, bytes.p, bytes.n) < 0)
			x->body_error = -E2BIG;
		conn_account(x->conn);
		return;
	}
	x->whole_fn(x->whole_arg, r, r < 0 ? STR_NONE : buf_str(&x->body));
}

void http_read_body(struct http_exchange *x, size_t max_bytes, http_body_fn fn, void *arg)
{
	x->whole_fn = fn;
	x->whole_arg = arg;
	x->body = BUF_INIT(max_bytes);
	if (x->head.length > 0 && (uint64_t)x->head.length > max_bytes)
		x->body_error = -E2BIG;
	else if (x->head.length > 0)
		(void)buf_reserve(&x->body, MIN((size_t)x->head.length, (size_t)SCRATCH_BYTES));
	http_stream_body(x, collect, x);
}

void http_pause_body(struct http_exchange *x)
{
	x->paused = true;
}

void http_resume_body(struct http_exchange *x)
{
	if (!x->paused)
		return;
	x->paused = false;
	x->conn->since_ms = loop_now_ms(x->conn->server->loop);
	conn_wake(x->conn);
}

void http_on_gone(struct http_exchange *x, loop_fn fn, void *arg)
{
	x->gone_fn = fn;
	x->gone_arg = arg;
	if (x->gone)
		conn_wake(x->conn);
}

void http_on_end(struct http_exchange *x, loop_fn fn, void *arg)
{
	x->end_fn = fn;
	x->end_arg = arg;
}

void http_dismiss(struct http_exchange *x)
{
	loop_fn fn = x->ended ? NULL : TAKE(x->gone_fn);

	if (x->relay) {
		http_relay_cut(x->relay);
		return;
	}
	if (fn)
		fn(x->gone_arg);
	if (!x->ended || x->file_left > 0)
		conn_lose(x->conn);
}

bool http_is_gone(const struct http_exchange *x)
{
	return x->gone;
}

int http_detach(struct http_exchange *x, struct buf *rest)
{
	struct conn *conn = x->conn;
	int fd = conn->fd;

	assert(!x->begun && !x->ended && !x->relay);
	x->ended = true;
	if (fd >= 0) {
		(void)buf_add(rest, conn->view.p, conn->view.n);
		conn->view = STR_NONE;
		loop_io_remove(&conn->io);
		conn->fd = -EBADF;
	}
	conn_wake(conn);
	return fd >= 0 ? fd : -ECONNRESET;
}
