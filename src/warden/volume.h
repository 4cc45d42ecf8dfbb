/* volume - the server's volumes, as a sandbox may see them: each a detached mount whose uids are
 * the sandbox's. On disk all volumes have the uids of block 0, the server's, so that every sandbox
 * sees the same owners, and root inside is nobody outside.
 *
 * A volume is a file system of its own (volume-image.h), whose size is its limit; or, where it was
 * made on a host without loop devices or by an older program, a plain directory. */
#pragma once

#include "warden/proto.h"
#include "warden/rootfs.h"

#include <sys/types.h>

struct volumes {
	int dir_fd;     /* DATA/volumes; -EBADF: there is none */
	int images_fd;  /* its .images, root's own; -EBADF: there are only plain directories */
	int control_fd; /* /dev/loop-control; borrowed, as the next */
	const struct rootfs *rootfs;
};
#define VOLUMES_INIT                                                        \
	{                                                                   \
		.dir_fd = -EBADF, .images_fd = -EBADF, .control_fd = -EBADF \
	}

/* Fills fds, all of them -EBADF before, with n mounts; the caller closes them, also after a
 * failure. first_uid: what 0 inside is outside. -ESTALE: a volume is gone. Waits. */
int volumes_open(const struct volumes *v, const struct warden_mount *mounts, uint32_t n,
	uid_t first_uid, int *fds, struct err *e);
