/* run - a host program, run to its end: at start, or beside the loop, which watches for that. */
#pragma once

#include "base/base.h"

/* argv[0] is looked for in the usual system directories, whatever PATH says. `input` goes to its
 * standard input, `dir_fd` (or AT_FDCWD) is its working directory, what it printed ends up in the
 * error. -ENOENT: there is no such program. */
int run_program(const char *const argv[], struct str input, int dir_fd, struct err *e);
bool run_finds(const char *program);

/* The same without waiting: pid_fd becomes readable when it has ended, and then run_end says how.
 * argv[0] must stay until then. */
struct run {
	pid_t pid;
	int pid_fd, out_fd;
	const char *program;
};
#define RUN_INIT                                   \
	{                                          \
		.pid_fd = -EBADF, .out_fd = -EBADF \
	}
int run_start(const char *const argv[], struct str input, int dir_fd, struct run *ret,
	struct err *e);
int run_end(struct run *run, struct err *e);
void run_abandon(struct run *run); /* kills it if it runs; nobody is told */
