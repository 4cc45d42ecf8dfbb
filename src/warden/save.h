/* save - keeps a sandbox's disk as it is at one moment: written out while the sandbox still runs,
 * stopped, written out what came since, copied, and let go on. Whoever does this also stops the
 * sandbox and lets it go, so that a warden killed meanwhile leaves no sandbox standing.
 *
 * Waits for disks: only workers call it. */
#pragma once

#include "warden/worker.h"

/* By the order's descriptors: see enum work_fd. */
int save_disk(struct disk *disk, const struct cgroups *cg, const struct work_order *order,
	const int fds[WORK_FDS], struct work_report *report, struct err *e);
