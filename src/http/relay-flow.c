/* Bytes between the client of a relay and its upstream, each direction by itself. Small or framed
 * bytes go through the scratch buffer, at most one of them ahead of the receiver; bulk whose end is
 * known goes through a pipe. Nothing is read that the other side has no room for. */
#include "http/http-internal.h"

enum {
	FLOW_TURNS = 16, /* then others have their turn */
	BULK_BYTES = 256 * 1024,
	MAX_INTERIM = 16,
};

static void note_moved(struct http_relay *relay)
{
	relay->since_ms = relay->fed_ms = loop_now_ms(relay->server->loop);
	relay->fed = 0;
}

/* As the body of a connection does, that of a relay keeps it by coming at a certain rate; while the
 * upstream takes no more, its client need not hurry. */
static void note_fed(struct http_relay *relay, size_t n)
{
	relay->since_ms = loop_now_ms(relay->server->loop);
	relay->fed += n;
	if (relay->fed >= relay->server->limits.min_body_bytes || relay_up_blocked(relay))
		note_moved(relay);
}

/* One direction through its pipe. The pipe is given back as soon as it is empty. */
static enum pipe_result move_bulk(struct http_relay *relay, struct pipe **pipe, int src, int dst,
	struct body *body)
{
	bool endless = body->state == BODY_UNTIL_CLOSE, moved = false;
	uint64_t all = UINT64_MAX;
	enum pipe_result r;

	if (!*pipe)
		*pipe = pipe_get(&relay->server->pipes);
	if (!*pipe)
		return PIPE_UNFIT;
	r = pipe_move(*pipe, src, dst, endless ? &all : &body->left, &moved);
	if (moved)
		note_moved(relay);
	if (!endless && body->left == 0 && (*pipe)->fill == 0)
		body->state = BODY_DONE;
	if ((*pipe)->fill == 0 || r == PIPE_SRC_LOST || r == PIPE_DST_LOST)
		*pipe = pipe_put(&relay->server->pipes, *pipe);
	return r;
}

/* The end of file: fine only where it is what ends the body. */
static enum flow flow_at_end(const struct body *body)
{
	return body->state == BODY_UNTIL_CLOSE ? FLOW_END : FLOW_SRC_LOST;
}

static enum flow flow_of(struct http_relay *relay, enum pipe_result r, const struct body *body,
	bool *bulk)
{
	switch (r) {
	case PIPE_DONE:
		*bulk = false;
		return FLOW_MORE;
	case PIPE_UNFIT:
		relay->no_splice = true;
		*bulk = false;
		return FLOW_MORE;
	case PIPE_WAIT_SRC:
		/* What a tunnel carries next may be small again. */
		*bulk = relay->state != RELAY_TUNNEL;
		return FLOW_WAIT;
	case PIPE_WAIT_DST:
	case PIPE_AGAIN:
		return FLOW_WAIT;
	case PIPE_END:
		return flow_at_end(body);
	case PIPE_SRC_LOST:
		return FLOW_SRC_LOST;
	case PIPE_DST_LOST:
		return FLOW_DST_LOST;
	}
	return FLOW_BAD;
}

/* Whether what is left of a body, after a read that found much, is worth a pipe. */
static bool is_bulk(const struct http_relay *relay, const struct body *body, size_t got)
{
	if (relay->no_splice || got < SCRATCH_BYTES / 2)
		return false;
	return body->state == BODY_UNTIL_CLOSE ||
	       (body->state == BODY_LENGTH && body->left >= BULK_BYTES);
}

/* ---- client to upstream ---- */

static enum flow read_up(struct http_relay *relay)
{
	struct conn *conn = relay->conn;
	ssize_t n = recv(conn->fd, relay->server->scratch, SCRATCH_BYTES, MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? FLOW_WAIT : FLOW_SRC_LOST;
	if (n == 0)
		return flow_at_end(&conn->body);
	conn->view = str_make(relay->server->scratch, (size_t)n);
	return FLOW_MORE;
}

static enum flow pass_up(struct http_relay *relay)
{
	struct conn *conn = relay->conn;
	size_t got = conn->view.n;
	struct str kept[2];
	ssize_t n = body_pass_bare(&conn->body, conn->view, kept);
	struct iovec iov[2];
	int r;

	if (n < 0)
		return FLOW_BAD;
	iov[0] = iov_of(kept[0]);
	iov[1] = iov_of(kept[1]);
	/* Also what is not taken is spent: it must never be read as the next request. */
	conn->view = str_from(conn->view, (size_t)n);
	relay->x->continued = true;
	r = outq_send(&relay->up, relay->fd, iov, 2);
	if (r < 0)
		return FLOW_DST_LOST;
	relay->up_bulk = is_bulk(relay, &conn->body, got);
	note_fed(relay, (size_t)n);
	if (r == 0)
		return FLOW_WAIT;
	/* A short read has emptied the socket; epoll tells when there is more. */
	return got < SCRATCH_BYTES && !body_is_done(&conn->body) ? FLOW_WAIT : FLOW_MORE;
}

static enum flow step_up(struct http_relay *relay)
{
	struct conn *conn = relay->conn;
	size_t pending = outq_pending(&relay->up);
	enum flow flow;
	int r;

	if (pending > 0) {
		r = outq_send(&relay->up, relay->fd, NULL, 0);
		if (outq_pending(&relay->up) < pending)
			note_moved(relay);
		if (r <= 0)
			return r < 0 ? FLOW_DST_LOST : FLOW_WAIT;
	}
	if (relay->up_pipe || (relay->up_bulk && conn->view.n == 0))
		return flow_of(relay,
			move_bulk(relay, &relay->up_pipe, conn->fd, relay->fd, &conn->body),
			&conn->body, &relay->up_bulk);
	if (body_is_done(&conn->body))
		return FLOW_END;
	if (conn->view.n == 0) {
		flow = read_up(relay);
		if (flow != FLOW_MORE)
			return flow;
	}
	return pass_up(relay);
}

enum flow relay_move_up(struct http_relay *relay)
{
	enum flow flow = FLOW_MORE;

	for (int i = 0; i < FLOW_TURNS && flow == FLOW_MORE; i++)
		flow = step_up(relay);
	conn_settle(relay->conn);
	return flow == FLOW_MORE ? FLOW_WAIT : flow;
}

/* ---- upstream to client ---- */

/* Chunks may be a byte each: all that came are sent at once. */
static ssize_t send_decoded(struct http_relay *relay, struct str head, struct str bytes)
{
	struct conn *conn = relay->conn;
	struct iovec iov = iov_of(head);
	int r = outq_add(&conn->out, &iov, 1, 0);
	ssize_t n = 0;

	relay->x->begun = true;
	while (n >= 0 && r == 0 && bytes.n > 0 && !body_is_done(&relay->reply)) {
		struct str piece;

		n = body_next(&relay->reply, bytes, &piece);
		bytes = str_from(bytes, (size_t)MAX(n, 0));
		iov = iov_of(piece);
		if (n > 0)
			r = outq_add(&conn->out, &iov, 1, 0);
	}
	if (r < 0)
		conn_lose(conn);
	conn_flush(conn);
	return n;
}

/* The reply's head, if this is its beginning, and body bytes in the client's framing, in one call.
 */
static enum flow send_down(struct http_relay *relay, struct str head, struct str bytes)
{
	struct iovec iov[4] = { iov_of(head), iov_of(bytes), iov_of(STR("\r\n")) };
	char size[24];
	ssize_t n = 0;

	switch (relay->mode) {
	case RELAY_RAW:
		n = body_pass(&relay->reply, bytes);
		iov[1].iov_len = (size_t)MAX(n, 0);
		if (n >= 0)
			conn_send(relay->conn, iov, 2);
		break;
	case RELAY_RECHUNK:
		n = snprintf(size, sizeof size, "%zx\r\n", bytes.n);
		iov[3] = iov[2];
		iov[2] = iov[1];
		iov[1] = (struct iovec){ size, (size_t)n };
		conn_send(relay->conn, iov, bytes.n > 0 ? 4 : 1);
		break;
	case RELAY_DECODE:
		n = send_decoded(relay, head, bytes);
		break;
	}
	if (n < 0)
		return FLOW_BAD;
	relay->x->begun = true;
	note_moved(relay);
	return relay->conn->fd < 0 ? FLOW_DST_LOST : FLOW_MORE;
}

static void start_reply_body(struct http_relay *relay, const struct head *head)
{
	const struct http_exchange *x = relay->x;

	relay->mode = RELAY_RAW;
	if (x->no_body && head->status != 101)
		body_start_length(&relay->reply, 0);
	else if (head->chunked)
		body_start_chunked(&relay->reply);
	else if (head->length >= 0 && head->status != 101)
		body_start_length(&relay->reply, head->length);
	else
		body_start_until_close(&relay->reply);
	if (head->chunked && x->head.minor == 0)
		relay->mode = RELAY_DECODE;
	else if (relay->reply.state == BODY_UNTIL_CLOSE && x->chunked)
		relay->mode = RELAY_RECHUNK;
}

static enum flow begin_reply(struct http_relay *relay, const struct head *head, struct str rest)
{
	struct conn *conn = relay->conn;
	bool tunnel = head->status == 101;
	enum flow flow;

	if (tunnel &&
		(!relay->x->head.upgrade || !relay->up_done || head->chunked || head->length > 0))
		return FLOW_BAD; /* nobody asked for it, or it is no tunnel */
	if (relay_reply_head(relay->x, head) < 0)
		return FLOW_BAD;
	start_reply_body(relay, head);
	flow = send_down(relay, buf_str(&relay->server->head), rest);
	if (flow != FLOW_MORE)
		return flow;
	relay->state = tunnel ? RELAY_TUNNEL : RELAY_BODY;
	if (tunnel) {
		body_start_until_close(&conn->body);
		relay->up_done = false;
	}
	return FLOW_MORE;
}

static enum flow pass_interim(struct http_relay *relay, const struct head *head)
{
	struct iovec iov;

	if (++relay->n_interim > MAX_INTERIM)
		return FLOW_BAD;
	if (relay->x->head.minor == 0)
		return FLOW_MORE; /* HTTP/1.0 knows no such thing */
	if (relay_interim_head(relay->x, head) < 0)
		return FLOW_BAD;
	relay->x->continued |= head->status == 100;
	iov = iov_of(buf_str(&relay->server->head));
	conn_send(relay->conn, &iov, 1);
	return relay->conn->fd < 0 ? FLOW_DST_LOST : FLOW_MORE;
}

/* Interim heads and then the head, as far as they have come. */
static enum flow take_heads(struct http_relay *relay, struct str bytes, size_t *ret_rest)
{
	struct http_server *server = relay->server;
	enum flow flow = FLOW_MORE;
	struct head head;
	size_t end = 0;
	int r;

	while (flow == FLOW_MORE) {
		r = head_find_end(bytes, server->limits.head_bytes, &relay->scan, &end);
		if (r == 0)
			break;
		if (r < 0 || end == 2)
			return FLOW_BAD;
		r = head_parse_response(str_make(bytes.p, end), server->fields,
			(size_t)server->limits.max_headers, &head);
		if (r != 0)
			return FLOW_BAD;
		relay->scan = (struct head_scan){ 0 };
		bytes = str_from(bytes, end);
		*ret_rest = bytes.n;
		if (head.status >= 200 || head.status == 101)
			return begin_reply(relay, &head, bytes);
		flow = pass_interim(relay, &head);
	}
	return flow;
}

static enum flow take_reply(struct http_relay *relay, struct str bytes)
{
	bool is_held = relay->held.n > 0;
	enum flow flow;
	size_t rest;

	if (relay->state != RELAY_HEAD)
		return send_down(relay, STR_NONE, bytes);
	if (is_held) {
		if (buf_add_str(&relay->held, bytes) < 0)
			return FLOW_BAD;
		bytes = buf_str(&relay->held);
	}
	rest = bytes.n;
	flow = take_heads(relay, bytes, &rest);
	if (flow != FLOW_MORE || relay->state != RELAY_HEAD)
		buf_done(&relay->held);
	else if (is_held)
		buf_consume(&relay->held, bytes.n - rest);
	else if (buf_add_str(&relay->held, str_from(bytes, bytes.n - rest)) < 0)
		return FLOW_BAD;
	return flow;
}

static enum flow read_down(struct http_relay *relay)
{
	ssize_t n = recv(relay->fd, relay->server->scratch, SCRATCH_BYTES, MSG_DONTWAIT);
	enum flow flow;

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? FLOW_WAIT : FLOW_SRC_LOST;
	if (n == 0)
		return relay->state == RELAY_HEAD ? FLOW_SRC_LOST : flow_at_end(&relay->reply);
	flow = take_reply(relay, str_make(relay->server->scratch, (size_t)n));
	if (flow != FLOW_MORE || relay->conn->blocked)
		return flow == FLOW_MORE ? FLOW_WAIT : flow;
	relay->down_bulk = relay->state != RELAY_HEAD && relay->mode == RELAY_RAW &&
			   is_bulk(relay, &relay->reply, (size_t)n);
	if (relay->state == RELAY_BODY && body_is_done(&relay->reply))
		return FLOW_MORE;
	return n < SCRATCH_BYTES ? FLOW_WAIT : FLOW_MORE;
}

static enum flow step_down(struct http_relay *relay)
{
	struct conn *conn = relay->conn;
	size_t pending = outq_pending(&conn->out);

	conn_flush(conn);
	if (outq_pending(&conn->out) < pending)
		note_moved(relay);
	if (conn->fd < 0)
		return FLOW_DST_LOST;
	if (conn->blocked && !relay->down_pipe)
		return FLOW_WAIT;
	if (relay->down_pipe || relay->down_bulk)
		return flow_of(relay,
			move_bulk(relay, &relay->down_pipe, relay->fd, conn->fd, &relay->reply),
			&relay->reply, &relay->down_bulk);
	if (relay->state == RELAY_BODY && body_is_done(&relay->reply))
		return FLOW_END;
	return read_down(relay);
}

enum flow relay_move_down(struct http_relay *relay)
{
	enum flow flow = FLOW_MORE;

	for (int i = 0; i < FLOW_TURNS && flow == FLOW_MORE; i++)
		flow = step_down(relay);
	return flow == FLOW_MORE ? FLOW_WAIT : flow;
}
