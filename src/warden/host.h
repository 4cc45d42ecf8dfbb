/* host - small questions to the machine, asked so that the answer can be relied on. */
#pragma once

#include "base/base.h"

#include <sys/types.h>

/* When the process was started, in the kernel's clock ticks since boot: with the pid, its identity.
 */
int process_start_time(pid_t pid, uint64_t *ret);
/* A lock of this process on a whole file; -EAGAIN when another process is in the way. Unlike flock,
 * a cloned child does not hold it on when this process is killed. type: F_RDLCK, F_WRLCK. */
int file_lock(int fd, short type);
/* Opens a path below the directory, through no link and no way out. The descriptor or -errno. */
int open_beneath(int dir_fd, const char *path, int flags);
