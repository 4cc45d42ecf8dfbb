/* listing - the entries of a directory tree as one JSON document. Runs as a job: it owns all it
 * touches, and reads the user names itself. */
#pragma once

#include "base/base.h"
#include "guest/users.h"

#include <limits.h>

enum {
	LISTING_MAX_BYTES = 64 << 20, /* of the document: some 200,000 entries */
};

struct listing {
	char path[PATH_MAX];
	uint32_t depth;
	struct users users;
	struct buf out; /* {"entries":[...]} */
};

void listing_init(struct listing *l, const char *path, uint32_t depth);
void listing_done(struct listing *l);
/* -ENOENT, -ENOTDIR, -ELOOP; -ENOBUFS when the document would be too large. */
int listing_run(struct listing *l, struct err *e);
