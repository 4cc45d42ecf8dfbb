/* cgroups - limits, membership and the kill switch of each sandbox, on hosts of either kind: the
 * unified hierarchy, or the old ones with (hybrid) or without a unified one beside them. Each
 * sandbox has one directory, atoll/INSTANCE/KEY, in every hierarchy used. */
#pragma once

#include "base/base.h"

enum cgroup_controller {
	CGROUP_MEMORY,
	CGROUP_CPU,
	CGROUP_PIDS,
	CGROUP_LIMITS,
	CGROUP_FREEZER = CGROUP_LIMITS, /* only where there is no unified hierarchy */
	CGROUP_CONTROLLERS,
	CGROUP_HIERARCHIES, /* the unified one comes last */
};

struct limits {
	uint64_t memory_bytes;
	uint32_t cpu_percent, max_pids;
};

struct cgroups {
	char instance[16];
	int64_t all_pids;                  /* processes and threads that all sandboxes may have */
	bool unified_limits;               /* the unified hierarchy has the controllers */
	int unified_fd;                    /* atoll/INSTANCE there, or -EBADF */
	int legacy_fd[CGROUP_CONTROLLERS]; /* atoll/INSTANCE in the old hierarchies, or -EBADF */
	char roots[CGROUP_CONTROLLERS + 1][256]; /* mount points, for removing at the end */
};
#define CGROUPS_INIT                                                                   \
	{                                                                              \
		.unified_fd = -EBADF, .legacy_fd = { -EBADF, -EBADF, -EBADF, -EBADF }, \
	}

/* Finds the hierarchies and makes atoll/INSTANCE in them. All sandboxes of the host together are
 * left so many processes and threads that it can always start some of its own. */
int cgroups_open(struct cgroups *cg, const char *instance, struct err *e);
int cgroups_find_roots(struct cgroups *cg, struct err *e); /* where they are mounted */
int64_t cgroups_all_pids(void);
/* Of these one sandbox gets what it wants, but no more than a share: on a host with few numbers
 * some that take all they may must leave the others enough. */
uint32_t cgroups_pids_of_one(int64_t all, uint32_t wanted);
/* Removes atoll/INSTANCE, and atoll, unless something is left in them. */
void cgroups_close(struct cgroups *cg);
/* False: somebody has removed one of the directories since. */
bool cgroups_are_there(const struct cgroups *cg);
/* atoll/INSTANCE in a hierarchy, of CGROUP_HIERARCHIES; -EBADF where it is not used. */
int cgroups_dir(const struct cgroups *cg, size_t hierarchy);

/* What is there of an instance that is somebody else's. Makes nothing, and close_found removes
 * nothing. -ENOENT: there is nothing. */
int cgroups_open_found(struct cgroups *cg, const char *instance, struct err *e);
void cgroups_close_found(struct cgroups *cg);
/* Its directories, unless something is left in them. */
void cgroups_remove_found(const struct cgroups *cg);
/* Every INSTANCE that exists in any hierarchy; they may come more than once. */
int cgroups_each_instance(void (*fn)(void *arg, const char *instance), void *arg, struct err *e);
/* Every process in atoll/INSTANCE/KEY; those of another process namespace come as 0. */
void cgroup_each_process(const struct cgroups *cg, const char *key,
	void (*fn)(void *arg, pid_t pid), void *arg);

int cgroup_make(const struct cgroups *cg, const char *key, struct err *e);
/* The directory to be born in (CLONE_INTO_CGROUP), or -EBADF where there is none. */
int cgroup_open_unified(const struct cgroups *cg, const char *key, int *ret, struct err *e);
/* Descriptors of cgroup.procs in the old hierarchies: a process that writes "0" there joins.
 * Waiting for the kernel's grace period is then the joining process's business, not the warden's.
 */
int cgroup_open_legacy(const struct cgroups *cg, const char *key, int fds[CGROUP_CONTROLLERS],
	int *ret_n, struct err *e);
/* To join a cgroup of the old hierarchies means to wait for a grace period of RCU, ten milliseconds
 * and more, holding the lock that every change to any cgroup needs; unless somebody has joined one
 * a moment ago. So while sandboxes are made, somebody joins the cgroup that it is in, which changes
 * nothing: this is the file to write "0" to for that. -EOPNOTSUPP: it is not needed here. */
int cgroup_open_own(const struct cgroups *cg, struct err *e);
/* Writes only what differs from `now`, which is what was set before (zero: nothing). */
int cgroup_limit(const struct cgroups *cg, const char *key, const struct limits *want,
	struct limits *now, struct err *e);
/* True when the kernel took the order to kill everything in it at once. */
bool cgroup_kill(const struct cgroups *cg, const char *key);
/* How often the kernel killed in it because memory ran out. */
int64_t cgroup_oom_kills(const struct cgroups *cg, const char *key);
/* Processor time that it has used, in µs; 0 where there is no unified hierarchy to ask. */
int64_t cgroup_cpu_us(const struct cgroups *cg, const char *key);
/* What it has written to files and the kernel has not put on disk yet. */
int64_t cgroup_dirty_bytes(const struct cgroups *cg, const char *key);
/* 0 when none of its directories is left, -EBUSY while the kernel still holds one. */
int cgroup_remove(const struct cgroups *cg, const char *key);
/* Whether the process is in atoll/INSTANCE/KEY. */
bool cgroup_holds(const struct cgroups *cg, const char *key, pid_t pid);
/* Calls fn for every KEY that exists in any hierarchy; keys may come more than once. */
void cgroup_each(const struct cgroups *cg, void (*fn)(void *arg, const char *key), void *arg);
