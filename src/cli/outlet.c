#include "cli/outlet.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum {
	QUEUE_MAX = 16 << 20, /* far above what comes between "full" and the sender's pause */
	SAFE_WRITE = 4096,    /* PIPE_BUF: what a pipe that polls writable takes without blocking */
};

/* A pipe or terminal can be opened again by its /proc name, and the new description is ours alone.
 */
static int open_own(int fd)
{
	char path[32];

	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	return fd < 0 ? -EBADF : fd;
}

void outlet_init(struct outlet *o, struct loop *loop, int fd, loop_fn drained, void *arg)
{
	struct stat st = { 0 };

	*o = (struct outlet){ .loop = loop,
		.fd = fd,
		.own_fd = -EBADF,
		.drained = drained,
		.arg = arg,
		.queue = BUF_INIT(QUEUE_MAX) };
	if (fstat(fd, &st) < 0)
		o->error = -errno;
	o->is_socket = S_ISSOCK(st.st_mode);
	o->is_immediate = !S_ISFIFO(st.st_mode) && !o->is_socket && !isatty(fd);
	if (!o->is_immediate && !o->is_socket)
		o->own_fd = open_own(fd);
}

void outlet_done(struct outlet *o)
{
	loop_io_remove(&o->io);
	close_fdp(&o->own_fd);
	o->own_fd = -EBADF;
	buf_done(&o->queue);
}

bool outlet_is_full(const struct outlet *o)
{
	return o->queue.n > 0 && o->error == 0;
}

static bool is_writable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };

	return poll(&p, 1, 0) == 1;
}

/* Bytes written, 0: not now, -errno. */
static ssize_t write_some(struct outlet *o, struct str bytes)
{
	ssize_t n;

	if (o->own_fd >= 0)
		n = write(o->own_fd, bytes.p, bytes.n);
	else if (o->is_socket)
		n = send(o->fd, bytes.p, bytes.n, MSG_DONTWAIT | MSG_NOSIGNAL);
	else if (o->is_immediate)
		n = write(o->fd, bytes.p, bytes.n);
	else if (is_writable(o->fd))
		n = write(o->fd, bytes.p, MIN(bytes.n, SAFE_WRITE));
	else
		return 0;
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	return n;
}

static size_t write_most(struct outlet *o, struct str bytes)
{
	size_t done = 0;

	while (done < bytes.n && o->error == 0) {
		ssize_t n = write_some(o, str_from(bytes, done));

		if (n == 0 && !o->is_immediate)
			break;
		if (n < 0)
			o->error = (int)n;
		else
			done += (size_t)n;
	}
	return done;
}

static void on_writable(void *arg, uint32_t events)
{
	struct outlet *o = arg;

	(void)events;
	buf_consume(&o->queue, write_most(o, buf_str(&o->queue)));
	if (outlet_is_full(o))
		return;
	loop_io_remove(&o->io);
	o->drained(o->arg);
}

int outlet_write(struct outlet *o, struct str bytes)
{
	if (o->error == 0 && o->queue.n == 0)
		bytes = str_from(bytes, write_most(o, bytes));
	if (o->error < 0 || bytes.n == 0)
		return o->error;
	if (buf_add_str(&o->queue, bytes) < 0)
		o->error = -ENOBUFS;
	else if (!o->io.loop)
		o->error = loop_io_add(o->loop, &o->io, o->own_fd >= 0 ? o->own_fd : o->fd,
			EPOLLOUT, on_writable, o, NULL);
	return o->error;
}
