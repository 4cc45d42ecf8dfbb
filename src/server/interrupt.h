/* interrupt - Ctrl+C and the like, for work that leaves something to tidy up: it looks whether one
 * has come, and the signal does what it always does afterwards. */
#pragma once

#include <signal.h>
#include <stdbool.h>

struct interrupt {
	sigset_t before;
};
/* From here on they wait. */
void interrupt_hold(struct interrupt *held);
/* Whether one waits; without a hold, never. */
bool interrupt_came(void);
/* One that waited ends the process here, unless it has another use for it. */
void interrupt_release(const struct interrupt *held);
