/* Property: what a reply says, its body and how it ends do not depend on how its bytes came, nor on
 * a reader that pauses. */
#include "http/http-internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	MAX_INPUT = 16 << 10
};

struct play {
	struct loop *loop;
	struct http_stream *stream;
	struct loop_task next, later;
	int fd; /* the server's end */
	struct str rest;
	size_t step;
	bool pauses;
	int status, r;
	struct buf body;
};

static void resume(void *arg)
{
	struct play *p = arg;

	if (p->stream)
		http_stream_resume(p->stream);
}

static void on_head(void *arg, int status)
{
	struct play *p = arg;

	p->status = status;
}

static void on_body(void *arg, struct str bytes)
{
	struct play *p = arg;

	(void)buf_add_str(&p->body, bytes);
	if (!p->pauses)
		return;
	http_stream_pause(p->stream);
	loop_defer(p->loop, &p->later, resume, p);
}

static void on_end(void *arg, int r, const struct err *e)
{
	struct play *p = arg;

	(void)e;
	p->r = r;
	p->stream = NULL;
	loop_stop(p->loop);
}

static const struct http_stream_ops ops = { .head = on_head, .body = on_body, .end = on_end };

static void send_next(void *arg)
{
	struct play *p = arg;
	size_t n = MIN(p->rest.n, p->step);

	if (p->fd < 0)
		return;
	if (n == 0 || send(p->fd, p->rest.p, n, MSG_NOSIGNAL) < 0) {
		(void)close(p->fd);
		p->fd = -EBADF;
		return;
	}
	p->rest = str_from(p->rest, n);
	loop_defer(p->loop, &p->next, send_next, p);
}

static void run(struct loop *loop, struct str in, size_t step, bool pauses, struct play *p)
{
	struct http_stream_request request = { .method = "GET", .target = "/" };
	int fds[2];

	assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	*p = (struct play){ .loop = loop,
		.fd = fds[1],
		.rest = in,
		.step = step,
		.pauses = pauses,
		.body = BUF_INIT(1 << 20) };
	p->stream = http_stream_open(loop, fds[0], &request, &ops, p);
	loop_defer(loop, &p->next, send_next, p);
	assert(loop_run(loop, NULL) >= 0);
	loop_task_cancel(&p->next);
	loop_task_cancel(&p->later);
	close_fdp(&p->fd);
}

static void same(const struct play *a, const struct play *b)
{
	assert(a->status == b->status);
	assert((a->r < 0) == (b->r < 0));
	assert(str_eq(buf_str(&a->body), buf_str(&b->body)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(loop_freep) struct loop *loop = NULL;
	struct str in = str_make(data, MIN(size, (size_t)MAX_INPUT));
	struct play whole, parts, paused;

	assert(loop_new(&loop, NULL) == 0);
	run(loop, in, MAX_INPUT + 1, false, &whole);
	run(loop, in, size % 13 + 1, false, &parts);
	run(loop, in, size % 13 + 1, true, &paused);
	same(&whole, &parts);
	same(&whole, &paused);
	buf_done(&whole.body);
	buf_done(&parts.body);
	buf_done(&paused.body);
	return 0;
}
