#include "warden/nft.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum {
	BATCH_BYTES = 4096,     /* everything but segments, with room to spare */
	SEGMENT_BYTES = 96,     /* one takes 72, and its share of a message's head */
	SEGMENTS_AT_ONCE = 400, /* an attribute is shorter than 64 KB */
	TYPE_IPV4_ADDR = 7,     /* nft's own numbers: only shown by it, meaningless here */
	DADDR_OFFSET = 16,      /* in the IPv4 header */
};

int nft_open(int *ret, struct err *e)
{
	return netlink_open(NETLINK_NETFILTER, ret, e);
}

static void mark(struct netlink_batch *b, uint16_t type)
{
	struct nfgenmsg head = { .nfgen_family = AF_UNSPEC,
		.version = NFNETLINK_V0,
		.res_id = htons(NFNL_SUBSYS_NFTABLES) };

	netlink_begin_mark(b, type, &head, sizeof head);
}

struct nft_batch *nft_begin(const char *table, size_t n_segments)
{
	struct nft_batch *nft = XNEW(struct nft_batch);
	size_t size = BATCH_BYTES + n_segments * SEGMENT_BYTES;

	nft->table = table;
	nft->b = netlink_batch(XNEW_N(uint8_t, size), size);
	mark(&nft->b, NFNL_MSG_BATCH_BEGIN);
	return nft;
}

struct nft_batch *nft_free(struct nft_batch *nft)
{
	if (nft)
		free(nft->b.data);
	free(nft);
	return NULL;
}

int nft_commit(int fd, struct nft_batch *nft)
{
	if (nft->b.requests == 0)
		return 0;
	mark(&nft->b, NFNL_MSG_BATCH_END);
	return netlink_run(fd, &nft->b);
}

static void begin(struct netlink_batch *b, uint16_t type, uint16_t flags)
{
	struct nfgenmsg head = { .nfgen_family = NFPROTO_INET, .version = NFNETLINK_V0 };

	netlink_begin(b, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), flags, &head, sizeof head);
}

static void add_be32(struct netlink_batch *b, uint16_t type, uint32_t value)
{
	netlink_add_u32(b, type, htonl(value));
}

/* ---- elements ---- */

static void add_key(struct netlink_batch *b, const void *key, size_t n)
{
	size_t nest = netlink_nest(b, NFTA_SET_ELEM_KEY);

	netlink_add(b, NFTA_DATA_VALUE, key, n);
	netlink_nest_end(b, nest);
}

static void add_goto(struct netlink_batch *b, uint16_t attribute, const char *chain)
{
	size_t data = netlink_nest(b, attribute), verdict = netlink_nest(b, NFTA_DATA_VERDICT);

	add_be32(b, NFTA_VERDICT_CODE, (uint32_t)NFT_GOTO);
	netlink_add_str(b, NFTA_VERDICT_CHAIN, chain);
	netlink_nest_end(b, verdict);
	netlink_nest_end(b, data);
}

/* Opens a message about elements of a set: a handle for netlink_nest_end. */
static size_t begin_elements(struct nft_batch *nft, uint16_t type, const char *set)
{
	begin(&nft->b, type, type == NFT_MSG_NEWSETELEM ? NLM_F_CREATE | NLM_F_EXCL : 0);
	netlink_add_str(&nft->b, NFTA_SET_ELEM_LIST_TABLE, nft->table);
	netlink_add_str(&nft->b, NFTA_SET_ELEM_LIST_SET, set);
	return netlink_nest(&nft->b, NFTA_SET_ELEM_LIST_ELEMENTS);
}

static void one_member(struct nft_batch *nft, uint16_t type, const char *set, uint32_t index,
	const char *chain)
{
	size_t list = begin_elements(nft, type, set);
	size_t element = netlink_nest(&nft->b, NFTA_LIST_ELEM);

	add_key(&nft->b, &index, sizeof index);
	if (chain)
		add_goto(&nft->b, NFTA_SET_ELEM_DATA, chain);
	netlink_nest_end(&nft->b, element);
	netlink_nest_end(&nft->b, list);
}

void nft_add_member(struct nft_batch *nft, const char *set, uint32_t index)
{
	one_member(nft, NFT_MSG_NEWSETELEM, set, index, NULL);
}

void nft_remove_member(struct nft_batch *nft, const char *set, uint32_t index)
{
	one_member(nft, NFT_MSG_DELSETELEM, set, index, NULL);
}

void nft_add_branch(struct nft_batch *nft, const char *map, uint32_t index, const char *chain)
{
	one_member(nft, NFT_MSG_NEWSETELEM, map, index, chain);
}

/* ---- a sandbox's own chain ---- */

/* An interval is two elements: where it begins, with what it means, and the first address behind
 * it, unless there is none. */
static void add_segment(struct netlink_batch *b, const struct segment *s, const char *chain)
{
	uint32_t first = htonl(s->first), end = htonl(s->last + 1);
	size_t element = netlink_nest(b, NFTA_LIST_ELEM);

	add_key(b, &first, sizeof first);
	add_goto(b, NFTA_SET_ELEM_DATA, chain);
	netlink_nest_end(b, element);
	if (s->last == UINT32_MAX)
		return;
	element = netlink_nest(b, NFTA_LIST_ELEM);
	add_be32(b, NFTA_SET_ELEM_FLAGS, NFT_SET_ELEM_INTERVAL_END);
	add_key(b, &end, sizeof end);
	netlink_nest_end(b, element);
}

static void add_map(struct nft_batch *nft, const char *name, uint32_t id)
{
	struct netlink_batch *b = &nft->b;

	begin(b, NFT_MSG_NEWSET, NLM_F_CREATE | NLM_F_EXCL);
	netlink_add_str(b, NFTA_SET_TABLE, nft->table);
	netlink_add_str(b, NFTA_SET_NAME, name);
	add_be32(b, NFTA_SET_FLAGS, NFT_SET_INTERVAL | NFT_SET_MAP);
	add_be32(b, NFTA_SET_KEY_TYPE, TYPE_IPV4_ADDR);
	add_be32(b, NFTA_SET_KEY_LEN, sizeof(uint32_t));
	add_be32(b, NFTA_SET_DATA_TYPE, (uint32_t)NFT_DATA_VERDICT);
	add_be32(b, NFTA_SET_DATA_LEN, 0);
	add_be32(b, NFTA_SET_ID, id);
}

static void add_segments(struct nft_batch *nft, const char *name, const struct reach *reach,
	const char *pass, const char *refuse)
{
	for (size_t at = 0; at < reach->n;) {
		size_t list = begin_elements(nft, NFT_MSG_NEWSETELEM, name);

		for (size_t i = 0; i < SEGMENTS_AT_ONCE && at < reach->n; i++, at++) {
			const struct segment *s = &reach->segments[at];

			add_segment(&nft->b, s, s->allow ? pass : refuse);
		}
		netlink_nest_end(&nft->b, list);
	}
}

/* Opens an expression of a rule; the two handles are for end_expression. */
static size_t begin_expression(struct netlink_batch *b, const char *name, size_t *ret_data)
{
	size_t element = netlink_nest(b, NFTA_LIST_ELEM);

	netlink_add_str(b, NFTA_EXPR_NAME, name);
	*ret_data = netlink_nest(b, NFTA_EXPR_DATA);
	return element;
}

static void end_expression(struct netlink_batch *b, size_t element, size_t data)
{
	netlink_nest_end(b, data);
	netlink_nest_end(b, element);
}

/* meta nfproto ipv4 */
static void add_is_ipv4(struct netlink_batch *b)
{
	uint8_t ipv4 = NFPROTO_IPV4;
	size_t data = 0, element = begin_expression(b, "meta", &data), value;

	add_be32(b, NFTA_META_DREG, NFT_REG_1);
	add_be32(b, NFTA_META_KEY, NFT_META_NFPROTO);
	end_expression(b, element, data);
	element = begin_expression(b, "cmp", &data);
	add_be32(b, NFTA_CMP_SREG, NFT_REG_1);
	add_be32(b, NFTA_CMP_OP, NFT_CMP_EQ);
	value = netlink_nest(b, NFTA_CMP_DATA);
	netlink_add(b, NFTA_DATA_VALUE, &ipv4, sizeof ipv4);
	netlink_nest_end(b, value);
	end_expression(b, element, data);
}

/* ip daddr vmap @name */
static void add_rule(struct nft_batch *nft, const char *name, uint32_t set_id)
{
	struct netlink_batch *b = &nft->b;
	size_t list, element, data = 0;

	begin(b, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND);
	netlink_add_str(b, NFTA_RULE_TABLE, nft->table);
	netlink_add_str(b, NFTA_RULE_CHAIN, name);
	list = netlink_nest(b, NFTA_RULE_EXPRESSIONS);
	add_is_ipv4(b);
	element = begin_expression(b, "payload", &data);
	add_be32(b, NFTA_PAYLOAD_DREG, NFT_REG_1);
	add_be32(b, NFTA_PAYLOAD_BASE, NFT_PAYLOAD_NETWORK_HEADER);
	add_be32(b, NFTA_PAYLOAD_OFFSET, DADDR_OFFSET);
	add_be32(b, NFTA_PAYLOAD_LEN, sizeof(uint32_t));
	end_expression(b, element, data);
	element = begin_expression(b, "lookup", &data);
	netlink_add_str(b, NFTA_LOOKUP_SET, name);
	add_be32(b, NFTA_LOOKUP_SET_ID, set_id);
	add_be32(b, NFTA_LOOKUP_SREG, NFT_REG_1);
	add_be32(b, NFTA_LOOKUP_DREG, NFT_REG_VERDICT);
	end_expression(b, element, data);
	netlink_nest_end(b, list);
}

static void chain_message(struct nft_batch *nft, uint16_t type, const char *name)
{
	begin(&nft->b, type, type == NFT_MSG_NEWCHAIN ? NLM_F_CREATE | NLM_F_EXCL : 0);
	netlink_add_str(&nft->b, NFTA_CHAIN_TABLE, nft->table);
	netlink_add_str(&nft->b, NFTA_CHAIN_NAME, name);
}

void nft_add_chain(struct nft_batch *nft, const char *name, const struct reach *reach,
	const char *pass, const char *refuse)
{
	uint32_t id = ++nft->last_id;

	chain_message(nft, NFT_MSG_NEWCHAIN, name);
	add_map(nft, name, id);
	add_segments(nft, name, reach, pass, refuse);
	add_rule(nft, name, id);
}

void nft_remove_chain(struct nft_batch *nft, const char *name)
{
	struct netlink_batch *b = &nft->b;

	begin(b, NFT_MSG_DELRULE, 0);
	netlink_add_str(b, NFTA_RULE_TABLE, nft->table);
	netlink_add_str(b, NFTA_RULE_CHAIN, name);
	begin(b, NFT_MSG_DELSET, 0);
	netlink_add_str(b, NFTA_SET_TABLE, nft->table);
	netlink_add_str(b, NFTA_SET_NAME, name);
	chain_message(nft, NFT_MSG_DELCHAIN, name);
}

void nft_remove_table(struct nft_batch *nft)
{
	begin(&nft->b, NFT_MSG_DELTABLE, 0);
	netlink_add_str(&nft->b, NFTA_TABLE_NAME, nft->table);
}
