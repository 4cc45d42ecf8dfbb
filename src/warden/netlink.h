/* netlink - requests to the kernel's routing socket, assembled in a fixed buffer and sent in one
 * go. */
#pragma once

#include "base/base.h"

enum {
	NETLINK_BATCH_BYTES = 2048,
};

struct netlink_batch {
	_Alignas(4) uint8_t data[NETLINK_BATCH_BYTES];
	size_t n, message; /* bytes used; where the open message begins */
	uint32_t requests;
};

int netlink_open(int *ret, struct err *e);

/* A message begins with a fixed header (struct ifinfomsg ...), then attributes. */
void netlink_begin(struct netlink_batch *b, uint16_t type, uint16_t flags, const void *head,
	size_t n);
void netlink_add(struct netlink_batch *b, uint16_t type, const void *p, size_t n);
void netlink_add_str(struct netlink_batch *b, uint16_t type, const char *text);
void netlink_add_u32(struct netlink_batch *b, uint16_t type, uint32_t value);
size_t netlink_nest(struct netlink_batch *b, uint16_t type); /* a handle for netlink_nest_end */
void netlink_nest_end(struct netlink_batch *b, size_t nest);
void netlink_raw(struct netlink_batch *b, const void *p, size_t n); /* a header inside a nest */

/* Sends all and waits for every answer; the first refusal is returned. Empties the batch. */
int netlink_run(int fd, struct netlink_batch *b);
