/* volume-image - volumes that are file systems of their own: a sparse ext4 image each, of root's,
 * as large as the volume may become. Whoever writes there, through whatever call, comes against the
 * end of it. What is used is what statfs says.
 *
 * While somebody uses one it is attached to a loop device and mounted; mounts are never in
 * anybody's tree but a sandbox's, and device and file system go with the last descriptor or sandbox
 * that has one. So a warden or server that is killed leaves nothing, and the next one finds by the
 * file's lock and its device what is in use.
 *
 * All of it waits: only workers call it (worker.h). */
#pragma once

#include "warden/volume.h"

#define VOLUME_IMAGES_DIR ".images"

enum {
	VOLUME_IMAGES_MODE = 0755,  /* root's alone to write, see warden_open_own_dir */
	VOLUME_INODES_PER_MIB = 64, /* as the disks of sandboxes have */
	VOLUME_OPEN_FDS = 2,
};

/* At start: removes what was not made to the end. */
void volume_image_tidy(const struct volumes *v);
bool volume_image_exists(const struct volumes *v, const char *id);
/* Of 8 MiB at least. -EEXIST. -EOPNOTSUPP: this host has no loop devices. When it returns 0 the
 * image is on the disk.
 */
int volume_image_make(const struct volumes *v, const char *id, uint64_t bytes, struct err *e);
/* For the server: the volume's root directory, and one beside it on the same file system, which no
 * sandbox sees. -ESTALE: it is gone. */
int volume_image_open(const struct volumes *v, const char *id, int ret_fds[VOLUME_OPEN_FDS],
	struct err *e);
/* For a sandbox: its root directory as a mount that nobody has mapped yet. */
int volume_image_mount(const struct volumes *v, const char *id, int *ret_mount, struct err *e);
/* Nobody gets it any more, who has it mounted can read and write nothing, and its room is free.
 * -ENOENT. */
int volume_image_remove(const struct volumes *v, const char *id, struct err *e);
/* Mounts the image of that name, which lies in this directory, whether it is mounted already or
 * not: a descriptor of its root. */
int volume_image_reach(int images_fd, int control_fd, const char *name, struct err *e);
