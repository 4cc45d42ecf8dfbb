/* resolv - the name servers a sandbox may ask: the host's own, as far as a sandbox can reach them.
 */
#pragma once

#include "base/base.h"

#include <netinet/in.h>

enum {
	RESOLV_MAX = 8,
};

struct resolvers {
	struct in_addr servers[RESOLV_MAX];
	int n;
	char text[1024]; /* the sandbox's /etc/resolv.conf */
};

/* Reads the host's resolv.conf; when that names only a resolver on the loopback (systemd-resolved),
 * the file that this one really uses. Never fails: a host without any gives a file that says so. */
void resolv_read(struct resolvers *ret);
/* The same for a given text, added to what is there. Returns the servers found. */
int resolv_parse(struct str text, struct resolvers *ret);
