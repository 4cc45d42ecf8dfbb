/* compat - what programs expect of a kernel and this sandbox's does not have, mended where it can
 * be: gVisor's of Debian 12 refuses a flag that ls and stat of the same Debian always pass. */
#pragma once

#include "base/base.h"

/* In memory (/dev is no part of the disk), for the dynamic loader. */
#define COMPAT_PRELOAD "/dev/stat-preload.so"

extern const unsigned char compat_preload[];
extern const size_t compat_preload_size;

/* True: programs need COMPAT_PRELOAD, and it is there. */
bool compat_prepare(void);
