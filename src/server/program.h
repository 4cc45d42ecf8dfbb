/* The programs on disk, as root may execute them: the keeper asks here before it becomes the next
 * build, and that build about those that it starts itself. */
#pragma once

#include "base/base.h"

enum {
	PROGRAM_PATH_SIZE = 4096
};

/* Where this program lies. Asked at start: later another may lie there. */
int program_own_path(char ret[PROGRAM_PATH_SIZE], struct err *e);
/* -EPERM: somebody else than root could have put it there, or can put another. */
int program_check_owner(const char *path, struct err *e);
/* Runs it to its end, with what it prints in memory. Fails if that is no success, with
 * what a program of ours says when it gives up. argv[0] is the path; `said` may be NULL. */
int program_try(const char *const argv[], int64_t timeout_ms, struct buf *said, struct err *e);
/* A program of ours beside this one in a build directory, or in ../libexec/atoll when installed. */
int program_find_helper(const char *name, char ret[PROGRAM_PATH_SIZE], struct err *e);
