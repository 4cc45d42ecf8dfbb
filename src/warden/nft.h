/* nft - changes to one nftables table, as one transaction: all of it happens, or nothing does. Only
 * what firewall.c needs. The nft program does the same and reads the whole ruleset first, which
 * takes milliseconds; a transaction of this kind takes tens of microseconds. */
#pragma once

#include "warden/netlink.h"
#include "warden/reach.h"

struct nft_batch {
	struct netlink_batch b;
	const char *table; /* of the inet family; borrowed */
};

int nft_open(int *ret, struct err *e);

/* With room for some changes and for that many keys of ranges in all. */
struct nft_batch *nft_begin(const char *table, size_t n_keys);
/* With room for n bytes: for rules. */
struct nft_batch *nft_begin_bytes(const char *table, size_t n);
struct nft_batch *nft_free(struct nft_batch *nft);
DEFINE_CLEANUP(struct nft_batch, nft_free)
/* 0, or the first refusal: then nothing has changed. */
int nft_commit(int fd, struct nft_batch *nft);

/* Interfaces, by index, as members of a set. */
void nft_add_member(struct nft_batch *nft, const char *set, uint32_t index);
void nft_remove_member(struct nft_batch *nft, const char *set, uint32_t index);
/* ... and as keys of a map to numbers, of which each is the second of two words. */
void nft_add_value(struct nft_batch *nft, const char *map, uint32_t index, uint32_t value);
/* Keys of ranges, in a set for many sandboxes: `id` tells whose they are. */
void nft_add_keys(struct nft_batch *nft, const char *set, uint32_t id, const struct reach_key *keys,
	uint32_t n);
void nft_remove_keys(struct nft_batch *nft, const char *set, uint32_t id,
	const struct reach_key *keys, uint32_t n);
void nft_remove_table(struct nft_batch *nft); /* with all that is in it */

/* nft-rule.c: rules that nft's own language has no words for, added to the end of a chain. `ids` is
 * the map from interfaces to numbers. */
void nft_add_goto(struct nft_batch *nft, const char *chain, const char *target);
/* On in the chain that `branches` has for the number's bits in `mask`. */
void nft_add_choice(struct nft_batch *nft, const char *chain, const char *ids, uint32_t mask,
	const char *branches);
/* On in `target` if no range with `flags` that is in `set` holds the packet's address; only ranges
 * whose length is a multiple of `step` are looked for. With REACH_WHOLE in `flags`, only if the set
 * is whole for this number as well. */
void nft_add_none_of(struct nft_batch *nft, const char *chain, const char *ids, const char *set,
	uint32_t flags, unsigned step, const char *target);

/* Every member of a set, with its counter; for a map its value. */
struct nft_member {
	uint32_t index, value;
	uint64_t packets;
};
typedef void (*nft_member_fn)(void *arg, const struct nft_member *member);
int nft_each_member(int fd, const char *table, const char *set, nft_member_fn fn, void *arg);
/* Every key of ranges in a set, its flags in the id. */
typedef void (*nft_key_fn)(void *arg, uint32_t id, uint32_t address);
int nft_each_key(int fd, const char *table, const char *set, nft_key_fn fn, void *arg);
/* Every table of the inet family. */
typedef void (*nft_table_fn)(void *arg, const char *name);
int nft_each_table(int fd, nft_table_fn fn, void *arg);
/* All chains and rules of a table and what its sets are, as the kernel has them, and the elements
 * of the sets that is_fixed says never change. A chain whose name begins with `seal` is not looked
 * at; the rest of its name is returned, "" if there is none. */
enum {
	NFT_SEAL_SIZE = 2 * SHA256_SIZE + 1,
};
int nft_digest(int fd, const char *table, bool (*is_fixed)(const char *set), const char *seal,
	uint8_t ret[SHA256_SIZE], char ret_sealed[NFT_SEAL_SIZE]);
void nft_add_chain(struct nft_batch *nft, const char *name);
