/* Listening sockets. */
#include "loop/loop.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum {
	ACCEPT_TURN = 64,       /* connections taken before others have their turn */
	ACCEPT_PAUSE_MS = 100,  /* when descriptors have run out: they come back as others leave */
	KEEPALIVE_SECONDS = 60, /* finds clients that vanished from the network */
	UNSENT_BYTES = 128 << 10,
};

static void on_pause_over(void *arg)
{
	struct loop_listener *l = arg;

	loop_io_set(&l->io, EPOLLIN);
}

/* The connection stays in the backlog, so epoll would report it again at once and for ever. */
static void pause_accepting(struct loop_listener *l)
{
	loop_io_set(&l->io, 0);
	loop_timer_set(&l->pause, loop_now_ms(l->io.loop) + ACCEPT_PAUSE_MS);
}

/* False when there is nothing more to accept now. */
static bool accept_one(struct loop_listener *l)
{
	struct sockaddr_storage peer = { 0 };
	socklen_t size = sizeof peer;
	int fd = accept4(l->fd, (struct sockaddr *)&peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd >= 0) {
		l->fn(l->arg, fd, &peer);
		return l->fd >= 0;
	}
	if (errno == EMFILE && l->make_room && l->make_room(l->arg))
		return true;
	if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
		pause_accepting(l);
		return false;
	}
	return errno == ECONNABORTED || errno == EINTR || errno == EPROTO;
}

static void on_accept(void *arg, uint32_t events)
{
	(void)events;
	for (int i = 0; i < ACCEPT_TURN; i++)
		if (!accept_one(arg))
			return;
}

/* Accepted sockets inherit these from the listening one, which saves a call for each. What waits
 * behind the client's window waits where it is counted, not in the kernel, which would take
 * megabytes of it for a client that reads nothing. */
static void set_inherited_options(int fd)
{
	int on = 1, seconds = KEEPALIVE_SECONDS, unsent = UNSENT_BYTES;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
}

int loop_listener_take(struct loop *loop, struct loop_listener *l, int fd, loop_accept_fn fn,
	void *arg, struct err *e)
{
	int r;

	*l = (struct loop_listener){ .fd = fd, .fn = fn, .arg = arg };
	loop_timer_init(&l->pause, loop, on_pause_over, l);
	set_inherited_options(fd);
	r = fd_set_nonblock(fd, true);
	if (r < 0)
		r = err_sys(e, r, "make the listening socket non-blocking");
	else
		r = loop_io_add(loop, &l->io, fd, EPOLLIN, on_accept, l, e);
	if (r < 0)
		loop_listener_close(l);
	return r;
}

void loop_listener_close(struct loop_listener *l)
{
	loop_timer_cancel(&l->pause);
	loop_io_remove(&l->io);
	close_fdp(&l->fd);
	l->fd = -EBADF;
}
