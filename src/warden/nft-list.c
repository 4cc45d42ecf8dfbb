/* What the kernel's tables hold. */
#include "warden/nft.h"

#include <endian.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

static void begin_list(struct netlink_batch *b, uint16_t type)
{
	struct nfgenmsg head = { .nfgen_family = NFPROTO_INET, .version = NFNETLINK_V0 };

	netlink_begin(b, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), NLM_F_DUMP, &head,
		sizeof head);
}

static struct str attributes(struct str entry)
{
	return str_from(entry, NLMSG_ALIGN(sizeof(struct nfgenmsg)));
}

struct members {
	nft_member_fn fn;
	void *arg;
};

/* A counter is the only expression an element of these sets has. */
static uint64_t packets_of(struct str element)
{
	struct str data = netlink_find(netlink_find(element, NFTA_SET_ELEM_EXPR), NFTA_EXPR_DATA);
	struct str value = netlink_find(data, NFTA_COUNTER_PACKETS);
	uint64_t packets = 0;

	if (value.n == sizeof packets)
		memcpy(&packets, value.p, sizeof packets);
	return be64toh(packets);
}

static void on_elements(void *arg, struct str entry)
{
	struct members *m = arg;
	struct str list = netlink_find(attributes(entry), NFTA_SET_ELEM_LIST_ELEMENTS), element;
	uint16_t type;

	while (netlink_next(&list, &type, &element)) {
		struct str key =
			netlink_find(netlink_find(element, NFTA_SET_ELEM_KEY), NFTA_DATA_VALUE);
		uint32_t index;

		if (key.n != sizeof index)
			continue;
		memcpy(&index, key.p, sizeof index);
		m->fn(m->arg, index, packets_of(element));
	}
}

int nft_each_member(int fd, const char *table, const char *set, nft_member_fn fn, void *arg)
{
	uint8_t bytes[NETLINK_BATCH_BYTES];
	struct netlink_batch b = netlink_batch(bytes, sizeof bytes);
	struct members m = { fn, arg };

	begin_list(&b, NFT_MSG_GETSETELEM);
	netlink_add_str(&b, NFTA_SET_ELEM_LIST_TABLE, table);
	netlink_add_str(&b, NFTA_SET_ELEM_LIST_SET, set);
	return netlink_dump(fd, &b, on_elements, &m);
}

struct tables {
	nft_table_fn fn;
	void *arg;
};

static void on_table(void *arg, struct str entry)
{
	struct tables *t = arg;
	struct str name = netlink_find(attributes(entry), NFTA_TABLE_NAME);

	if (name.n && name.p[name.n - 1] == '\0')
		t->fn(t->arg, name.p);
}

int nft_each_table(int fd, nft_table_fn fn, void *arg)
{
	uint8_t bytes[NETLINK_BATCH_BYTES];
	struct netlink_batch b = netlink_batch(bytes, sizeof bytes);
	struct tables t = { fn, arg };

	begin_list(&b, NFT_MSG_GETTABLE);
	return netlink_dump(fd, &b, on_table, &t);
}
