/* Addresses that lead into somebody's own network instead of the internet, and the operator's list
 * of those that sandboxes may reach all the same. IPv4, host byte order. */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

enum {
	PRIVATE_MAX_OPENED = 64,
	PRIVATE_TEXT_SIZE = 32, /* of one entry: "255.255.255.255/32:65535" */
};

/* Private, shared, link-local, loopback, multicast, reserved, and where clouds serve machines. */
bool private_is(uint32_t address);

struct private_range {
	uint32_t address;
	uint8_t bits;  /* of the prefix: 1 to 32 */
	uint16_t port; /* 0: any */
};
struct private_list {
	struct private_range v[PRIVATE_MAX_OPENED];
	size_t n;
};

/* Adds "ADDRESS[/BITS][:PORT]", several with commas between. -EINVAL: it is no range of private
 * addresses, or of some that are never opened: loopback, link-local, what clouds serve. -E2BIG. */
int private_list_add(struct private_list *list, struct str text, struct err *e);
/* Whether the list opens it; port 0: any port of it. */
bool private_list_has(const struct private_list *list, uint32_t address, uint16_t port);
/* Private, and not opened. */
bool private_is_closed(const struct private_list *list, uint32_t address, uint16_t port);
void private_range_text(const struct private_range *range, char ret[PRIVATE_TEXT_SIZE]);
/* As private_list_add takes it. */
void private_list_write(const struct private_list *list, struct buf *out);
