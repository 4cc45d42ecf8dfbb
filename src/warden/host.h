/* host - small questions to the machine, asked so that the answer can be relied on. */
#pragma once

#include "base/base.h"
#include "base/process.h"

#include <sys/types.h>

/* A lock of this process on a whole file; -EAGAIN when another process is in the way. Unlike flock,
 * a cloned child does not hold it on when this process is killed. type: F_RDLCK, F_WRLCK. */
int file_lock(int fd, short type);
/* The whole file, for writing, also by processes that are forked from this one and keep it open. */
int file_lock_shared_by_forks(int fd);
/* Opens a path below the directory, through no link and no way out. The descriptor or -errno. */
int open_beneath(int dir_fd, const char *path, int flags);
