/* Listening, limits, stopping. */
#include "http/http-internal.h"

#include <signal.h>
#include <time.h>

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
	l->max_queued_bytes = l->max_queued_bytes ? l->max_queued_bytes : 256 << 20;
	if (l->stranger_body_bytes > 0)
		l->min_body_bytes = l->min_body_bytes ? l->min_body_bytes : 4096;
	else
		l->min_body_bytes = 0;
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
	admission_init(&server->admission, &server->limits);
	server->handler = handler;
	server->arg = arg;
	list_init(&server->listeners);
	list_init(&server->idle);
	list_init(&server->busy);
	list_init(&server->relays);
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
	loop_listener_close(&l->socket);
	list_remove(&l->node);
	free(l);
}

/* They are not freed: it may be in a request of a connection that one has just accepted. */
static void close_listeners(struct http_server *server)
{
	LIST_EACH(&server->listeners, node)
	loop_listener_close(&container_of(node, struct listener, node)->socket);
}

static void free_listeners(struct http_server *server)
{
	LIST_EACH(&server->listeners, node)
	listener_free(container_of(node, struct listener, node));
}

struct http_server *http_server_free(struct http_server *server)
{
	if (!server)
		return NULL;
	server->stopped = NULL;
	free_listeners(server);
	while (!list_empty(&server->idle))
		conn_destroy(container_of(server->idle.next, struct conn, node));
	while (!list_empty(&server->busy))
		conn_destroy(container_of(server->busy.next, struct conn, node));
	while (!list_empty(&server->relays))
		relay_free(container_of(server->relays.next, struct http_relay, node));
	loop_timer_cancel(&server->stop_timer);
	loop_task_cancel(&server->stop_task);
	pipe_pool_done(&server->pipes);
	admission_done(&server->admission);
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

void http_server_admission(const struct http_server *server, struct http_admission *ret)
{
	admission_look(&server->admission, ret);
}

void http_server_each_holder(const struct http_server *server, http_holder_fn fn, void *arg)
{
	admission_each(&server->admission, fn, arg);
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

bool http_server_make_room(struct http_server *server)
{
	return admission_make_room(&server->admission);
}

static bool on_full(void *arg)
{
	return http_server_make_room(((struct listener *)arg)->server);
}

static void on_accepted(void *arg, int fd, const struct sockaddr_storage *peer)
{
	struct listener *l = arg;
	struct conn *conn;

	conn = conn_new(l->server, fd, peer, NULL);
	if (conn)
		conn_start(conn);
}

/* The slot of a connection that speaks no HTTP yet. */
struct waiting {
	struct slot slot;
	struct http_carriage *carriage;
	loop_fn evicted;
	void *arg;
};

static void evict_waiting(struct slot *slot)
{
	struct waiting *waiting = container_of(slot, struct waiting, slot);
	loop_fn evicted = waiting->evicted;
	void *arg = waiting->arg;

	http_carriage_leave(waiting->carriage);
	evicted(arg);
}

int http_carriage_enter(struct http_server *server, struct http_carriage *carriage, loop_fn evicted,
	void *arg)
{
	struct waiting *waiting = XNEW(struct waiting);
	int r;

	waiting->slot.evict = evict_waiting;
	waiting->carriage = carriage;
	waiting->evicted = evicted;
	waiting->arg = arg;
	r = admission_enter(&server->admission, &waiting->slot, &carriage->peer);
	if (r < 0)
		free(waiting);
	else
		carriage->waiting = waiting;
	return r;
}

void http_carriage_leave(struct http_carriage *carriage)
{
	if (!carriage->waiting)
		return;
	admission_leave(&carriage->waiting->slot);
	free(TAKE(carriage->waiting));
}

void http_carriage_note(struct http_carriage *carriage, size_t bytes)
{
	if (carriage->waiting)
		admission_note(&carriage->waiting->slot, bytes, 0);
}

struct http_carriage *http_carriage_unref(struct http_carriage *carriage)
{
	if (!carriage || --carriage->n_refs > 0)
		return NULL;
	http_carriage_leave(carriage);
	if (carriage->gone)
		carriage->gone(carriage);
	else
		free(carriage);
	return NULL;
}

void http_carriage_cut(struct http_carriage *carriage)
{
	struct conn *conn = carriage->conn;

	if (!conn || conn->fd < 0)
		return;
	if (conn->x && conn->x->relay)
		http_relay_cut(conn->x->relay);
	else
		conn_lose(conn);
}

struct http_carriage *http_carriage(const struct http_exchange *x)
{
	return x->conn->carriage;
}

void http_server_take_connection(struct http_server *server, int fd, struct http_carriage *carriage)
{
	struct conn *conn;

	http_carriage_leave(carriage);
	if (server->stopping) {
		(void)close(fd);
		return;
	}
	(void)fd_set_nonblock(fd, true);
	conn = conn_new(server, fd, &carriage->peer, NULL);
	if (!conn)
		return;
	conn->carriage = carriage;
	carriage->conn = conn;
	carriage->n_refs++;
	conn_start(conn);
}

int http_server_take_listener(struct http_server *server, int fd, struct err *e)
{
	struct listener *l = XNEW(struct listener);
	int r;

	l->server = server;
	list_append(&server->listeners, &l->node);
	r = loop_listener_take(server->loop, &l->socket, fd, on_accepted, l, e);
	if (r < 0)
		listener_free(l);
	else
		l->socket.make_room = on_full;
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

void http_server_close(struct http_server *server)
{
	server->closing = true;
	close_listeners(server);
}

size_t http_server_newcomers(struct http_server *server)
{
	size_t n = 0;

	LIST_EACH(&server->idle, node)
	n += !container_of(node, struct conn, node)->asked;
	return n;
}

void http_server_stop(struct http_server *server, int64_t deadline_ms, done_fn done, void *arg)
{
	assert(!server->stopping);
	http_server_close(server);
	server->stopping = true;
	server->stopped = done;
	server->stopped_arg = arg;
	LIST_EACH(&server->idle, node)
	{
		struct conn *conn = container_of(node, struct conn, node);

		if (conn_is_idle(conn))
			conn_close(conn);
	}
	loop_timer_set(&server->stop_timer, deadline_ms);
	server_conn_gone(server);
}
