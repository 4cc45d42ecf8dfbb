/* ending - how a process ended, in the words of Go's os.ProcessState, which clients compare. */
#pragma once

#include "base/base.h"

enum {
	ENDING_TEXT_SIZE = 64,
	ENDING_CAUSE_SIZE = 96,
};

struct ending {
	int exit_code; /* -1 when a signal ended it */
	bool exited;
	char status[ENDING_TEXT_SIZE];
	char cause[ENDING_CAUSE_SIZE]; /* of its end, where that is known better; empty: it is not
					*/
	const char *error;             /* NULL for exit 0, else the cause or the status */
	int signo;                     /* 0: none */
	bool tells_more;               /* to the server: the signal's number, and the next */
	const char *fault;             /* "timeout", "memory"; NULL: its own affair */
};

void ending_from_status(int wait_status, struct ending *ret);
/* A process that looks as if it, or the one it waited for, was killed. */
bool ending_is_kill(int wait_status);
/* A process that looks as if it, or the one it waited for, made a call that no sandbox has: as
 * 32-bit programs do at once. */
bool ending_is_foreign(int wait_status);
void ending_blame_foreign(struct ending *ending);
/* The kernel killed it because the sandbox's memory (0: of unknown size) was used up. */
void ending_blame_memory(struct ending *ending, int64_t memory_mb);
