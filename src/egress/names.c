/* The sandboxes' questions. Each is judged by the policy of who asks; what may be asked is looked
 * up and answered with what came, never with the message itself. */
#include "egress/names.h"

#include <arpa/inet.h>

enum {
	DATAGRAMS_A_TURN = 64,
	QUERY_MAX_BYTES = 1024, /* a question and its options */
	MAX_STREAMS = 256,      /* of all sandboxes together */
	STREAM_IDLE_MS = 10000,
	STREAM_OUT_MAX = 2 * DNS_MESSAGE_MAX,
	RECEIVE_BUFFER_BYTES = 4 << 20,
};

struct names {
	struct egress *egress;
	int udp_fd; /* the caller's */
	struct loop_io udp;
	struct loop_listener tcp;
	struct list asks, streams;
	size_t n_streams;
};

struct stream;

/* One question under way, from a datagram or from a stream. */
struct ask {
	struct list node;
	struct names *names;
	struct dns_query query;
	struct lookup *lookup;
	struct stream *stream; /* NULL: a datagram, and then the next two */
	struct sockaddr_in peer;
	struct in_addr local;
};

struct stream {
	struct list node;
	struct names *names;
	struct tenant *tenant;
	int fd;
	struct loop_io io;
	struct loop_timer timer;
	struct loop_task task;
	struct buf in, out;
	struct ask *ask; /* one at a time: the next is read when it is answered */
	bool closed;
};

static void stream_reply(struct stream *s, struct str message);
static void stream_run(struct stream *s);

/* ---- replies ---- */

static void send_datagram(const struct ask *a, struct str message)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(struct in_pktinfo))];
	} control = { 0 };
	struct in_pktinfo info = { .ipi_spec_dst = a->local };
	union {
		const void *in;
		void *out;
	} bytes = { .in = message.p }, to = { .in = &a->peer };
	struct iovec iov = { bytes.out, message.n };
	struct msghdr msg = { .msg_name = to.out,
		.msg_namelen = sizeof a->peer,
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof control };

	control.header.cmsg_level = IPPROTO_IP;
	control.header.cmsg_type = IP_PKTINFO;
	control.header.cmsg_len = CMSG_LEN(sizeof info);
	memcpy(CMSG_DATA(&control.header), &info, sizeof info);
	(void)sendmsg(a->names->udp_fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void reply(const struct ask *a, enum dns_rcode rcode, const struct dns_answer *answer,
	uint32_t age_s)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT((size_t)3 * DNS_MESSAGE_MAX);
	size_t max = a->stream ? DNS_MESSAGE_MAX : a->query.udp_max;

	if (dns_write_reply(&out, &a->query, rcode, answer, age_s, max) < 0)
		return;
	if (a->stream)
		stream_reply(a->stream, buf_str(&out));
	else
		send_datagram(a, buf_str(&out));
}

/* ---- asking ---- */

static void ask_free(struct ask *a)
{
	lookup_cancel(a->lookup);
	if (a->stream)
		a->stream->ask = NULL;
	list_remove(&a->node);
	free(a);
}

static void on_answer(void *arg, const struct dns_answer *answer, uint32_t age_s)
{
	struct ask *a = arg;
	struct stream *s = a->stream;

	a->lookup = NULL; /* it frees itself */
	reply(a, DNS_SERVFAIL, answer, age_s);
	ask_free(a);
	if (s && !s->closed)
		stream_run(s);
}

static void look_up(const struct ask *first, struct tenant *tenant)
{
	struct ask *a = XNEW(struct ask);

	*a = *first;
	list_append(&a->names->asks, &a->node);
	if (a->stream)
		a->stream->ask = a;
	a->lookup = lookup_start(tenant, &a->query.question, on_answer, a);
	if (a->lookup)
		return;
	ask_free(a); /* it has its share under way already */
	reply(first, DNS_SERVFAIL, NULL, 0);
}

/* `first` holds whom to answer. */
static void take_question(struct ask *first, struct tenant *tenant, struct str message)
{
	char text[DNS_TEXT_SIZE];
	int judged = dns_parse_query(message, &first->query);

	if (judged < 0)
		return;
	if (judged == DNS_OK)
		judged = names_judge(&tenant->policy, &first->query.question,
			tenant->egress->opened.n > 0, text);
	if (judged == JUDGED_ASK) {
		look_up(first, tenant);
		return;
	}
	if (judged == JUDGED_DENY) {
		tenant_deny(tenant, DENIED_QUESTION, text, 0);
		judged = DNS_NXDOMAIN; /* at once and for good: a program does not try again */
	}
	reply(first, (enum dns_rcode)judged, NULL, 0);
}

/* ---- datagrams ---- */

static struct in_addr local_address(struct msghdr *msg)
{
	struct in_addr none = { 0 };

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		struct in_pktinfo info;

		if (c->cmsg_level != IPPROTO_IP || c->cmsg_type != IP_PKTINFO)
			continue;
		memcpy(&info, CMSG_DATA(c), sizeof info);
		return info.ipi_spec_dst;
	}
	return none;
}

/* False: nothing more is there. */
static bool receive(struct names *names)
{
	char bytes[QUERY_MAX_BYTES];
	union {
		struct cmsghdr header;
		char space[128];
	} control;
	struct ask first = { .names = names };
	struct iovec iov = { bytes, sizeof bytes };
	struct msghdr msg = { .msg_name = &first.peer,
		.msg_namelen = sizeof first.peer,
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof control };
	ssize_t n = recvmsg(names->udp_fd, &msg, MSG_DONTWAIT);
	struct tenant *tenant;

	if (n < 0)
		return errno != EAGAIN;
	if ((msg.msg_flags & MSG_TRUNC) || first.peer.sin_family != AF_INET)
		return true;
	first.local = local_address(&msg);
	tenant = tenant_find(names->egress, ntohl(first.peer.sin_addr.s_addr));
	if (tenant && tenant_may(tenant, RATE_QUESTIONS))
		take_question(&first, tenant, str_make(bytes, (size_t)n));
	return true;
}

static void on_datagram(void *arg, uint32_t events)
{
	(void)events;
	for (int i = 0; i < DATAGRAMS_A_TURN; i++)
		if (!receive(arg))
			return;
}

/* ---- streams ---- */

static void stream_free(struct stream *s)
{
	struct names *names = s->names;

	if (s->ask)
		ask_free(s->ask);
	loop_io_remove(&s->io);
	loop_timer_cancel(&s->timer);
	loop_task_cancel(&s->task);
	close_fdp(&s->fd);
	buf_done(&s->in);
	buf_done(&s->out);
	list_remove(&s->node);
	tenant_give_back(s->tenant, SHARE_NAME_STREAMS);
	(void)tenant_unref(s->tenant);
	names->n_streams--;
	free(s);
}

static void on_stream_closed(void *arg)
{
	stream_free(arg);
}

static void stream_close(struct stream *s)
{
	if (s->closed)
		return;
	s->closed = true;
	loop_io_remove(&s->io);
	loop_timer_cancel(&s->timer);
	loop_defer(s->names->egress->loop, &s->task, on_stream_closed, s);
}

static void on_stream_timer(void *arg)
{
	stream_close(arg);
}

static void stream_reply(struct stream *s, struct str message)
{
	const char size[2] = { (char)(message.n >> 8), (char)message.n };

	(void)buf_add(&s->out, size, sizeof size);
	(void)buf_add_str(&s->out, message);
}

static bool stream_flush(struct stream *s)
{
	ssize_t n = s->out.n ? send(s->fd, s->out.p, s->out.n, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;

	if (s->out.failed || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		stream_close(s);
		return false;
	}
	buf_consume(&s->out, (size_t)MAX(n, 0));
	return s->out.n == 0;
}

/* False: the next question is not here yet. */
static bool stream_take_one(struct stream *s)
{
	struct ask first = { .names = s->names, .stream = s };
	size_t size = s->in.n < 2 ? 0 : (size_t)(uint8_t)s->in.p[0] << 8 | (uint8_t)s->in.p[1];

	if (s->in.n < 2 || s->in.n < size + 2)
		return false;
	if (!tenant_may(s->tenant, RATE_QUESTIONS)) {
		stream_close(s);
		return false;
	}
	take_question(&first, s->tenant, str_make(s->in.p + 2, size));
	buf_consume(&s->in, size + 2);
	return true;
}

/* While a question is under way, or its answer not taken, nothing more is read: that bounds what
 * one can pile up. */
static void stream_run(struct stream *s)
{
	bool idle = true;

	while (!s->closed && !s->ask && stream_flush(s) && stream_take_one(s))
		idle = false;
	if (s->closed)
		return;
	if (!idle)
		loop_timer_set(&s->timer, loop_now_ms(s->names->egress->loop) + STREAM_IDLE_MS);
	loop_io_set(&s->io, (s->ask || s->out.n ? 0 : EPOLLIN) | (s->out.n ? EPOLLOUT : 0));
}

static void on_stream(void *arg, uint32_t events)
{
	struct stream *s = arg;
	char bytes[QUERY_MAX_BYTES];
	ssize_t n;

	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
		n = recv(s->fd, bytes, sizeof bytes, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) ||
			buf_add(&s->in, bytes, (size_t)MAX(n, 0)) < 0) {
			stream_close(s);
			return;
		}
	}
	stream_run(s);
}

static void on_stream_accepted(void *arg, int fd, const struct sockaddr_storage *peer)
{
	struct names *names = arg;
	struct egress *egress = names->egress;
	const struct sockaddr_in *in4 = (const void *)peer;
	struct tenant *t = peer->ss_family == AF_INET
				   ? tenant_find(egress, ntohl(in4->sin_addr.s_addr))
				   : NULL;
	struct stream *s;

	if (!t || !tenant_take(t, SHARE_NAME_STREAMS, names->n_streams, MAX_STREAMS)) {
		close_hard(fd);
		return;
	}
	s = XNEW(struct stream);
	s->names = names;
	s->tenant = tenant_ref(t);
	s->fd = fd;
	s->in = BUF_INIT((size_t)2 * QUERY_MAX_BYTES);
	s->out = BUF_INIT(STREAM_OUT_MAX);
	list_append(&names->streams, &s->node);
	names->n_streams++;
	loop_timer_init(&s->timer, egress->loop, on_stream_timer, s);
	loop_timer_set(&s->timer, loop_now_ms(egress->loop) + STREAM_IDLE_MS);
	if (loop_io_add(egress->loop, &s->io, fd, EPOLLIN, on_stream, s, NULL) < 0)
		stream_close(s);
}

/* ---- life ---- */

int names_new(struct egress *egress, int udp_fd, int tcp_fd, struct names **ret, struct err *e)
{
	struct names *names = XNEW(struct names);
	int size = RECEIVE_BUFFER_BYTES;
	int own_fd = fcntl(tcp_fd, F_DUPFD_CLOEXEC, 0), r;

	names->egress = egress;
	names->udp_fd = udp_fd;
	names->tcp.fd = -EBADF;
	list_init(&names->asks);
	list_init(&names->streams);
	(void)setsockopt(udp_fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
	if (own_fd < 0)
		r = err_sys(e, -errno, "keep the name server's socket");
	else
		r = loop_listener_take(egress->loop, &names->tcp, own_fd, on_stream_accepted, names,
			e);
	if (r >= 0)
		r = loop_io_add(egress->loop, &names->udp, udp_fd, EPOLLIN, on_datagram, names, e);
	if (r < 0) {
		(void)names_free(names);
		return r;
	}
	*ret = names;
	return 0;
}

struct names *names_free(struct names *names)
{
	if (!names)
		return NULL;
	loop_io_remove(&names->udp);
	loop_listener_close(&names->tcp);
	LIST_EACH(&names->streams, node)
	stream_free(container_of(node, struct stream, node));
	LIST_EACH(&names->asks, node)
	ask_free(container_of(node, struct ask, node));
	free(names);
	return NULL;
}
