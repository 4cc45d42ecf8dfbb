/* Rules with several lookups each, the number of the packet's interface being part of every key.
 *
 * Registers hold 4 bytes. A key of ranges is two that lie side by side: the number with its flags,
 * and the bits of the address that a range of some length has, with a marker behind them.
 *
 * nft must be able to list these rules. It fails at a key with a part that came out of a map; but
 * it takes a map's value for one register whatever its size. So the values are of two words, and
 * the second, which is the number, comes to where nft believes the interface to be. It lists `iif`
 * for what is the number of the interface. */
#include "warden/nft.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

enum {
	VALUE = NFT_REG32_00,   /* of the map: two words */
	ID = NFT_REG32_01,      /* the second of them */
	BITS = NFT_REG32_02,    /* behind it: the second half of a key */
	ADDRESS = NFT_REG32_03, /* as it is in the packet */
	DADDR_OFFSET = 16,      /* in the IPv4 header */
};

static void be32(struct netlink_batch *b, uint16_t type, uint32_t value)
{
	netlink_add_u32(b, type, htonl(value));
}

struct rule {
	struct netlink_batch *b;
	size_t list, element, data;
};

static struct rule begin_rule(struct nft_batch *nft, const char *chain)
{
	struct nfgenmsg head = { .nfgen_family = NFPROTO_INET, .version = NFNETLINK_V0 };
	struct rule rule = { .b = &nft->b };

	netlink_begin(rule.b, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWRULE,
		NLM_F_CREATE | NLM_F_APPEND, &head, sizeof head);
	netlink_add_str(rule.b, NFTA_RULE_TABLE, nft->table);
	netlink_add_str(rule.b, NFTA_RULE_CHAIN, chain);
	rule.list = netlink_nest(rule.b, NFTA_RULE_EXPRESSIONS);
	return rule;
}

static void end_rule(struct rule *rule)
{
	netlink_nest_end(rule->b, rule->list);
}

static void begin(struct rule *rule, const char *name)
{
	rule->element = netlink_nest(rule->b, NFTA_LIST_ELEM);
	netlink_add_str(rule->b, NFTA_EXPR_NAME, name);
	rule->data = netlink_nest(rule->b, NFTA_EXPR_DATA);
}

static void end(struct rule *rule)
{
	netlink_nest_end(rule->b, rule->data);
	netlink_nest_end(rule->b, rule->element);
}

static void lookup(struct rule *rule, const char *set, uint32_t from, const uint32_t *to,
	uint32_t flags)
{
	begin(rule, "lookup");
	netlink_add_str(rule->b, NFTA_LOOKUP_SET, set);
	be32(rule->b, NFTA_LOOKUP_SREG, from);
	if (to)
		be32(rule->b, NFTA_LOOKUP_DREG, *to);
	if (flags)
		be32(rule->b, NFTA_LOOKUP_FLAGS, flags);
	end(rule);
}

static void value(struct rule *rule, uint16_t type, uint32_t bytes)
{
	size_t nest = netlink_nest(rule->b, type);

	netlink_add_u32(rule->b, NFTA_DATA_VALUE, bytes);
	netlink_nest_end(rule->b, nest);
}

/* to = (from & mask) ^ flip, whatever order the bytes are in. */
static void bitwise(struct rule *rule, uint32_t from, uint32_t to, uint32_t mask, uint32_t flip)
{
	begin(rule, "bitwise");
	be32(rule->b, NFTA_BITWISE_SREG, from);
	be32(rule->b, NFTA_BITWISE_DREG, to);
	be32(rule->b, NFTA_BITWISE_LEN, sizeof mask);
	value(rule, NFTA_BITWISE_MASK, mask);
	value(rule, NFTA_BITWISE_XOR, flip);
	end(rule);
}

/* The number of the interface that the packet came through; without one the rule ends here. */
static void load_id(struct rule *rule, const char *ids)
{
	static const uint32_t words = VALUE;

	begin(rule, "meta");
	be32(rule->b, NFTA_META_DREG, ID);
	be32(rule->b, NFTA_META_KEY, NFT_META_IIF);
	end(rule);
	lookup(rule, ids, ID, &words, 0);
}

static void load_address(struct rule *rule)
{
	begin(rule, "payload");
	be32(rule->b, NFTA_PAYLOAD_DREG, ADDRESS);
	be32(rule->b, NFTA_PAYLOAD_BASE, NFT_PAYLOAD_NETWORK_HEADER);
	be32(rule->b, NFTA_PAYLOAD_OFFSET, DADDR_OFFSET);
	be32(rule->b, NFTA_PAYLOAD_LEN, sizeof(uint32_t));
	end(rule);
}

static void go(struct rule *rule, const char *target)
{
	size_t nest, verdict;

	begin(rule, "immediate");
	be32(rule->b, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
	nest = netlink_nest(rule->b, NFTA_IMMEDIATE_DATA);
	verdict = netlink_nest(rule->b, NFTA_DATA_VERDICT);
	be32(rule->b, NFTA_VERDICT_CODE, (uint32_t)NFT_GOTO);
	netlink_add_str(rule->b, NFTA_VERDICT_CHAIN, target);
	netlink_nest_end(rule->b, verdict);
	netlink_nest_end(rule->b, nest);
	end(rule);
}

void nft_add_goto(struct nft_batch *nft, const char *chain, const char *target)
{
	struct rule rule = begin_rule(nft, chain);

	go(&rule, target);
	end_rule(&rule);
}

void nft_add_choice(struct nft_batch *nft, const char *chain, const char *ids, uint32_t mask,
	const char *branches)
{
	static const uint32_t verdict = NFT_REG_VERDICT;
	struct rule rule = begin_rule(nft, chain);

	load_id(&rule, ids);
	bitwise(&rule, ID, ID, mask, 0);
	lookup(&rule, branches, ID, &verdict, 0);
	end_rule(&rule);
}

static void is_not_in(struct rule *rule, const char *set, unsigned bits)
{
	bitwise(rule, ADDRESS, BITS, htonl(reach_mask(bits)), htonl(reach_marker(bits)));
	lookup(rule, set, ID, NULL, NFT_LOOKUP_F_INV);
}

void nft_add_none_of(struct nft_batch *nft, const char *chain, const char *ids, const char *set,
	uint32_t flags, unsigned step, const char *target)
{
	struct rule rule = begin_rule(nft, chain);

	load_id(&rule, ids);
	load_address(&rule);
	if (flags & REACH_ALLOW)
		bitwise(&rule, ID, ID, UINT32_MAX, REACH_ALLOW);
	for (unsigned bits = step; bits < 32; bits += step)
		is_not_in(&rule, set, bits);
	bitwise(&rule, ID, ID, UINT32_MAX, REACH_HOST);
	is_not_in(&rule, set, 32);
	/* After all else: it goes before anything else that is taken out of the set. */
	if (flags & REACH_WHOLE) {
		bitwise(&rule, ID, ID, UINT32_MAX, REACH_HOST | REACH_WHOLE);
		bitwise(&rule, ADDRESS, BITS, 0, 0);
		lookup(&rule, set, ID, NULL, 0);
	}
	go(&rule, target);
	end_rule(&rule);
}
