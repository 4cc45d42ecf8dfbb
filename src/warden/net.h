/* net - each sandbox's way out: a veth pair whose host end is called atollN, N being the slot's
 * number.
 *
 * The interface name is the reservation of the number on this host, so several servers share
 * numbers, addresses and uid ranges without talking to each other. One static nftables table
 * matches all of them by name: out through NAT, nothing in, no private network, no other sandbox,
 * no host. The table is applied once and never touched on the way of a request; what differs from
 * sandbox to sandbox is in a table of the server's own (firewall.h). */
#pragma once

#include "base/base.h"

enum {
	/* Number 0 is the server's own uid block; the last ones stay clear of 0x7fff0000. */
	NET_MAX_NUMBER = 4000,
	NET_CONF_SIZE = 64,
};

/* Where no sandbox may go: private, shared, link-local, loopback, multicast, reserved. */
#define NET_PRIVATE_RANGES                                                   \
	"0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 168.63.129.16, " \
	"169.254.0.0/16, 172.16.0.0/12, 192.0.0.0/24, 192.168.0.0/16, "      \
	"198.18.0.0/15, 224.0.0.0/3"

/* Of these, what no operator's list opens (base/private.h). */
#define NET_NEVER_RANGES                                                           \
	"0.0.0.0/8, 100.100.100.200, 127.0.0.0/8, 168.63.129.16, 169.254.0.0/16, " \
	"192.0.0.0/24, 224.0.0.0/3"

struct network {
	bool enabled, has_ipv6;
	uint32_t base;  /* host byte order */
	int max_number; /* what fits into the network */
	int next;       /* where the search for a free number begins */
	int rtnl_fd, own_ns_fd;
	int table_fd;                         /* shared lock: somebody needs the table */
	bool can_forget;                      /* the kernel can be made to */
	bool is_shared;                       /* others on this host have had numbers, too */
	uint8_t used[NET_MAX_NUMBER / 8 + 1]; /* by this warden */
	uint8_t worn[NET_MAX_NUMBER / 8 + 1]; /* had by somebody: connections may be remembered */
};
#define NETWORK_INIT                                                       \
	{                                                                  \
		.rtnl_fd = -EBADF, .own_ns_fd = -EBADF, .table_fd = -EBADF \
	}

/* "10.199.0.0/16", or "none": sandboxes with a loopback only. */
int net_parse(const char *text, struct network *ret, struct err *e);
/* Applies the table and switches forwarding on. */
int net_open(struct network *net, struct err *e);
/* The sandboxes' /etc/resolv.conf: the address of number 0, which nobody has. Whatever is sent
 * there to be resolved is redirected. */
void net_resolv_conf(const struct network *net, char ret[NET_CONF_SIZE]);
/* Whether no other warden and no sandbox is left on this host. */
bool net_is_last(const struct network *net);
/* Removes the table if this is the last. */
void net_close(struct network *net);

/* Other wardens of this host take and release numbers as well: from when one has been seen, every
 * number may have been somebody's. To be called from time to time. */
void net_look_for_others(struct network *net);

/* Sockets to work with for a process that has a copy of `net` and not its descriptors. */
int net_open_own(struct network *net, struct err *e);
/* To ask net_is_last without being a warden: net_close then removes the table if so. */
int net_look(struct network *net, struct err *e);
/* Makes a pair with both ends in the caller's own namespace: whether the kernel can. */
int net_try(struct network *net, int *ret_number, struct err *e);
/* Reserves a number that no interface of this host has. */
int net_take(struct network *net, int *ret_number, struct err *e);
/* Reserves one more, in case another server is faster to take the first. It is likely to be given
 * back, so it does not count as a turn: otherwise the same few numbers could be used for ever. */
int net_take_spare(struct network *net, int *ret_number);
/* Another server of this host takes numbers just now, and the next ones would be the same. */
void net_look_elsewhere(struct network *net);
/* One that was taken and not used: nobody has had it. */
void net_give_back(struct network *net, int number);
/* Gives the network namespace a loopback and, where enabled, the interface of that number.
 * -EEXIST: another server of this host was faster; nothing was done. */
int net_attach(struct network *net, int ns_fd, int number, struct err *e);
void net_adopt(struct network *net, int number);
void net_release(struct network *net, int number);

/* A number that somebody had is not given again before the kernel has forgotten his connections
 * (tracks.h), unless there is no other. To forget takes long and is done elsewhere: these say
 * which addresses wait for it, and that it was done. */
int net_list_worn(const struct network *net, uint32_t *ret, int max);
void net_forgot(struct network *net, const uint32_t *addresses, uint32_t n);
/* The address of a number that was given all the same: to be forgotten before anything in the
 * sandbox runs; 0: none. */
uint32_t net_must_forget(struct network *net, int number);
/* Unconnected, non-blocking TCP sockets inside the namespace: IPv4, then IPv6 where there is any.
 */
enum {
	NET_SOCKETS = 2,
};
int net_sockets(const struct network *net, int ns_fd, int ret[NET_SOCKETS], int *ret_n,
	struct err *e);
/* The index of the host's end; 0: there is none (any more). */
uint32_t net_index(int number);
/* What the sandbox of this process has sent, whatever became of it. Not asked of the kernel by the
 * host's end of the pair: that means to wait for the lock of all its networks. */
uint64_t net_sent_bytes(pid_t pid);
/* The sandbox's own address, host byte order; 0: it has none. */
uint32_t net_address(const struct network *net, int number);
int net_number(const struct network *net, uint32_t address); /* 0: it is nobody's */

/* net-rules.c: the table as nft reads it, put in place, and taken away. */
int net_rules(bool anew, struct buf *out); /* anew: whatever was there */
int net_apply_rules(struct err *e);
void net_remove_rules(void);
