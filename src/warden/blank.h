/* blank - empty disk images, one for each size, which those of sandboxes are copies of. The usual
 * size is made at start and stays. Others are made when they are first asked for, and the one that
 * was used longest ago goes when there are too many. A copy does not need what it was copied from.
 *
 * All of it waits for a disk: only workers call it, and the warden before it serves. */
#pragma once

#include "base/base.h"
#include "warden/disk.h"

/* A new directory with upper/ and work/ as every sandbox begins with them. */
int layer_make(const struct disk *disk, const char *name, struct err *e);

/* Makes that of the size where there is none. */
int blank_prepare(const struct disk *disk, struct disk_size size, struct err *e);
/* The same, and its descriptor. */
int blank_open(const struct disk *disk, struct disk_size size, struct err *e);
/* Removes those made for another resolv.conf, by another version, or not to the end. */
void blank_tidy(struct disk *disk);
/* Makes what every layer begins with in an empty directory. */
int layer_fill(const struct disk *disk, int dir_fd, struct err *e);
