/* reach - which addresses a sandbox may reach: the ranges it was given, checked and kept, and the
 * keys they come to in the firewall, where allowing goes before denying. */
#pragma once

#include "warden/proto.h"

/* As they came, and as they are kept beside a sandbox's state file for the next warden. */
struct ranges {
	uint32_t flags, n; /* of enum warden_reach */
	struct warden_range v[WARDEN_MAX_RANGES];
};

/* From the sealed file of a request, whose word on n and flags has been checked. No file: none. */
int ranges_receive(int fd, uint32_t flags, uint32_t n, struct ranges *ret, struct err *e);
/* In the directory of a sandbox. Nothing to keep is no file. */
int ranges_write(int dir_fd, const struct ranges *ranges, struct err *e);
int ranges_read(int dir_fd, struct ranges *ret, struct err *e);
int ranges_parse(struct str bytes, struct ranges *ret);
bool ranges_equal(const struct ranges *a, const struct ranges *b);
bool ranges_allow(const struct ranges *ranges, uint32_t address); /* host byte order */
bool ranges_deny_nothing(const struct ranges *ranges);

/* What is decided for a sandbox, and by how many lookups. */
enum {
	REACH_PASS,   /* nothing is denied */
	REACH_REFUSE, /* everything is */
	REACH_FEW,    /* by ranges of 8, 16, 24 and 32 bits */
	REACH_ANY,    /* by ranges of any length */
	REACH_KINDS,
};

/* A range as a key that the firewall looks up: the address, with one bit more right behind its
 * leading bits, so that ranges of any length but 32 are told apart in one set; those are hosts. */
enum {
	REACH_ALLOW = 1 << 2,
	REACH_HOST = 1 << 3,
	REACH_WHOLE = 1 << 4, /* all keys are there, and what none of them says is allowed */
	REACH_FLAGS = REACH_ALLOW | REACH_HOST | REACH_WHOLE,
	REACH_MAX_KEYS = WARDEN_MAX_RANGES + 1,
};

struct reach_key {
	uint32_t flags, address; /* host byte order */
};

struct reach {
	bool is_proxied; /* its connections go to the proxy */
	uint32_t kind;
	uint32_t n;
	struct reach_key keys[REACH_MAX_KEYS]; /* rising, none twice, the whole one first */
};

void reach_of(const struct ranges *ranges, struct reach *ret);
/* The bits that a range of `bits` leading ones has in a key, and the bit behind them. */
static inline uint32_t reach_mask(unsigned bits)
{
	return bits ? UINT32_MAX << (32 - bits) : 0;
}
static inline uint32_t reach_marker(unsigned bits)
{
	return bits < 32 ? UINT32_C(1) << (31 - bits) : 0;
}
