/* times - how long each piece of work keeps the warden's loop, in a few counters. The loop does one
 * thing at a time: what takes long here, everybody waits for. */
#pragma once

#include "base/base.h"
#include "warden/proto.h"

struct step_watch {
	struct warden_times *times;
	int64_t from_us;
};
static inline struct step_watch step_begin(struct warden_times *all, enum warden_step step)
{
	return (struct step_watch){ &all[step], time_now_us() };
}
void step_end(struct step_watch *watch);
void times_note(struct warden_times *times, int64_t us);

/* For the rest of the block. */
#define STEP(w, step)                                                                    \
	CLEANUP(step_end) struct step_watch step_watch = step_begin((w)->times, (step)); \
	(void)step_watch
