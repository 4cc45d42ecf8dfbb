/* firewall - this server's own nftables table, beside the one that all servers of a host share.
 *
 * It knows the sandboxes of this server by the index of their interfaces, which the kernel does not
 * give out twice: what a dead sandbox leaves behind never meets a living one. What sandboxes must
 * not do by themselves (asking for names; connecting, where the policy is by name) is redirected to
 * sockets of the server; what they may not do at all is refused at once, counted, and some of it
 * told. Every packet outwards is looked at, so a new policy holds for what is open already.
 *
 * The table's chains, rules and sets are the same however many sandboxes there are; a sandbox is
 * only elements of sets. So a change costs the same with one sandbox and with thousands: with a
 * chain or a set for each, the kernel walks all of them in every transaction, and where elements
 * are jumps it checks all of them again.
 *
 *   reach      interface -> id: what is decided for it, and whose keys decide. No id: dropped.
 *   rangesN    for a sixteenth of the sandboxes: (id and flags, address bits) of each range.
 *
 * A policy is laid under an id that nobody has yet, in as many transactions as it takes. Then
 * `reach` is pointed to it, in one; then the old one's keys are removed. The rule that lets through
 * because nothing was denied looks last for the key that is removed first.
 *
 * A new warden takes over a table that is as the last one left it, compares each sandbox's keys
 * with its policy, and lays anew what differs. Otherwise the table is made, in one transaction with
 * the interfaces in it, whose packets are dropped until their policies are laid one by one. Should
 * the kernel refuse a change, somebody has changed the table, and it is made again.
 *
 * A transaction is one for whoever reads the table, but not for a packet on its way through: that
 * one may meet chains of before and sets of after, find nothing, and fall through. Therefore what
 * may pass is marked here, and the shared table, which is last, drops what is not. */
#pragma once

#include "base/private.h"
#include "warden/net.h"
#include "warden/reach.h"

enum {
	/* Below the ports that Linux hands out by itself. Any server of this host may use some of
	 * them; the shared table lets only redirected packets through to them. */
	FIREWALL_FIRST_PORT = 19900,
	FIREWALL_PORTS = 100,
};

/* The bits of a packet's mark that say so: that it may pass, and that the private address that it
 * is for is one that the operator has opened. They are gone again behind the shared table. */
#define FIREWALL_PASSED "0x08000000"
#define FIREWALL_OPENED "0x04000000"
#define FIREWALL_OTHERS "0xf3ffffff"

/* An id: the number, which time it is laid, the kind of its reach, and room for a key's flags. */
enum {
	FIREWALL_ID_NUMBER = 20, /* where each part begins */
	FIREWALL_ID_TIME = 5,
	FIREWALL_SHARDS = 16, /* sets of ranges: to list a set is slower the larger it is */
};

struct laid { /* keys that are in the kernel, or on their way */
	uint32_t id, n;
	struct reach_key keys[];
};

struct place {          /* what the table holds of a number */
	uint32_t index; /* 0: nothing */
	uint32_t id;    /* 0: nothing is laid yet */
	uint32_t time;  /* of the last id */
	bool is_proxied;
	struct laid *laid; /* NULL: no keys */
};

/* What is found in the kernel of a number that is taken over. */
struct finding {
	uint32_t id, n;
	uint64_t sum;
	bool is_proxied, is_member, is_counted;
};

/* A policy was laid that firewall_set had only begun. */
typedef void (*firewall_laid_fn)(void *arg, int number);

struct firewall {
	bool enabled, is_built;
	bool counts_nothing; /* this kernel cannot: sandboxes' connections have no limit */
	int nft_fd;
	char table[24];
	int socket_fds[WARDEN_EGRESS_FDS]; /* by enum warden_egress */
	int ports[WARDEN_EGRESS_FDS];
	struct private_list opened; /* private addresses that may be reached */
	uint16_t log_group;         /* of nflog; 0: none */
	int log_fd;
	struct place places[NET_MAX_NUMBER + 1]; /* by number */
	struct finding *found;                   /* by number, after firewall_adopt */
	struct list jobs;                        /* laying and removing, a piece a turn */
	firewall_laid_fn laid;
	void *laid_arg;
};
#define FIREWALL_INIT                                                                         \
	{                                                                                     \
		.nft_fd = -EBADF, .log_fd = -EBADF, .socket_fds = { -EBADF, -EBADF, -EBADF }, \
	}

/* Opens the sockets; the table comes later. instance: 8 characters of the server's.
 */
int firewall_open(struct firewall *fw, const char *instance, struct err *e);
void firewall_close(struct firewall *fw);
/* Takes the table away: nobody lives behind it any more. */
void firewall_remove(struct firewall *fw);
/* All servers' tables: no sandbox is left on this host and no other warden. */
void firewall_remove_all(struct firewall *fw);
/* Whether the table and the shared one are there: somebody may have flushed all there was. */
bool firewall_stands(const struct firewall *fw);

/* The table for these interfaces and no others: forgets all that it knew, then expects each. Then
 * either takes over what is there, or makes it; then each gets its policy. */
void firewall_begin(struct firewall *fw);
void firewall_expect(struct firewall *fw, int number, uint32_t index);
bool firewall_expects(const struct firewall *fw, int number);
/* 1: taken over; 0: it is not there, or not as it was. */
int firewall_adopt(struct firewall *fw);
int firewall_make(struct firewall *fw, struct err *e);
/* After firewall_adopt: whether what is laid is this; if so it stays. */
bool firewall_keep(struct firewall *fw, int number, const struct reach *reach);
bool firewall_is_found(struct firewall *fw, int number, const struct reach *reach);
/* Its chains and sets as nft reads them; with the interfaces that are expected. */
void firewall_text(const struct firewall *fw, bool with_members, struct buf *out);
/* Whether the kernel can limit a sandbox's connections. The rest works without. */
int firewall_can_count(struct err *e);

/* An interface of this server's; nothing is denied to it yet. */
int firewall_enter(struct firewall *fw, int number, uint32_t index, struct err *e);
/* 0: done; 1: begun, and it holds when `laid` says so. Of more than a few ranges, each turn lays a
 * piece, of one sandbox after the other. */
int firewall_set(struct firewall *fw, int number, const struct reach *reach, struct err *e);
bool firewall_is_laying(const struct firewall *fw, int number);
/* 1: there is more to do, 0: nothing. */
int firewall_turn(struct firewall *fw, struct err *e);
void firewall_leave(struct firewall *fw, int number);
/* The number that has the interface; 0: none of this server's. */
int firewall_number_of(const struct firewall *fw, uint32_t index);
/* Packets refused, by number, since the table was built. */
typedef void (*firewall_denied_fn)(void *arg, int number, uint64_t packets);
int firewall_each_denied(struct firewall *fw, firewall_denied_fn fn, void *arg, struct err *e);
