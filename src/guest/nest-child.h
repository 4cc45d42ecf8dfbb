/* nest-child - the processes of nest.h: the one that is there while the namespaces are made, and
 * the ones that each answer a mount(2). */
#pragma once

#include "base/base.h"

#include <linux/seccomp.h>

struct nest_child {
	int asked_fd, place_fd;
	uint64_t id;
	uint32_t thread;
	uint64_t target, type, flags; /* as the caller gave them */
};

/* Where a whole /proc lies in the place, and what lies over one is copied to. A directory that is
 * always empty otherwise. */
#define NEST_PROC "/sys/power"
#define NEST_EMPTY "/sys/firmware" /* the same, and nothing is mounted there */

_Noreturn void nest_child_main(const struct nest_child *c);

/* Shares our memory, and has namespaces of its own until the other end of the pipe is closed. */
struct nest_founder {
	int wait_fd, other_fd;
};
int nest_founder_main(void *arg);
