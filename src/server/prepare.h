/* What `serve` does as root, before it gives root up: the data directory, the base template, the
 * key, the seed, the warden. */
#pragma once

#include "access/access.h"
#include "server/config.h"
#include "server/given.h"
#include "server/listening.h"

#include <sys/types.h>

struct prepared {
	int lock_fd; /* held while the server runs: one server a data directory */
	int data_fd, warden_fd;
	struct listening listening;
	pid_t warden_pid;
	char templates[4096];
	char key[ACCESS_KEY_SIZE];
	char database_password[1024]; /* empty: none was given */
	char admin_token[256];        /* empty: nobody is the operator over HTTP */
	char domain[256], url[320], sandbox_url[320];
	uint8_t seed[SHA256_SIZE];
	struct given given;
};

#define PREPARED_NONE                                                      \
	{                                                                  \
		.lock_fd = -EBADF, .data_fd = -EBADF, .warden_fd = -EBADF, \
		.listening = LISTENING_NONE,                               \
	}

/* Takes the listening sockets if there are any already, else opens them. */
int prepare(const struct config *config, struct listening take, struct prepared *ret,
	struct err *e);
/* Whether it would get through, as far as that can be seen from outside: a server may be running on
 * the data directory, and nothing is changed. */
int prepare_check(const struct config *config, struct err *e);
void prepared_done(struct prepared *p);
/* The data directory's lock: one server, or whoever changes it all. -EBUSY: somebody has it. */
int prepare_lock(int data_fd, struct err *e);
/* What `serve` makes in an empty data directory, but for the seed: for one that is restored, and
 * then at its end the version. */
int prepare_empty(int data_fd, struct err *e);
int prepare_version(int data_fd, struct err *e);
/* As long as it has this, what is in the data directory is half of a backup. -EUCLEAN: it has. */
#define PREPARE_HALF ".restore"
int prepare_check_whole(int data_fd, struct err *e);
int drop_root(const struct prepared *p, struct err *e); /* for good: see become_server */
