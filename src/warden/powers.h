/* What is left of root to the warden and to all that it starts. */
#pragma once

#include "base/filter.h"

size_t powers_build(struct sock_filter out[FILTER_MAX_INSNS]);
/* Before the first request. There is no way back. */
int powers_drop(struct err *e);
