/* boot-wire - the guest's end of the warden's socket, descriptor WARDEN_GUEST_FD, until it is
 * booted. */
#pragma once

#include "base/base.h"
#include "warden/proto.h"

/* One message of the warden with exactly the descriptors that belong to its step, its engine and
 * its mounts. -ECANCELED: the warden has gone. */
int boot_receive(enum guest_step step, struct guest_boot *ret, int fds[FD_MAX_PASS], struct err *e);
void boot_answer(int code, const char *msg);
