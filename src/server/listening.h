/* listening - the sockets of the server's one port. On loopback it has two: `localhost`, and every
 * name below it, means ::1 to some programs and 127.0.0.1 to others. */
#pragma once

#include "base/base.h"

struct listening {
	int fd;        /* -EBADF: none */
	int beside_fd; /* on [::1], where the other is on 127.0.0.1; -EBADF: none */
};
#define LISTENING_NONE                             \
	{                                          \
		.fd = -EBADF, .beside_fd = -EBADF, \
	}

/* Opens what is missing. That the second cannot be had is no failure: it is logged. */
int listening_open(struct listening *l, const char *address, struct err *e);
void listening_close(struct listening *l);
/* The caller owns them, and `l` has none any more. */
struct listening listening_take(struct listening *l);
/* Whether they stay open in the program that this process executes. */
void listening_keep_open(const struct listening *l, bool keep);

/* The listening sockets that whoever started this process opened for it (LISTEN_PID, LISTEN_FDS):
 * one, or two in any order. Without any there are none in *ret. -EINVAL: they are something else.
 */
int listening_inherit(struct listening *ret, struct err *e);
