/* ending - how a process ended, in the words of Go's os.ProcessState, which clients compare. */
#pragma once

#include "base/base.h"

enum {
	ENDING_TEXT_SIZE = 64
};

struct ending {
	int exit_code; /* -1 when a signal ended it */
	bool exited;
	char status[ENDING_TEXT_SIZE];
	const char *error; /* NULL for exit 0, else == status */
};

void ending_from_status(int wait_status, struct ending *ret);
