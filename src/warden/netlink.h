/* netlink - requests to the kernel's routing and firewall sockets, assembled in a buffer and sent
 * in one go. The kernel works through them before the sending returns, so nothing here ever waits.
 */
#pragma once

#include "base/base.h"

#include <linux/netlink.h>

enum {
	NETLINK_BATCH_BYTES = 2048, /* enough for anything the routing socket is asked here */
};

struct netlink_batch {
	uint8_t *data;
	size_t size, n, message; /* of the buffer; bytes used; where the open message begins */
	uint32_t requests;       /* that will be answered */
};

static inline struct netlink_batch netlink_batch(uint8_t *data, size_t size)
{
	return (struct netlink_batch){ .data = data, .size = size };
}

/* protocol: NETLINK_ROUTE, NETLINK_NETFILTER. */
int netlink_open(int protocol, int *ret, struct err *e);

/* A message begins with a fixed header (struct ifinfomsg ...), then attributes. */
void netlink_begin(struct netlink_batch *b, uint16_t type, uint16_t flags, const void *head,
	size_t n);
/* One that is not answered: the begin and the end of a transaction. */
void netlink_begin_mark(struct netlink_batch *b, uint16_t type, const void *head, size_t n);
void netlink_add(struct netlink_batch *b, uint16_t type, const void *p, size_t n);
void netlink_add_str(struct netlink_batch *b, uint16_t type, const char *text);
void netlink_add_u32(struct netlink_batch *b, uint16_t type, uint32_t value);
size_t netlink_nest(struct netlink_batch *b, uint16_t type); /* a handle for netlink_nest_end */
void netlink_nest_end(struct netlink_batch *b, size_t nest);
void netlink_raw(struct netlink_batch *b, const void *p, size_t n); /* a header inside a nest */

/* Sends all and reads every answer; the first refusal is returned. Empties the batch. */
int netlink_run(int fd, struct netlink_batch *b);
/* Sends the one message of the batch, which asks for a list (NLM_F_DUMP) or for one thing, and
 * hands every entry on: what follows its header. */
typedef void (*netlink_entry_fn)(void *arg, struct str entry);
int netlink_dump(int fd, struct netlink_batch *b, netlink_entry_fn fn, void *arg);
/* What one datagram holds, when it came unasked. */
int netlink_each(struct str datagram, netlink_entry_fn fn, void *arg);

/* The next attribute of a list. False at its end, and at anything that is not an attribute. */
bool netlink_next(struct str *list, uint16_t *ret_type, struct str *ret);
/* The first attribute of that type; p is NULL when there is none. */
struct str netlink_find(struct str list, uint16_t type);
