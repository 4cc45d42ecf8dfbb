/* range - which part of a file a request wants, and whether it wants it at all. */
#pragma once

#include "base/base.h"

struct range {
	int64_t offset, length;
};

enum range_result {
	RANGE_WHOLE, /* no range, or one that may be ignored: *ret is untouched */
	RANGE_PART,
	RANGE_IMPOSSIBLE,
};

/* One range of a file of `size` > 0 bytes; several at once are answered with the whole file, which
 * is allowed. `if_range` must repeat `last_modified` to count. */
enum range_result range_choose(struct str header, struct str if_range, const char *last_modified,
	int64_t size, struct range *ret);
void range_http_date(int64_t unix_s, char out[64]);
bool range_not_modified(struct str if_modified_since, int64_t mtime_s);
