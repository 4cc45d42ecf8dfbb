/* seen - what programs inside see of memory and processors: the sandbox's own, and not the host's.
 * Owns:   the content of the covers (cover.h), and which processors PID 1 and so all of the sandbox
 *         run on.
 * Uses:   base, cover; the sandbox's own cgroup files.
 * Never:  enforces a limit. What a program makes of a number is its own affair. */
#pragma once

#include "base/base.h"

#include <sched.h>

struct seen {
	int tree_fd; /* -EBADF: nothing is covered */
	int64_t memory_bytes;
	cpu_set_t cpus;
	int n_cpus;
};
#define SEEN_INIT                 \
	{                         \
		.tree_fd = -EBADF \
	}

/* Takes the descriptor. From here on the sandbox has these limits; 0: not told. */
void seen_start(struct seen *s, int take_tree_fd, int64_t memory_mb, int64_t cpu_count);
void seen_done(struct seen *s);

/* ---- for tests ---- */

/* So many of the allowed, one after the other, beginning elsewhere for each number: sandboxes
 * spread evenly. All, when there are no more. Returns how many. */
int seen_choose(const cpu_set_t *allowed, int64_t wanted, uint32_t number, cpu_set_t *ret);
/* As the kernel lists them: "0-2,7". */
void seen_list_cpus(const cpu_set_t *cpus, struct buf *out);
/* The first processor of `host`, once for each. */
void seen_write_cpuinfo(struct str host, const cpu_set_t *cpus, struct buf *out);
/* /proc/meminfo of so much memory, of which `used` is, as memory.stat of either hierarchy says. */
void seen_write_meminfo(int64_t total, int64_t used, struct str stat, struct buf *out);
