/* disk - the writable layer of each sandbox: its own sparse ext4 image on a loop device, mounted
 * detached, so that nothing of it is visible on the host and all of it goes with its last user. The
 * size of the image is the hard limit, and deleting it is one unlink.
 *
 * Images are copies of a blank one, made once per size, which already holds upper/ with the files
 * that every sandbox gets (hosts, hostname, resolv.conf) and work/. Where the host has no loop
 * devices a plain directory takes the image's place: it works, without a limit. */
#pragma once

#include "base/base.h"
#include "warden/resolv.h"

struct disk {
	int dir_fd;     /* DATA/images */
	int control_fd; /* /dev/loop-control, or -EBADF: plain directories */
	bool no_direct_io;
	char resolv_conf[sizeof((struct resolvers *)0)->text];
};
#define DISK_INIT                                      \
	{                                              \
		.dir_fd = -EBADF, .control_fd = -EBADF \
	}

struct image {
	char name[64]; /* in DATA/images; empty: none */
	int loop;      /* device number, or -1 */
	int device_fd; /* of the loop device, until it is mounted */
	int mount_fd;  /* detached mount with upper/ and work/ */
};
#define IMAGE_INIT                                                  \
	{                                                           \
		.loop = -1, .device_fd = -EBADF, .mount_fd = -EBADF \
	}

/* Takes the directory. `plain`: directories even where there are loop devices. */
int disk_open(struct disk *disk, int take_dir_fd, bool plain, const struct resolvers *resolvers,
	struct err *e);
/* Images made from now on have this resolv.conf. */
void disk_set_resolvers(struct disk *disk, const struct resolvers *resolvers);
void disk_close(struct disk *disk);

/* Makes the blank image of that size, if there is none yet. */
int disk_prepare(struct disk *disk, uint64_t bytes, struct err *e);
/* The three parts of making an image ready, so that none keeps a request waiting for long: copy the
 * blank, attach the copy to a device, mount that. */
int disk_copy(struct disk *disk, const char *key, uint64_t bytes, struct image *ret, struct err *e);
int disk_attach(struct disk *disk, struct image *image, struct err *e);
int disk_mount(struct disk *disk, struct image *image, struct err *e);
/* Forgets the mount: whoever uses the layer now keeps it alive. */
void disk_let_go(struct image *image);

/* The image of this key, made by an earlier warden. */
void disk_find(const struct disk *disk, const char *key, struct image *ret);
/* Takes the name away, as a first step of removing. */
void disk_unlink(const struct disk *disk, const struct image *image);
/* Removes it. -EBUSY while the kernel still holds its loop device. */
int disk_remove(const struct disk *disk, struct image *image);
/* Every image of an earlier warden, by key. */
void disk_each(const struct disk *disk, void (*fn)(void *arg, const char *key), void *arg);
