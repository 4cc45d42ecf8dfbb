/* saved - images that outlive their sandboxes, by name, for others to start from. */
#pragma once

#include "warden/disk.h"

/* To copy from; -ENOENT when there is none of that name. The descriptor. */
int saved_open(const struct disk *disk, const char *name, struct err *e);
/* An empty image that nobody sees under its name before saved_finish; -EEXIST when the name is
 * taken. The descriptor, and that of the directory it is in. */
int saved_begin(const struct disk *disk, const char *name, int *ret_dir_fd, struct err *e);
/* Gives it its name, for good: even a power failure does not take it away. Waits for the disk. */
int saved_finish(int dir_fd, const char *name, struct err *e);
/* However far it came. */
void saved_cancel(const struct disk *disk, const char *name);
int saved_discard(const struct disk *disk, const char *name, struct err *e);
void saved_each(const struct disk *disk, void (*fn)(void *arg, const char *name), void *arg);
/* Removes what an earlier warden began and did not finish. */
void saved_tidy(const struct disk *disk);
