/* Accepting, limits, stopping. */
#include "tls/tls-internal.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

enum {
	ACCEPT_TURN = 64,       /* connections taken before others have their turn */
	ACCEPT_PAUSE_MS = 100,  /* when descriptors have run out: they come back as others leave */
	KEEPALIVE_SECONDS = 60, /* finds clients that vanished from the network */
};

static void on_accept_timer(void *arg);
static void on_drain_timer(void *arg);

static void set_defaults(struct tls_limits *l)
{
	l->handshake_timeout_ms = l->handshake_timeout_ms ? l->handshake_timeout_ms : 10000;
	l->stall_timeout_ms = l->stall_timeout_ms ? l->stall_timeout_ms : 60000;
	l->max_handshakes = l->max_handshakes ? l->max_handshakes : 1024;
}

/* OpenSSL writes without MSG_NOSIGNAL: the HTTP server has seen to SIGPIPE. */
struct tls_server *tls_server_new(struct loop *loop, struct http_server *http,
	struct tls_identity *identity, const struct tls_limits *limits)
{
	struct tls_server *server = XNEW(struct tls_server);

	server->loop = loop;
	server->http = http;
	server->identity = identity;
	if (limits)
		server->limits = *limits;
	set_defaults(&server->limits);
	server->fd = -EBADF;
	list_init(&server->waiting);
	list_init(&server->carried);
	loop_timer_init(&server->accept_timer, loop, on_accept_timer, server);
	loop_timer_init(&server->drain_timer, loop, on_drain_timer, server);
	server->scratch = xcalloc(1, RECORD_BYTES);
	return server;
}

struct tls_server *tls_server_free(struct tls_server *server)
{
	if (!server)
		return NULL;
	server->drained = NULL;
	tls_server_close(server);
	while (!list_empty(&server->carried))
		stream_destroy(server->carried.next);
	loop_timer_cancel(&server->drain_timer);
	loop_task_cancel(&server->drain_task);
	free(server->scratch);
	free(server);
	return NULL;
}

size_t tls_server_connections(const struct tls_server *server)
{
	return server->n_waiting + server->n_carried;
}

/* ---- accepting ---- */

static void on_accept_timer(void *arg)
{
	struct tls_server *server = arg;

	loop_io_set(&server->io, EPOLLIN);
}

/* False when there is nothing more to accept now. */
static bool accept_one(struct tls_server *server)
{
	struct sockaddr_storage peer = { 0 };
	socklen_t size = sizeof peer;
	int fd;

	fd = accept4(server->fd, (struct sockaddr *)&peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd >= 0) {
		if (server->n_waiting >= server->limits.max_handshakes)
			stream_destroy(server->waiting.next);
		stream_start(server, fd, &peer);
		return true;
	}
	if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
		loop_io_set(&server->io, 0);
		loop_timer_set(&server->accept_timer, loop_now_ms(server->loop) + ACCEPT_PAUSE_MS);
		return false;
	}
	return errno == ECONNABORTED || errno == EINTR || errno == EPROTO;
}

static void on_accept(void *arg, uint32_t events)
{
	struct tls_server *server = arg;

	(void)events;
	for (int i = 0; i < ACCEPT_TURN; i++)
		if (!accept_one(server))
			return;
}

/* Accepted sockets inherit these from the listening one. */
static void set_inherited_options(int fd)
{
	int on = 1, seconds = KEEPALIVE_SECONDS;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
}

int tls_server_take_listener(struct tls_server *server, int fd, struct err *e)
{
	int r;

	assert(server->fd < 0);
	server->fd = fd;
	set_inherited_options(fd);
	r = fd_set_nonblock(fd, true);
	if (r < 0)
		r = err_sys(e, r, "make the listening socket non-blocking");
	else
		r = loop_io_add(server->loop, &server->io, fd, EPOLLIN, on_accept, server, e);
	if (r < 0)
		tls_server_close(server);
	return r;
}

/* ---- stopping ---- */

void tls_server_close(struct tls_server *server)
{
	loop_timer_cancel(&server->accept_timer);
	loop_io_remove(&server->io);
	close_fdp(&server->fd);
	server->fd = -EBADF;
	while (!list_empty(&server->waiting))
		stream_destroy(server->waiting.next);
}

static void on_drained(void *arg)
{
	struct tls_server *server = arg;
	struct err e = { 0 };
	done_fn done = TAKE(server->drained);

	if (!done)
		return;
	if (server->drain_result < 0)
		(void)err_set(&e, server->drain_result, "the deadline passed, the rest was cut");
	done(server->drained_arg, server->drain_result, &e);
}

void server_stream_gone(struct tls_server *server)
{
	if (!server->drained || tls_server_connections(server) > 0)
		return;
	loop_timer_cancel(&server->drain_timer);
	loop_defer(server->loop, &server->drain_task, on_drained, server);
}

static void on_drain_timer(void *arg)
{
	struct tls_server *server = arg;

	server->drain_result = -ETIMEDOUT;
	while (!list_empty(&server->carried))
		stream_destroy(server->carried.next);
	while (!list_empty(&server->waiting))
		stream_destroy(server->waiting.next);
	server_stream_gone(server);
}

void tls_server_drain(struct tls_server *server, int64_t deadline_ms, done_fn done, void *arg)
{
	assert(!server->drained);
	server->drained = done;
	server->drained_arg = arg;
	loop_timer_set(&server->drain_timer, deadline_ms);
	server_stream_gone(server);
}
