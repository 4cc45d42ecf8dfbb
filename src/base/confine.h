/* confine - what a program of ours gives up once it has what it needs. */
#pragma once

#include "base/base.h"

/* Its memory holds keys and tokens: no core of it is written, and nobody but root may look into it.
 */
void confine_memory(void);
/* Keeps these capabilities (a bit each) at most, for itself and for all that it will execute. */
int confine_capabilities(uint64_t kept, struct err *e);
