/* metrics - what the sandbox uses. /proc shows the host's machine, so the limits come from the
 * settings, and use is measured by what is the sandbox's own:
 * - memory: the cgroup's counter where it is visible; else the private (anonymous) memory of all
 *   processes, which leaves out the page cache;
 * - CPU: the time of all processes, live (with what their reaped children used); between two
 * questions and in percent of the sandbox's cores;
 * - disk: the root file system;
 * - what concerns limits is the gauges'. */
#pragma once

#include "base/base.h"
#include "guest/gauge.h"
#include "guest/settings.h"

struct metrics { /* as of the last question */
	int64_t at_us;
	int64_t cpu_us;
	int64_t memory_bytes;
	int64_t running, last_pid; /* processes that run or wait for a disk; the highest number */
	int64_t activity;          /* the newest record's number, which is told along */
};

void metrics_init(struct metrics *m);
void metrics_write(struct metrics *m, struct gauges *g, const struct settings *s, struct buf *out);
