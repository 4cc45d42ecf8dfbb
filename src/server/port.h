/* port - who listens where this server was told to: for the one message that says why it cannot. */
#pragma once

#include "base/base.h"

#include <sys/types.h>

struct port_owner {
	pid_t pid;
	char name[64];  /* of its program, cleaned */
	char data[256]; /* of an Atoll server, its data directory; empty: not known */
	bool is_atoll;
};

/* A line of /proc/net/tcp or tcp6: does it listen on this port, at this address (as the file has
 * it; NULL: any) or at all of them? Its socket's number then. */
bool port_listens(struct str line, uint16_t port, const char *address, uint64_t *ret_inode);
/* HOST:PORT or :PORT. -ENOENT: nobody whom this process can see. */
int port_find_owner(const char *listen, struct port_owner *ret);
/* What -EADDRINUSE means for this address, and what to do. -EADDRINUSE again. */
int port_explain(const char *listen, struct err *e);
