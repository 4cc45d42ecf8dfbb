/* place - where a sandbox will be: a cloned process in namespaces, cgroups and a network of its own
 * that waits to be let go, and the run directory with its guest's socket. Nothing in it depends on
 * a template, a disk or a request, but all of it may wait for locks of the kernel: only workers
 * call this. The process is the warden's child, not the worker's. */
#pragma once

#include "warden/worker.h"

/* What PLACE answers with, in this order; none of the last where the unified hierarchy has limits.
 */
enum place_fd {
	PLACE_PID,
	PLACE_NET,
	PLACE_USER,
	PLACE_GUEST,  /* the warden's end of the socket to the process */
	PLACE_LISTEN, /* the guest's socket, listening */
	PLACE_GROUPS, /* see groups_clone */
	PLACE_FDS = PLACE_GROUPS + GUEST_GROUPS,
};

/* As user of this number of the server's block; see WARDEN_FIRST_UID. */
static inline uid_t place_first_uid(int number)
{
	return (uid_t)WARDEN_FIRST_UID + (uid_t)number * WARDEN_UID_BLOCK;
}

/* How many there are in ret_fds. `net` has sockets of the caller's own. On failure the report may
 * name a process all the same. */
int place_make(const struct workers *ws, struct network *net, const struct work_order *order,
	struct work_report *report, int ret_fds[PLACE_FDS], struct err *e);
