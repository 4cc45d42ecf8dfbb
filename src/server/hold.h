/* hold - a volume that is an image stands still while `atoll backup` reads it: a program of the
 * warden's freezes it, for as long as we want and live.
 * Uses:   base, program.
 * Never:  leaves a volume frozen, however the one that froze it ends. */
#pragma once

#include "base/base.h"

#include <sys/types.h>

struct holder {
	pid_t pid;
	int in_fd, out_fd;
};

/* When it returns 0 all who write there wait. What is in ret is for hold_release, also when this
 * fails. */
int hold_volume(const char *data, const char *name, struct holder *ret, struct err *e);
/* -ETIMEDOUT: it was let go before. -EIO: it was killed, and is thawed now. */
int hold_release(const char *data, struct holder *holder, const char *name, struct err *e);
