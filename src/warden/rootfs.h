/* rootfs - a sandbox's root: the template's tree below, its own layer on top, both seen through the
 * sandbox's uid range. Files on disk keep the uids they have inside (0 and up), so that layers fit
 * any range, and root inside is nobody outside. */
#pragma once

#include "base/base.h"

struct rootfs {
	/* This kernel takes layers by path only (before 6.13), or copies only mounts that are in
	 * its tree (before 6.15). */
	bool attach;
	int dir_fd; /* where they are attached then, in a mount namespace of the warden's own */
	char lower[24], upper[24]; /* and by what names */
};
#define ROOTFS_INIT              \
	{                        \
		.dir_fd = -EBADF \
	}

/* Finds out what the kernel can. `attach`: by path even where it could do better. To be called
 * before any directory is opened: a mount namespace of the warden's own may begin here. */
int rootfs_open(struct rootfs *rf, bool attach, struct err *e);
/* Where layers are attached, if they must be: a directory of the warden's own; borrowed. */
void rootfs_use_dir(struct rootfs *rf, int dir_fd);
/* And in it a place of one process's own: several mount at the same time. */
int rootfs_use_place(struct rootfs *rf, int number, struct err *e);

/* Maps the whole mount to the user namespace's ids. Only a mount nobody has seen yet can be. */
int rootfs_idmap(int mount_fd, int user_ns_fd, struct err *e);

/* A mount of one directory in a mount that is in nobody's tree. */
int rootfs_clone_inside(const struct rootfs *rf, int mount_fd, const char *name, int *ret,
	struct err *e);

struct rootfs_layers {
	int lower_fd; /* the template's directory */
	int image_fd; /* idmapped mount with upper/ and work/ */
	int user_ns_fd;
	uid_t first_uid; /* what 0 inside is outside */
};
/* A detached mount, writable for the sandbox. */
int rootfs_mount(const struct rootfs *rf, const struct rootfs_layers *layers, int *ret,
	struct err *e);
