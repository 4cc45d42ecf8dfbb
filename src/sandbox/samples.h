/* A sandbox's samples in memory, and in a file for the next server. Of metrics.c and samples.c. */
#pragma once

#include "sandbox/sandbox-internal.h"

enum {
	SAMPLES_KEPT = 240,
};

struct samples {
	struct sandbox_sample v[SAMPLES_KEPT];
	int n;
	int64_t step_us, last_us;
	bool is_asking, is_due; /* the second: what is being asked is to be kept */
};

/* Writes them down by a job; book->samples_saving until it is over. */
void samples_save(struct sandbox_book *book);
/* At start, blocking: what the server before wrote down of those that live. */
void samples_load(struct sandbox_book *book);
