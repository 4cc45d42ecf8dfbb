/* One request of our own over a connected descriptor, its reply collected. */
#include "http/http-internal.h"

struct http_call {
	struct http_stream *stream;
	struct loop *loop;
	struct loop_task task;
	http_response_fn fn;
	void *arg;
	struct buf reply;
	int status;
};

static void call_end(struct http_call *call, int r, const struct err *e)
{
	call->fn(call->arg, r, r < 0 ? 0 : call->status, r < 0 ? STR_NONE : buf_str(&call->reply),
		e);
	buf_done(&call->reply);
	free(call);
}

static void on_head(void *arg, int status)
{
	struct http_call *call = arg;

	call->status = status;
}

static void tell_too_large(void *arg)
{
	struct err e = { 0 };

	(void)err_sys(&e, -EMSGSIZE, "the reply is larger than expected");
	call_end(arg, -EMSGSIZE, &e);
}

static void on_body(void *arg, struct str bytes)
{
	struct http_call *call = arg;

	if (buf_add_str(&call->reply, bytes) == 0)
		return;
	http_stream_cancel(call->stream);
	loop_defer(call->loop, &call->task, tell_too_large, call);
}

static void on_end(void *arg, int r, const struct err *e)
{
	call_end(arg, r, e);
}

static const struct http_stream_ops ops = {
	.head = on_head,
	.body = on_body,
	.end = on_end,
};

struct http_call *http_request(struct loop *loop, int fd, const struct http_request *request,
	http_response_fn fn, void *arg)
{
	struct http_call *call = XNEW(struct http_call);
	struct http_stream_request streamed = { .method = request->method,
		.target = request->target,
		.host = request->host,
		.headers = request->headers,
		.body = request->body,
		.timeout_ms = request->timeout_ms };

	call->loop = loop;
	call->fn = fn;
	call->arg = arg;
	call->reply = BUF_INIT(request->max_bytes);
	/* Nothing is called back before this returns. */
	call->stream = http_stream_open(loop, fd, &streamed, &ops, call);
	return call;
}

void http_request_cancel(struct http_call *call)
{
	if (call->task.loop) /* its stream is cancelled already */
		loop_task_cancel(&call->task);
	else
		http_stream_cancel(call->stream);
	buf_done(&call->reply);
	free(call);
}
