/* The keeper: the process that was started, which stays root and does nothing but wait. When the
 * server or its warden dies, it starts both again; sandboxes do not notice. */
#pragma once

#include "base/base.h"

enum {
	KEEP_EXIT_AGAIN = 75, /* of a server that wants to be started again: its warden died */
};

/* Returns in the process that is to serve, with the keeper's pid. In the keeper it does not return:
 * that ends as the server ends, or goes on with the next one when that died. */
pid_t keep_serving(void);
/* In the server, once it is no longer root: it ends with its keeper. -ESRCH: that is gone. */
int keep_follow(pid_t keeper);
