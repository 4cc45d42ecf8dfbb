/* view - what a sandbox sees of /sys: a small read-only tree in its place. Disks, file systems and
 * devices of the host, and so its neighbours' images and how busy they are, are not in it. The same
 * tree holds what is shown in the place of some of the kernel's files (cover.h). */
#pragma once

#include "base/base.h"
#include "guest/cover.h"
#include "warden/proto.h"

struct view {
	int show_fd; /* the tree, read-only */
	struct covers covers;
};
#define VIEW_INIT                                        \
	{                                                \
		.show_fd = -EBADF, .covers = COVERS_INIT \
	}

/* Makes the tree. It is attached to /sys for that, and until view_unstage, or until that root is
 * left. */
int view_make(struct view *ret, struct err *e);
void view_done(struct view *v);
int view_unstage(struct err *e);
/* Wants sysfs on /sys, and cgroup2 on /sys/fs/cgroup if it is to be seen. groups: by enum
 * guest_group, shown in the places that they have had for long; NULL: none. */
int view_show(const struct view *v, const int *groups, struct err *e);
