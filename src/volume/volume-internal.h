/* The volume room's own objects, shared by its files. */
#pragma once

#include "volume/volume.h"

#include <limits.h>
#include <sys/stat.h>

#define INCOMING_DIR ".incoming" /* uploads on their way, and trees on theirs out */

struct holding { /* a volume that the book knows */
	struct volume view;
	struct list node; /* oldest first */
};

struct volume_book {
	struct volume_book_config config;
	int incoming_fd;
	struct map by_id;
	struct list holdings;
	struct list sweeping; /* trees that a job is removing */
	struct list unswept;  /* somebody still wrote there: to be tried again */
	struct loop_timer sweeper;
};

/* ---- place.c: a path in a volume ---- */
/* An absolute path without `.`, `..`, doubled or final slashes. -EINVAL: NUL, bad UTF-8, too long.
 */
int place_clean(struct str path, char out[PATH_MAX], struct err *e);
struct str place_base(const char *clean); /* "/" for the root */
/* Opens below the volume's root, wherever links in between point. */
int place_open(int root_fd, const char *clean, int flags);
/* The directory above, as O_PATH; the root has none: -EEXIST. */
int place_open_parent(int root_fd, const char *clean);
int place_fail(struct err *e, int code, const char *clean); /* the room's errors from -errno */
/* fd may be O_PATH; 0 or -errno. */
int place_chmod(int fd, int mode);
int place_change(int fd, const struct volume_attr *attr);

/* ---- tree.c: whole directories ---- */
/* Removes dir_fd/name, whatever modes are set inside and however deep it is, also while somebody
 * still writes there, within reason; never leaves its file system. 0 or -errno. On its way it may
 * leave parts of the tree in dir_fd, under names of their own, which go with it. */
int tree_remove(int dir_fd, const char *name);
struct listing {
	struct arena *arena;
	struct volume_entry *v;
	size_t n, cap;
};
/* Adds one entry; -E2BIG when there are too many. */
int listing_add(struct listing *l, const char *path, int fd, const struct stat *st);
int tree_list(struct listing *l, int dir_fd, const char *path, int depth);
