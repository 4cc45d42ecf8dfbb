/* One connection. It begins by looking at its first byte, shakes hands, and is then carried:
 * records of the client become bytes in a socket pair, and back, until both directions have ended.
 *
 * Each direction holds at most one record that its receiver did not take, and nothing is read for a
 * receiver that has no room: that is the back-pressure. How a direction ends is passed on as it is:
 * a client's close_notify shuts the HTTP server's input, the clean end of a reply becomes
 * close_notify, and what is cut stays cut, on either side. */
#include "tls/tls-internal.h"

#include <openssl/err.h>

enum {
	TURN_RECORDS = 16, /* in each direction, then others have their turn */
	LINGER_MS = 2000,
	LINGER_MAX_BYTES = 32 << 20,
	FIRST_BYTE_OF_TLS = 0x16,    /* a handshake record */
	HANDSHAKE_BYTES = 64 * 1024, /* what OpenSSL takes until it is over, about */
};

enum stream_state {
	STREAM_FIRST_BYTE,
	STREAM_HANDSHAKE,
	STREAM_CARRIED,
	STREAM_LINGER, /* our side is shut; what still comes is dropped, so no reset eats the last
			  words */
	STREAM_CLOSED,
};

struct stream {
	struct tls_server *server;
	struct list node; /* in server->waiting or server->carried */
	struct http_carriage *carriage;
	SSL *ssl;
	int net_fd, inner_fd; /* the client's socket; our end of the pair */
	struct loop_io net, inner;
	struct loop_timer timer;
	struct loop_task task;
	enum stream_state state;
	struct buf up, down;        /* not taken yet by the HTTP server, by the client */
	tls_connected_fn connected; /* set: a connection of our own, and nobody was told yet */
	void *connected_arg;
	char *host; /* of such a one */
	struct err error;
	int64_t moved_ms; /* when the client last took something, or a wait for it began */
	size_t dropped;
	bool up_done, down_done;      /* that direction has ended and its receiver was told */
	bool read_waits, write_waits; /* until the client's socket has room */
	bool net_hung_up, inner_hung_up;
	bool is_counted; /* by the HTTP server, from its first byte to its last */
};

static void on_net(void *arg, uint32_t events);
static void on_inner(void *arg, uint32_t events);
static void on_timer(void *arg);
static void on_task(void *arg);

/* ---- life ---- */

static void leave_list(struct stream *s)
{
	struct tls_server *server = s->server;

	list_remove(&s->node);
	*(s->state == STREAM_CARRIED ? &server->n_carried : &server->n_waiting) -= 1;
}

static void enter(struct stream *s, enum stream_state state)
{
	struct tls_server *server = s->server;
	bool carried = state == STREAM_CARRIED;

	leave_list(s);
	s->state = state;
	list_append(carried ? &server->carried : &server->waiting, &s->node);
	*(carried ? &server->n_carried : &server->n_waiting) += 1;
}

static void shut(struct stream *s)
{
	loop_io_remove(&s->net);
	loop_io_remove(&s->inner);
	loop_timer_cancel(&s->timer);
	SSL_free(s->ssl);
	s->ssl = NULL;
	close_fdp(&s->inner_fd);
	close_fdp(&s->net_fd);
	s->inner_fd = s->net_fd = -EBADF;
	http_carriage_leave(s->carriage);
}

static void destroy(struct stream *s)
{
	struct tls_server *server = s->server;

	leave_list(s);
	shut(s);
	loop_task_cancel(&s->task);
	buf_done(&s->up);
	buf_done(&s->down);
	(void)http_carriage_unref(s->carriage);
	free(s->host);
	free(s);
	server_stream_gone(server);
}

void stream_destroy(struct list *node)
{
	destroy(container_of(node, struct stream, node));
}

/* Both sides at once: what is cut on one is cut on the other. The pair itself cannot tell a cut
 * from an end, so who reads there finds it in the carriage. Freed at the end of the turn. */
static void cut(struct stream *s)
{
	if (s->state == STREAM_CARRIED && !s->up_done)
		s->carriage->cut = true;
	shut(s);
	enter(s, STREAM_CLOSED);
	loop_defer(s->server->loop, &s->task, on_task, s);
}

/* Everything was said. The client may still be talking: a socket closed with unread input would be
 * reset, and the reset could overtake the last words. */
static void part(struct stream *s)
{
	(void)shutdown(s->net_fd, SHUT_WR);
	loop_io_remove(&s->inner);
	close_fdp(&s->inner_fd);
	s->inner_fd = -EBADF;
	enter(s, STREAM_LINGER);
	loop_timer_set(&s->timer, loop_now_ms(s->server->loop) + LINGER_MS);
	if (s->net.loop)
		loop_io_set(&s->net, EPOLLIN);
	else if (loop_io_add(s->server->loop, &s->net, s->net_fd, EPOLLIN, on_net, s, NULL) < 0)
		cut(s);
}

static void drop_input(struct stream *s)
{
	ssize_t n = recv(s->net_fd, s->server->scratch, RECORD_BYTES, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	s->dropped += (size_t)MAX(n, 0);
	if (n <= 0 || s->dropped > LINGER_MAX_BYTES)
		cut(s);
}

/* ---- waiting ---- */

/* A descriptor that has hung up is reported again and again, so while nothing is wanted from it, it
 * is not watched at all. */
static bool watch(struct stream *s, struct loop_io *io, int fd, uint32_t events, loop_io_fn fn,
	bool hung_up)
{
	if (events == 0 && hung_up)
		loop_io_remove(io);
	else if (io->loop)
		loop_io_set(io, events);
	else
		return loop_io_add(s->server->loop, io, fd, events, fn, s, NULL) >= 0;
	return true;
}

static void watch_both(struct stream *s)
{
	uint32_t net = 0, inner = 0;

	if (!s->up_done && s->up.n == 0)
		net |= EPOLLIN;
	if (s->read_waits || s->write_waits)
		net |= EPOLLOUT;
	if (!s->down_done && !s->write_waits)
		inner |= EPOLLIN;
	if (s->up.n > 0)
		inner |= EPOLLOUT;
	if (!watch(s, &s->net, s->net_fd, net, on_net, s->net_hung_up) ||
		!watch(s, &s->inner, s->inner_fd, inner, on_inner, s->inner_hung_up))
		cut(s);
}

static int64_t stall_deadline(const struct stream *s)
{
	return s->moved_ms + s->server->limits.stall_timeout_ms;
}

static void on_timer(void *arg)
{
	struct stream *s = arg;

	if (s->state == STREAM_CARRIED && !s->write_waits)
		return;
	if (s->state == STREAM_CARRIED && stall_deadline(s) > loop_now_ms(s->server->loop))
		loop_timer_set(&s->timer, stall_deadline(s));
	else
		cut(s);
}

/* ---- carrying ---- */

enum flow {
	FLOW_MORE,
	FLOW_WAIT,
	FLOW_LOST,
};

/* To the HTTP server. One that reads no more may still have something to say. */
static void send_up(struct stream *s, struct str bytes)
{
	ssize_t n = send(s->inner_fd, bytes.p, bytes.n, MSG_NOSIGNAL | MSG_DONTWAIT);
	bool refused = n < 0 && errno != EAGAIN && errno != EINTR;

	if (refused) {
		s->up_done = true;
		buf_done(&s->up);
		return;
	}
	n = MAX(n, 0);
	if (s->up.n > 0)
		buf_consume(&s->up, (size_t)n);
	else
		(void)buf_add(&s->up, bytes.p + n, bytes.n - (size_t)n);
	if (s->up.n == 0)
		buf_done(&s->up);
}

static enum flow step_up(struct stream *s)
{
	char *scratch = s->server->scratch;
	int n;

	if (s->up.n > 0)
		send_up(s, buf_str(&s->up));
	if (s->up_done || s->up.n > 0)
		return FLOW_WAIT;
	ERR_clear_error();
	n = SSL_read(s->ssl, scratch, RECORD_BYTES);
	if (n > 0) {
		send_up(s, str_make(scratch, (size_t)n));
		return FLOW_MORE;
	}
	switch (SSL_get_error(s->ssl, n)) {
	case SSL_ERROR_WANT_READ:
		return FLOW_WAIT;
	case SSL_ERROR_WANT_WRITE:
		s->read_waits = true;
		return FLOW_WAIT;
	case SSL_ERROR_ZERO_RETURN:
		s->up_done = true;
		(void)shutdown(s->inner_fd, SHUT_WR);
		return FLOW_WAIT;
	}
	return FLOW_LOST; /* an end without close_notify among it */
}

/* What a TLS call that did not succeed waits for. */
static enum flow after_write(struct stream *s, int n)
{
	switch (SSL_get_error(s->ssl, n)) {
	case SSL_ERROR_WANT_WRITE:
		s->write_waits = true;
		return FLOW_WAIT;
	case SSL_ERROR_WANT_READ:
		return FLOW_WAIT;
	}
	return FLOW_LOST;
}

/* The HTTP server has ended the connection; everything before that is with the client's socket.
 * What it cut is reset, as plain HTTP is: clients take a reset for a lost connection, and look
 * whether their sandbox still lives, but an end without close_notify for a broken protocol. */
static enum flow end_down(struct stream *s)
{
	struct linger now = { .l_onoff = 1 };
	int r;

	if (s->carriage->cut) {
		(void)setsockopt(s->net_fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
		return FLOW_LOST;
	}
	ERR_clear_error();
	r = SSL_shutdown(s->ssl);
	if (r < 0)
		return after_write(s, r);
	(void)shutdown(s->net_fd, SHUT_WR);
	s->down_done = true;
	return FLOW_WAIT;
}

static enum flow step_down(struct stream *s)
{
	struct str bytes = buf_str(&s->down);
	ssize_t got;
	int n;

	if (s->down_done)
		return FLOW_WAIT;
	if (bytes.n == 0) {
		got = recv(s->inner_fd, s->server->scratch, RECORD_BYTES, MSG_DONTWAIT);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			return FLOW_WAIT;
		if (got <= 0)
			return end_down(s);
		bytes = str_make(s->server->scratch, (size_t)got);
	}
	ERR_clear_error();
	n = SSL_write(s->ssl, bytes.p, (int)bytes.n);
	if (n > 0)
		s->moved_ms = loop_now_ms(s->server->loop);
	if (s->down.n > 0)
		buf_consume(&s->down, (size_t)MAX(n, 0));
	else
		(void)buf_add(&s->down, bytes.p + MAX(n, 0), bytes.n - (size_t)MAX(n, 0));
	if (s->down.n == 0)
		buf_done(&s->down);
	return n > 0 ? FLOW_MORE : after_write(s, n);
}

/* A client that takes nothing has so long; the HTTP server's own deadline ends with what it could
 * put into the pair. */
static void arm(struct stream *s, bool waited)
{
	if (!s->write_waits)
		return;
	if (!waited)
		s->moved_ms = loop_now_ms(s->server->loop);
	if (!loop_timer_is_set(&s->timer))
		loop_timer_set(&s->timer, stall_deadline(s));
}

static void carry(struct stream *s)
{
	enum flow up = FLOW_MORE, down = FLOW_MORE;
	bool waited = s->write_waits;

	s->read_waits = s->write_waits = false;
	for (int i = 0; i < TURN_RECORDS && (up == FLOW_MORE || down == FLOW_MORE); i++) {
		if (up == FLOW_MORE)
			up = step_up(s);
		if (down == FLOW_MORE && up != FLOW_LOST)
			down = step_down(s);
	}
	if (up == FLOW_LOST || down == FLOW_LOST) {
		cut(s);
		return;
	}
	if (s->down_done && (s->up_done || s->inner_hung_up)) {
		part(s);
		return;
	}
	if (up == FLOW_MORE || down == FLOW_MORE)
		loop_defer(s->server->loop, &s->task, on_task, s);
	arm(s, waited);
	watch_both(s);
}

/* ---- beginning ---- */

static void begin_carrying(struct stream *s)
{
	tls_connected_fn connected;
	int pair[2];

	loop_timer_cancel(&s->timer);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0) {
		cut(s);
		return;
	}
	s->inner_fd = pair[0];
	enter(s, STREAM_CARRIED);
	connected = TAKE(s->connected);
	if (connected)
		connected(s->connected_arg, pair[1], NULL);
	else
		http_server_take_connection(s->server->http, pair[1], s->carriage);
	carry(s);
}

static void shake_hands(struct stream *s)
{
	int n;

	ERR_clear_error();
	n = SSL_do_handshake(s->ssl);
	if (n == 1) {
		begin_carrying(s);
		return;
	}
	switch (SSL_get_error(s->ssl, n)) {
	case SSL_ERROR_WANT_READ:
		loop_io_set(&s->net, EPOLLIN);
		break;
	case SSL_ERROR_WANT_WRITE:
		loop_io_set(&s->net, EPOLLOUT);
		break;
	default:
		if (s->connected) {
			(void)peers_why(s->ssl, s->host, &s->error);
			cut(s);
		} else {
			part(s); /* the alert that says why is on its way */
		}
		break;
	}
}

static void begin_handshake(struct stream *s, SSL_CTX *context)
{
	s->ssl = SSL_new(context);
	if (!s->ssl || SSL_set_fd(s->ssl, s->net_fd) != 1) {
		cut(s);
		return;
	}
	SSL_set_accept_state(s->ssl);
	s->state = STREAM_HANDSHAKE;
	http_carriage_note(s->carriage, HANDSHAKE_BYTES);
	if (s->state == STREAM_HANDSHAKE)
		shake_hands(s);
}

static void refuse_plain(struct stream *s)
{
	static const char text[] =
		"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
		"Content-Length: 37\r\nConnection: close\r\n\r\n"
		"This port speaks HTTPS: use https://\n";

	(void)send(s->net_fd, text, sizeof text - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	part(s);
}

static void hand_over(struct stream *s)
{
	struct http_server *http = s->server->http;
	struct http_carriage *carriage = s->carriage;
	int fd = TAKE_FD(s->net_fd);

	carriage->n_refs++;
	cut(s); /* first: a handler may be called now */
	http_server_take_connection(http, fd, carriage);
	(void)http_carriage_unref(carriage);
}

static void look_at_first_byte(struct stream *s)
{
	unsigned char first;
	ssize_t n = recv(s->net_fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		cut(s);
	else if (first == FIRST_BYTE_OF_TLS)
		begin_handshake(s, identity_context(s->server->identity));
	else if (peer_is_local(&s->carriage->peer))
		hand_over(s);
	else
		refuse_plain(s);
}

/* ---- events ---- */

static void on_net(void *arg, uint32_t events)
{
	struct stream *s = arg;

	switch (s->state) {
	case STREAM_FIRST_BYTE:
		look_at_first_byte(s);
		break;
	case STREAM_HANDSHAKE:
		shake_hands(s);
		break;
	case STREAM_CARRIED:
		s->net_hung_up |= (events & EPOLLHUP) != 0;
		if (events & EPOLLERR)
			cut(s);
		else
			carry(s);
		break;
	case STREAM_LINGER:
		drop_input(s);
		break;
	case STREAM_CLOSED:
		break;
	}
}

/* Until it carries anything, and when the HTTP server has done with it, it is a stranger's: the
 * HTTP server counts it with its own. */
static void on_evicted(void *arg)
{
	cut(arg);
}

static bool is_full(const struct http_server *http)
{
	struct http_admission a;

	http_server_admission(http, &a);
	return a.connections >= a.max;
}

/* Its last words are on their way to a client that may never read them. Nobody gives way for one
 * that was cut, or whose words are out. */
static void outlive(struct stream *s)
{
	bool is_needed = s->state == STREAM_CARRIED && !s->carriage->cut;

	if (s->state == STREAM_CLOSED || s->carriage->waiting || !s->is_counted)
		return;
	if ((!is_needed && is_full(s->server->http)) ||
		http_carriage_enter(s->server->http, s->carriage, on_evicted, s) < 0)
		cut(s);
	else
		http_carriage_note(s->carriage, HANDSHAKE_BYTES);
}

static void on_inner(void *arg, uint32_t events)
{
	struct stream *s = arg;

	s->inner_hung_up |= (events & EPOLLHUP) != 0;
	carry(s);
	if (s->inner_hung_up)
		outlive(s);
}

/* A connection of our own that came to nothing: who asked for it hears why. */
static void tell_failed(struct stream *s)
{
	tls_connected_fn connected = TAKE(s->connected);

	if (!connected)
		return;
	if (s->error.code == 0)
		(void)err_set(&s->error, -ETIMEDOUT, "%s did not complete a TLS handshake",
			s->host);
	connected(s->connected_arg, s->error.code, &s->error);
}

static void on_task(void *arg)
{
	struct stream *s = arg;

	if (s->state == STREAM_CLOSED) {
		tell_failed(s);
		destroy(s);
	} else if (s->state == STREAM_CARRIED)
		carry(s);
}

/* Takes the descriptor and the reference. It has the time of a handshake. */
static struct stream *stream_new(struct tls_server *server, int fd, struct http_carriage *carriage)
{
	struct stream *s = XNEW(struct stream);

	s->server = server;
	s->net_fd = fd;
	s->inner_fd = -EBADF;
	s->up = BUF_INIT(RECORD_BYTES);
	s->down = BUF_INIT(RECORD_BYTES);
	s->carriage = carriage;
	loop_timer_init(&s->timer, server->loop, on_timer, s);
	list_append(&server->waiting, &s->node);
	server->n_waiting++;
	if (loop_io_add(server->loop, &s->net, fd, EPOLLIN, on_net, s, NULL) < 0)
		cut(s);
	else
		loop_timer_set(&s->timer,
			loop_now_ms(server->loop) + server->limits.handshake_timeout_ms);
	return s;
}

static struct http_carriage *carriage_new(const struct sockaddr_storage *peer)
{
	struct http_carriage *carriage = XNEW(struct http_carriage);

	carriage->n_refs = 1;
	if (peer)
		carriage->peer = *peer;
	return carriage;
}

void stream_start(struct tls_server *server, int fd, const struct sockaddr_storage *peer)
{
	struct stream *s = stream_new(server, fd, carriage_new(peer));

	s->is_counted = true;
	if (s->state == STREAM_CLOSED)
		return;
	if (http_carriage_enter(server->http, s->carriage, on_evicted, s) < 0)
		cut(s);
	else
		look_at_first_byte(s);
}

void stream_start_as(struct tls_server *server, int fd, struct http_carriage *carriage,
	SSL_CTX *context)
{
	struct stream *s;

	carriage->n_refs++;
	s = stream_new(server, fd, carriage);
	if (s->state != STREAM_CLOSED)
		begin_handshake(s, context);
}

struct stream *stream_connect(struct tls_server *server, int fd, SSL *ssl, const char *name,
	tls_connected_fn fn, void *arg)
{
	struct stream *s = stream_new(server, fd, carriage_new(NULL));

	s->connected = fn;
	s->connected_arg = arg;
	s->host = xstrdup(name);
	s->ssl = ssl;
	if (s->state == STREAM_CLOSED)
		return s;
	if (!ssl) {
		(void)err_set(&s->error, -ENOMEM, "no TLS connection could be made");
		cut(s);
		return s;
	}
	s->state = STREAM_HANDSHAKE;
	loop_io_set(&s->net, EPOLLOUT); /* the first step is taken on another turn */
	return s;
}

struct http_carriage *tls_connect_carriage(const struct stream *s)
{
	return s->carriage;
}

void tls_connect_cancel(struct stream *s)
{
	if (!s || !s->connected)
		return;
	s->connected = NULL;
	if (s->state != STREAM_CLOSED)
		cut(s);
}
