/* view - what a sandbox sees of /sys: a small read-only tree in its place. Disks, file systems and
 * devices of the host, and so its neighbours' images and how busy they are, are not in it. The same
 * tree holds what is shown in the place of some of the kernel's files (cover.h). */
#pragma once

#include "base/base.h"
#include "warden/proto.h"

struct view {
	int write_fd; /* the tree, to write to its files; seen by nobody */
	int show_fd;  /* the same, read-only */
};
#define VIEW_INIT                                     \
	{                                             \
		.write_fd = -EBADF, .show_fd = -EBADF \
	}

/* Makes the tree. It is attached to /sys for that, and until view_unstage, or until that root is
 * left. */
int view_make(struct view *ret, struct err *e);
void view_done(struct view *v);
int view_unstage(struct err *e);
/* Wants sysfs on /sys, and cgroup2 on /sys/fs/cgroup if it is to be seen. groups: by enum
 * guest_group, shown in the places that they have had for long; NULL: none. */
int view_show(const struct view *v, const int *groups, struct err *e);
