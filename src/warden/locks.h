/* locks - record locks are charged to nobody, and there is no limit for them: who makes hundreds of
 * thousands takes the host's memory. So the warden looks, and ends the processes that do.
 *
 * Looking at all locks is expensive, so that is done only when the kernel's memory has grown by
 * more than a little, and then at some of them: who has most of these is who did it. */
#pragma once

#include "loop/loop.h"
#include "warden/worker.h"

enum {
	LOCKS_EACH = 16,    /* of so many lines of /proc/locks one is looked at */
	LOCKS_MANY = 8192,  /* of one sandbox: programs have tens */
	LOCKS_OWNERS = 256, /* sandboxes that are told apart */
};

struct lock_watch {
	struct loop *loop;
	struct workers *workers; /* one of them looks: it takes many milliseconds */
	struct loop_timer timer;
	bool is_looking;
	int64_t low_bytes; /* the kernel's memory when there was least of it, or when we last looked
			    */
};
void lock_watch_start(struct lock_watch *w, struct loop *loop, struct workers *workers);
void lock_watch_stop(struct lock_watch *w);

/* Looks now, and ends the processes of those that have too many. Waits. */
void locks_end_takers(const struct cgroups *cgroups);

/* Whose lock it is that a line of /proc/locks tells of; 0: nobody's that can be found. */
pid_t lock_owner(struct str line);
