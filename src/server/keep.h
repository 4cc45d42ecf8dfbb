/* keep - the keeper: the process that was started, which stays root and does nothing but wait. It
 * owns the listening sockets, so clients wait while nobody serves. When the server or its warden
 * dies, it starts both again; sandboxes do not notice. On SIGUSR2 it makes sure that the programs
 * on disk would start, has the server leave, and executes itself from there: sockets, process and
 * sandboxes stay, the programs are new. */
#pragma once

#include "server/listening.h"

#include <sys/types.h>

enum {
	KEEP_EXIT_AGAIN = 75, /* of a server that wants to be started again: its warden died */
};

struct keep_plan {
	const char *listen;         /* the address */
	const char *data;           /* the data directory */
	const char *database;       /* as ATOLL_DATABASE had it; NULL: it did not */
	char **argv;                /* of `serve`, that first */
	int64_t grace_ms;           /* that the server has to leave for the next build */
	struct listening inherited; /* that a supervisor opened for us; taken */
};

/* What a server has of its keeper. */
struct kept {
	pid_t keeper;               /* 0: nobody starts it again */
	struct listening listening; /* the keeper's; none: the server opens its own */
	int tell_fd;                /* for keep_tell; -EBADF: nobody listens */
};
#define KEPT_INIT                                               \
	{                                                       \
		.listening = LISTENING_NONE, .tell_fd = -EBADF, \
	}

/* Returns in the process that is to serve. In the keeper it does not return: that ends as the
 * server ends, or goes on with the next one when that died. */
void keep_serving(const struct keep_plan *plan, struct kept *ret);
/* In the server, once it is no longer root: it ends with its keeper. -ESRCH: that is gone. */
int keep_follow(pid_t keeper);

/* What a server tells its keeper: that it serves, and that it has stopped, each with the number of
 * its sandboxes. */
enum keep_word {
	KEEP_READY = 1,
	KEEP_STOPPED,
};
void keep_tell(struct kept *kept, enum keep_word word, size_t sandboxes);
