/* A store of a test's own, in whichever database the tests run on. */
#pragma once

#include "store/store.h"

#include "database.h"

struct scratch {
	char dir[32], url[256];
	struct loop *loop;
	struct store *store;
};

static inline int scratch_open(struct scratch *s, struct err *e)
{
	int r;

	if (!s->loop) {
		r = loop_new(&s->loop, e);
		if (r < 0)
			return r;
		memcpy(s->dir, "/tmp/atoll-store-XXXXXX", 24);
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

static inline int count_row(void *arg, const struct store_row *row, struct err *e)
{
	(void)e;
	*(int64_t *)arg = store_int(row, 0);
	return 0;
}

static inline int count_teams(struct store_tx *tx, void *arg, struct err *e)
{
	return store_query(tx, "SELECT COUNT(*) FROM teams", NULL, 0, count_row, arg, e);
}
