/* Volumes, put into the sandbox's root while the guest still may mount. */
#pragma once

#include "base/base.h"
#include "warden/proto.h"

/* Mounts each descriptor at its path below root, in their order. That is the sandbox's, nothing in
 * it runs yet, and nothing in it is trusted: no link on the way is followed. What is missing of the
 * way is made. -ENOTDIR: something else than directories lies there. */
int volumes_put(const char *root, const int *mount_fds, const struct guest_boot *message,
	struct err *e);
