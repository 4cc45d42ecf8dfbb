/* untar - makes what an archive describes, below one directory and nowhere else: no path leads out
 * of it, no symbolic link is walked through, no owner, set-id bit, device or pipe is taken over.
 * Nor does it leave links that lead out: whoever comes later, this program or another, would follow
 * them. */
#pragma once

#include "cli/tar.h"

struct untar {
	struct tar_reader reader;
	int root_fd;
	int file_fd; /* the file being written, or -EBADF */
	int64_t mtime_s;
	uint64_t bytes;
	uint64_t skipped; /* entries nobody wants */
	bool all_links;   /* also those that lead out */
	uint64_t links;   /* that lead out and were left out, and the first of them: */
	char link[TAR_PATH_MAX], link_target[TAR_PATH_MAX];
};

void untar_init(struct untar *u, int root_fd, bool all_links); /* borrows root_fd */
void untar_done(struct untar *u);
int untar_feed(struct untar *u, struct str bytes, struct err *e);
int untar_finish(struct untar *u, struct err *e);
