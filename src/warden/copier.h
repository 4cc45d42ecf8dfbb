/* copier - copies an image in a process of its own, since that may have to wait for a disk and the
 * warden never does. The image of a sandbox that lives is copied at one moment of it: written out
 * while the sandbox still runs, stopped, written out what came since, copied, and let go on. The
 * process is the one that stops it and lets it go, so a warden killed meanwhile leaves no sandbox
 * standing. */
#pragma once

#include "base/base.h"
#include "loop/loop.h"
#include "warden/freezer.h"

struct copier;

struct copy_order {
	int from_fd, to_fd;
	int layer_fd; /* a directory of the file system that lives in it; -EBADF: none does */
	struct freezer freezer; /* to stop it; not open: it stands still already */
	int marker_fd;          /* locked meanwhile; once unlinked: leave the sandbox alone */
	int saved_fd;           /* where the copy is given its name in the end */
	const char *name;
};
#define COPY_ORDER_INIT                                                                          \
	{                                                                                        \
		.from_fd = -EBADF, .to_fd = -EBADF, .layer_fd = -EBADF, .freezer = FREEZER_INIT, \
		.marker_fd = -EBADF, .saved_fd = -EBADF                                          \
	}
void copy_order_done(struct copy_order *order); /* closes all */

struct copy_report {
	struct err e;               /* code 0: done */
	int64_t still_us, total_us; /* how long the sandbox stood still, and all of it */
	uint64_t bytes;             /* that the copy takes, shared with others or not */
	bool has_lost_writes;       /* of the sandbox: below its disk there was no room for them */
};
typedef void (*copier_fn)(void *arg, const struct copy_report *report);

/* Begins; the order stays the caller's and may be closed at once. All copiers at work are in the
 * list. `done` comes from the loop, unless the copier was abandoned before. */
int copier_start(struct loop *loop, struct list *all, const struct copy_order *order,
	copier_fn done, void *arg, struct copier **ret, struct err *e);
/* Ends the process, now or as soon as the kernel lets it, and nobody is told. */
void copier_abandon(struct copier *c);
/* Forgets those at work: they finish by themselves. */
void copiers_forget(struct list *all);
