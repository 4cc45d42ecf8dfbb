/* state - what the next warden needs to know about a sandbox: a small file beside its socket,
 * written before the sandbox has a name. The name is the directory's. */
#pragma once

#include "base/base.h"

#include <sys/types.h>

struct state {
	char key[17];
	pid_t pid;
	uint64_t start_time;
	int number, loop; /* loop -1: none */
	int engine;       /* enum warden_engine */
};

int state_write(int dir_fd, const struct state *state, struct err *e);
int state_read(int dir_fd, struct state *ret, struct err *e);
int state_parse(struct str text, struct state *ret);
