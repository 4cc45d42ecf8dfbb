/* fuse - file systems that programs of a sandbox serve: the device for it, and their end.
 *
 * Whoever uses such a file system waits for its program, in a way that not even a kill ends once
 * the program has taken the request. A program that waits for itself would live for ever, and its
 * sandbox with it. So when a sandbox ends its connections are cut: they are known by whose they
 * are, since the kernel shows their owners, who are of the sandbox's block of user ids.
 *
 * Owns:   nothing for longer than a call.
 * Uses:   base.
 * Never:  touches a file of such a file system. */
#pragma once

#include "base/base.h"

#include <sys/types.h>

/* The device, in a read-only tree of its own that is mounted nowhere yet: for one sandbox. */
int fuse_make(struct err *e);
/* Cuts the connections of the block of ids; how many there were, or -errno. */
int fuse_cut(uid_t first_uid, struct err *e);
/* The same for the block that this process is of, if it is of one of ours. */
void fuse_cut_of(pid_t pid);
