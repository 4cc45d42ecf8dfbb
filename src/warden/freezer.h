/* freezer - makes all processes of a sandbox stand still where they are, and lets them go on. The
 * unified hierarchy's freezer wherever there is one, since what it froze can still be killed; the
 * old one elsewhere. */
#pragma once

#include "warden/cgroup.h"

struct freezer {
	int order_fd; /* what was asked for */
	int state_fd; /* what came of it */
	bool legacy;
};
#define FREEZER_INIT                                   \
	{                                              \
		.order_fd = -EBADF, .state_fd = -EBADF \
	}

/* -EOPNOTSUPP: this host has no freezer. */
int freezer_open(const struct cgroups *cg, const char *key, struct freezer *ret, struct err *e);
void freezer_close(struct freezer *f);
/* Gives the order; processes inside follow when they next leave the kernel. 0 or -errno. */
int freezer_order(const struct freezer *f, bool frozen);
/* Whether it was told to freeze. */
bool freezer_is_ordered(const struct freezer *f);
/* Whether no process in it runs any more. To be asked again and again: the kernel spaces its
 * notifications by 10 ms and more. */
bool freezer_is_still(const struct freezer *f);
/* Asks again and again. -EBUSY: one still runs. For workers: it sleeps. */
int freezer_await(const struct freezer *f, int64_t deadline_ms);
/* The same for a sandbox whose programs may serve file systems (fuse.h). Who waits for one of those
 * is not stopped, since the program that would answer stands still; but it does nothing either, and
 * is stopped before it comes to its own again. So it is enough that all the others stand, and that
 * these have waited since the last look. */
int freezer_await_served(const struct freezer *f, const struct cgroups *cg, const char *key,
	int64_t deadline_ms);
