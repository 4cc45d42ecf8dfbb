/* run - a host program, run to its end: at start only, or once for a size of disk never seen
 * before. */
#pragma once

#include "base/base.h"

/* argv[0] is looked for in the usual system directories, whatever PATH says. `input` goes to its
 * standard input, `dir_fd` (or AT_FDCWD) is its working directory, what it printed ends up in the
 * error. -ENOENT: there is no such program. */
int run_program(const char *const argv[], struct str input, int dir_fd, struct err *e);
bool run_finds(const char *program);
