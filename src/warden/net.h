/* net - each sandbox's way out: a veth pair whose host end is called atollN, N being the slot's
 * number.
 *
 * The interface name is the reservation of the number on this host, so several servers share
 * numbers, addresses and uid ranges without talking to each other. One static nftables table
 * matches all of them by name: out through NAT, nothing in, no private network, no other sandbox,
 * no host. The table is applied once and never touched on the way of a request. */
#pragma once

#include "base/base.h"
#include "warden/resolv.h"

enum {
	/* Number 0 is the server's own uid block; the last ones stay clear of 0x7fff0000. */
	NET_MAX_NUMBER = 4000,
};

struct network {
	bool enabled, has_ipv6;
	uint32_t base;  /* host byte order */
	int max_number; /* what fits into the network */
	int next;       /* where the search for a free number begins */
	int rtnl_fd, own_ns_fd;
	int table_fd;                         /* shared lock: somebody needs the table */
	uint8_t used[NET_MAX_NUMBER / 8 + 1]; /* by this warden */
};
#define NETWORK_INIT                                                       \
	{                                                                  \
		.rtnl_fd = -EBADF, .own_ns_fd = -EBADF, .table_fd = -EBADF \
	}

/* "10.199.0.0/16", or "none": sandboxes with a loopback only. */
int net_parse(const char *text, struct network *ret, struct err *e);
/* Applies the table and switches forwarding on. */
int net_open(struct network *net, const struct resolvers *resolvers, struct err *e);
/* Removes the table when no other warden and no sandbox is left on this host. */
void net_close(struct network *net);

/* Makes a pair with both ends in the caller's own namespace: whether the kernel can. */
int net_try(struct network *net, int *ret_number, struct err *e);
/* Gives the network namespace a loopback and, where enabled, an interface, and with it a number,
 * which is set as soon as it is taken, also when what follows fails. */
int net_attach(struct network *net, int ns_fd, int *ret_number, struct err *e);
void net_adopt(struct network *net, int number);
void net_release(struct network *net, int number);
/* Unconnected, non-blocking TCP sockets inside the namespace: IPv4, then IPv6 where there is any.
 */
enum {
	NET_SOCKETS = 2,
};
int net_sockets(const struct network *net, int ns_fd, int ret[NET_SOCKETS], int *ret_n,
	struct err *e);
/* Whether an interface of the number still exists. */
bool net_exists(int number);

/* net-rules.c: the table as nft reads it, put in place, and taken away. */
int net_rules(const struct resolvers *resolvers, struct buf *out);
int net_apply_rules(const struct resolvers *resolvers, struct err *e);
void net_remove_rules(void);
