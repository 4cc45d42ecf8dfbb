/* Notices: who holds something (a key, a token) is told when that ends, once. The notice lives in
 * its holder, so that wanting one never fails. */
#pragma once

#include "base/base.h"

struct notice {
	struct list node;
	void (*fn)(void *arg);
	void *arg;
};

/* `holders` is the list of what is held. */
static inline void notice_want(struct list *holders, struct notice *n, void (*fn)(void *arg),
	void *arg)
{
	n->fn = fn;
	n->arg = arg;
	list_append(holders, &n->node);
}

/* Safe when it was told already, and when none was ever wanted (all zero). */
static inline void notice_drop(struct notice *n)
{
	if (n->node.next)
		list_remove(&n->node);
}

/* Whoever is told may drop its own notice or others'. */
static inline void notice_tell(struct list *holders)
{
	while (!list_empty(holders)) {
		struct notice *n = container_of(holders->next, struct notice, node);

		list_remove(&n->node);
		n->fn(n->arg);
	}
}

/* What is held goes without a word. */
static inline void notice_forget(struct list *holders)
{
	while (!list_empty(holders))
		list_remove(holders->next);
}
