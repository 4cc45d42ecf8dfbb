/* firewall - this server's own nftables table, beside the one that all servers of a host share.
 *
 * It knows the sandboxes of this server by the index of their interfaces, which the kernel does not
 * give out twice: what a dead sandbox leaves behind never meets a living one. What sandboxes must
 * not do by themselves (asking for names; connecting, where the policy is by name) is redirected to
 * sockets of the server; what they may not do at all is refused at once, counted, and some of it
 * told. Every packet outwards is looked at, so a new policy holds for what is open already.
 *
 * The table is built as a whole when the warden starts, in one transaction that replaces the one
 * before. From then on it is changed in small transactions; should the kernel refuse one, somebody
 * has changed the table, and it is built again.
 *
 * A transaction is one for whoever reads the table, but not for a packet on its way through: that
 * one may meet chains of before and sets of after, find nothing, and fall through. Therefore what
 * may pass is marked here, and the shared table, which is last, drops what is not. */
#pragma once

#include "warden/net.h"
#include "warden/reach.h"

enum {
	/* Below the ports that Linux hands out by itself. Any server of this host may use some of
	 * them; the shared table lets only redirected packets through to them. */
	FIREWALL_FIRST_PORT = 19900,
	FIREWALL_PORTS = 100,
};

/* The bit of a packet's mark that says so. It is gone again behind the shared table. */
#define FIREWALL_PASSED "0x08000000"
#define FIREWALL_OTHERS "0xf7ffffff"

struct place { /* what the table holds of a number */
	uint32_t index;
	bool is_proxied, is_closed, has_chain;
};

static inline struct place place_of(uint32_t index, const struct reach *reach)
{
	bool closed = reach_is_closed(reach);

	return (struct place){ .index = index,
		.is_proxied = reach->is_proxied,
		.is_closed = closed,
		.has_chain = !closed && !reach_is_open(reach) };
}

/* The chain that decides for it. */
void place_chain(const struct place *place, int number, char ret[16]);

struct firewall {
	bool enabled, is_built;
	bool counts_nothing; /* this kernel cannot: sandboxes' connections have no limit */
	int nft_fd;
	char table[24];
	int socket_fds[WARDEN_EGRESS_FDS]; /* by enum warden_egress */
	int ports[WARDEN_EGRESS_FDS];
	uint16_t log_group; /* of nflog; 0: none */
	int log_fd;
	struct place places[NET_MAX_NUMBER + 1]; /* by number; index 0: nothing */
};
#define FIREWALL_INIT                                                                         \
	{                                                                                     \
		.nft_fd = -EBADF, .log_fd = -EBADF, .socket_fds = { -EBADF, -EBADF, -EBADF }, \
	}

/* Opens the sockets; the table comes with firewall_build. instance: 8 characters of the server's.
 */
int firewall_open(struct firewall *fw, const char *instance, struct err *e);
void firewall_close(struct firewall *fw);
/* Takes the table away: nobody lives behind it any more. */
void firewall_remove(struct firewall *fw);
/* All servers' tables: no sandbox is left on this host and no other warden. */
void firewall_remove_all(struct firewall *fw);
/* Whether the table and the shared one are there: somebody may have flushed all there was. */
bool firewall_stands(const struct firewall *fw);

/* The whole table. Begins a text, adds who lives, and puts all in place at once. */
void firewall_text_begin(struct firewall *fw, struct buf *out);
void firewall_text_add(struct firewall *fw, int number, uint32_t index, const struct reach *reach,
	struct buf *out);
int firewall_build(struct firewall *fw, const struct buf *text, struct err *e);
/* Whether the kernel can limit a sandbox's connections. The rest works without. */
int firewall_can_count(struct err *e);

/* An interface of this server's; nothing is denied to it yet. */
int firewall_enter(struct firewall *fw, int number, uint32_t index, struct err *e);
int firewall_set(struct firewall *fw, int number, const struct reach *reach, struct err *e);
void firewall_leave(struct firewall *fw, int number);
/* The number that has the interface; 0: none of this server's. */
int firewall_number_of(const struct firewall *fw, uint32_t index);
/* Packets refused, by number, since the table was built. */
typedef void (*firewall_denied_fn)(void *arg, int number, uint64_t packets);
int firewall_each_denied(struct firewall *fw, firewall_denied_fn fn, void *arg, struct err *e);
