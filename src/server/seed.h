/* The secret of a data directory, from which tokens are derived and with which values are sealed.
 */
#pragma once

#include "base/base.h"

/* Reads DATA/seed, makes it where there is none, and moves the one of an older version there, which
 * lay in the server's own directory. For root. */
int seed_open(int data_fd, int state_fd, uid_t server, uint8_t ret[SHA256_SIZE], struct err *e);
