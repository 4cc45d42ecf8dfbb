/* The reply side of an exchange: heads, streamed bodies, files, server-sent events. */
#include "http/http-internal.h"

#include <sys/sendfile.h>

enum {
	FILE_TURN_BYTES = 4 * 1024 * 1024, /* then others have their turn */
	OVERRUN_FACTOR = 16, /* of write_high_bytes: a writer that never looks is cut there */
};

const char *status_text(int status)
{
	static const struct {
		int status;
		const char *text;
	} texts[] = {
		{ 101, "Switching Protocols" },
		{ 200, "OK" },
		{ 201, "Created" },
		{ 202, "Accepted" },
		{ 204, "No Content" },
		{ 206, "Partial Content" },
		{ 301, "Moved Permanently" },
		{ 302, "Found" },
		{ 303, "See Other" },
		{ 304, "Not Modified" },
		{ 307, "Temporary Redirect" },
		{ 308, "Permanent Redirect" },
		{ 400, "Bad Request" },
		{ 401, "Unauthorized" },
		{ 403, "Forbidden" },
		{ 404, "Not Found" },
		{ 405, "Method Not Allowed" },
		{ 406, "Not Acceptable" },
		{ 408, "Request Timeout" },
		{ 409, "Conflict" },
		{ 410, "Gone" },
		{ 411, "Length Required" },
		{ 412, "Precondition Failed" },
		{ 413, "Content Too Large" },
		{ 415, "Unsupported Media Type" },
		{ 416, "Range Not Satisfiable" },
		{ 417, "Expectation Failed" },
		{ 422, "Unprocessable Content" },
		{ 426, "Upgrade Required" },
		{ 429, "Too Many Requests" },
		{ 431, "Request Header Fields Too Large" },
		{ 499, "Client Closed Request" },
		{ 500, "Internal Server Error" },
		{ 501, "Not Implemented" },
		{ 502, "Bad Gateway" },
		{ 503, "Service Unavailable" },
		{ 504, "Gateway Timeout" },
		{ 505, "HTTP Version Not Supported" },
		{ 507, "Insufficient Storage" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (texts[i].status == status)
			return texts[i].text;
	return "Status";
}

bool reply_may_keep(const struct http_exchange *x)
{
	const struct conn *conn = x->conn;

	if (!x->head.keep_alive || conn->server->closing || conn->body.state == BODY_BAD)
		return false;
	if (body_is_done(&conn->body))
		return true;
	/* Whether a client that was not told to continue sends its body is anybody's guess. */
	return x->continued &&
	       conn->body.left <= (x->admitted ? DRAIN_MAX_BYTES : x->stranger_left);
}

void exchange_ended(struct http_exchange *x)
{
	x->ended = true;
	x->body_fn = NULL;
	conn_wake(x->conn);
}

/* Framing and the connection are ours to decide; a second opinion would be a second framing. */
static bool is_ours(struct str name)
{
	static const char *const ours[] = { "Connection", "Content-Length", "Transfer-Encoding",
		"Keep-Alive", "Date" };

	for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
		if (str_eq_nocase(name, str_of(ours[i])))
			return true;
	return false;
}

void http_add_header(struct http_exchange *x, const char *name, struct str value)
{
	struct str n = str_of(name);

	assert(!x->begun);
	if (!is_token(n) || !is_field_value(value) || is_ours(n)) {
		log_debug("http.header_refused", "name=%s", log_quote(n));
		return;
	}
	x->reply_headers.max = SCRATCH_BYTES;
	(void)buf_printf(&x->reply_headers, "%s: ", name);
	(void)buf_add_str(&x->reply_headers, value);
	(void)buf_add(&x->reply_headers, "\r\n", 2);
}

static bool has_no_body(const struct http_exchange *x, int status)
{
	return status < 200 || status == 204 || status == 304 || str_is(http_method(x), "HEAD");
}

static void add_framing(struct http_exchange *x, struct buf *head, int status, int64_t length)
{
	if (length >= 0 && status >= 200 && status != 204 && status != 304)
		(void)buf_printf(head, "Content-Length: %" PRId64 "\r\n", length);
	if (x->chunked)
		(void)buf_adds(head, "Transfer-Encoding: chunked\r\n");
	if (!x->keep)
		(void)buf_adds(head, "Connection: close\r\n");
	else if (x->head.minor == 0)
		(void)buf_adds(head, "Connection: keep-alive\r\n");
}

/* Into server->head, where it stays until the next head is written. */
static struct str write_head(struct http_exchange *x, int status, const char *type, int64_t length)
{
	struct http_server *server = x->conn->server;
	struct buf *head = &server->head;

	x->begun = true;
	x->no_body = has_no_body(x, status);
	x->chunked = length < 0 && x->head.minor > 0 && !x->no_body;
	x->keep = reply_may_keep(x) && (length >= 0 || x->chunked || x->no_body);
	x->reply_left = length;
	buf_clear(head);
	(void)buf_printf(head, "HTTP/1.1 %d %s\r\n", status, status_text(status));
	(void)buf_add_str(head, server_date(server));
	if (type && is_field_value(str_of(type)))
		(void)buf_printf(head, "Content-Type: %s\r\n", type);
	add_framing(x, head, status, length);
	(void)buf_add_str(head, buf_str(&x->reply_headers));
	(void)buf_add(head, "\r\n", 2);
	if (head->failed || x->reply_headers.failed)
		conn_lose(x->conn); /* cannot be sent whole, so not at all */
	buf_done(&x->reply_headers);
	return buf_str(head);
}

void http_reply(struct http_exchange *x, int status, const char *type, struct str body)
{
	struct str head;
	struct iovec iov[2];

	assert(!x->begun && !x->ended && !x->relay);
	head = write_head(x, status, type, (int64_t)body.n);
	iov[0] = iov_of(head);
	iov[1] = iov_of(body);
	conn_send(x->conn, iov, x->no_body ? 1 : 2);
	exchange_ended(x);
}

void reply_error(struct http_exchange *x, int status, const char *message)
{
	char body[256];

	(void)snprintf(body, sizeof body, "{\"code\":%d,\"message\":\"%s\"}", status, message);
	http_reply(x, status, "application/json", str_of(body));
}

void reply_refuse(struct conn *conn, int status)
{
	struct buf *head = &conn->server->head;
	struct iovec iov;
	char body[128];
	int n;

	n = snprintf(body, sizeof body, "{\"code\":%d,\"message\":\"%s\"}", status,
		status_text(status));
	buf_clear(head);
	(void)buf_printf(head, "HTTP/1.1 %d %s\r\n", status, status_text(status));
	(void)buf_add_str(head, server_date(conn->server));
	(void)buf_printf(head,
		"Content-Type: application/json\r\nContent-Length: %d\r\nConnection: "
		"close\r\n\r\n%s",
		n, body);
	iov = iov_of(buf_str(head));
	conn_send(conn, &iov, 1);
}

void reply_turn_away(int fd)
{
	static const char text[] = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n"
				   "Connection: close\r\nRetry-After: 1\r\n\r\n";

	(void)send(fd, text, sizeof text - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	(void)close(fd);
}

/* The head waits for the first piece of the body, at most until the end of the turn. */
void http_begin(struct http_exchange *x, int status, const char *type, int64_t length)
{
	struct iovec iov;

	assert(!x->begun && !x->ended && !x->relay);
	iov = iov_of(write_head(x, status, type, length));
	if (x->conn->fd >= 0 && outq_add(&x->conn->out, &iov, 1, 0) < 0)
		conn_lose(x->conn);
	conn_wake(x->conn);
}

static void send_piece(struct http_exchange *x, struct str bytes)
{
	char size[24];
	struct iovec iov[3] = { iov_of(str_make(size, 0)), iov_of(bytes), iov_of(STR("\r\n")) };

	if (!x->chunked) {
		conn_send(x->conn, &iov[1], 1);
		return;
	}
	iov[0].iov_len = (size_t)snprintf(size, sizeof size, "%zx\r\n", bytes.n);
	conn_send(x->conn, iov, 3);
}

bool http_write(struct http_exchange *x, struct str bytes)
{
	struct conn *conn = x->conn;
	size_t most = conn->server->limits.write_high_bytes * OVERRUN_FACTOR;

	assert(x->begun && !x->ended && x->file_fd < 0);
	if (conn->fd < 0 || x->no_body)
		return true;
	if (x->reply_left >= 0 && (uint64_t)x->reply_left < bytes.n) {
		conn_lose(
			conn); /* more than was declared: the next reply would begin in this one */
		return true;
	}
	if (x->reply_left >= 0)
		x->reply_left -= (int64_t)bytes.n;
	if (outq_pending(&conn->out) > most)
		conn_lose(conn);
	else if (bytes.n > 0)
		send_piece(x, bytes);
	x->drain_due = outq_pending(&conn->out) >= conn_write_high(conn);
	return !x->drain_due;
}

void http_on_drain(struct http_exchange *x, loop_fn fn, void *arg)
{
	x->drain_fn = fn;
	x->drain_arg = arg;
	if (x->drain_due)
		conn_wake(x->conn);
}

size_t http_queued(const struct http_exchange *x)
{
	return outq_pending(&x->conn->out);
}

void http_end(struct http_exchange *x)
{
	struct iovec last = iov_of(STR("0\r\n\r\n"));

	assert(x->begun && !x->ended);
	if (x->reply_left > 0 && !x->no_body)
		conn_lose(x->conn); /* less than was declared */
	if (x->chunked)
		conn_send(x->conn, &last, 1);
	exchange_ended(x);
}

void http_take_file(struct http_exchange *x, int fd, int64_t offset, int64_t length)
{
	assert(x->begun && !x->ended && x->reply_left == length);
	x->file_fd = fd;
	x->file_offset = offset;
	x->file_left = x->no_body || x->conn->fd < 0 ? 0 : length;
	exchange_ended(x);
}

void reply_send_file(struct conn *conn, struct http_exchange *x)
{
	int64_t budget = FILE_TURN_BYTES;

	while (x->file_left > 0 && budget > 0) {
		ssize_t n = sendfile(conn->fd, x->file_fd, &x->file_offset,
			(size_t)MIN(x->file_left, budget));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0) {
			conn_lose(conn); /* the file became shorter, or unreadable */
			return;
		}
		x->file_left -= n;
		budget -= n;
	}
	if (x->file_left > 0) {
		conn->blocked = true;
		conn->since_ms = loop_now_ms(conn->server->loop);
		loop_io_set(&conn->io, conn->io.events | EPOLLOUT);
	}
}

void http_abort(struct http_exchange *x)
{
	struct conn *conn = x->conn;
	struct linger now = { .l_onoff = 1 };

	assert(!x->ended && !x->relay);
	/* Where only the end of the connection ends the body, a clean end would look like the
	 * whole; and elsewhere clients tell a broken connection from a broken protocol. */
	if (conn->fd >= 0 && x->begun)
		(void)setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	x->keep = false;
	exchange_ended(x);
	conn_lose(conn);
}

void http_sse_begin(struct http_exchange *x)
{
	http_add_header(x, "Cache-Control", STR("no-cache"));
	http_add_header(x, "X-Accel-Buffering", STR("no"));
	http_begin(x, 200, "text/event-stream", -1);
}

/* A field of one line; a value that would break out of it is left out. */
static void add_sse_line(struct buf *out, const char *field, const char *value)
{
	if (value && is_field_value(str_of(value)))
		(void)buf_printf(out, "%s: %s\n", field, value);
}

bool http_sse_send(struct http_exchange *x, const char *event, const char *id, struct str data)
{
	struct buf out = BUF_INIT(data.n * 7 + 4096);
	struct str line;
	bool more = true;

	add_sse_line(&out, "event", event);
	add_sse_line(&out, "id", id);
	if (!data.p)
		data = STR("");
	while (str_split(&data, '\n', &line)) {
		(void)buf_adds(&out, "data: ");
		for (size_t i = 0; i < line.n; i++)
			if (line.p[i] != '\r') /* a line end of its own in this format */
				(void)buf_addc(&out, line.p[i]);
		(void)buf_addc(&out, '\n');
	}
	(void)buf_addc(&out, '\n');
	if (!out.failed)
		more = http_write(x, buf_str(&out));
	buf_done(&out);
	return more;
}
