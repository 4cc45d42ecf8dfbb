/* An exchange passed to another server: its life, events and deadlines. The bytes themselves are
 * moved by relay-flow.c. While a relay runs it owns the events of both descriptors; the connection
 * takes its own back when the exchange ends. Callbacks are only made by a task at the end of the
 * turn. */
#include "http/http-internal.h"

#include <netinet/tcp.h>

static void on_upstream(void *arg, uint32_t events);
static void on_relay_timer(void *arg);
static void on_relay_task(void *arg);

struct http_relay *relay_free(struct http_relay *relay)
{
	if (!relay)
		return NULL;
	loop_task_cancel(&relay->task);
	loop_timer_cancel(&relay->timer);
	loop_io_remove(&relay->io);
	close_fdp(&relay->fd);
	relay->up_pipe = pipe_put(&relay->server->pipes, relay->up_pipe);
	relay->down_pipe = pipe_put(&relay->server->pipes, relay->down_pipe);
	relay->carriage = http_carriage_unref(relay->carriage);
	outq_done(&relay->up);
	buf_done(&relay->held);
	list_remove(&relay->node);
	free(relay);
	return NULL;
}

/* Lets go of the exchange, which its caller then ends. */
static struct http_exchange *let_go(struct http_relay *relay)
{
	struct http_exchange *x = relay->x;

	loop_io_remove(&relay->io);
	close_fdp(&relay->fd);
	relay->fd = -EBADF;
	loop_timer_cancel(&relay->timer);
	relay->up_pipe = pipe_put(&relay->server->pipes, relay->up_pipe);
	relay->down_pipe = pipe_put(&relay->server->pipes, relay->down_pipe);
	relay->state = RELAY_OVER;
	x->relay = NULL;
	x->held = true; /* what `closed` is given may live in its arena */
	loop_defer(relay->server->loop, &relay->task, on_relay_task, relay);
	return x;
}

static void cut(struct http_relay *relay)
{
	http_abort(let_go(relay));
}

/* Before the reply has begun the client is told, afterwards it can only be cut. */
static void fail(struct http_relay *relay, int status, const char *message)
{
	if (relay->x->begun || relay->conn->fd < 0)
		cut(relay);
	else
		reply_error(let_go(relay), status, message);
}

static void refuse(struct http_relay *relay, int error)
{
	relay->state = RELAY_REFUSED;
	relay->refused_error = error;
	loop_timer_cancel(&relay->timer);
	loop_io_remove(&relay->io);
	loop_defer(relay->server->loop, &relay->task, on_relay_task, relay);
}

static void on_relay_task(void *arg)
{
	struct http_relay *relay = arg;
	struct http_exchange *x = relay->x;
	bool is_refused = relay->state == RELAY_REFUSED;
	void (*closed)(void *) = relay->closed;
	http_refused_fn refused = relay->refused;
	void *user = relay->arg;
	int error = relay->refused_error;

	relay_free(relay);
	if (is_refused)
		x->relay = NULL;
	conn_wake(x->conn); /* its events are its own again */
	if (is_refused) {
		refused(user, x, error);
		return;
	}
	if (closed)
		closed(user);
	x->held = false;
}

void http_relay_cut(struct http_relay *relay)
{
	if (relay->state < RELAY_REFUSED)
		cut(relay);
}

/* ---- what both directions come to ---- */

static void end_tunnel(struct http_relay *relay)
{
	struct conn *conn = relay->conn;

	body_start_length(&conn->body, 0);
	exchange_ended(let_go(relay));
}

static void after_up(struct http_relay *relay, enum flow flow)
{
	bool tunnel = relay->state == RELAY_TUNNEL;

	switch (flow) {
	case FLOW_MORE:
	case FLOW_WAIT:
		break;
	case FLOW_END:
		relay->up_done = true;
		relay->half_closed_ms = loop_now_ms(relay->server->loop);
		if (tunnel && relay->down_done)
			end_tunnel(relay);
		else if (tunnel)
			(void)shutdown(relay->fd, SHUT_WR);
		break;
	case FLOW_SRC_LOST:
		cut(relay);
		break;
	case FLOW_DST_LOST:
		relay->up_lost = true; /* its reply may say why */
		if (tunnel)
			cut(relay);
		break;
	case FLOW_BAD:
		fail(relay, 400, "the body is badly framed");
		break;
	}
}

static void end_reply(struct http_relay *relay)
{
	struct iovec last = iov_of(STR("0\r\n\r\n"));

	if (relay->mode == RELAY_RECHUNK)
		conn_send(relay->conn, &last, 1);
	exchange_ended(let_go(relay));
}

/* Through a carrier, what broke off ends like what is complete; only where the end of the
 * connection is the end of the reply can the two be confused. */
static bool broke_off(const struct http_relay *relay)
{
	return relay->reply.state == BODY_UNTIL_CLOSE && relay->carriage && relay->carriage->cut;
}

static void after_down(struct http_relay *relay, enum flow flow)
{
	switch (flow) {
	case FLOW_MORE:
	case FLOW_WAIT:
		break;
	case FLOW_END:
		if (broke_off(relay)) {
			cut(relay);
			break;
		}
		if (relay->state == RELAY_BODY) {
			end_reply(relay);
			break;
		}
		relay->down_done = true;
		if (relay->up_done)
			end_tunnel(relay);
		else
			(void)shutdown(relay->conn->fd, SHUT_WR);
		break;
	case FLOW_SRC_LOST:
		fail(relay, 502, "the service closed the connection without a reply");
		break;
	case FLOW_BAD:
		fail(relay, 502, "the service sent something that is not a valid reply");
		break;
	case FLOW_DST_LOST:
		cut(relay);
		break;
	}
}

/* Sends the head and what is here of the body. As long as not a byte of it is taken, the body
 * counts as untouched. */
static void send_first(struct http_relay *relay)
{
	struct conn *conn = relay->conn;
	struct body before = conn->body;
	size_t head_n = outq_pending(&relay->up);
	struct str kept[2];
	ssize_t n = body_pass_bare(&conn->body, conn->view, kept);
	struct iovec iov[2];
	int r;

	if (n < 0) {
		fail(relay, 400, "the body is badly framed");
		return;
	}
	iov[0] = iov_of(kept[0]);
	iov[1] = iov_of(kept[1]);
	r = outq_send(&relay->up, relay->fd, iov, 2);
	if (r < 0 || outq_pending(&relay->up) == head_n + kept[0].n + kept[1].n) {
		conn->body = before;
		relay->up.buf.n = head_n;
		if (r < 0)
			refuse(relay, r);
		return;
	}
	conn->view = str_from(conn->view, (size_t)n);
	relay->x->continued |= n > 0;
	relay->since_ms = loop_now_ms(relay->server->loop);
	relay->state = RELAY_HEAD;
	relay->up_done = body_is_done(&conn->body) && r == 1;
}

/* 1: it is, 0: not yet, -errno: it will not be. */
static int is_connected(int fd)
{
	struct sockaddr_storage peer;
	socklen_t peer_n = sizeof peer, error_n = sizeof(int);
	int error = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_n) < 0 || error)
		return error ? -error : -errno;
	if (getpeername(fd, (struct sockaddr *)&peer, &peer_n) == 0)
		return 1;
	return errno == ENOTCONN ? 0 : -errno;
}

static void open_tunnel(struct http_relay *relay)
{
	struct conn *conn = relay->conn;
	int r = is_connected(relay->fd);
	struct iovec head;

	if (r < 0)
		refuse(relay, r);
	if (r <= 0)
		return;
	if (relay_tunnel_head(relay->x) < 0) {
		fail(relay, 431, "the request's head is too large to answer");
		return;
	}
	head = iov_of(buf_str(&relay->server->head));
	conn_send(conn, &head, 1);
	relay->x->begun = true;
	relay->mode = RELAY_RAW;
	body_start_until_close(&conn->body);
	body_start_until_close(&relay->reply);
	relay->since_ms = loop_now_ms(relay->server->loop);
	relay->state = RELAY_TUNNEL;
}

/* ---- waiting ---- */

static bool wants_client(const struct http_relay *relay)
{
	return relay->state > RELAY_CONNECTING && !relay->up_done && !relay->up_lost &&
	       !relay_up_blocked(relay);
}

static uint32_t upstream_events(const struct http_relay *relay)
{
	uint32_t events = 0;

	if (relay->state > RELAY_CONNECTING && !relay->down_done && !relay_down_blocked(relay))
		events |= EPOLLIN;
	if (relay->state == RELAY_CONNECTING || (relay_up_blocked(relay) && !relay->up_lost))
		events |= EPOLLOUT;
	return events;
}

/* An upstream that has hung up is reported again and again, so while its last bytes have to wait
 * for the client it is not watched at all. */
static void watch_upstream(struct http_relay *relay)
{
	uint32_t events = upstream_events(relay);

	if (events == 0 && relay->hung_up)
		loop_io_remove(&relay->io);
	else if (relay->io.loop)
		loop_io_set(&relay->io, events);
	else if (loop_io_add(relay->server->loop, &relay->io, relay->fd, events, on_upstream, relay,
			 NULL) < 0)
		cut(relay);
}

/* As with connections, EPOLLIN is taken away only when it is known to be a nuisance. */
static void watch_client(struct http_relay *relay)
{
	struct conn *conn = relay->conn;
	uint32_t events = conn->io.events & EPOLLIN;

	if (wants_client(relay))
		events |= EPOLLIN;
	else if (conn->mute)
		events &= ~(uint32_t)EPOLLIN;
	conn->mute = false;
	if (!conn->half_closed)
		events |= EPOLLRDHUP;
	if (relay_down_blocked(relay))
		events |= EPOLLOUT;
	loop_io_set(&conn->io, events);
}

static int64_t sooner(int64_t a, int64_t b)
{
	return a == 0 || b < a ? b : a;
}

/* See HALF_CLOSE_MS. */
static bool is_perhaps_gone(const struct http_relay *relay)
{
	const struct conn *conn = relay->conn;

	return conn->half_closed && relay->up_done && !conn->answered &&
	       (relay->state == RELAY_HEAD || relay->since_ms <= relay->half_closed_ms);
}

/* 0: none. A chunked body may stay open and silent as long as both ends like. */
static int64_t deadline(const struct http_relay *relay)
{
	int64_t stalled = relay->since_ms + relay->server->limits.stall_timeout_ms, at = 0;

	if (relay->state <= RELAY_HEAD && relay->first_byte_ms > 0)
		at = relay->since_ms + relay->first_byte_ms;
	if (relay->state == RELAY_TUNNEL)
		return relay->up_done || relay->down_done ? stalled : 0;
	if (relay->state == RELAY_CONNECTING)
		return at;
	if (relay_up_blocked(relay) || relay_down_blocked(relay))
		at = sooner(at, stalled);
	if (wants_client(relay) && relay->conn->body.state == BODY_LENGTH)
		at = sooner(at, relay->fed_ms + relay->server->limits.stall_timeout_ms);
	if (is_perhaps_gone(relay))
		at = sooner(at, relay->half_closed_ms + HALF_CLOSE_MS);
	return at;
}

static void arm(struct http_relay *relay)
{
	int64_t at = deadline(relay);

	if (at > 0 && (!loop_timer_is_set(&relay->timer) || relay->timer.at_ms > at))
		loop_timer_set(&relay->timer, at);
}

static void on_relay_timer(void *arg)
{
	struct http_relay *relay = arg;
	int64_t at = deadline(relay), now = loop_now_ms(relay->server->loop);

	if (at == 0 || at > now) {
		arm(relay);
		return;
	}
	if (relay->state == RELAY_CONNECTING)
		refuse(relay, -ETIMEDOUT);
	else if (relay->state == RELAY_HEAD && relay->first_byte_ms > 0 &&
		 relay->since_ms + relay->first_byte_ms <= now)
		fail(relay, 504, "the service did not reply in time");
	else
		cut(relay);
}

static void settle(struct http_relay *relay)
{
	if (relay->state < RELAY_REFUSED)
		watch_upstream(relay);
	if (relay->state < RELAY_REFUSED)
		watch_client(relay);
	if (relay->state < RELAY_REFUSED)
		arm(relay);
}

/* Both directions as far as they go. A reply can open the way up again, when it makes a tunnel. */
static void run(struct http_relay *relay)
{
	enum relay_state before;

	do {
		before = relay->state;
		if (relay->state > RELAY_CONNECTING && !relay->up_done && !relay->up_lost)
			after_up(relay, relay_move_up(relay));
		if (relay->state < RELAY_REFUSED && !relay->down_done)
			after_down(relay, relay_move_down(relay));
	} while (relay->state != before && relay->state == RELAY_TUNNEL);
	settle(relay);
}

static void on_upstream(void *arg, uint32_t events)
{
	struct http_relay *relay = arg;

	relay->hung_up |= (events & (EPOLLHUP | EPOLLERR)) != 0;
	if (relay->state == RELAY_CONNECTING) {
		if (relay->is_raw)
			open_tunnel(relay);
		else
			send_first(relay);
		if (relay->state == RELAY_CONNECTING || relay->state >= RELAY_REFUSED) {
			settle(relay);
			return;
		}
		conn_settle(relay->conn);
	}
	run(relay);
}

/* The client shut its side while we were not reading from it. */
static void on_half_close(struct http_relay *relay)
{
	if (relay->conn->half_closed)
		return;
	relay->conn->half_closed = true;
	relay->half_closed_ms = relay->conn->since_ms = loop_now_ms(relay->server->loop);
}

void relay_on_client(struct http_relay *relay, uint32_t events)
{
	struct conn *conn = relay->conn;
	bool tunnel = relay->state == RELAY_TUNNEL, reads = wants_client(relay);

	if (relay->state >= RELAY_REFUSED)
		return;
	if ((events & (EPOLLHUP | EPOLLERR)) && !(tunnel && reads)) {
		cut(relay);
		return;
	}
	if (events & EPOLLOUT)
		conn->blocked = false;
	if (!reads) {
		conn->mute = events & EPOLLIN;
		if (events & EPOLLRDHUP)
			on_half_close(relay);
	}
	if (relay->state == RELAY_CONNECTING)
		settle(relay);
	else
		run(relay);
}

/* A tunnel is opened by the event that tells that its upstream is connected. */
static void start(struct http_relay *relay, const struct http_relay_options *options)
{
	struct http_exchange *x = relay->x;
	struct iovec head;

	relay->is_raw = options->tunnel;
	if (options->upgrade && !relay_wants_only(&x->head, options->upgrade))
		x->head.upgrade = false;
	if (relay->is_raw && (!x->head.upgrade || !body_is_done(&x->conn->body))) {
		fail(relay, 400, "this is not a request for an upgrade");
		return;
	}
	if (!relay->is_raw) {
		if (relay_request_head(x, options) < 0) {
			fail(relay, 431, "the request's head is too large to pass on");
			return;
		}
		head = iov_of(buf_str(&relay->server->head));
		(void)outq_add(&relay->up, &head, 1, 0);
		send_first(relay);
	}
	settle(relay);
}

struct http_relay *http_relay(struct http_exchange *x, int upstream_fd,
	const struct http_relay_options *options, http_refused_fn refused)
{
	struct http_relay *relay = XNEW(struct http_relay);
	struct http_server *server = x->conn->server;
	int on = 1;

	assert(refused && !x->begun && !x->ended && !x->relay && !x->body_fn && !x->body_over);
	assert(x->admitted);
	relay->server = server;
	relay->x = x;
	relay->conn = x->conn;
	relay->fd = upstream_fd;
	relay->refused = refused;
	relay->closed = options->closed;
	relay->reply_field = options->reply_field;
	relay->reply_lines = options->reply_lines;
	relay->arg = options->arg;
	relay->carriage = options->carriage;
	if (relay->carriage)
		relay->carriage->n_refs++;
	relay->first_byte_ms = options->first_byte_timeout_ms;
	relay->since_ms = relay->fed_ms = relay->half_closed_ms = loop_now_ms(server->loop);
	relay->held = BUF_INIT(server->limits.head_bytes + SCRATCH_BYTES);
	relay->up.buf = BUF_INIT(server->head.max + SCRATCH_BYTES);
	loop_timer_init(&relay->timer, server->loop, on_relay_timer, relay);
	list_append(&server->relays, &relay->node);
	x->relay = relay;
	(void)fd_set_nonblock(upstream_fd, true);
	(void)setsockopt(upstream_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	if (x->conn->fd < 0)
		cut(relay);
	else
		start(relay, options);
	return relay;
}
