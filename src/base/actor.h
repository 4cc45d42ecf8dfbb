/* Who did something, as rooms hand it down to the event log: an id, and behind one space the
 * address that the request came from, where it came from outside:
 * "0413e60f-72cb-4932-99ae-908a3abdabe5 192.0.2.7", "admin ::1", "system". Only what compares or
 * stores the id takes it apart. */
#pragma once

#include "base/str.h"

enum {
	ACTOR_SIZE = 128, /* an id, a space, an address of 45 bytes, a NUL */
};

static inline struct str actor_id(const char *actor)
{
	struct str all = str_of(actor);
	ptrdiff_t at = all.n ? str_find(all, ' ') : -1;

	return at < 0 ? all : str_make(all.p, (size_t)at);
}

/* Empty: it came from nowhere in particular. */
static inline struct str actor_source(const char *actor)
{
	struct str id = actor_id(actor), all = str_of(actor);

	return all.n > id.n ? str_from(all, id.n + 1) : STR_NONE;
}
