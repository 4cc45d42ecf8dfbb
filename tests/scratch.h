/* A store of a test's own, in whichever database the tests run on, and the loop that it needs. */
#pragma once

#include "store/store.h"

#include "database.h"

struct scratch {
	char dir[32], url[512];
	struct loop *loop;
	struct store *store;
};

/* The same rows again when it is open already, as after a restart. */
static inline int scratch_open(struct scratch *s, struct err *e)
{
	int r;

	if (!s->loop) {
		r = loop_new(&s->loop, e);
		if (r < 0)
			return r;
		memcpy(s->dir, "/tmp/atoll-test-XXXXXX", 23);
		if (!mkdtemp(s->dir))
			return -errno;
		r = database_url(s->dir, s->url, sizeof s->url);
		if (r < 0)
			return r;
	}
	s->store = store_free(s->store);
	return store_open(s->loop, s->url, &s->store, e);
}

static inline void scratch_done(struct scratch *s)
{
	struct err e;

	s->store = store_free(s->store);
	s->loop = loop_free(s->loop);
	(void)dir_remove_tree(AT_FDCWD, s->dir, &e);
}
