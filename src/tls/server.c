/* Accepting, limits, stopping. */
#include "tls/tls-internal.h"

#include <arpa/inet.h>

static void on_drain_timer(void *arg);

static void set_defaults(struct tls_limits *l)
{
	l->handshake_timeout_ms = l->handshake_timeout_ms ? l->handshake_timeout_ms : 10000;
	l->stall_timeout_ms = l->stall_timeout_ms ? l->stall_timeout_ms : 60000;
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
	for (size_t i = 0; i < TLS_LISTENERS; i++)
		server->listeners[i].fd = -EBADF;
	list_init(&server->waiting);
	list_init(&server->carried);
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
	SSL_CTX_free(server->peers.context);
	free(server->scratch);
	free(server);
	return NULL;
}

size_t tls_server_connections(const struct tls_server *server)
{
	return server->n_waiting + server->n_carried;
}

size_t tls_server_handshakes(const struct tls_server *server)
{
	return server->n_waiting;
}

/* ---- accepting ---- */

static void on_accepted(void *arg, int fd, const struct sockaddr_storage *peer)
{
	stream_start(arg, fd, peer);
}

static bool on_full(void *arg)
{
	return http_server_make_room(((struct tls_server *)arg)->http);
}

int tls_server_take_listener(struct tls_server *server, int fd, struct err *e)
{
	struct loop_listener *l = server->listeners;
	int r;

	while (l->fd >= 0)
		l++;
	assert(l < server->listeners + TLS_LISTENERS);
	r = loop_listener_take(server->loop, l, fd, on_accepted, server, e);
	if (r >= 0)
		l->make_room = on_full;
	return r;
}

void tls_server_take_connection(struct tls_server *server, int fd, struct http_carriage *carriage,
	struct tls_authority *authority, const char *name)
{
	SSL_CTX *context = authority_context(authority, name);

	if (context)
		stream_start_as(server, fd, carriage, context);
	else
		(void)close(fd);
}

static SSL *peer_ssl(struct tls_server *server, int fd, const char *name)
{
	SSL_CTX *context = peers_context(&server->peers);

	return context ? peers_connection(context, fd, name) : NULL;
}

struct stream *tls_server_connect(struct tls_server *server, int fd, const char *name,
	tls_connected_fn fn, void *arg)
{
	return stream_connect(server, fd, peer_ssl(server, fd, name), name, fn, arg);
}

struct stream *tls_server_connect_unchecked(struct tls_server *server, int fd, tls_connected_fn fn,
	void *arg)
{
	return stream_connect(server, fd, peer_ssl(server, fd, NULL), "the service", fn, arg);
}

bool peer_is_local(const struct sockaddr_storage *peer)
{
	const struct sockaddr_in6 *in6 = (const void *)peer;
	const struct sockaddr_in *in4 = (const void *)peer;

	if (peer->ss_family == AF_INET)
		return ntohl(in4->sin_addr.s_addr) >> 24 == 127;
	if (peer->ss_family != AF_INET6)
		return peer->ss_family == AF_UNIX;
	return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr) ||
	       (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr) && in6->sin6_addr.s6_addr[12] == 127);
}

/* ---- stopping ---- */

void tls_server_accept_no_more(struct tls_server *server)
{
	for (size_t i = 0; i < TLS_LISTENERS; i++)
		loop_listener_close(&server->listeners[i]);
}

void tls_server_close(struct tls_server *server)
{
	tls_server_accept_no_more(server);
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
