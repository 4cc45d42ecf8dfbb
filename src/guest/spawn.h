/* spawn - one new process, made without copying our memory.
 * The child shares our address space and we stand still until it executes or exits (vfork's
 * contract), so its cost does not grow with our heap and it can tell us in plain memory what went
 * wrong. Between clone and exec only plain system calls run: see spawn-child.c. One that does not
 * get there is killed: see watchdog.h. */
#pragma once

#include "base/base.h"
#include "guest/users.h"
#include "guest/watchdog.h"

#include <limits.h>

struct spawn {
	char *const *argv;
	char *const *envp;
	const char *path; /* where argv[0] is looked up when it has no slash */
	const char *cwd;
	const struct user *user;
	int fds[3];         /* become 0, 1, 2; none of them may be below 3 */
	bool is_pty;        /* fds are a terminal: make it the controlling one */
	bool keep_ids;      /* we are not root: there is only one user to be */
	uint64_t max_files; /* open at once; 0: as we may */

	/* Written by the child. */
	const char *failed_step; /* NULL: it reached exec */
	int failed_errno;
	char candidate[PATH_MAX];
};

struct spawner {
	void *stack; /* the child's, one at a time: we wait for it */
	struct watchdog watchdog;
};

void spawner_init(struct spawner *s);
void spawner_done(struct spawner *s);
/* The pid, or -errno. A command that cannot be executed is no failure: like under a shell, it is a
 * process that explains itself on its stderr and exits with 126 or 127. */
pid_t spawn_run(struct spawner *s, struct spawn *spawn, struct err *e);

/* The child's whole life, in spawn-child.c. */
int spawn_child(void *arg);
