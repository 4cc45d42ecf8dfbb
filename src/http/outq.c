#include "http/http-internal.h"

enum {
	MAX_IOV = 8
};

int outq_add(struct outq *q, const struct iovec *iov, int n_iov, size_t skip)
{
	for (int i = 0; i < n_iov; i++) {
		size_t cut = MIN(skip, iov[i].iov_len);

		skip -= cut;
		if (iov[i].iov_len > cut && buf_add(&q->buf, (const char *)iov[i].iov_base + cut,
						    iov[i].iov_len - cut) < 0)
			return -ENOBUFS;
	}
	return 0;
}

void outq_done(struct outq *q)
{
	buf_done(&q->buf);
	q->at = 0;
}

/* Drops what was sent from the queue; memory is not held for later. */
static void advance(struct outq *q, size_t n)
{
	q->at += n;
	if (q->buf.cap == 0)
		return;
	if (q->at == q->buf.n) {
		outq_done(q);
	} else if (q->at > q->buf.n / 2) {
		buf_consume(&q->buf, q->at);
		q->at = 0;
	}
}

int outq_send(struct outq *q, int fd, const struct iovec *iov, int n_iov)
{
	size_t queued = outq_pending(q), total = queued;
	struct iovec all[MAX_IOV];
	struct msghdr msg = { .msg_iov = all };
	ssize_t sent;

	assert(n_iov < MAX_IOV);
	if (queued > 0)
		all[msg.msg_iovlen++] = (struct iovec){ q->buf.p + q->at, queued };
	for (int i = 0; i < n_iov; i++) {
		all[msg.msg_iovlen++] = iov[i];
		total += iov[i].iov_len;
	}
	if (total == 0)
		return 1;
	do
		sent = sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (sent < 0 && errno == EINTR);
	if (sent < 0 && errno != EAGAIN)
		return -errno;
	sent = MAX(sent, 0);
	advance(q, MIN((size_t)sent, queued));
	if ((size_t)sent == total)
		return 1;
	return outq_add(q, iov, n_iov, (size_t)sent > queued ? (size_t)sent - queued : 0);
}

/* ---- a connection's output ---- */

void conn_account(struct conn *conn)
{
	size_t unread = conn->out.buf.cap + conn->in.cap,
	       collected = conn->x ? conn->x->body.cap : 0;

	if (unread + collected != conn->slot.bytes)
		admission_note(&conn->slot, unread, collected);
}

size_t conn_write_high(const struct conn *conn)
{
	size_t high = conn->server->limits.write_high_bytes;

	return admission_should_throttle(&conn->slot) ? MIN(high, (size_t)THROTTLED_HIGH_BYTES)
						      : high;
}

static void note_sent(struct conn *conn, int r)
{
	if (r < 0) {
		conn_lose(conn);
		return;
	}
	if (r == 0)
		conn->since_ms = loop_now_ms(conn->server->loop);
	conn->answered = conn->half_closed;
	conn->blocked = r == 0;
	if (conn->blocked)
		loop_io_set(&conn->io, conn->io.events | EPOLLOUT);
	conn_account(conn);
}

void conn_send(struct conn *conn, const struct iovec *iov, int n_iov)
{
	if (conn->fd < 0)
		return;
	if (!conn->blocked)
		note_sent(conn, outq_send(&conn->out, conn->fd, iov, n_iov));
	else if (outq_add(&conn->out, iov, n_iov, 0) < 0)
		conn_lose(conn);
	else
		conn_account(conn);
}

void conn_flush(struct conn *conn)
{
	if (conn->fd >= 0 && !conn->blocked && outq_pending(&conn->out) > 0)
		note_sent(conn, outq_send(&conn->out, conn->fd, NULL, 0));
	if (conn->fd >= 0 && !conn->blocked && conn->x && conn->x->file_left > 0)
		reply_send_file(conn, conn->x);
}
