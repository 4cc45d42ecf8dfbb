/* calls - which system calls the server may make once it serves. */
#pragma once

#include "base/filter.h"

/* Assembles the filter and returns its number of instructions. */
size_t calls_build(struct sock_filter out[FILTER_MAX_INSNS]);
/* From now on, for every thread; wants no_new_privs. There is no way back. */
int calls_limit(struct err *e);
