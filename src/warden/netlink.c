#include "warden/netlink.h"

#include <linux/rtnetlink.h>
#include <sys/socket.h>

enum {
	ANSWER_BYTES = 32768,  /* no dump's datagram is larger */
	SEND_BUFFER = 1 << 20, /* a batch is one datagram */
};

int netlink_open(int protocol, int *ret, struct err *e)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol), one = 1, size = SEND_BUFFER;

	if (fd < 0)
		return err_sys(e, -errno, "open a netlink socket");
	/* Without the echo of the request an answer always fits the buffer. */
	(void)setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &one, sizeof one);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
	*ret = fd;
	return 0;
}

void netlink_raw(struct netlink_batch *b, const void *p, size_t n)
{
	assert(b->n + NLMSG_ALIGN(n) <= b->size);
	memcpy(b->data + b->n, p, n);
	memset(b->data + b->n + n, 0, NLMSG_ALIGN(n) - n);
	b->n += NLMSG_ALIGN(n);
}

/* Every append grows the open message, whose length is its first field. */
static void update_length(struct netlink_batch *b)
{
	uint32_t n = (uint32_t)(b->n - b->message);

	memcpy(b->data + b->message + offsetof(struct nlmsghdr, nlmsg_len), &n, sizeof n);
}

static void begin(struct netlink_batch *b, const struct nlmsghdr *h, const void *head, size_t n)
{
	b->message = b->n;
	netlink_raw(b, h, sizeof *h);
	netlink_raw(b, head, n);
	update_length(b);
}

void netlink_begin(struct netlink_batch *b, uint16_t type, uint16_t flags, const void *head,
	size_t n)
{
	struct nlmsghdr h = { .nlmsg_type = type,
		.nlmsg_flags = (uint16_t)(flags | NLM_F_REQUEST | NLM_F_ACK),
		.nlmsg_seq = ++b->requests };

	begin(b, &h, head, n);
}

void netlink_begin_mark(struct netlink_batch *b, uint16_t type, const void *head, size_t n)
{
	struct nlmsghdr h = { .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST };

	begin(b, &h, head, n);
}

static void add_head(struct netlink_batch *b, uint16_t type, size_t n)
{
	struct rtattr a = { .rta_len = (uint16_t)(sizeof a + n), .rta_type = type };

	netlink_raw(b, &a, sizeof a);
}

void netlink_add(struct netlink_batch *b, uint16_t type, const void *p, size_t n)
{
	add_head(b, type, n);
	netlink_raw(b, p, n);
	update_length(b);
}

void netlink_add_str(struct netlink_batch *b, uint16_t type, const char *text)
{
	netlink_add(b, type, text, strlen(text) + 1);
}

void netlink_add_u32(struct netlink_batch *b, uint16_t type, uint32_t value)
{
	netlink_add(b, type, &value, sizeof value);
}

size_t netlink_nest(struct netlink_batch *b, uint16_t type)
{
	size_t at = b->n;

	add_head(b, (uint16_t)(type | NLA_F_NESTED), 0);
	update_length(b);
	return at;
}

void netlink_nest_end(struct netlink_batch *b, size_t nest)
{
	uint16_t n = (uint16_t)(b->n - nest);

	assert(b->n - nest <= UINT16_MAX);
	memcpy(b->data + nest + offsetof(struct rtattr, rta_len), &n, sizeof n);
	update_length(b);
}

/* The next message of a datagram: its header, and what follows it. */
static bool next_message(struct str *rest, struct nlmsghdr *ret, struct str *ret_body)
{
	size_t whole;

	if (rest->n < sizeof *ret)
		return false;
	memcpy(ret, rest->p, sizeof *ret);
	if (ret->nlmsg_len < sizeof *ret || ret->nlmsg_len > rest->n)
		return false;
	*ret_body = str_make(rest->p + sizeof *ret, ret->nlmsg_len - sizeof *ret);
	whole = MIN((size_t)NLMSG_ALIGN(ret->nlmsg_len), rest->n);
	*rest = str_from(*rest, whole);
	return true;
}

static int error_of(struct str body)
{
	int code = -EPROTO;

	if (body.n >= sizeof code)
		memcpy(&code, body.p, sizeof code);
	return code;
}

/* One datagram; nothing more to read is -EAGAIN. */
static ssize_t receive(int fd, char *p, size_t size)
{
	ssize_t n;

	do
		n = recv(fd, p, size, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

int netlink_run(int fd, struct netlink_batch *b)
{
	uint32_t wanted = b->requests, answers = 0;
	int first = 0;
	ssize_t n = send(fd, b->data, b->n, 0);
	char in[4096];

	b->n = b->requests = 0;
	if (n < 0)
		return -errno;
	while ((n = receive(fd, in, sizeof in)) >= 0) {
		struct str rest = str_make(in, (size_t)n), body;
		struct nlmsghdr h;

		while (next_message(&rest, &h, &body)) {
			int code = h.nlmsg_type == NLMSG_ERROR ? error_of(body) : 0;

			answers++;
			if (first == 0 && code < 0)
				first = code;
		}
	}
	if (first < 0)
		return first;
	if (n != -EAGAIN)
		return (int)n;
	return answers < wanted ? -EPROTO : 0;
}

int netlink_dump(int fd, struct netlink_batch *b, netlink_entry_fn fn, void *arg)
{
	cleanup_free char *in = XNEW_N(char, ANSWER_BYTES);
	ssize_t n = send(fd, b->data, b->n, 0);

	b->n = b->requests = 0;
	if (n < 0)
		return -errno;
	while ((n = receive(fd, in, ANSWER_BYTES)) >= 0) {
		struct str rest = str_make(in, (size_t)n), body;
		struct nlmsghdr h;

		while (next_message(&rest, &h, &body)) {
			if (h.nlmsg_type == NLMSG_DONE)
				return 0;
			if (h.nlmsg_type == NLMSG_ERROR)
				return error_of(body);
			fn(arg, body);
		}
	}
	return (int)n;
}

int netlink_each(struct str datagram, netlink_entry_fn fn, void *arg)
{
	struct nlmsghdr h;
	struct str body;

	while (next_message(&datagram, &h, &body)) {
		if (h.nlmsg_type == NLMSG_ERROR)
			return error_of(body);
		if (h.nlmsg_type != NLMSG_DONE)
			fn(arg, body);
	}
	return datagram.n ? -EPROTO : 0;
}

bool netlink_next(struct str *list, uint16_t *ret_type, struct str *ret)
{
	struct rtattr a;

	if (list->n < sizeof a)
		return false;
	memcpy(&a, list->p, sizeof a);
	if (a.rta_len < sizeof a || a.rta_len > list->n)
		return false;
	*ret_type = a.rta_type & NLA_TYPE_MASK;
	*ret = str_make(list->p + sizeof a, a.rta_len - sizeof a);
	*list = str_from(*list, MIN((size_t)RTA_ALIGN(a.rta_len), list->n));
	return true;
}

struct str netlink_find(struct str list, uint16_t type)
{
	uint16_t found;
	struct str value;

	while (netlink_next(&list, &found, &value))
		if (found == type)
			return value;
	return (struct str){ 0 };
}
