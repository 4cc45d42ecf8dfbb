/* cover - files that lie over the kernel's own, where those speak of the whole machine and programs
 * size themselves by them.
 * Owns:   their names, and that they are there; what is in them is seen.h's.
 * Uses:   base.
 * Never:  knows a number. They are plain files in memory that PID 1 writes: nobody who reads one
 * waits for anybody, whatever becomes of the server. */
#pragma once

#include "base/base.h"

enum cover_file {
	COVER_MEMINFO,
	COVER_CPUINFO,
	COVER_ONLINE,
	COVER_PRESENT,
	COVER_POSSIBLE,
	COVER_FILES,
};

/* In the tree that becomes /sys. cpuinfo begins as the kernel's own does, the rest empty. */
int cover_make(int tree_fd, struct err *e);
/* The tree is on /sys: lays them in their places. */
int cover_put(struct err *e);
/* New content. What is shown meanwhile has the old or the new bytes, and never fewer. */
int cover_write(int tree_fd, enum cover_file file, struct str text, struct err *e);
int cover_read(int tree_fd, enum cover_file file, struct buf *out, struct err *e);
