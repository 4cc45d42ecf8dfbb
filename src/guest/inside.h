/* inside - the second guest: PID 1 in a root that an engine has made (engine.h). */
#pragma once

#include "guest/boot.h"

/* As boot_prepare, for BOOT_GVISOR and BOOT_CONTAINER; the warden's socket is where it always is.
 */
int inside_prepare(enum boot_place place, struct boot *ret, struct err *e);
