/* seen - what programs inside see of memory and processors: the sandbox's own, and not the host's.
 * Owns:   the content of the covers (cover.h), and which processors PID 1 and so all of the sandbox
 *         run on.
 * Uses:   base, cover; the sandbox's own cgroup files.
 * Never:  enforces a limit. What a program makes of a number is its own affair. */
#pragma once

#include "base/base.h"
#include "guest/cover.h"
#include "guest/gauge.h"
#include "guest/metrics.h"
#include "guest/seen-use.h"
#include "loop/loop.h"

#include <sched.h>

struct seen {
	struct covers covers;
	int64_t memory_bytes, cpu_count; /* the latter: what it is told */
	cpu_set_t allowed, cpus;         /* before, and since, it was told */
	int64_t began_us;                /* by the clock that goes on while the host sleeps */
	int64_t booted_s; /* by the wall clock: when that, or the host, began to count */

	struct loop *loop;           /* NULL: what is shown stays as it was at first */
	const struct gauges *gauges; /* borrowed */
	struct loop_timer timer;
	struct loop_task soon;
	int64_t lively_until_ms, written_ms;
	struct seen_load load;
	struct metrics sample; /* the last one */
};
#define SEEN_INIT                     \
	{                             \
		.covers = COVERS_INIT \
	}

/* This process and all that it starts from here on run on so many processors; 0: on all. Where that
 * cannot be, all is as it was. */
void seen_take_cpus(int64_t cpu_count, cpu_set_t *ret);
/* The sandbox will have these limits; 0: not told. */
void seen_prepare(struct seen *s, struct covers *take_covers, int64_t memory_mb, int64_t cpu_count);
/* From here on it has these. Next to nothing is left to do where they are those of before. */
void seen_start(struct seen *s, int64_t memory_mb, int64_t cpu_count, bool has_own_time);
/* And it is told how much of them it uses: when a command starts, each second for a while after
 * that, and when it is sampled. So one in which nothing is started costs nothing. */
void seen_watch(struct seen *s, struct loop *loop, const struct gauges *gauges);
void seen_soon(struct seen *s); /* somebody may look */
/* What was measured a moment ago. */
void seen_sample(struct seen *s, const struct metrics *m);
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
