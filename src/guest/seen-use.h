/* seen-use - how busy the sandbox is, as the kernel writes it: /proc/stat and /proc/loadavg. */
#pragma once

#include "base/base.h"

#include <sched.h>

enum {
	SEEN_LOADS = 3,        /* of one, five and fifteen minutes */
	SEEN_SAMPLE_MS = 5000, /* the kernel counts who runs as often */
};

struct seen_load {
	int64_t parts[SEEN_LOADS]; /* in parts of 1 / SEEN_LOAD_ONE */
	int64_t at_ms;             /* up to then; 0: not begun */
};
enum {
	SEEN_LOAD_ONE = 1 << 11,
};

/* So many were running since the last time. */
void seen_load_add(struct seen_load *load, int64_t running, int64_t now_ms);

struct seen_use {
	int64_t user_us, system_us;
	int64_t elapsed_us; /* since the sandbox was started */
	int64_t booted_s;   /* when the clock of processes began, by the wall clock */
	int64_t running, processes, last_pid;
};
void seen_write_stat(const struct seen_use *use, const cpu_set_t *cpus, struct buf *out);
void seen_write_load(const struct seen_load *load, const struct seen_use *use, struct buf *out);
/* Spaces before the last line's end, so that the text seldom changes its length: a reader that
 * comes while it is written finds lines that end. */
void seen_pad(struct buf *out);
