/* loopdev - files as block devices. */
#pragma once

#include "base/base.h"

/* /dev/loop-control, or -EBADF where the host has no usable loop devices. */
int loopdev_open(void);
/* Attaches the file to a free device that clears itself after its last user. `no_direct_io`
 * remembers whether the file's file system refuses that. */
int loopdev_attach(int control_fd, int file_fd, const char *name, bool *no_direct_io, int *ret_fd,
	int *ret_number, struct err *e);
/* The device that holds the file of that name, attached if it is not: one file never has two, which
 * would be two file systems on the same blocks. All who attach it must do so by this. -ENOENT:
 * there is no file. -EBUSY: at the deadline somebody has its lock, and no device. */
int loopdev_attach_once(int control_fd, int dir_fd, const char *name, int64_t deadline_ms,
	int *ret_fd, int *ret_number, struct err *e);
/* Opens the device if it holds that very file; it then stays attached for as long as it is open.
 * The descriptor, or -ENXIO: it holds nothing or something else. */
int loopdev_reopen(int number, int file_fd);
/* The device that holds that very file, whoever attached it: -ENXIO when there is none. */
int loopdev_find(int file_fd, const char *name, int *ret_fd, int *ret_number);
/* The same, quickly for one that was attached by loopdev_attach_once. */
int loopdev_find_noted(int file_fd, const char *name, int *ret_fd, int *ret_number);
/* Whether the device still holds the file of that name (even unlinked). */
bool loopdev_is_attached(int number, const char *name);
