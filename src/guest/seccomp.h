/* seccomp - which system calls a sandbox may make: a container's normal set.
 * Owns:   the table of allowed calls.
 * Uses:   base (which assembles filters).
 * Never:  asks for no_new_privs: sudo must work, so the caller needs CAP_SYS_ADMIN in its user
 *         namespace. */
#pragma once

#include "base/filter.h"

/* Assembles the filter and returns its number of instructions. */
size_t seccomp_build(struct sock_filter out[FILTER_MAX_INSNS]);
/* Puts it on this process and all it will start. There is no way back. */
int seccomp_load(struct err *e);
