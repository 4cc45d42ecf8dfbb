/* ports - the way to services inside for a host that cannot make a socket in this network: gVisor's
 * is its own. Who connects names a port of the loopback (struct guest_dial), hears whether
 * something listens there, and then talks to it. Only the host can connect. */
#pragma once

#include "base/base.h"
#include "loop/loop.h"

struct ports {
	struct loop *loop;
	struct loop_listener listener;
	struct list links;
	int n_links;
};

/* Takes the listening socket, also when it fails. */
int ports_take(struct ports *ports, struct loop *loop, int fd, struct err *e);
void ports_done(struct ports *ports); /* fine if it never began */
