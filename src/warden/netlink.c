#include "warden/netlink.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

int netlink_open(int *ret, struct err *e)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), one = 1;

	if (fd < 0)
		return err_sys(e, -errno, "open a routing socket");
	/* Without the echo of the request an answer always fits the buffer. */
	(void)setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &one, sizeof one);
	*ret = fd;
	return 0;
}

void netlink_raw(struct netlink_batch *b, const void *p, size_t n)
{
	assert(b->n + NLMSG_ALIGN(n) <= sizeof b->data);
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

void netlink_begin(struct netlink_batch *b, uint16_t type, uint16_t flags, const void *head,
	size_t n)
{
	struct nlmsghdr h = { .nlmsg_type = type,
		.nlmsg_flags = (uint16_t)(flags | NLM_F_REQUEST | NLM_F_ACK),
		.nlmsg_seq = ++b->requests };

	b->message = b->n;
	netlink_raw(b, &h, sizeof h);
	netlink_raw(b, head, n);
	update_length(b);
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

	memcpy(b->data + nest + offsetof(struct rtattr, rta_len), &n, sizeof n);
	update_length(b);
}

/* Counts the answers in one datagram, and keeps the first refusal. */
static int read_answers(const uint8_t *p, size_t n, uint32_t *answers, int *first)
{
	while (n >= sizeof(struct nlmsghdr)) {
		struct nlmsghdr h;
		int code;

		memcpy(&h, p, sizeof h);
		if (h.nlmsg_len < sizeof h || h.nlmsg_len > n)
			return -EPROTO;
		if (h.nlmsg_type == NLMSG_ERROR && h.nlmsg_len >= sizeof h + sizeof code) {
			memcpy(&code, p + sizeof h, sizeof code);
			(*answers)++;
			if (code < 0 && *first == 0)
				*first = code;
		}
		n -= MIN((size_t)NLMSG_ALIGN(h.nlmsg_len), n);
		p += NLMSG_ALIGN(h.nlmsg_len);
	}
	return 0;
}

int netlink_run(int fd, struct netlink_batch *b)
{
	uint32_t wanted = b->requests, answers = 0;
	int first = 0, r = 0;
	ssize_t n = send(fd, b->data, b->n, 0);

	*b = (struct netlink_batch){ 0 };
	if (n < 0)
		return -errno;
	while (r >= 0 && answers < wanted) {
		uint8_t in[4096];

		n = recv(fd, in, sizeof in, 0);
		if (n < 0 && errno == EINTR)
			continue;
		r = n < 0 ? -errno : read_answers(in, (size_t)n, &answers, &first);
	}
	return r < 0 ? r : first;
}
