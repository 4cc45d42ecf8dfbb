/* save - one file on its way to disk. The order of system calls is part of the contract: a new file
 * shows a watcher exactly CREATE, CHMOD (its owner) and WRITE, so there is no rename, no chmod, and
 * a small file is one write. */
#pragma once

#include "base/base.h"
#include "guest/users.h"
#include "json/json.h"

#include <limits.h>

struct save {
	int fd;
	char path[PATH_MAX];
	struct buf held; /* what waits to be one write */
};

/* Errors: -EISDIR, -ENOSPC and others with a message. Parents are made as needed. */
int save_open(struct save *s, const char *path, const struct user *user, struct err *e);
int save_write(struct save *s, struct str bytes, struct err *e);
/* Writes what is held, replaces the metadata, closes. */
int save_close(struct save *s, const struct json_map *metadata, struct err *e);
void save_done(struct save *s); /* gives up, if still open */
#define SAVE_INIT            \
	{                    \
		.fd = -EBADF \
	}
