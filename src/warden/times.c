#include "warden/times.h"

void times_note(struct warden_times *times, int64_t us)
{
	size_t at = 0;

	while (at < WARDEN_BUCKETS - 1 && us > warden_bucket_us[at])
		at++;
	times->at_most[at]++;
	times->total_us += (uint64_t)MAX(us, 0);
	times->max_us = MAX(times->max_us, (uint64_t)MAX(us, 0));
}

void step_end(struct step_watch *watch)
{
	times_note(watch->times, time_now_us() - watch->from_us);
}
