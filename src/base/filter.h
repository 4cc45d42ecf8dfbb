/* filter - a system call filter (seccomp) from a table, without a library.
 *
 * A filter is searched as a binary tree: the kernel runs a new one once for every call number when
 * it is loaded, so depth is what loading costs (a linear list: 0.7 ms, this: 0.04 ms). Whatever
 * comes through another architecture's table of calls ends by SIGSYS. */
#pragma once

#include "base/base.h"

#include <linux/filter.h>

enum {
	FILTER_MAX_INSNS = 512,
	FILTER_MAX_STARTS = 180,
	/* The newest call that was looked at when the tables were written (removexattrat). Numbers
	 * from pidfd_send_signal on are the same on every architecture. */
	FILTER_LAST_KNOWN = 466,
	/* FILTER_NESTED_MOUNT lets a mount(2) pass that has this for a sixth argument, of which the
	 * kernel knows nothing. No secret: see nest.h. */
	FILTER_OWN_MOUNT = 0x6e657374,
};

enum filter_verdict {
	FILTER_ALLOW,
	FILTER_REFUSE,      /* EPERM */
	FILTER_UNKNOWN,     /* ENOSYS, on which a libc falls back to what it knows */
	FILTER_CLONE,       /* allowed without namespace flags */
	FILTER_THREAD,      /* clone: allowed for a thread of this process */
	FILTER_UNSHARE,     /* allowed without namespace flags */
	FILTER_PERSONALITY, /* allowed for the usual ones */
	FILTER_SOCKET,      /* allowed for the usual families */
	FILTER_IOCTL,       /* allowed but for typing into a terminal */
	/* For sandboxes. "Asked for" means that the listener of filter_load_asking decides. */
	FILTER_NOTHING,       /* not made, and answered as if it were */
	FILTER_OWN_SOCKET,    /* allowed where the kernel charges its memory, else asked for */
	FILTER_PAIR,          /* allowed for Unix sockets */
	FILTER_SOCKET_OPTION, /* allowed but for what takes memory outside of limits; some is asked
			       * for
			       */
	FILTER_FILE,          /* fcntl: allowed but for locks of open files, which name no owner */
	FILTER_PRCTL,         /* allowed but for scheduling by core; own filters are asked for */
	FILTER_OWN_FILTER,    /* seccomp: own filters are asked for */
	FILTER_MAP,           /* mmap: allowed but for huge pages, which no limit counts */
	FILTER_MEMORY_FILE,   /* memfd_create: the same */
	FILTER_SEGMENT,       /* shmget: the same */
	FILTER_PLACE,         /* fallocate: only gives room back */
	FILTER_PLACE_IOCTL,   /* ioctl: allowed but for what takes room as fallocate does */
	/* For sandboxes with namespaces of their own inside. */
	FILTER_NESTED_OPTION, /* setsockopt: as FILTER_SOCKET_OPTION, and without what only rules a
			       * network: larger buffers by force, packet filters of the old kind */
	FILTER_NESTED_MOUNT,  /* mount: another look at what is mounted already is allowed, a file
			       * system that is not there yet is asked for */
};

/* From `number` up to the next start's, calls get `verdict`. */
struct filter_start {
	uint32_t number;
	enum filter_verdict verdict;
};
/* One call's. */
struct filter_rule {
	uint32_t number;
	enum filter_verdict verdict;
};

/* Of a table by rising number that begins at 0; returns the number of instructions. */
size_t filter_assemble(const struct filter_start *starts, size_t n,
	struct sock_filter out[FILTER_MAX_INSNS]);
/* Of rules in any order, the last of a number counts. Calls without one are allowed as long as they
 * are known, so the rules must name all that is not harmless; newer ones are unknown. */
size_t filter_build(const struct filter_rule *rules, size_t n,
	struct sock_filter out[FILTER_MAX_INSNS]);
/* Puts it on every thread of this process and all it will start. There is no way back. */
int filter_load(struct sock_filter *filter, size_t n, struct err *e);
/* The same for this thread, and a descriptor (CLOEXEC) on which calls are asked for: until somebody
 * answers there (SECCOMP_IOCTL_NOTIF_RECV), they wait. */
int filter_load_asking(struct sock_filter *filter, size_t n, int *ret_fd, struct err *e);
