/* pty - pseudo terminals. */
#pragma once

#include "base/base.h"

#include <sys/types.h>

struct pty_size {
	uint16_t cols, rows;
};

/* Opens a terminal of that size whose device belongs to the user. The master is non-blocking. */
int pty_open(struct pty_size size, uid_t uid, int *ret_master, int *ret_slave, struct err *e);
int pty_resize(int master, struct pty_size size, struct err *e);
