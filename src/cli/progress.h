/* progress - how far a transfer is, for whoever waits: one line that is redrawn on a terminal, one
 * line every ten seconds elsewhere, nothing at all for the first second or when silence was asked
 * for. */
#pragma once

#include "cli/cli-internal.h"

struct progress {
	struct cli *cli;
	struct loop_timer timer;
	const char *name;
	int64_t total_bytes; /* -1: not known */
	int64_t started_ms;
	uint64_t bytes;
	bool is_drawn;
};

void progress_start(struct progress *p, struct cli *cli, const char *name, int64_t total_bytes);
void progress_stop(struct progress *p); /* takes its line away; fine if never started */
