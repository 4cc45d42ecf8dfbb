/* One client connection.
 *
 * Events and the calls of handlers only note what happened; conn_run looks at the whole state and
 * takes steps until nothing is left to do. Handlers' callbacks are made from there alone, never
 * from inside a call of theirs. What ends an exchange or a connection is done by a task at the end
 * of the turn, so that everything named in this turn's callbacks stays valid until then. */
#include "http/http-internal.h"

#include <arpa/inet.h>

static void conn_evict(struct slot *slot);
static void on_io(void *arg, uint32_t events);
static void on_timer(void *arg);
static void on_task(void *arg);

struct conn *conn_new(struct http_server *server, int fd, const struct sockaddr_storage *address,
	struct err *e)
{
	struct conn *conn = XNEW(struct conn);
	const struct sockaddr_in6 *in6 = (const void *)address;
	const struct sockaddr_in *in4 = (const void *)address;

	conn->slot.evict = conn_evict;
	if (admission_enter(&server->admission, &conn->slot, address) < 0) {
		reply_turn_away(fd);
		free(conn);
		return NULL;
	}
	conn->server = server;
	conn->fd = fd;
	conn->since_ms = loop_now_ms(server->loop);
	conn->in = BUF_INIT(server->limits.head_bytes + SCRATCH_BYTES);
	conn->out.buf = BUF_INIT((size_t)1 << 30);
	conn->peer.family = address->ss_family;
	if (address->ss_family == AF_INET6) {
		conn->peer.address = in6->sin6_addr;
		conn->peer.port = in6->sin6_port;
	} else if (address->ss_family == AF_INET) {
		memcpy(&conn->peer.address, &in4->sin_addr, sizeof in4->sin_addr);
		conn->peer.port = in4->sin_port;
	}
	loop_timer_init(&conn->timer, server->loop, on_timer, conn);
	list_append(&server->idle, &conn->node);
	server->n_conns++;
	if (loop_io_add(server->loop, &conn->io, fd, EPOLLIN | EPOLLRDHUP, on_io, conn, e) < 0) {
		conn_destroy(conn);
		return NULL;
	}
	return conn;
}

static void shut(struct conn *conn)
{
	loop_io_remove(&conn->io);
	close_fdp(&conn->fd);
	conn->fd = -EBADF;
	outq_done(&conn->out);
	conn->blocked = false;
	/* What its handler still does is done for whoever asked: it counts until it is over. */
	if (!conn->x || conn->x->ended)
		admission_leave(&conn->slot);
	else
		conn_account(conn);
}

void conn_destroy(struct conn *conn)
{
	struct http_server *server = conn->server;

	loop_task_cancel(&conn->task);
	loop_timer_cancel(&conn->timer);
	shut(conn);
	conn->x = exchange_free(conn->x);
	admission_leave(&conn->slot);
	buf_done(&conn->in);
	list_remove(&conn->node);
	if (conn->carriage)
		conn->carriage->conn = NULL;
	conn->carriage = http_carriage_unref(conn->carriage);
	free(conn->peer_text);
	free(conn);
	server->n_conns--;
	server_conn_gone(server);
}

void conn_close(struct conn *conn)
{
	shut(conn);
	conn->state = CONN_CLOSED;
	loop_defer(conn->server->loop, &conn->task, on_task, conn);
}

void conn_lose(struct conn *conn)
{
	if (conn->state != CONN_EXCHANGE) {
		conn_close(conn);
		return;
	}
	if (conn->carriage)
		conn->carriage->cut = true;
	shut(conn);
	if (!conn->x->ended)
		conn->x->gone = true;
	conn_wake(conn);
}

void conn_wake(struct conn *conn)
{
	if (!conn->running)
		loop_defer(conn->server->loop, &conn->task, on_task, conn);
}

/* A reply that is cut must not look like one that ends. A relay that is moving bytes just now finds
 * its client gone; any other is told at the end of the turn. */
static void conn_evict(struct slot *slot)
{
	struct conn *conn = container_of(slot, struct conn, slot);
	struct linger now = { .l_onoff = 1 };

	if (conn->fd < 0)
		return;
	if (conn->x && conn->x->begun)
		(void)setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	conn_lose(conn);
}

/* ---- input ---- */

static bool body_is_wanted(const struct http_exchange *x)
{
	return x->body_fn && !x->paused && !x->ended && !x->body_error;
}

static bool wants_input(const struct conn *conn)
{
	switch (conn->state) {
	case CONN_HEAD:
	case CONN_DRAIN:
	case CONN_LINGER:
		return true;
	case CONN_EXCHANGE:
		return body_is_wanted(conn->x) && conn->view.n == 0 && !body_is_done(&conn->body);
	case CONN_CLOSED:
		break;
	}
	return false;
}

/* A body keeps its connection by coming at a certain rate; a stranger's has one time for all of it.
 */
static void note_fed(struct conn *conn, size_t n)
{
	conn->fed += n;
	if (!conn->x->admitted || conn->fed < conn->server->limits.min_body_bytes)
		return;
	conn->fed = 0;
	conn->since_ms = loop_now_ms(conn->server->loop);
}

/* Reads once, into the scratch buffer when nothing is held, else behind what is. */
static void fill(struct conn *conn)
{
	size_t room = conn->state == CONN_HEAD ? HEAD_READ_BYTES : SCRATCH_BYTES;
	char *to = conn->server->scratch;
	ssize_t n;

	if (conn->view.n > 0) {
		room = MIN(room, conn->in.max - conn->in.n);
		to = buf_reserve(&conn->in, room);
		conn->view = buf_str(&conn->in); /* it may have moved */
	}
	if (!to || room == 0) {
		conn_lose(conn);
		return;
	}
	n = recv(conn->fd, to, room, MSG_DONTWAIT);
	if (n < 0) {
		if (errno != EAGAIN && errno != EINTR)
			conn_lose(conn);
		return;
	}
	if (n == 0) {
		conn->eof = true;
	} else if (conn->view.n > 0) {
		conn->in.n += (size_t)n;
		conn->view = buf_str(&conn->in);
	} else {
		conn->view = str_make(to, (size_t)n);
	}
	if (conn->state == CONN_EXCHANGE)
		note_fed(conn, (size_t)n);
}

void conn_settle(struct conn *conn)
{
	bool held =
		conn->in.p && conn->view.p >= conn->in.p && conn->view.p <= conn->in.p + conn->in.n;

	if (conn->view.n == 0)
		buf_done(&conn->in);
	else if (held)
		buf_consume(&conn->in, (size_t)(conn->view.p - conn->in.p));
	else if (buf_add(&conn->in, conn->view.p, conn->view.n) < 0)
		conn_lose(conn);
	conn->view = buf_str(&conn->in);
	conn_account(conn);
}

/* ---- steps: each returns whether there may be another ---- */

static void linger(struct conn *conn)
{
	(void)shutdown(conn->fd, SHUT_WR);
	conn->state = CONN_LINGER;
	conn->dropped = 0;
	conn->view = STR_NONE;
	conn->since_ms = loop_now_ms(conn->server->loop);
}

static bool refuse(struct conn *conn, int status)
{
	list_remove(&conn->node);
	list_append(&conn->server->busy, &conn->node);
	reply_refuse(conn, status);
	if (conn->fd >= 0)
		linger(conn);
	return conn->fd >= 0;
}

static void start_body(struct conn *conn, const struct head *head)
{
	if (head->chunked)
		body_start_chunked(&conn->body);
	else
		body_start_length(&conn->body, MAX(head->length, 0));
}

static bool begin_exchange(struct conn *conn, size_t end)
{
	struct http_server *server = conn->server;
	struct head head;
	int status;

	status = head_parse_request(str_make(conn->view.p, end), server->fields,
		(size_t)server->limits.max_headers, &head);
	if (status != 0)
		return refuse(conn, status);
	conn->x = exchange_new(conn, &head, end);
	conn->asked = true;
	if (!conn->x)
		return refuse(conn, 503);
	conn->view = str_from(conn->view, end);
	conn->state = CONN_EXCHANGE;
	conn->head_begun = false;
	conn->empty_lines = 0;
	conn->scan = (struct head_scan){ 0 };
	list_remove(&conn->node);
	list_append(&server->busy, &conn->node);
	admission_set_busy(&conn->slot);
	start_body(conn, &head);
	server->handler(server->arg, conn->x);
	return true;
}

static bool skip_empty_line(struct conn *conn)
{
	if (++conn->empty_lines > MAX_EMPTY_LINES)
		return refuse(conn, 400);
	conn->view = str_from(conn->view, 2);
	conn->scan = (struct head_scan){ 0 };
	return true;
}

static bool step_head(struct conn *conn)
{
	size_t end = 0;
	int r;

	r = head_find_end(conn->view, conn->server->limits.head_bytes, &conn->scan, &end);
	if (r < 0)
		return refuse(conn, r == -EMSGSIZE ? 431 : 400);
	if (r > 0)
		return end == 2 ? skip_empty_line(conn) : begin_exchange(conn, end);
	if (conn->eof) {
		conn_close(conn);
		return false;
	}
	if (conn->view.n > 0 && !conn->head_begun) {
		conn->head_begun = true;
		conn->since_ms = loop_now_ms(conn->server->loop);
	}
	return false;
}

/* The last call of a body callback. */
static void end_body(struct http_exchange *x, int r)
{
	http_chunk_fn fn = TAKE(x->body_fn);

	x->body_over = true;
	fn(x->body_arg, r, STR_NONE);
}

static bool step_body(struct conn *conn, struct http_exchange *x)
{
	struct str piece;
	ssize_t n;

	if (!x->body_fn || x->paused)
		return false;
	if (x->body_error || body_is_done(&conn->body)) {
		end_body(x, x->body_error);
		return true;
	}
	if (conn->view.n == 0) {
		if (conn->fd >= 0 && !conn->eof)
			return false;
		if (conn->fd >= 0)
			conn_lose(conn); /* half a body, then the end */
		end_body(x, -ECONNRESET);
		return true;
	}
	n = body_next(&conn->body, conn->view, &piece);
	if (n < 0) {
		x->body_error = -EPROTO;
		return true;
	}
	conn->view = str_from(conn->view, (size_t)n);
	if (!x->admitted && piece.n > x->stranger_left) {
		x->body_error = -E2BIG;
		return true;
	}
	x->stranger_left -= x->admitted ? 0 : piece.n;
	if (piece.n > 0)
		x->body_fn(x->body_arg, 0, piece);
	return true;
}

/* Whether the exchange is over and all of its reply is out. */
static bool is_answered(const struct conn *conn)
{
	const struct http_exchange *x = conn->x;

	return x->ended && !x->held && outq_pending(&conn->out) == 0 &&
	       (x->file_left == 0 || conn->fd < 0);
}

static bool step_exchange(struct conn *conn)
{
	struct http_exchange *x = conn->x;
	loop_fn fn;

	if (x->ended) {
		/* Or what its handler needed is to be given back. */
		if (is_answered(conn) || (x->arena && !x->held && x->file_left == 0))
			loop_defer(conn->server->loop, &conn->task, on_task, conn);
		return false;
	}
	if (x->relay)
		return false;
	if (step_body(conn, x))
		return true;
	if (x->gone && x->gone_fn) {
		fn = TAKE(x->gone_fn);
		fn(x->gone_arg);
		return true;
	}
	if (x->drain_due && x->drain_fn && outq_pending(&conn->out) <= conn_write_high(conn) / 4) {
		x->drain_due = false;
		x->drain_fn(x->drain_arg);
		return true;
	}
	return false;
}

static void become_idle(struct conn *conn)
{
	conn->state = CONN_HEAD;
	conn->since_ms = loop_now_ms(conn->server->loop);
	list_remove(&conn->node);
	list_append(&conn->server->idle, &conn->node);
	if (conn->server->stopping && conn->view.n == 0)
		conn_close(conn);
}

static bool step_drain(struct conn *conn)
{
	struct str piece;
	ssize_t n = body_next(&conn->body, conn->view, &piece);

	if (n < 0 || conn->dropped > DRAIN_MAX_BYTES) {
		linger(conn);
		return true;
	}
	conn->view = str_from(conn->view, (size_t)n);
	conn->dropped += (uint64_t)n;
	if (body_is_done(&conn->body))
		become_idle(conn);
	else if (n == 0 && conn->eof)
		conn_close(conn);
	else
		return n > 0;
	return true;
}

static bool step_linger(struct conn *conn)
{
	conn->dropped += conn->view.n;
	conn->view = STR_NONE;
	if (conn->eof || conn->dropped > LINGER_MAX_BYTES)
		conn_close(conn);
	return false;
}

static bool step(struct conn *conn)
{
	switch (conn->state) {
	case CONN_HEAD:
		return step_head(conn);
	case CONN_EXCHANGE:
		return step_exchange(conn);
	case CONN_DRAIN:
		return step_drain(conn);
	case CONN_LINGER:
		return step_linger(conn);
	case CONN_CLOSED:
		break;
	}
	return false;
}

/* ---- waiting ---- */

/* When the current wait is over; 0: it has no end of its own. */
static int64_t deadline(const struct conn *conn)
{
	const struct http_limits *limits = &conn->server->limits;

	switch (conn->state) {
	case CONN_HEAD:
		return conn->since_ms +
		       (conn->head_begun ? limits->head_timeout_ms : limits->idle_timeout_ms);
	case CONN_EXCHANGE:
		if (conn->x->relay)
			return 0;
		if (wants_input(conn) && !conn->x->admitted)
			return conn->since_ms + limits->head_timeout_ms;
		if (conn->blocked || wants_input(conn))
			return conn->since_ms + limits->stall_timeout_ms;
		if (!conn->half_closed || conn->answered || conn->x->gone)
			return 0;
		return body_is_done(&conn->body) ? conn->since_ms + HALF_CLOSE_MS : 0;
	case CONN_DRAIN:
		return conn->since_ms + DRAIN_MS;
	case CONN_LINGER:
		return conn->since_ms + LINGER_MS;
	case CONN_CLOSED:
		break;
	}
	return 0;
}

/* The timer is only ever moved forward here: one that rings early looks at the deadline again,
 * which costs far less than moving it with every request. */
static void arm(struct conn *conn)
{
	int64_t at = conn->fd >= 0 ? deadline(conn) : 0;

	if (at > 0 && (!loop_timer_is_set(&conn->timer) || conn->timer.at_ms > at))
		loop_timer_set(&conn->timer, at);
}

/* EPOLLIN is taken away only after unwanted input showed up: most requests never need that call. */
static void watch(struct conn *conn)
{
	uint32_t events = conn->io.events & EPOLLIN;

	if (conn->fd < 0)
		return;
	if (wants_input(conn))
		events |= EPOLLIN;
	else if (conn->mute)
		events &= ~(uint32_t)EPOLLIN;
	conn->mute = false;
	if (!conn->half_closed)
		events |= EPOLLRDHUP;
	if (conn->blocked)
		events |= EPOLLOUT;
	loop_io_set(&conn->io, events);
}

static bool is_relayed(const struct conn *conn)
{
	return conn->x && conn->x->relay;
}

static void run(struct conn *conn)
{
	conn->running = true;
	do {
		while (step(conn))
			;
		conn_flush(conn);
	} while (step(conn)); /* flushing may have made room, or found nobody there */
	conn->running = false;
	conn_settle(conn);
	if (!is_relayed(conn))
		watch(conn);
	arm(conn);
}

static void drain(struct conn *conn)
{
	conn->state = CONN_DRAIN;
	conn->dropped = 0;
	conn->since_ms = loop_now_ms(conn->server->loop);
}

/* What follows on an answered exchange. */
static void next_request(struct conn *conn)
{
	bool keep = conn->x->keep && conn->x->begun, is_read = body_is_done(&conn->body);

	conn->x = exchange_free(conn->x);
	conn->state = CONN_HEAD;
	conn_account(conn);
	admission_set_idle(&conn->slot);
	if (conn->fd < 0 || (!keep && is_read && conn->view.n == 0))
		conn_close(conn);
	else if (keep && is_read)
		become_idle(conn);
	else if (keep)
		drain(conn);
	else
		linger(conn);
}

static void on_task(void *arg)
{
	struct conn *conn = arg;

	if (conn->state == CONN_CLOSED) {
		conn_destroy(conn);
		return;
	}
	conn_flush(conn);
	if (is_relayed(conn) && conn->fd < 0)
		http_relay_cut(conn->x->relay);
	if (conn->state == CONN_EXCHANGE && is_answered(conn))
		next_request(conn);
	else if (conn->state == CONN_EXCHANGE && conn->x->ended && !conn->x->held)
		exchange_release(conn->x);
	run(conn);
}

static void on_timer(void *arg)
{
	struct conn *conn = arg;
	int64_t at = conn->fd >= 0 ? deadline(conn) : 0;

	if (at == 0 || at > loop_now_ms(conn->server->loop)) {
		arm(conn);
		return;
	}
	switch (conn->state) {
	case CONN_HEAD:
		if (conn->head_begun)
			(void)refuse(conn, 408);
		else
			conn_close(conn);
		break;
	case CONN_EXCHANGE:
		if (conn->blocked || wants_input(conn))
			conn_lose(conn);
		else
			conn->x->gone = true; /* told, but a reply is still tried */
		break;
	case CONN_DRAIN:
	case CONN_LINGER:
	case CONN_CLOSED:
		conn_close(conn);
		break;
	}
	run(conn);
}

static void on_unwanted(struct conn *conn, uint32_t events)
{
	if (events & (EPOLLHUP | EPOLLERR)) {
		conn_lose(conn);
		return;
	}
	conn->mute = events & EPOLLIN;
	if (events & EPOLLRDHUP && !conn->half_closed) {
		conn->half_closed = true;
		conn->since_ms = loop_now_ms(conn->server->loop);
	}
}

static void on_io(void *arg, uint32_t events)
{
	struct conn *conn = arg;

	if (is_relayed(conn)) {
		relay_on_client(conn->x->relay, events);
		return;
	}
	if (events & EPOLLOUT) {
		conn->blocked = false;
		conn_flush(conn);
	}
	if (wants_input(conn)) {
		if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
			fill(conn);
	} else if (events & ~(uint32_t)EPOLLOUT) {
		on_unwanted(conn, events);
	}
	run(conn);
}

void conn_start(struct conn *conn)
{
	fill(conn);
	run(conn);
}
