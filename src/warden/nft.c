#include "warden/nft.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum {
	BATCH_BYTES = 4096,  /* everything but keys, with room to spare */
	KEY_BYTES = 32,      /* one takes 20, and its share of a message's head */
	KEYS_AT_ONCE = 1024, /* an attribute is shorter than 64 KB */
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

struct nft_batch *nft_begin(const char *table, size_t n_keys)
{
	return nft_begin_bytes(table, BATCH_BYTES + n_keys * KEY_BYTES);
}

struct nft_batch *nft_begin_bytes(const char *table, size_t size)
{
	struct nft_batch *nft = XNEW(struct nft_batch);

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

/* ---- elements ---- */

static void add_key(struct netlink_batch *b, const void *key, size_t n)
{
	size_t nest = netlink_nest(b, NFTA_SET_ELEM_KEY);

	netlink_add(b, NFTA_DATA_VALUE, key, n);
	netlink_nest_end(b, nest);
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
	const uint32_t *value)
{
	size_t list = begin_elements(nft, type, set);
	size_t element = netlink_nest(&nft->b, NFTA_LIST_ELEM), data;
	uint32_t words[2] = { 0, value ? *value : 0 };

	add_key(&nft->b, &index, sizeof index);
	if (value) {
		data = netlink_nest(&nft->b, NFTA_SET_ELEM_DATA);
		netlink_add(&nft->b, NFTA_DATA_VALUE, words, sizeof words);
		netlink_nest_end(&nft->b, data);
	}
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

void nft_add_value(struct nft_batch *nft, const char *map, uint32_t index, uint32_t value)
{
	one_member(nft, NFT_MSG_NEWSETELEM, map, index, &value);
}

/* ---- ranges ---- */

static void change_keys(struct nft_batch *nft, uint16_t type, const char *set, uint32_t id,
	const struct reach_key *keys, uint32_t n)
{
	for (uint32_t at = 0; at < n;) {
		size_t list = begin_elements(nft, type, set);

		for (uint32_t i = 0; i < KEYS_AT_ONCE && at < n; i++, at++) {
			uint32_t key[2] = { id | keys[at].flags, htonl(keys[at].address) };
			size_t element = netlink_nest(&nft->b, NFTA_LIST_ELEM);

			add_key(&nft->b, key, sizeof key);
			netlink_nest_end(&nft->b, element);
		}
		netlink_nest_end(&nft->b, list);
	}
}

void nft_add_keys(struct nft_batch *nft, const char *set, uint32_t id, const struct reach_key *keys,
	uint32_t n)
{
	change_keys(nft, NFT_MSG_NEWSETELEM, set, id, keys, n);
}

void nft_remove_keys(struct nft_batch *nft, const char *set, uint32_t id,
	const struct reach_key *keys, uint32_t n)
{
	change_keys(nft, NFT_MSG_DELSETELEM, set, id, keys, n);
}

void nft_add_chain(struct nft_batch *nft, const char *name)
{
	begin(&nft->b, NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_EXCL);
	netlink_add_str(&nft->b, NFTA_CHAIN_TABLE, nft->table);
	netlink_add_str(&nft->b, NFTA_CHAIN_NAME, name);
}

void nft_remove_table(struct nft_batch *nft)
{
	begin(&nft->b, NFT_MSG_DELTABLE, 0);
	netlink_add_str(&nft->b, NFTA_TABLE_NAME, nft->table);
}
