/* tracks - what the kernel remembers of sandboxes' connections (conntrack). It outlives a sandbox
 * by minutes or days, and would bring what is still sent to the one before to the one that has its
 * address now. */
#pragma once

#include "base/base.h"
#include "base/private.h"
#include "warden/reach.h"

/* Of the network namespace that the caller is in. */
int tracks_open(int *ret, struct err *e);
/* Every connection that one of these addresses began, host byte order. Once nobody has them any
 * more: before, the next packet would be remembered again. Walks the kernel's whole table, which
 * takes many milliseconds however few are asked for. */
int tracks_forget(int fd, const uint32_t *addresses, size_t n);
/* Those that it began and that its policy, or the operator's list, (NULL: as it was) has closed
 * since, but TCP: there the rules answer its next packet outwards with a reset, while another's
 * datagrams would be let in for as long as they come. Questions for names stay: they go to the
 * host, wherever they were sent. As slow as the above. */
int tracks_cut(int fd, uint32_t address, const struct ranges *allowed,
	const struct private_list *opened);
/* Who began one of those that there are. */
typedef void (*tracks_source_fn)(void *arg, uint32_t address);
int tracks_each(int fd, tracks_source_fn fn, void *arg);
