/* owner - whose the cgroups atoll/INSTANCE are: what outlives its data directory is told from what
 * waits for a server there.
 *
 * A warden labels the directories of its cgroups with its data directory, and locks them for as
 * long as it or a worker of it lives. Both are the kernel's: whoever sees the cgroups sees them,
 * from any namespace, and they go with the cgroups. The label has the directory's file handle, by
 * which the file system itself says that it is still there, wherever it was moved and however it is
 * called here. That it is not there is believed only if nothing is at its path either. */
#pragma once

#include "warden/cgroup.h"

enum {
	OWNER_HANDLE_BYTES = 128,
	OWNER_PATH_BYTES = 4096,
	OWNER_LABEL_BYTES = OWNER_PATH_BYTES + 2 * OWNER_HANDLE_BYTES + 96,
};

struct owner {
	uint32_t major, minor; /* of the file system, as in mountinfo */
	int32_t handle_type;
	uint32_t n_handle; /* 0: the file system has none */
	uint8_t handle[OWNER_HANDLE_BYTES];
	uint64_t mount_ns; /* in which the path is one */
	char path[OWNER_PATH_BYTES];
};

/* The caller's mount namespace; 0: unknown. */
uint64_t owner_mount_ns(void);
int owner_describe(const char *data_dir, uint64_t mount_ns, struct owner *ret, struct err *e);
int owner_write(const struct owner *owner, struct buf *out);
int owner_parse(struct str label, struct owner *ret); /* -EINVAL */

/* At once, whoever holds the lock: who sweeps looks at it again. Where it fails, nothing of this
 * instance is ever taken for a leftover. */
int owner_label(const struct cgroups *cg, const struct owner *owner, struct err *e);
/* -EWOULDBLOCK: a worker of an earlier warden has it, or who looks; to be tried again. */
int owner_lock(const struct cgroups *cg, struct err *e);

enum owner_fate {
	OWNER_LIVES,   /* a warden, or what is left of one, holds the lock */
	OWNER_AWAY,    /* its data directory is there: the next server takes over */
	OWNER_GONE,    /* its data directory was removed, and nobody holds the lock */
	OWNER_UNKNOWN, /* no label, one that cannot be asked about from here, or another directory
			* is at that path */
};
/* Locks what it finds unlocked, until the descriptors are closed. */
enum owner_fate owner_judge(const struct cgroups *cg, struct owner *ret);
/* A server that was started since on the same path has labelled them, without waiting for the lock.
 */
bool owner_is_still_gone(const struct cgroups *cg, const struct owner *judged);
/* The same without the lock: OWNER_AWAY, OWNER_GONE or OWNER_UNKNOWN. */
enum owner_fate owner_look(const struct owner *owner);
