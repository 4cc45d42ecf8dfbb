/* What the tests of the store do with one of their own. */
#pragma once

#include "scratch.h"

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
