/* shm - memory that belongs to no process and so outlives those that the kernel kills for it:
 * bounded, so that a sandbox whose memory ran out gets out of that again. */
#pragma once

#include "base/base.h"

/* /dev is a tmpfs by now, and /proc/sys can still be written. 0: as the kernel thinks best. */
int shm_limit(uint64_t bytes, struct err *e);
