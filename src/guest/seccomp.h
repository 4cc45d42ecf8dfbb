/* seccomp - which system calls a sandbox may make: a container's normal set.
 * Owns:   the table of allowed calls.
 * Uses:   base (which assembles filters).
 * Never:  asks for no_new_privs: sudo must work, so the caller needs CAP_SYS_ADMIN in its user
 *         namespace. */
#pragma once

#include "base/filter.h"

struct seccomp_kind {
	bool has_volumes; /* no room can be taken but by writing */
	bool is_nested;   /* it may have namespaces and mounts of its own inside */
};

/* Assembles the filter and returns its number of instructions. */
size_t seccomp_build(const struct seccomp_kind *kind, struct sock_filter out[FILTER_MAX_INSNS]);
/* Puts it on this process and all it will start. There is no way back. Some calls are asked for
 * from then on: grant.h answers. */
int seccomp_load(const struct seccomp_kind *kind, int *ret_asked_fd, struct err *e);
