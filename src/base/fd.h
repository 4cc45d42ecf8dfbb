/* Descriptors and small files. Everything opened here is O_CLOEXEC. */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/own.h"

#include <errno.h>
#include <sys/types.h>

int fd_write_all(int fd, const void *p, size_t n); /* blocking fds; 0 or -errno */
int fd_read_all(int fd, struct buf *out);          /* to end of file; -ENOBUFS past the ceiling */
int fd_set_nonblock(int fd, bool on);

/* Files by directory descriptor and name; dir_fd may be AT_FDCWD. */
int file_read(int dir_fd, const char *name, struct buf *out, struct err *e);
int file_write(int dir_fd, const char *name, struct str text,
	struct err *e); /* existing, e.g. sysfs */
/* -EEXIST: there is something of that name, a dangling link even. */
int file_create(int dir_fd, const char *name, struct str text, mode_t mode, struct err *e);
/* Written beside and renamed over, so a reader sees the old or the new text, never half. */
int file_replace(int dir_fd, const char *name, struct str text, mode_t mode, struct err *e);
/* Opens for reading a file of that user's alone: what has this name may be a link, a pipe that
 * never ends, or another's file under a second name, where somebody else can write in the
 * directory. -EPERM: it is none of his plain files. */
int file_open_own(int dir_fd, const char *name, uid_t owner, struct err *e);
int dir_make(int dir_fd, const char *name, mode_t mode, struct err *e); /* fine if it is there */
/* Whatever modes are set inside and however deep it is, also while somebody still writes there,
 * within reason; never leaves its file system. Fine if there is nothing. */
int dir_remove_tree(int dir_fd, const char *name, struct err *e);
/* The same up to that time (time_now_us): 0 or -errno; -EAGAIN: some of it is left, call again. */
int dir_remove_some(int dir_fd, const char *name, int64_t until_us);

/* One message with descriptors on a Unix socket. Sending does not consume the descriptors. */
enum {
	FD_MAX_PASS = 25
};
int fd_send(int sock, const void *p, size_t n, const int *fds, int n_fds);
/* Returns the bytes received (0: peer gone) and fills fds/ret_n; every received fd is CLOEXEC. A
 * message that was cut short is -EMSGSIZE and its descriptors are closed. */
ssize_t fd_recv(int sock, void *p, size_t n, int fds[FD_MAX_PASS], int *ret_n);
