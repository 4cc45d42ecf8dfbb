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
/* "2026-01-02T03:04:05.678901Z" */
void time_rfc3339(int64_t wall_us, char out[RFC3339_SIZE]);
int time_parse_rfc3339(struct str s, int64_t *ret_wall_us);
