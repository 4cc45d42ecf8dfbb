/* One request of our own over a connected descriptor, its reply collected. */
#include "http/http-internal.h"

enum {
	REPLY_HEAD_BYTES = 32 * 1024,
	REPLY_MAX_FIELDS = 128,
	REPLY_READ_BYTES = 16 * 1024,
	REQUEST_MAX_BYTES = 1 << 30,
};

struct call {
	struct loop *loop;
	struct loop_io io;
	struct loop_timer timer;
	struct loop_task task;
	int fd;
	http_response_fn fn;
	void *arg;
	struct outq out;
	struct buf in;    /* an unfinished head */
	struct buf reply; /* the payload */
	struct head_scan scan;
	struct body body;
	int status; /* 0: the head has not come yet */
	bool is_head, over;
	int result;
	struct err error;
};

static void on_done(void *arg)
{
	struct call *call = arg;
	bool ok = call->result == 0;

	call->fn(call->arg, call->result, ok ? call->status : 0,
		ok ? buf_str(&call->reply) : STR_NONE, &call->error);
	outq_done(&call->out);
	buf_done(&call->in);
	buf_done(&call->reply);
	free(call);
}

/* The callback comes at the end of the turn. */
static void finish(struct call *call, int r, const char *what)
{
	if (call->over)
		return;
	call->over = true;
	call->result = r;
	if (r < 0)
		(void)err_sys(&call->error, r, "%s", what);
	loop_timer_cancel(&call->timer);
	loop_io_remove(&call->io);
	close_fdp(&call->fd);
	call->fd = -EBADF;
	loop_defer(call->loop, &call->task, on_done, call);
}

static void on_timeout(void *arg)
{
	finish(arg, -ETIMEDOUT, "waiting for the reply");
}

static void start_reply(struct call *call, const struct head *head)
{
	call->status = head->status;
	if (call->is_head || head->status == 204 || head->status == 304)
		body_start_length(&call->body, 0);
	else if (head->chunked)
		body_start_chunked(&call->body);
	else if (head->length >= 0)
		body_start_length(&call->body, head->length);
	else
		body_start_until_close(&call->body);
}

/* Parses heads out of `in` until the final one; what is behind it stays there. */
static void take_heads(struct call *call)
{
	struct field fields[REPLY_MAX_FIELDS];
	struct head head;
	size_t end = 0;

	while (call->status == 0) {
		int r = head_find_end(buf_str(&call->in), REPLY_HEAD_BYTES, &call->scan, &end);

		if (r == 0)
			return;
		if (r < 0 || end == 2 ||
			head_parse_response(str_make(call->in.p, end), fields, REPLY_MAX_FIELDS,
				&head) != 0 ||
			head.status == 101) {
			finish(call, -EPROTO, "the reply's head");
			return;
		}
		if (head.status >= 200)
			start_reply(call, &head);
		call->scan = (struct head_scan){ 0 };
		buf_consume(&call->in, end);
	}
}

static void take_body(struct call *call, struct str bytes)
{
	while (bytes.n > 0 && !body_is_done(&call->body)) {
		struct str piece;
		ssize_t n = body_next(&call->body, bytes, &piece);

		if (n < 0) {
			finish(call, -EPROTO, "the reply's body");
			return;
		}
		if (buf_add_str(&call->reply, piece) < 0) {
			finish(call, -EMSGSIZE, "the reply is larger than expected");
			return;
		}
		bytes = str_from(bytes, (size_t)n);
	}
	if (body_is_done(&call->body))
		finish(call, 0, NULL);
}

static void take(struct call *call, struct str bytes)
{
	if (call->status != 0) {
		take_body(call, bytes);
		return;
	}
	if (buf_add_str(&call->in, bytes) < 0) {
		finish(call, -EPROTO, "the reply's head");
		return;
	}
	take_heads(call);
	if (call->status != 0 && !call->over) {
		take_body(call, buf_str(&call->in));
		buf_done(&call->in);
	}
}

static void on_end(struct call *call)
{
	if (call->status != 0 && call->body.state == BODY_UNTIL_CLOSE)
		finish(call, 0, NULL);
	else
		finish(call, -ECONNRESET, "the reply broke off");
}

static void receive(struct call *call)
{
	char bytes[REPLY_READ_BYTES];
	ssize_t n = recv(call->fd, bytes, sizeof bytes, MSG_DONTWAIT);

	if (n > 0)
		take(call, str_make(bytes, (size_t)n));
	else if (n == 0)
		on_end(call);
	else if (errno != EAGAIN && errno != EINTR)
		finish(call, -errno, "reading the reply");
}

/* A server may reply and close before it has read everything: that reply still counts. */
static void transmit(struct call *call)
{
	int r = outq_send(&call->out, call->fd, NULL, 0);

	if (r == -EPIPE || r == -ECONNRESET) {
		outq_done(&call->out);
		r = 1;
	}
	if (r < 0)
		finish(call, r, "sending the request");
	else
		loop_io_set(&call->io, r == 1 ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

static void on_io(void *arg, uint32_t events)
{
	struct call *call = arg;

	if (events & EPOLLOUT)
		transmit(call);
	if (!call->over && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		receive(call);
}

static int compose(struct buf *out, const struct http_request *request)
{
	(void)buf_printf(out, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n",
		request->method, request->target, request->host ? request->host : "localhost");
	if (request->headers)
		(void)buf_adds(out, request->headers);
	if (request->body.n > 0 || !str_is(str_of(request->method), "GET"))
		(void)buf_printf(out, "Content-Length: %zu\r\n", request->body.n);
	(void)buf_add(out, "\r\n", 2);
	(void)buf_add_str(out, request->body);
	return out->failed ? -ENOBUFS : 0;
}

void http_request(struct loop *loop, int fd, const struct http_request *request,
	http_response_fn fn, void *arg)
{
	struct call *call = XNEW(struct call);
	int r;

	call->loop = loop;
	call->fd = fd;
	call->fn = fn;
	call->arg = arg;
	call->out.buf = BUF_INIT(REQUEST_MAX_BYTES);
	call->in = BUF_INIT(REPLY_HEAD_BYTES + REPLY_READ_BYTES);
	call->reply = BUF_INIT(request->max_bytes);
	call->is_head = str_is(str_of(request->method), "HEAD");
	loop_timer_init(&call->timer, loop, on_timeout, call);
	if (compose(&call->out.buf, request) < 0) {
		finish(call, -ENOBUFS, "the request");
		return;
	}
	(void)fd_set_nonblock(fd, true);
	r = loop_io_add(loop, &call->io, fd, EPOLLIN, on_io, call, NULL);
	if (r < 0) {
		finish(call, r, "watching the connection");
		return;
	}
	if (request->timeout_ms > 0)
		loop_timer_set(&call->timer, loop_now_ms(loop) + request->timeout_ms);
	transmit(call);
}
