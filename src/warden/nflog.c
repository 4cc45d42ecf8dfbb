#include "warden/nflog.h"
#include "warden/netlink.h"

#include <arpa/inet.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <sys/socket.h>

enum {
	GROUPS_TRIED = 16,
	DATAGRAMS_PER_TURN = 16,
	COPY_BYTES = 64, /* the longest IPv4 header and the ports */
	DELAY_CS = 10,   /* hundredths of a second that the kernel collects before it tells */
	DATAGRAM_BYTES = 65536,
};

static void begin(struct netlink_batch *b, uint16_t group)
{
	struct nfgenmsg head = { .nfgen_family = AF_UNSPEC,
		.version = NFNETLINK_V0,
		.res_id = htons(group) };

	netlink_begin(b, NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_CONFIG, 0, &head, sizeof head);
}

/* -EBUSY: somebody else has the group. */
static int bind_group(int fd, uint16_t group)
{
	uint8_t bytes[NETLINK_BATCH_BYTES];
	struct netlink_batch b = netlink_batch(bytes, sizeof bytes);
	struct nfulnl_msg_config_cmd bind_it = { .command = NFULNL_CFG_CMD_BIND };
	struct nfulnl_msg_config_mode mode = { .copy_range = htonl(COPY_BYTES),
		.copy_mode = NFULNL_COPY_PACKET };
	int r;

	begin(&b, group);
	netlink_add(&b, NFULA_CFG_CMD, &bind_it, sizeof bind_it);
	r = netlink_run(fd, &b);
	if (r < 0)
		return r;
	begin(&b, group);
	netlink_add(&b, NFULA_CFG_MODE, &mode, sizeof mode);
	netlink_add_u32(&b, NFULA_CFG_TIMEOUT, htonl(DELAY_CS));
	return netlink_run(fd, &b);
}

static uint16_t group_of(const char *name, int attempt)
{
	uint32_t hash = 5381;

	for (; *name; name++)
		hash = hash * 33 + (uint8_t)*name;
	/* Low ones are what people give to their own rules. */
	return (uint16_t)(1024 + (hash + (uint32_t)attempt) % 60000);
}

int nflog_open(const char *name, int *ret_fd, uint16_t *ret_group, struct err *e)
{
	cleanup_close int fd = -EBADF;
	int r = netlink_open(NETLINK_NETFILTER, &fd, e);
	uint16_t group = 0;

	if (r < 0)
		return r;
	r = -EBUSY;
	for (int i = 0; r == -EBUSY && i < GROUPS_TRIED; i++) {
		group = group_of(name, i);
		r = bind_group(fd, group);
	}
	if (r < 0)
		return err_sys(e, r, "hear of refused packets");
	*ret_fd = TAKE_FD(fd);
	*ret_group = group;
	return 0;
}

/* What is at the start of a packet from a sandbox: anything. */
static bool parse_packet(struct str packet, struct logged_packet *ret)
{
	struct iphdr ip;
	uint16_t ports[2];
	size_t head;

	if (packet.n < sizeof ip)
		return false;
	memcpy(&ip, packet.p, sizeof ip);
	head = (size_t)ip.ihl * 4;
	if (ip.version != 4 || head < sizeof ip)
		return false;
	ret->protocol = ip.protocol;
	ret->address = ntohl(ip.daddr);
	ret->port = 0;
	if ((ip.protocol == IPPROTO_TCP || ip.protocol == IPPROTO_UDP) &&
		packet.n >= head + sizeof ports) {
		memcpy(ports, packet.p + head, sizeof ports);
		ret->port = ntohs(ports[1]);
	}
	return true;
}

bool nflog_parse(struct str attributes, struct logged_packet *ret)
{
	struct str index = netlink_find(attributes, NFULA_IFINDEX_INDEV);
	struct str packet = netlink_find(attributes, NFULA_PAYLOAD);

	if (index.n != sizeof ret->index || !parse_packet(packet, ret))
		return false;
	memcpy(&ret->index, index.p, sizeof ret->index);
	ret->index = ntohl(ret->index);
	return true;
}

struct reader {
	nflog_fn fn;
	void *arg;
};

static void on_entry(void *arg, struct str entry)
{
	struct reader *reader = arg;
	struct logged_packet packet;

	if (nflog_parse(str_from(entry, NLMSG_ALIGN(sizeof(struct nfgenmsg))), &packet))
		reader->fn(reader->arg, &packet);
}

void nflog_read(int fd, nflog_fn fn, void *arg)
{
	cleanup_free char *in = XNEW_N(char, DATAGRAM_BYTES);
	struct reader reader = { fn, arg };

	for (int i = 0; i < DATAGRAMS_PER_TURN; i++) {
		ssize_t n = recv(fd, in, DATAGRAM_BYTES, MSG_DONTWAIT);

		if (n <= 0) /* nothing more; or more than fitted, and what was lost is counted all
			       the same */
			return;
		(void)netlink_each(str_make(in, (size_t)n), on_entry, &reader);
	}
}
