/* reach - which addresses a sandbox may reach: the ranges it was given, checked and kept, and what
 * they come to when allowing goes before denying. */
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

struct segment {
	uint32_t first, last; /* host byte order */
	bool allow;
};

enum {
	/* Every range begins one and ends one, and there is one before the first. */
	REACH_MAX_SEGMENTS = 2 * WARDEN_MAX_RANGES + 1,
};

struct reach {
	bool is_proxied; /* its connections go to the proxy */
	size_t n;
	/* Rising, one behind the other, never two alike side by side. All addresses are in them:
	 * what the firewall finds in none of them it has not been told about. */
	struct segment segments[REACH_MAX_SEGMENTS];
};

void reach_of(const struct ranges *ranges, struct reach *ret);
bool reach_is_open(const struct reach *reach);   /* nothing is denied */
bool reach_is_closed(const struct reach *reach); /* everything is */
