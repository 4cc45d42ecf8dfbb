/* mounts - made detached and then put in place, so that there is no scratch directory and nothing
 * that a failure could leave behind. */
#pragma once

#include "base/base.h"

#include <sys/mount.h>

enum {
	MOUNT_MAX_OPTIONS = 4,
	MOUNT_PLAIN = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
};
#define MOUNT_MAX_TERMINALS "256" /* of one sandbox: as devpts takes it */
struct mount_option {
	const char *key, *value; /* key NULL: no more */
};

int mount_make(const char *type, const struct mount_option options[MOUNT_MAX_OPTIONS],
	unsigned attributes, int *ret, struct err *e);
/* Follows no link to the place. */
int mount_put(int mount_fd, const char *path, struct err *e);
