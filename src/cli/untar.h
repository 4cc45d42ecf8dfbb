/* untar - makes what an archive describes, below one directory and nowhere else: no path leads out
 * of it, no symbolic link is walked through, no owner, set-id bit, device or pipe is taken over. */
#pragma once

#include "cli/tar.h"

struct untar {
	struct tar_reader reader;
	int root_fd;
	int file_fd; /* the file being written, or -EBADF */
	int64_t mtime_s;
	uint64_t bytes;
	uint64_t skipped; /* entries nobody wants */
};

void untar_init(struct untar *u, int root_fd); /* borrows root_fd */
void untar_done(struct untar *u);
int untar_feed(struct untar *u, struct str bytes, struct err *e);
int untar_finish(struct untar *u, struct err *e);
