/* One request of our own over a connected descriptor: sent as the socket takes it, its reply given
 * on as it comes. Pausing takes the socket out of the loop, since the other side's end would wake
 * us for ever otherwise; what was read before stays in `in` until the reader goes on. */
#include "http/http-internal.h"

enum {
	REPLY_HEAD_BYTES = 32 * 1024,
	REPLY_MAX_FIELDS = 128,
	REPLY_READ_BYTES = 64 * 1024,
	REQUEST_MAX_BYTES = 1 << 30,
	SEND_HIGH_BYTES = 256 * 1024,
};

struct http_stream {
	struct loop *loop;
	struct loop_io io;
	struct loop_timer timer;
	struct loop_task task, again; /* its end; going on after a pause */
	int fd;
	const struct http_stream_ops *ops;
	void *arg;
	struct outq out;
	struct buf in; /* read and not dealt with: a head, or what came before a pause */
	struct head_scan scan;
	struct body body;
	const struct head *head; /* during the callback */
	int status;              /* 0: the head has not come yet */
	int64_t head_at_ms, end_at_ms, stall_ms, moved_ms;
	bool is_head, is_chunked, all_sent, is_blocked; /* of the request */
	bool is_paused, is_over, is_cancelled;
	int result;
	struct err error;
};

/* ---- ending ---- */

static void on_done(void *arg)
{
	struct http_stream *s = arg;

	if (!s->is_cancelled)
		s->ops->end(s->arg, s->result, &s->error);
	outq_done(&s->out);
	buf_done(&s->in);
	free(s);
}

/* The callback comes at the end of the turn. */
static void finish(struct http_stream *s, int r, const char *what)
{
	if (s->is_over)
		return;
	s->is_over = true;
	s->result = r;
	if (r < 0)
		(void)err_sys(&s->error, r, "%s", what);
	loop_timer_cancel(&s->timer);
	loop_task_cancel(&s->again);
	loop_io_remove(&s->io);
	close_fdp(&s->fd);
	s->fd = -EBADF;
	loop_defer(s->loop, &s->task, on_done, s);
}

void http_stream_cancel(struct http_stream *s)
{
	s->is_cancelled = true;
	finish(s, -ECANCELED, "cancelled");
}

/* ---- deadlines ---- */

static int64_t earlier(int64_t a, int64_t b)
{
	return a == 0 || (b != 0 && b < a) ? b : a;
}

static int64_t stalled_at(const struct http_stream *s)
{
	return s->stall_ms > 0 && !s->is_paused ? s->moved_ms + s->stall_ms : 0;
}

static int64_t next_deadline(const struct http_stream *s)
{
	int64_t at = earlier(s->end_at_ms, stalled_at(s));

	return s->status == 0 ? earlier(at, s->head_at_ms) : at;
}

/* Bytes do not move the timer: it looks back when it fires. */
static void on_timer(void *arg)
{
	struct http_stream *s = arg;
	int64_t at = next_deadline(s);

	if (at == 0)
		return;
	if (at > loop_now_ms(s->loop))
		loop_timer_set(&s->timer, at);
	else
		finish(s, -ETIMEDOUT, "waiting for the reply");
}

static void arm(struct http_stream *s)
{
	int64_t at = next_deadline(s);

	if (at != 0 && (!loop_timer_is_set(&s->timer) || at < s->timer.at_ms))
		loop_timer_set(&s->timer, at);
}

/* ---- the reply ---- */

static void start_reply(struct http_stream *s, const struct head *head)
{
	s->status = head->status;
	if (s->is_head || head->status == 204 || head->status == 304)
		body_start_length(&s->body, 0);
	else if (head->chunked)
		body_start_chunked(&s->body);
	else if (head->length >= 0)
		body_start_length(&s->body, head->length);
	else
		body_start_until_close(&s->body);
	s->head = head;
	if (s->ops->head)
		s->ops->head(s->arg, s->status);
	s->head = NULL;
}

/* Parses heads out of `in` until the final one; what is behind it stays there. */
static void take_heads(struct http_stream *s)
{
	struct field fields[REPLY_MAX_FIELDS];
	struct head head;
	size_t end = 0;

	while (s->status == 0 && !s->is_over) {
		int r = head_find_end(buf_str(&s->in), REPLY_HEAD_BYTES, &s->scan, &end);

		if (r == 0)
			return;
		if (r < 0 || end == 2 ||
			head_parse_response(str_make(s->in.p, end), fields, REPLY_MAX_FIELDS,
				&head) != 0 ||
			head.status == 101) {
			finish(s, -EPROTO, "the reply's head");
			return;
		}
		if (head.status >= 200)
			start_reply(s, &head);
		s->scan = (struct head_scan){ 0 };
		if (!s->is_over)
			buf_consume(&s->in, end);
	}
}

/* Gives on what it can of `bytes` and returns how much of them was dealt with. */
static size_t give_body(struct http_stream *s, struct str bytes)
{
	size_t at = 0;

	while (at < bytes.n && !s->is_paused && !s->is_over && !body_is_done(&s->body)) {
		struct str piece;
		ssize_t n = body_next(&s->body, str_from(bytes, at), &piece);

		if (n < 0) {
			finish(s, -EPROTO, "the reply's body");
			return at;
		}
		at += (size_t)n;
		if (piece.n > 0)
			s->ops->body(s->arg, piece);
	}
	if (!s->is_over && body_is_done(&s->body))
		finish(s, 0, NULL);
	return at;
}

static void on_end(struct http_stream *s)
{
	if (s->status != 0 && s->body.state == BODY_UNTIL_CLOSE)
		finish(s, 0, NULL);
	else
		finish(s, -ECONNRESET, "the reply broke off");
}

/* Deals with what is in `in`, as far as the reader lets us. */
static void take_held(struct http_stream *s)
{
	if (s->status == 0)
		take_heads(s);
	if (s->status != 0 && !s->is_over) {
		size_t n = give_body(s, buf_str(&s->in));

		if (!s->is_over)
			buf_consume(&s->in, n);
	}
	if (!s->is_over && s->in.n == 0)
		buf_done(&s->in);
}

static void take(struct http_stream *s, struct str bytes)
{
	if (s->status != 0 && s->in.n == 0)
		bytes = str_from(bytes, give_body(s, bytes));
	if (s->is_over || bytes.n == 0)
		return;
	if (buf_add_str(&s->in, bytes) < 0)
		finish(s, -EPROTO, "the reply's head");
	else if (s->status == 0)
		take_held(s);
}

static void receive(struct http_stream *s)
{
	char bytes[REPLY_READ_BYTES];
	ssize_t n;

	if (s->status != 0 && s->ops->may_read && !s->ops->may_read(s->arg))
		return;
	n = recv(s->fd, bytes, sizeof bytes, MSG_DONTWAIT);
	if (n > 0) {
		s->moved_ms = loop_now_ms(s->loop);
		take(s, str_make(bytes, (size_t)n));
	} else if (n == 0) {
		on_end(s);
	} else if (errno != EAGAIN && errno != EINTR) {
		finish(s, -errno, "reading the reply");
	}
}

/* ---- the request ---- */

/* A server may reply and close before it has read everything: that reply still counts. */
static void transmit(struct http_stream *s)
{
	size_t before = outq_pending(&s->out);
	int r = outq_send(&s->out, s->fd, NULL, 0);

	if (r == -EPIPE || r == -ECONNRESET) {
		outq_done(&s->out);
		s->all_sent = true;
		r = 1;
	}
	if (r < 0) {
		finish(s, r, "sending the request");
		return;
	}
	if (outq_pending(&s->out) != before)
		s->moved_ms = loop_now_ms(s->loop);
	if (s->is_paused && r == 1)
		loop_io_remove(&s->io);
	else if (s->io.loop)
		loop_io_set(&s->io, (s->is_paused ? 0 : EPOLLIN) | (r == 1 ? 0 : EPOLLOUT));
}

static void tell_drained(struct http_stream *s)
{
	if (!s->is_blocked || outq_pending(&s->out) > SEND_HIGH_BYTES / 2)
		return;
	s->is_blocked = false;
	if (s->ops->drained)
		s->ops->drained(s->arg);
}

static void on_io(void *arg, uint32_t events)
{
	struct http_stream *s = arg;

	if (events & EPOLLOUT)
		transmit(s);
	if (!s->is_over)
		tell_drained(s);
	if (!s->is_over && !s->is_paused && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		receive(s);
}

bool http_stream_send(struct http_stream *s, struct str bytes)
{
	char size[24];

	if (s->is_over || s->all_sent || bytes.n == 0)
		return true;
	if (s->is_chunked) {
		(void)snprintf(size, sizeof size, "%zx\r\n", bytes.n);
		(void)buf_adds(&s->out.buf, size);
	}
	(void)buf_add_str(&s->out.buf, bytes);
	if (s->is_chunked)
		(void)buf_add(&s->out.buf, "\r\n", 2);
	if (s->out.buf.failed)
		finish(s, -ENOBUFS, "the request's body");
	else
		transmit(s);
	s->is_blocked = !s->is_over && outq_pending(&s->out) > SEND_HIGH_BYTES;
	return !s->is_blocked;
}

void http_stream_send_end(struct http_stream *s)
{
	if (s->is_over || s->all_sent)
		return;
	if (s->is_chunked)
		(void)buf_adds(&s->out.buf, "0\r\n\r\n");
	transmit(s);
	s->all_sent = true;
}

static int compose(struct buf *out, const struct http_stream_request *request)
{
	bool has_body = request->body.n > 0 || !str_is(str_of(request->method), "GET");

	(void)buf_printf(out, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n",
		request->method, request->target, request->host ? request->host : "localhost");
	if (request->headers)
		(void)buf_adds(out, request->headers);
	if (request->streams_body && request->length < 0)
		(void)buf_adds(out, "Transfer-Encoding: chunked\r\n");
	else if (request->streams_body)
		(void)buf_printf(out, "Content-Length: %" PRId64 "\r\n", request->length);
	else if (has_body)
		(void)buf_printf(out, "Content-Length: %zu\r\n", request->body.n);
	(void)buf_add(out, "\r\n", 2);
	if (!request->streams_body)
		(void)buf_add_str(out, request->body);
	return out->failed ? -ENOBUFS : 0;
}

/* ---- pausing ---- */

static void watch(struct http_stream *s)
{
	uint32_t events = outq_pending(&s->out) > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN;
	int r = loop_io_add(s->loop, &s->io, s->fd, events, on_io, s, NULL);

	if (r < 0)
		finish(s, r, "watching the connection");
}

static void go_on(void *arg)
{
	struct http_stream *s = arg;

	if (s->is_over || s->is_paused)
		return;
	take_held(s);
	if (!s->is_over && !s->is_paused && !s->io.loop)
		watch(s);
}

void http_stream_pause(struct http_stream *s)
{
	if (s->is_over)
		return;
	s->is_paused = true;
	/* What is left of the request must still go out. */
	if (outq_pending(&s->out) == 0)
		loop_io_remove(&s->io);
	else if (s->io.loop)
		loop_io_set(&s->io, EPOLLOUT);
}

void http_stream_resume(struct http_stream *s)
{
	if (s->is_over || !s->is_paused)
		return;
	s->is_paused = false;
	s->moved_ms = loop_now_ms(s->loop);
	if (s->io.loop)
		loop_io_set(&s->io, EPOLLIN | EPOLLOUT);
	arm(s);
	loop_defer(s->loop, &s->again, go_on, s);
}

/* ---- beginning ---- */

struct str http_stream_header(const struct http_stream *s, const char *name)
{
	return s->head ? head_get(s->head, str_of(name)) : STR_NONE;
}

struct http_stream *http_stream_open(struct loop *loop, int fd,
	const struct http_stream_request *request, const struct http_stream_ops *ops, void *arg)
{
	struct http_stream *s = XNEW(struct http_stream);
	int64_t now = loop_now_ms(loop);

	*s = (struct http_stream){ .loop = loop, .fd = fd, .ops = ops, .arg = arg };
	s->out.buf = BUF_INIT(REQUEST_MAX_BYTES);
	s->in = BUF_INIT(REPLY_HEAD_BYTES + 2 * REPLY_READ_BYTES);
	s->is_head = str_is(str_of(request->method), "HEAD");
	s->is_chunked = request->streams_body && request->length < 0;
	s->all_sent = !request->streams_body;
	s->moved_ms = now;
	s->stall_ms = request->stall_timeout_ms;
	s->head_at_ms = request->head_timeout_ms > 0 ? now + request->head_timeout_ms : 0;
	s->end_at_ms = request->timeout_ms > 0 ? now + request->timeout_ms : 0;
	loop_timer_init(&s->timer, loop, on_timer, s);
	if (compose(&s->out.buf, request) < 0) {
		finish(s, -ENOBUFS, "the request");
		return s;
	}
	(void)fd_set_nonblock(fd, true);
	watch(s);
	if (s->is_over)
		return s;
	arm(s);
	transmit(s);
	return s;
}
