/* Who a process is. */
#pragma once

#include "base/base.h"

#include <sys/types.h>

/* When the process was started, in the kernel's clock ticks since boot: with the pid, its identity.
 */
int process_start_time(pid_t pid, uint64_t *ret);
