/* nest - namespaces inside a sandbox that was made with `nested`.
 *
 * Its processes live in a user namespace (and a mount namespace) below the sandbox's own: what was
 * mounted before is locked there, so nobody inside can take away what lies over /proc and /sys; and
 * all namespaces that are made inside are counted together, against one bound. Root inside may
 * mount in that one; of the network, the host name and the process numbers it is no master.
 *
 * The kernel mounts a new /proc inside only where a whole one is to be seen, which there is not. So
 * mount(2) of a new file system is asked for, and where it is a /proc that the caller has a right
 * to, a process of ours makes it: with the same covers as the sandbox's own, locked as there. All
 * else the kernel decides. That a type could be exchanged after the look opens nothing: the kernel
 * refuses a /proc of its own.
 *
 * Owns:   both namespaces, the place where a whole /proc is kept, the processes that mount.
 * Uses:   base, mounts.h, seal.h (what is covered).
 * Never:  does for a caller what its capabilities would not allow it. */
#pragma once

#include "base/base.h"

#include <linux/seccomp.h>

enum {
	NEST_MAX_KIND = 256, /* namespaces of each kind, of the whole sandbox at once */
	/* A network takes 200 KiB, most of which the kernel charges to nobody. */
	NEST_MAX_NETWORKS = 64,
	NEST_MOUNTS_A_SECOND = 1024,
};

/* While /proc/sys may still be written, before anything of the sandbox's own runs. */
int nest_limit(struct err *e);
/* The device for file systems that a program serves, of the tree that it came in. */
int nest_put_fuse(int tree_fd, struct err *e);
/* When all is covered: this process and all that it starts live inside from now on, with all
 * capabilities there. *ret_place_fd: where a whole /proc is kept, for nest_mount; CLOEXEC. */
int nest_enter(int *ret_place_fd, struct err *e);

struct nest {
	int place_fd; /* -EBADF: not nested */
	int64_t moment_ms;
	int n_mounts; /* in this moment */
};
#define NEST_INIT                  \
	{                          \
		.place_fd = -EBADF \
	}
/* A mount(2) that the filter asks for: answered on asked_fd by a process that is not waited for.
 * -errno: the caller gets it now. */
int nest_mount(struct nest *n, int asked_fd, const struct seccomp_notif *asked, int64_t now_ms);
