/* nft - changes to one nftables table, as one transaction: all of it happens, or nothing does. Only
 * what firewall.c needs. The nft program does the same and reads the whole ruleset first, which
 * takes milliseconds; a transaction of this kind takes tens of microseconds. */
#pragma once

#include "warden/netlink.h"
#include "warden/reach.h"

struct nft_batch {
	struct netlink_batch b;
	const char *table; /* of the inet family; borrowed */
	uint32_t last_id;  /* of sets made in this batch */
};

int nft_open(int *ret, struct err *e);

/* With room for some changes and for chains of that many segments in all. */
struct nft_batch *nft_begin(const char *table, size_t n_segments);
struct nft_batch *nft_free(struct nft_batch *nft);
DEFINE_CLEANUP(struct nft_batch, nft_free)
/* 0, or the first refusal: then nothing has changed. */
int nft_commit(int fd, struct nft_batch *nft);

/* Interfaces, by index, as members of a set. */
void nft_add_member(struct nft_batch *nft, const char *set, uint32_t index);
void nft_remove_member(struct nft_batch *nft, const char *set, uint32_t index);
/* ... and as keys of a map to the chain where a packet goes on. */
void nft_add_branch(struct nft_batch *nft, const char *map, uint32_t index, const char *chain);
/* A chain of the name that decides by a map of addresses of the same name: to go on in the chain
 * `pass` or in `refuse`. */
void nft_add_chain(struct nft_batch *nft, const char *name, const struct reach *reach,
	const char *pass, const char *refuse);
void nft_remove_chain(struct nft_batch *nft, const char *name);
void nft_remove_table(struct nft_batch *nft); /* with all that is in it */

/* Every member of a set, with its counter. */
typedef void (*nft_member_fn)(void *arg, uint32_t index, uint64_t packets);
int nft_each_member(int fd, const char *table, const char *set, nft_member_fn fn, void *arg);
/* Every table of the inet family. */
typedef void (*nft_table_fn)(void *arg, const char *name);
int nft_each_table(int fd, nft_table_fn fn, void *arg);
