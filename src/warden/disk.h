/* disk - the writable layer of each sandbox: its own sparse ext4 image on a loop device, mounted
 * detached, so that nothing of it is visible on the host and all of it goes with its last user. The
 * size of the image is the hard limit, and deleting it is one unlink.
 *
 * Images are copies of a blank one of their size (blank.h), which already holds upper/ with the
 * files that every sandbox gets (hosts, hostname, resolv.conf) and work/, or of one that was saved.
 * They lie in the data directory where its file system copies by reference, else in a pool that
 * does (pool.h), else in the data directory all the same, where copies take their time. Where the
 * host has no loop devices a plain directory takes the image's place: it works, without a limit. */
#pragma once

#include "base/base.h"
#include "warden/net.h"

#define DISK_IMAGE_SUFFIX ".ext4"
#define DISK_BLANK_PREFIX "blank-"

struct disk_size {
	uint64_t bytes;
	uint64_t inodes; /* 0: as mkfs thinks best */
};
static inline bool disk_size_eq(struct disk_size a, struct disk_size b)
{
	return a.bytes == b.bytes && a.inodes == b.inodes;
}

struct disk {
	int dir_fd;     /* where images are made: DATA/images or the pool */
	int host_fd;    /* DATA/images: what an earlier warden made may be here */
	int control_fd; /* /dev/loop-control, or -EBADF: plain directories */
	bool no_direct_io;
	struct err slow; /* why images are not copied by reference; code 0: they are */
	char resolv_conf[NET_CONF_SIZE];
	struct disk_size usual_size;
};
#define DISK_INIT                                                         \
	{                                                                 \
		.dir_fd = -EBADF, .host_fd = -EBADF, .control_fd = -EBADF \
	}

struct image {
	char name[64]; /* empty: none */
	int dir_fd;    /* where it is; the disk's */
	int loop;      /* device number, or -1 */
	int device_fd; /* of the loop device, until it is mounted */
	int mount_fd;  /* detached mount with upper/ and work/ */
};
#define IMAGE_INIT                                                                    \
	{                                                                             \
		.dir_fd = -EBADF, .loop = -1, .device_fd = -EBADF, .mount_fd = -EBADF \
	}

/* Takes the directory. `plain`: directories even where there are loop devices; `no_pool`: as on a
 * host without XFS. */
int disk_open(struct disk *disk, int take_dir_fd, bool plain, bool no_pool,
	const struct network *net, struct err *e);
void disk_close(struct disk *disk);
bool disk_has_images(const struct disk *disk); /* else plain directories */

/* From now on this is the usual size: its blank image is made, if there is none yet, and stays. */
int disk_prepare(struct disk *disk, struct disk_size size, struct err *e);
/* Whether images of that size can be made at once: others' blanks are made first, see blank.h. */
bool disk_is_prepared(const struct disk *disk, struct disk_size size);
/* -ENOSPC when the host's disk is so full that one more sandbox would harm the others. */
int disk_check_room(const struct disk *disk, struct err *e);
/* Makes an empty image for the key, to be copied into: the descriptor. */
int disk_begin(struct disk *disk, const char *key, struct image *ret, struct err *e);
/* The three parts of making an image ready, so that none keeps a request waiting for long: copy the
 * blank, attach the copy to a device, mount that. */
int disk_copy(struct disk *disk, const char *key, struct disk_size size, struct image *ret,
	struct err *e);
int disk_attach(struct disk *disk, struct image *image, struct err *e);
int disk_mount(struct disk *disk, struct image *image, struct err *e);
/* Makes a layer that was in use before fit for the next overlay. */
int disk_renew(const struct image *image, struct err *e);
/* A directory of the mounted layer of a sandbox that lives, whoever mounted it; -EOPNOTSUPP where
 * it is a plain directory. The file it lies in goes to ret_file. */
int disk_open_layer(const struct disk *disk, const struct image *image, int *ret_file,
	struct err *e);
/* What was not written yet never will be: its sandbox is about to end and nobody reads it again. */
void disk_abandon(const struct disk *disk, const struct image *image);
/* Forgets the mount: whoever uses the layer now keeps it alive. */
void disk_let_go(struct image *image);

/* The image of this key, made by an earlier warden. */
void disk_find(const struct disk *disk, const char *key, struct image *ret);
/* Takes the name away, as a first step of removing. */
void disk_unlink(const struct image *image);
/* Removes it. -EBUSY while the kernel still holds its loop device; -EAGAIN: a large directory, of
 * which some is left. */
int disk_remove(struct image *image);
/* Every image of an earlier warden, by key. */
void disk_each(const struct disk *disk, void (*fn)(void *arg, const char *key), void *arg);
