/* grant - calls that the filter leaves to PID 1, because what they take is charged to nobody.
 *
 * The kernel charges a sandbox for most of what it holds for it, but not for what waits in
 * datagram, raw, packet and netlink sockets, nor for the machine code of system call filters. Both
 * have a bound for each of them, so a bound for their number is one for all of it. How many sockets
 * there are the kernel knows; how many filters is counted here.
 *
 * In a sandbox with namespaces inside, each network there counts for itself and gets fewer; how
 * many networks there are is bounded (nest.h).
 *
 * Owns:   the filter's descriptor, and the decision.
 * Uses:   base, loop.
 * Never:  makes a call for somebody else: it says yes, and the kernel checks as always. Nothing of
 * a call that lies in memory is looked at, since it could be changed after the look. */
#pragma once

#include "base/base.h"
#include "guest/nest.h"
#include "loop/loop.h"

enum {
	/* Of all its sockets, Unix and TCP among them: with more it gets no further one of these
	 * kinds, and no further one hears of errors. A receive buffer is 208 KiB, and errors wait
	 * in it; what a datagram socket holds back is 64 KiB. */
	GRANT_MAX_RARE = 1024,
	GRANT_MAX_DATAGRAM = 4096,
	GRANT_MAX_INSIDE = 32, /* of either, in a network that was made inside */
	/* A filter of the largest size is 56 KiB of machine code. */
	GRANT_MAX_FILTERS = 1024,
	GRANT_THREADS = 4096, /* that are told apart */
};

/* Who was granted a socket in this moment. The kernel counts a socket when it is made, a little
 * after we said yes: each of these may have one more that is not counted yet. */
struct grant_moment {
	uint64_t network; /* the number of a file of its own; 0: the sandbox's own, or nobody's yet
			   */
	int64_t began_ms, n_threads;
	uint64_t threads[GRANT_THREADS / 64];
};

struct grants {
	struct loop_io io;
	int asked_fd, sockets_fd; /* the latter is /proc/net/sockstat */
	struct nest nest;
	int own_filters; /* that every process has */
	int64_t filters; /* as last counted, and all that were granted since */
	struct grant_moment moment;
	struct grant_moment *inside; /* of as many networks as there can be; NULL: not nested */
};
#define GRANTS_INIT                                                                            \
	{                                                                                      \
		.asked_fd = -EBADF, .sockets_fd = -EBADF, .nest = NEST_INIT, .own_filters = -1 \
	}

/* Takes the descriptors, also when it fails; place_fd is nest.h's. From here on calls are answered.
 */
int grants_take(struct grants *g, struct loop *loop, int asked_fd, int place_fd, struct err *e);
void grants_done(struct grants *g);

/* Of one network. */
struct grant_count {
	int64_t sockets;
	uint64_t network; /* 0: the sandbox's own; else one that was made inside */
};
/* Whether one of so many sockets may hear of errors. */
bool grant_errors(const struct grant_count *count);
struct seccomp_data;
/* 0: the thread may have it; else the -errno that it gets. */
int grant_socket(struct grants *g, uint32_t thread, const struct seccomp_data *call,
	const struct grant_count *count, int64_t now_ms);
