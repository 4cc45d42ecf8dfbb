/* filter - a system call filter (seccomp) from a table, without a library.
 *
 * A filter is searched as a binary tree: the kernel runs a new one once for every call number when
 * it is loaded, so depth is what loading costs (a linear list: 0.7 ms, this: 0.04 ms). Whatever
 * comes through another architecture's table of calls is refused. */
#pragma once

#include "base/base.h"

#include <linux/filter.h>

enum {
	FILTER_MAX_INSNS = 400,
	FILTER_MAX_STARTS = 180,
	/* The newest call that was looked at when the tables were written (removexattrat). Numbers
	 * from pidfd_send_signal on are the same on every architecture. */
	FILTER_LAST_KNOWN = 466,
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
