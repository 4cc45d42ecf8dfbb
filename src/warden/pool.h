/* pool - a file system that copies files by reference, for data directories on one that cannot: a
 * sparse XFS image beside the other images, mounted detached, so that nobody but the warden sees
 * it. It holds nothing back: what is removed in it is given back to the file system below, and the
 * mount goes with its last user, be that the warden or the last sandbox. */
#pragma once

#include "base/base.h"

bool pool_exists(int dir_fd);
/* Opens the pool that is in the directory, or makes it. A pool whose sandboxes outlived an earlier
 * warden is still mounted, and is found again by its device: two devices for one file would destroy
 * it. On failure e says why. */
int pool_open(int dir_fd, int control_fd, int *ret_dir_fd, struct err *e);
/* Whether this host could have one. */
int pool_check(struct err *e);
