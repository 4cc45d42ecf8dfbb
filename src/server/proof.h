/* The last line of a start on a terminal: a sandbox made, a command run in it, and how long both
 * took. */
#pragma once

#include "sandbox/sandbox.h"

void proof_run(struct loop *loop, struct sandbox_book *book, const char *team_id, done_fn done,
	void *arg);
