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
	COVER_STAT,
	COVER_LOADAVG,
	COVER_ONLINE, /* and present */
	COVER_POSSIBLE,
	COVER_FILES,
};

/* Open for writing. Each by itself: a directory among PID 1's descriptors would be one that a
 * program can be started in. */
struct covers {
	int fds[COVER_FILES]; /* -EBADF: it is not there, or is as it will be */
};
#define COVERS_INIT                                                       \
	{                                                                 \
		.fds = { -EBADF, -EBADF, -EBADF, -EBADF, -EBADF, -EBADF } \
	}
void covers_done(struct covers *c);

/* In the tree that becomes /sys. cpuinfo begins as the kernel's own does, the rest empty. */
int covers_make(int tree_fd, struct covers *ret, struct err *e);
/* In gVisor, which knows the processors, but not how much memory it may take: that one alone. */
int covers_make_in_gvisor(struct covers *ret, struct err *e);
/* The tree is on /sys: lays them in their places. */
int covers_put(struct err *e);
/* Those places of /proc, one after the other; NULL: there are no more. */
const char *cover_in_proc(size_t i);
/* New content. What is shown meanwhile has the old or the new bytes, and never fewer. */
int cover_write(const struct covers *c, enum cover_file file, struct str text, struct err *e);
int cover_read(const struct covers *c, enum cover_file file, struct buf *out, struct err *e);
