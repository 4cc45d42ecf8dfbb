/* disk - the writable layer of each sandbox: its own sparse ext4 image on a loop device, mounted
 * detached, so that nothing of it is visible on the host and all of it goes with its last user. The
 * size of the image is the hard limit, and deleting it is one unlink.
 *
 * Images are copies of a blank one of their size (blank.h), which already holds upper/ with the
 * files that every sandbox gets (hosts, hostname, resolv.conf) and work/, or of one that was saved.
 * They lie in the data directory where its file system copies by reference, else in a pool that
 * does (pool.h), else in the data directory all the same, where copies take their time. Where the
 * host has no loop devices a plain directory takes the image's place: it works, without a limit.
 *
 * What waits for a disk is marked so: only workers call it (worker.h). */
#pragma once

#include "base/base.h"
#include "warden/net.h"

#define DISK_IMAGE_SUFFIX ".ext4"
#define DISK_BLANK_PREFIX "blank-"

enum {
	DISK_KNOWN_SIZES = 32, /* other than the usual one */
};

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
	struct disk_size known[DISK_KNOWN_SIZES]; /* those that blanks were made of lately */
	int next_known;
};
#define DISK_INIT                                                         \
	{                                                                 \
		.dir_fd = -EBADF, .host_fd = -EBADF, .control_fd = -EBADF \
	}

/* How much of an image is taken, as its file system counts: open files without a name, too. */
struct disk_use {
	uint64_t blocks, inodes;
};
int disk_use(int layer_fd, struct disk_use *ret, struct err *e);
/* Whether so little came to what a blank has that it is sooner emptied than made anew. */
bool disk_use_is_little(struct disk_use now, struct disk_use blank);

/* What names an image from one process to another. */
struct image_name {
	char name[64]; /* empty: none */
	bool on_host;  /* in DATA/images, though there is a pool */
	int32_t loop;  /* its device's number, or -1 */
};
struct image {
	struct image_name is;
	int mount_fd; /* detached mount with upper/ and work/ */
	int layer_fd; /* a directory of it, for as long as the sandbox lives */
};
#define IMAGE_INIT                                                           \
	{                                                                    \
		.is = { .loop = -1 }, .mount_fd = -EBADF, .layer_fd = -EBADF \
	}

/* Takes the directory. `plain`: directories even where there are loop devices; `no_pool`: as on a
 * host without XFS. */
int disk_open(struct disk *disk, int take_dir_fd, bool plain, bool no_pool,
	const struct network *net, struct err *e);
void disk_close(struct disk *disk);
bool disk_has_images(const struct disk *disk); /* else plain directories */

/* From now on this is the usual size: its blank image is made, if there is none yet, and stays.
 * Waits: to be called before there are sandboxes to serve. */
int disk_prepare(struct disk *disk, struct disk_size size, struct err *e);
/* Whether a blank of that size has been made: if not, the first of its size takes longer. */
bool disk_knows(const struct disk *disk, struct disk_size size);
void disk_learn(struct disk *disk, struct disk_size size);
/* -ENOSPC when the host's disk is so full that one more sandbox would harm the others. */
int disk_check_room(const struct disk *disk, struct err *e);
/* What the image of this key is called, be it made or not. */
struct image_name disk_name(const struct disk *disk, const char *key);
/* The image of this key, made by an earlier warden. */
void disk_find(const struct disk *disk, const char *key, struct image_name *ret);
/* How large that disk is; 0: not known. */
uint64_t disk_bytes(const struct disk *disk, const struct image_name *image);
/* What its end gives back at most: less, where it shares with others; UINT64_MAX: not known. */
uint64_t disk_taken(const struct disk *disk, const struct image_name *image);
/* Every image of an earlier warden, by key. */
void disk_each(const struct disk *disk, void (*fn)(void *arg, const char *key), void *arg);
/* Whether its loop device still holds it; asks the kernel, no file system. */
bool disk_is_attached(const struct image_name *image);

/* Waits: makes the disk of the key, mounted: a copy of the file, or of a blank (from_fd -EBADF),
 * which is made where there is none of that size. What is left after a failure is unlinked. */
int disk_make(struct disk *disk, const char *key, int from_fd, struct disk_size size,
	struct image *ret, struct err *e);
/* Waits: the file of an image. */
int disk_open_file(const struct disk *disk, const struct image_name *image, int flags,
	struct err *e);
/* Waits: a directory of the mounted layer of a sandbox that lives, whoever mounted it; -EOPNOTSUPP
 * where it is a plain directory. */
int disk_open_layer(const struct disk *disk, const struct image_name *image, struct err *e);
/* Waits: empties the disk of a sandbox that is gone, so that it is as its blank was, and mounts it
 * anew. What somebody still has open of it, or what it has grown by, makes it fail: then it is only
 * good to be removed. */
int disk_empty(const struct disk *disk, const struct image_name *image, struct disk_use blank,
	int *ret_mount, struct err *e);
/* Waits: gives an emptied disk to another key. It takes the mount, and on success is in `ret`. */
int disk_reuse(const struct disk *disk, const struct image_name *from, int take_mount_fd,
	const char *key, struct image *ret, struct err *e);
/* Waits: what was not written yet never will be, and whoever waits for that is let go. Its sandbox
 * has been killed and nobody reads it again. */
void disk_shut(int layer_fd);
/* Waits: mounts the image of that file once, so that what a copy of a live disk has to make good
 * (files that were open and had no name any more) is made good here and now. */
int disk_settle(struct disk *disk, int file_fd, const char *name, struct err *e);
/* Waits: removes its file or directory; its device goes with its last user. */
int disk_remove(const struct disk *disk, const struct image_name *image);
