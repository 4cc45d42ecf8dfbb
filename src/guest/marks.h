/* marks - files that tell programs inside where they are: the machine id, and E2B's own in
 * /run/e2b. Owns:   their names and content. Uses:   base, settings. Never:  trusts what lies
 * there: a fork finds its parent's, or what its parent's programs put there instead, so each is a
 * new file under the old name.
 *
 * A new file on a sandbox's disk costs many times what its few bytes do. A guest that waits for its
 * sandbox has them ready and empty, and fills them in when it is told whose it is. */
#pragma once

#include "base/base.h"
#include "guest/settings.h"

enum mark_file {
	MARK_MACHINE_ID,
	MARK_SANDBOX,
	MARK_SANDBOX_ID,
	MARK_TEMPLATE_ID,
	MARK_FILES,
};

struct marks {
	int fds[MARK_FILES]; /* -EBADF: not ready */
};
#define MARKS_INIT                                        \
	{                                                 \
		.fds = { -EBADF, -EBADF, -EBADF, -EBADF } \
	}

/* What cannot be made is left: it is tried again when it is written. */
void marks_prepare(struct marks *m);
/* What the settings do not name is not there. What cannot be written is left. */
void marks_write(struct marks *take, const struct settings *s);
