/* loopdev - files as block devices. */
#pragma once

#include "base/base.h"

/* /dev/loop-control, or -EBADF where the host has no usable loop devices. */
int loopdev_open(void);
/* Attaches the file to a free device that clears itself after its last user. `no_direct_io`
 * remembers whether the file's file system refuses that. */
int loopdev_attach(int control_fd, int file_fd, const char *name, bool *no_direct_io, int *ret_fd,
	int *ret_number, struct err *e);
/* Whether the device still holds the file of that name (even unlinked). */
bool loopdev_is_attached(int number, const char *name);
