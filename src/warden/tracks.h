/* tracks - what the kernel remembers of sandboxes' connections (conntrack). It outlives a sandbox
 * by minutes or days, and would bring what is still sent to the one before to the one that has its
 * address now. */
#pragma once

#include "base/base.h"

/* Of the network namespace that the caller is in. */
int tracks_open(int *ret, struct err *e);
/* Every connection that this address began, host byte order. Once nobody has the address any more:
 * before, the next packet would be remembered again. */
int tracks_forget(int fd, uint32_t address);
/* Who began one of those that there are. */
typedef void (*tracks_source_fn)(void *arg, uint32_t address);
int tracks_each(int fd, tracks_source_fn fn, void *arg);
