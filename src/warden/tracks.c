#include "warden/tracks.h"
#include "warden/netlink.h"

#include <arpa/inet.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>

enum {
	BY_SOURCE = 1, /* the kernel's flag in CTA_FILTER_ORIG_FLAGS for the source address */
	FOUND_MAX = 1 << 20,
	ROUNDS_MAX = 64, /* of so many connections each */
	TUPLE_MAX = 1024,
	DNS_PORT = 53,
};

int tracks_open(int *ret, struct err *e)
{
	return netlink_open(NETLINK_NETFILTER, ret, e);
}

static uint16_t type_of(uint16_t message)
{
	return (uint16_t)(NFNL_SUBSYS_CTNETLINK << 8 | message);
}

/* The attributes of one entry, as it was begun; p NULL: it is not of IPv4. */
static struct str tuple_of(struct str entry, uint32_t *ret_source)
{
	struct str tuple, source = { 0 };

	if (entry.n < sizeof(struct nfgenmsg))
		return source;
	tuple = netlink_find(str_from(entry, sizeof(struct nfgenmsg)), CTA_TUPLE_ORIG);
	source = netlink_find(netlink_find(tuple, CTA_TUPLE_IP), CTA_IP_V4_SRC);
	if (source.n != sizeof *ret_source || tuple.n > TUPLE_MAX)
		return (struct str){ 0 };
	memcpy(ret_source, source.p, sizeof *ret_source);
	*ret_source = ntohl(*ret_source);
	return tuple;
}

/* ---- listing ---- */

static void begin_list(struct netlink_batch *b)
{
	const struct nfgenmsg head = { .nfgen_family = AF_INET, .version = NFNETLINK_V0 };

	netlink_begin(b, type_of(IPCTNL_MSG_CT_GET), NLM_F_DUMP, &head, sizeof head);
}

/* Kernels that know the filter leave out the others; all others list everything. */
static void add_filter(struct netlink_batch *b, uint32_t address)
{
	size_t tuple = netlink_nest(b, CTA_TUPLE_ORIG), ip = netlink_nest(b, CTA_TUPLE_IP), filter;

	netlink_add_u32(b, CTA_IP_V4_SRC, htonl(address));
	netlink_nest_end(b, ip);
	netlink_nest_end(b, tuple);
	filter = netlink_nest(b, CTA_FILTER);
	netlink_add_u32(b, CTA_FILTER_ORIG_FLAGS, BY_SOURCE);
	netlink_nest_end(b, filter);
}

struct visit {
	tracks_source_fn fn;
	void *arg;
};

static void on_any(void *arg, struct str entry)
{
	const struct visit *visit = arg;
	uint32_t source;

	if (tuple_of(entry, &source).p)
		visit->fn(visit->arg, source);
}

int tracks_each(int fd, tracks_source_fn fn, void *arg)
{
	uint8_t data[NETLINK_BATCH_BYTES];
	struct netlink_batch b = netlink_batch(data, sizeof data);
	struct visit visit = { fn, arg };

	begin_list(&b);
	return netlink_dump(fd, &b, on_any, &visit);
}

/* ---- forgetting ---- */

struct search {
	const uint32_t *addresses;
	size_t n;
	const struct ranges *allowed; /* NULL: all of theirs, else what it does not allow */
	const struct private_list *opened;
	struct buf found; /* each a size (16 bits) and the attributes of its tuple */
};

static bool is_wanted(const struct search *search, uint32_t address)
{
	for (size_t i = 0; i < search->n; i++)
		if (search->addresses[i] == address)
			return true;
	return false;
}

/* As TCP is told by its next packet, see tracks_cut. */
static bool is_open(struct str tuple, const struct search *search)
{
	struct str proto = netlink_find(tuple, CTA_TUPLE_PROTO);
	struct str number = netlink_find(proto, CTA_PROTO_NUM);
	struct str port = netlink_find(proto, CTA_PROTO_DST_PORT);
	struct str to = netlink_find(netlink_find(tuple, CTA_TUPLE_IP), CTA_IP_V4_DST);
	uint32_t address;
	uint16_t dst_port = 0;

	if (number.n != 1 || to.n != sizeof address)
		return true;
	memcpy(&address, to.p, sizeof address);
	if (port.n == sizeof dst_port)
		memcpy(&dst_port, port.p, sizeof dst_port);
	return number.p[0] == IPPROTO_TCP ||
	       (number.p[0] == IPPROTO_UDP && ntohs(dst_port) == DNS_PORT) ||
	       (ranges_allow(search->allowed, ntohl(address)) &&
		       !(search->opened &&
			       private_is_closed(search->opened, ntohl(address), ntohs(dst_port))));
}

static void on_found(void *arg, struct str entry)
{
	struct search *search = arg;
	uint32_t source = 0;
	struct str tuple = tuple_of(entry, &source);
	uint16_t size = (uint16_t)tuple.n;

	if (!tuple.p || search->found.n > FOUND_MAX - TUPLE_MAX - 2 || !is_wanted(search, source))
		return; /* what does not fit is found in the next round */
	if (search->allowed && is_open(tuple, search))
		return;
	(void)buf_add(&search->found, &size, sizeof size);
	(void)buf_add_str(&search->found, tuple);
}

static int forget_one(int fd, struct str tuple)
{
	const struct nfgenmsg head = { .nfgen_family = AF_INET, .version = NFNETLINK_V0 };
	uint8_t data[NETLINK_BATCH_BYTES];
	struct netlink_batch b = netlink_batch(data, sizeof data);
	int r;

	netlink_begin(&b, type_of(IPCTNL_MSG_CT_DELETE), 0, &head, sizeof head);
	netlink_add(&b, CTA_TUPLE_ORIG | NLA_F_NESTED, tuple.p, tuple.n);
	r = netlink_run(fd, &b);
	return r == -ENOENT ? 0 : r; /* its time was up meanwhile */
}

static int forget_found(int fd, struct str found)
{
	int r = 0;

	while (r >= 0 && found.n > sizeof(uint16_t)) {
		uint16_t size;

		memcpy(&size, found.p, sizeof size);
		found = str_from(found, sizeof size);
		r = forget_one(fd, str_make(found.p, size));
		found = str_from(found, size);
	}
	return r;
}

static int forget_round(int fd, struct search *search)
{
	uint8_t data[NETLINK_BATCH_BYTES];
	struct netlink_batch b = netlink_batch(data, sizeof data);
	int r;

	begin_list(&b);
	if (search->n == 1)
		add_filter(&b, search->addresses[0]);
	r = netlink_dump(fd, &b, on_found, search);
	return r < 0 ? r : forget_found(fd, buf_str(&search->found));
}

static int forget(int fd, const uint32_t *addresses, size_t n, const struct ranges *allowed,
	const struct private_list *opened)
{
	bool more = true;
	int r = 0;

	for (int i = 0; r >= 0 && more && i < ROUNDS_MAX; i++) {
		struct search search = { addresses, n, allowed, opened, BUF_INIT(FOUND_MAX) };

		r = forget_round(fd, &search);
		more = search.found.n > 0;
		buf_done(&search.found);
	}
	return r;
}

int tracks_forget(int fd, const uint32_t *addresses, size_t n)
{
	return forget(fd, addresses, n, NULL, NULL);
}

int tracks_cut(int fd, uint32_t address, const struct ranges *allowed,
	const struct private_list *opened)
{
	return ranges_deny_nothing(allowed) && !opened ? 0
						       : forget(fd, &address, 1, allowed, opened);
}
