#include "guest/input.h"

enum {
	INPUT_MAX_QUEUED = 64 << 20, /* of one process */
};

struct item {
	struct list node;
	struct loop_task task; /* calls done, once finished */
	struct buf bytes;
	size_t at;
	int r;
	done_fn done;
	void *arg;
};

static void item_done(void *arg)
{
	struct item *item = arg;
	struct err e = { .code = item->r };

	if (item->r < 0)
		err_sys(&e, item->r, "write");
	item->done(item->arg, item->r, &e);
	buf_done(&item->bytes);
	free(item);
}

static void item_finish(struct input *in, struct item *item, int r)
{
	list_remove(&item->node);
	in->queued_bytes -= item->bytes.n;
	item->r = r;
	loop_defer(in->loop, &item->task, item_done, item);
}

void input_init(struct input *in, struct loop *loop, int take_fd)
{
	*in = (struct input){ .loop = loop, .fd = take_fd };
	list_init(&in->queue);
}

static void shut(struct input *in, int r)
{
	loop_io_remove(&in->io);
	LIST_EACH(&in->queue, node)
	item_finish(in, container_of(node, struct item, node), r);
	if (in->fd >= 0)
		(void)close(in->fd);
	in->fd = -EBADF;
}

void input_done(struct input *in)
{
	if (in->loop)
		shut(in, -EPIPE);
}

bool input_is_open(const struct input *in)
{
	return in->fd >= 0 && !in->closing;
}

/* As much as goes in now: the number of bytes, or -errno. */
static ssize_t push(int fd, struct str bytes)
{
	size_t at = 0;

	while (at < bytes.n) {
		ssize_t n = write(fd, bytes.p + at, bytes.n - at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0)
			return -errno;
		at += (size_t)n;
	}
	return (ssize_t)at;
}

static void on_ready(void *arg, uint32_t events)
{
	struct input *in = arg;

	(void)events;
	while (!list_empty(&in->queue)) {
		struct item *item = container_of(in->queue.next, struct item, node);
		ssize_t n = push(in->fd, str_from(buf_str(&item->bytes), item->at));

		if (n < 0) {
			shut(in, (int)n);
			return;
		}
		item->at += (size_t)n;
		if (item->at < item->bytes.n)
			return;
		item_finish(in, item, 0);
	}
	loop_io_remove(&in->io);
	if (in->closing)
		shut(in, -EPIPE);
}

static int enqueue(struct input *in, struct str bytes, done_fn done, void *arg)
{
	struct item *item;
	int r;

	if (bytes.n > INPUT_MAX_QUEUED - in->queued_bytes)
		return -ENOBUFS;
	item = XNEW(struct item);
	item->bytes = BUF_INIT(INPUT_MAX_QUEUED);
	item->done = done;
	item->arg = arg;
	r = buf_add_str(&item->bytes, bytes);
	if (r == 0 && list_empty(&in->queue))
		r = loop_io_add(in->loop, &in->io, in->fd, EPOLLOUT, on_ready, in, NULL);
	if (r < 0) {
		buf_done(&item->bytes);
		free(item);
		return r;
	}
	in->queued_bytes += bytes.n;
	list_append(&in->queue, &item->node);
	return 0;
}

int input_write(struct input *in, struct str bytes, done_fn done, void *arg)
{
	ssize_t n = 0;

	if (!input_is_open(in))
		return -EBADF;
	if (list_empty(&in->queue))
		n = push(in->fd, bytes);
	if (n < 0)
		return (int)n;
	if ((size_t)n == bytes.n)
		return 1;
	return enqueue(in, str_from(bytes, (size_t)n), done, arg);
}

void input_close(struct input *in)
{
	if (in->fd < 0)
		return;
	in->closing = true;
	if (list_empty(&in->queue))
		shut(in, -EPIPE);
}
