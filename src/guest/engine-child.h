/* engine-child - from the fork to the engine's program. No malloc, no log. */
#pragma once

#include "warden/proto.h"

struct engine_child {
	const char *name; /* of the program */
	enum warden_engine engine;
	int listen_fd, words_fd; /* what it says goes to words_fd */
};

_Noreturn void engine_child_main(const struct engine_child *c);
