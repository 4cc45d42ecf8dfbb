/* Listening, limits, stopping. */
#include "http/http-internal.h"

#include <netinet/tcp.h>
#include <signal.h>
#include <time.h>

enum {
	ACCEPT_TURN = 64,       /* connections taken before others have their turn */
	ACCEPT_PAUSE_MS = 100,  /* when descriptors have run out: they come back as others leave */
	KEEPALIVE_SECONDS = 60, /* finds clients that vanished from the network */
};

static void on_accept_timer(void *arg);
static void on_stop_timer(void *arg);

static void set_defaults(struct http_limits *l)
{
	l->head_bytes = l->head_bytes ? l->head_bytes : 32768;
	l->max_headers = l->max_headers ? l->max_headers : 128;
	l->head_timeout_ms = l->head_timeout_ms ? l->head_timeout_ms : 10000;
	l->idle_timeout_ms = l->idle_timeout_ms ? l->idle_timeout_ms : 650000;
	l->stall_timeout_ms = l->stall_timeout_ms ? l->stall_timeout_ms : 60000;
	l->max_connections = l->max_connections ? l->max_connections : 16384;
	l->write_high_bytes = l->write_high_bytes ? l->write_high_bytes : 262144;
}

static void on_sigpipe(int signo)
{
	(void)signo;
}

/* sendfile and splice cannot be told MSG_NOSIGNAL. A handler that does nothing is used rather than
 * SIG_IGN, because ignoring is inherited by the programs we start and a handler is not. */
static void survive_sigpipe(void)
{
	struct sigaction act = { .sa_handler = on_sigpipe, .sa_flags = SA_RESTART }, old;

	if (sigaction(SIGPIPE, NULL, &old) == 0 && old.sa_handler == SIG_DFL)
		(void)sigaction(SIGPIPE, &act, NULL);
}

struct http_server *http_server_new(struct loop *loop, const struct http_limits *limits,
	http_handler_fn handler, void *arg)
{
	struct http_server *server = XNEW(struct http_server);

	server->loop = loop;
	if (limits)
		server->limits = *limits;
	set_defaults(&server->limits);
	server->handler = handler;
	server->arg = arg;
	list_init(&server->listeners);
	list_init(&server->idle);
	list_init(&server->busy);
	list_init(&server->relays);
	loop_timer_init(&server->accept_timer, loop, on_accept_timer, server);
	loop_timer_init(&server->stop_timer, loop, on_stop_timer, server);
	server->scratch = xcalloc(1, SCRATCH_BYTES);
	server->fields = XNEW_N(struct field, (size_t)server->limits.max_headers);
	/* A relayed head grows by what is added to it. */
	server->head = BUF_INIT(server->limits.head_bytes + SCRATCH_BYTES + 1024);
	pipe_pool_init(&server->pipes);
	survive_sigpipe();
	return server;
}

static void listener_free(struct listener *l)
{
	loop_io_remove(&l->io);
	close_fdp(&l->fd);
	list_remove(&l->node);
	free(l);
}

static void close_listeners(struct http_server *server)
{
	LIST_EACH(&server->listeners, node)
	listener_free(container_of(node, struct listener, node));
}

struct http_server *http_server_free(struct http_server *server)
{
	if (!server)
		return NULL;
	server->stopped = NULL;
	close_listeners(server);
	while (!list_empty(&server->idle))
		conn_destroy(container_of(server->idle.next, struct conn, node));
	while (!list_empty(&server->busy))
		conn_destroy(container_of(server->busy.next, struct conn, node));
	while (!list_empty(&server->relays))
		relay_free(container_of(server->relays.next, struct http_relay, node));
	loop_timer_cancel(&server->accept_timer);
	loop_timer_cancel(&server->stop_timer);
	loop_task_cancel(&server->stop_task);
	pipe_pool_done(&server->pipes);
	buf_done(&server->head);
	free(server->fields);
	free(server->scratch);
	free(server);
	return NULL;
}

size_t http_server_connections(const struct http_server *server)
{
	return server->n_conns;
}

struct str server_date(struct http_server *server)
{
	int64_t now_ms = loop_now_ms(server->loop);
	time_t wall;
	struct tm tm;

	if (server->date[0] == '\0' || now_ms - server->date_ms >= 500) {
		wall = (time_t)(time_wall_us() / 1000000);
		(void)gmtime_r(&wall, &tm);
		(void)strftime(server->date, sizeof server->date,
			"Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &tm);
		server->date_ms = now_ms;
	}
	return str_of(server->date);
}

/* ---- accepting ---- */

static bool make_room(struct http_server *server)
{
	struct conn *oldest;

	if (server->n_conns < server->limits.max_connections)
		return true;
	if (list_empty(&server->idle))
		return false;
	oldest = container_of(server->idle.next, struct conn, node);
	if (!conn_is_idle(oldest))
		return false;
	conn_close(oldest);
	list_remove(&oldest->node);
	list_append(&server->busy, &oldest->node);
	return true;
}

static void turn_away(int fd)
{
	static const char text[] = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n"
				   "Connection: close\r\nRetry-After: 1\r\n\r\n";

	(void)send(fd, text, sizeof text - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	(void)close(fd);
}

static void pause_accepting(struct http_server *server)
{
	LIST_EACH(&server->listeners, node)
	loop_io_set(&container_of(node, struct listener, node)->io, 0);
	loop_timer_set(&server->accept_timer, loop_now_ms(server->loop) + ACCEPT_PAUSE_MS);
}

static void on_accept_timer(void *arg)
{
	struct http_server *server = arg;

	LIST_EACH(&server->listeners, node)
	loop_io_set(&container_of(node, struct listener, node)->io, EPOLLIN);
}

/* False when there is nothing more to accept now. */
static bool accept_one(struct listener *l)
{
	struct http_server *server = l->server;
	struct sockaddr_storage address = { 0 };
	socklen_t size = sizeof address;
	struct conn *conn;
	int fd;

	fd = accept4(l->fd, (struct sockaddr *)&address, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
			pause_accepting(server);
		return errno == ECONNABORTED || errno == EINTR || errno == EPROTO;
	}
	if (!make_room(server)) {
		turn_away(fd);
		return true;
	}
	conn = conn_new(server, fd, &address, NULL); /* owns the descriptor, also when it fails */
	if (conn)
		conn_start(conn);
	return true;
}

struct http_carriage *http_carriage_unref(struct http_carriage *carriage)
{
	if (carriage && --carriage->n_refs == 0)
		free(carriage);
	return NULL;
}

void http_server_take_connection(struct http_server *server, int fd, struct http_carriage *carriage)
{
	struct conn *conn;

	if (server->stopping || !make_room(server)) {
		turn_away(fd);
		return;
	}
	(void)fd_set_nonblock(fd, true);
	conn = conn_new(server, fd, &carriage->peer, NULL);
	if (!conn)
		return;
	conn->carriage = carriage;
	carriage->n_refs++;
	conn_start(conn);
}

static void on_accept(void *arg, uint32_t events)
{
	struct listener *l = arg;

	(void)events;
	for (int i = 0; i < ACCEPT_TURN; i++)
		if (!accept_one(l))
			return;
}

/* Accepted sockets inherit these from the listening one, which saves a call for each. */
static void set_inherited_options(int fd)
{
	int on = 1, seconds = KEEPALIVE_SECONDS;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
}

int http_server_take_listener(struct http_server *server, int fd, struct err *e)
{
	struct listener *l = XNEW(struct listener);
	int r;

	l->server = server;
	l->fd = fd;
	list_append(&server->listeners, &l->node);
	set_inherited_options(fd);
	r = fd_set_nonblock(fd, true);
	if (r < 0)
		r = err_sys(e, r, "make the listening socket non-blocking");
	else
		r = loop_io_add(server->loop, &l->io, fd, EPOLLIN, on_accept, l, e);
	if (r < 0)
		listener_free(l);
	return r;
}

/* ---- stopping ---- */

static void on_stopped(void *arg)
{
	struct http_server *server = arg;
	struct err e = { 0 };
	done_fn done = TAKE(server->stopped);

	if (!done)
		return;
	if (server->stop_result < 0)
		(void)err_set(&e, server->stop_result, "the deadline passed, the rest was cut");
	done(server->stopped_arg, server->stop_result, &e);
}

void server_conn_gone(struct http_server *server)
{
	if (!server->stopping || server->n_conns > 0 || !server->stopped)
		return;
	loop_timer_cancel(&server->stop_timer);
	loop_defer(server->loop, &server->stop_task, on_stopped, server);
}

static void on_stop_timer(void *arg)
{
	struct http_server *server = arg;

	server->stop_result = -ETIMEDOUT;
	LIST_EACH(&server->relays, node)
	http_relay_cut(container_of(node, struct http_relay, node));
	LIST_EACH(&server->idle, node)
	conn_close(container_of(node, struct conn, node));
	LIST_EACH(&server->busy, node)
	conn_lose(container_of(node, struct conn, node));
	loop_defer(server->loop, &server->stop_task, on_stopped, server);
}

void http_server_stop(struct http_server *server, int64_t deadline_ms, done_fn done, void *arg)
{
	assert(!server->stopping);
	server->stopping = true;
	server->stopped = done;
	server->stopped_arg = arg;
	loop_timer_cancel(&server->accept_timer);
	close_listeners(server);
	LIST_EACH(&server->idle, node)
	{
		struct conn *conn = container_of(node, struct conn, node);

		if (conn_is_idle(conn))
			conn_close(conn);
	}
	loop_timer_set(&server->stop_timer, deadline_ms);
	server_conn_gone(server);
}
