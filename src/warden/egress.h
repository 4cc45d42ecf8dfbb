/* egress - the sockets where redirected traffic of sandboxes arrives: opened here, in the host's
 * network and on ports that nobody else is given, and served by the server. */
#pragma once

#include "warden/proto.h"

/* By enum warden_egress. On failure none is open. */
int egress_open(int ret_fds[WARDEN_EGRESS_FDS], int ret_ports[WARDEN_EGRESS_FDS], struct err *e);
