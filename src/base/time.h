/* Time is int64_t: monotonic ms for deadlines, wall-clock µs since 1970 for the store and display.
 */
#pragma once

#include "base/str.h"

enum {
	RFC3339_SIZE = 32
};

int64_t time_now_ms(void);  /* monotonic */
int64_t time_now_us(void);  /* monotonic, for measuring */
int64_t time_wall_us(void); /* since 1970, UTC */
/* When something was older than keep_s, for those who then throw it away; 0: not to be said now. A
 * wall clock that is wrong is mostly put right soon, so it is believed when nobody has set it for
 * an hour, or for keep_s if that is less. */
struct time_past {
	int64_t offset_us, since_ms; /* of the wall clock from the other; since when */
};
int64_t time_past_us(struct time_past *past, int64_t keep_s);
/* "2026-01-02T03:04:05.678901Z" */
void time_rfc3339(int64_t wall_us, char out[RFC3339_SIZE]);
int time_parse_rfc3339(struct str s, int64_t *ret_wall_us);
