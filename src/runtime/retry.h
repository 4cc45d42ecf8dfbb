/* What of a runtime's failures is worth another try, and when. Pure. */
#pragma once

#include "base/base.h"

enum {
	RETRY_ATTEMPTS = 3,
	RETRY_FIRST_MS = 1000,
	RETRY_MOST_MS = 10000,
	RETRY_FACTOR = 3,
};

/* How long to wait after attempt number `attempt` (from 1) has failed: first_ms, three times that
 * and so on, each a quarter more or less, so that those that failed together do not come back
 * together. random is any number. */
int64_t retry_delay_ms(int attempt, int64_t first_ms, uint64_t random);
