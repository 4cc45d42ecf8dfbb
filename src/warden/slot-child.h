/* slot-child - what the cloned process does before it becomes the guest. No malloc, no log: it
 * shares the warden's memory image. */
#pragma once

#include "warden/cgroup.h"

struct slot_child {
	int socket_fd, guest_fd;
	int procs_fds[CGROUP_CONTROLLERS]; /* to join the old hierarchies */
	int n_procs;
};

_Noreturn void slot_child_main(const struct slot_child *c);
