/* uptime - the sandbox counts the time since it was started, and not since the host was: what the
 * kernel says of that (/proc/uptime, when processes began, CLOCK_BOOTTIME) is in a time namespace.
 * Kernels that have none, or that do not let a program of ours enter it, show the host's time. */
#pragma once

#include <stdbool.h>

/* For all processes that this one will execute. Must come while it may still be looked into.
 * -EBADF: nothing is changed. */
int uptime_prepare(void);
/* It begins now. Takes the descriptor. False: the host's time is shown. */
bool uptime_start(int take_fd);
