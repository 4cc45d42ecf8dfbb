/* engine - the first guest's other way: instead of being the sandbox, it starts the program of the
 * host that is (gVisor's runsc, runc, crun), with a second guest as PID 1 inside.
 * Owns:   a mount namespace in which that program finds its bundle; its end.
 * Uses:   base, json, mounts, volumes, the warden's wire.
 * Never:  has a right on the host: all this runs in the slot's own user namespace, where root is
 *         nobody, and in its cgroups, network and pid namespace. The engine gets no more. */
#pragma once

#include "base/base.h"
#include "warden/proto.h"

/* Where the second guest finds things, in its own root. In /dev, since that is no part of the
 * sandbox's disk. */
#define ENGINE_GUEST "/dev/atoll-guest"
#define ENGINE_DOOR "/dev/atoll"
#define ENGINE_NESTED "--nested"          /* a word more for a guest that is to be nested */
#define ENGINE_GROUPS "/dev/atoll-groups" /* directories by engine_groups, if there are any */

/* Where the engine finds them, in the first guest's. */
#define ENGINE_PLACE "/tmp"
#define ENGINE_ROOT ENGINE_PLACE "/root"
#define ENGINE_PROGRAM ENGINE_PLACE "/guest"
#define ENGINE_DOOR_PLACE ENGINE_PLACE "/door"
#define ENGINE_TMP ENGINE_PLACE "/tmp"
#define ENGINE_GROUPS_PLACE ENGINE_PLACE "/groups"

enum {
	ENGINE_LISTEN_FD = WARDEN_GUEST_FD + 1, /* in a container's guest */
};

extern const char *const engine_groups[GUEST_GROUPS];

/* Serves ROOT: fds are the message's. Comes back only when that failed; else the engine runs and
 * this process, PID 1 around it, ends when it does. */
int engine_run(const int *fds, const struct guest_boot *message, struct err *e);

/* The bundle's config.json. shm_bytes 0: as large as the memory allows. */
void engine_config(const struct guest_boot *m, struct buf *out);
