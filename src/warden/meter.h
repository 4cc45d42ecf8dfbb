/* meters - the files of a sandbox's cgroups that tell what the kernel did in it, on hosts of either
 * kind. The guest is given them to read; the warden waits for some of them to change. */
#pragma once

#include "base/base.h"
#include "warden/cgroup.h"
#include "warden/proto.h"

/* Opens all of enum guest_meter for reading. */
int meters_open(const struct cgroups *cg, const char *key, int fds[GUEST_METERS], struct err *e);
void meters_close(int fds[GUEST_METERS]);
/* Its directories by enum guest_group, each a detached mount that is read-only: all of them, or
 * none (*ret_n is 0) where the unified hierarchy has the limits. */
int groups_clone(const struct cgroups *cg, const char *key, int fds[GUEST_GROUPS], int *ret_n,
	struct err *e);

/* A descriptor that epoll reports (by ret_events) when the sandbox comes up against the limit. */
int meter_watch(const struct cgroups *cg, const char *key, enum warden_limit limit,
	uint32_t *ret_events, struct err *e);
/* How often it did so far; from now on the descriptor is quiet until it does again. */
int64_t meter_read(const struct cgroups *cg, const char *key, enum warden_limit limit,
	int watch_fd);

/* The kernel's text about a limit: the number behind the counter's name; 0: it has none. */
int64_t meter_parse(struct str text, enum warden_limit limit);
