/* seccomp - which system calls a sandbox may make: a container's normal set.
 * Owns:   the table of allowed calls and the filter assembled from it.
 * Uses:   base.
 * Never:  asks for no_new_privs: sudo must work, so the caller needs CAP_SYS_ADMIN in its user
 *         namespace. */
#pragma once

#include "base/base.h"

#include <linux/filter.h>

enum {
	SECCOMP_MAX_INSNS = 400,
};

/* Assembles the filter and returns its number of instructions. */
size_t seccomp_build(struct sock_filter out[SECCOMP_MAX_INSNS]);
/* Puts it on this process and all it will start. There is no way back. */
int seccomp_load(struct err *e);
