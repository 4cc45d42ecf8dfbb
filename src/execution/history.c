/* What ran long ago is forgotten, with its sandbox or, in one that lives on, before it. Nobody else
 * writes meanwhile, so it is done in small pieces. */
#include "execution/execution-internal.h"

enum {
	AT_ONCE = 100,
	AT_ONCE_BYTES = 32 << 20, /* of output */
};

struct old {
	struct {
		char sandbox_id[SANDBOX_ID_SIZE];
		int64_t n, bytes;
	} v[AT_ONCE];
	size_t n;
};

static int add_old(void *arg, const struct store_row *row, struct err *e)
{
	struct old *old = arg;

	(void)e;
	store_copy_text(row, 0, old->v[old->n].sandbox_id, SANDBOX_ID_SIZE);
	old->v[old->n].n = store_int(row, 1);
	old->v[old->n++].bytes = store_int(row, 2);
	return 0;
}

static int drop(struct store_tx *tx, const char *sandbox_id, int64_t n, struct err *e)
{
	int r = store_exec(tx, "DELETE FROM output WHERE sandbox_id = $1 AND n = $2",
		STORE_PARAMS(P_TEXT(sandbox_id), P_INT(n)), e);

	return r < 0 ? r
		     : store_exec(tx, "DELETE FROM executions WHERE sandbox_id = $1 AND n = $2",
			       STORE_PARAMS(P_TEXT(sandbox_id), P_INT(n)), e);
}

/* 1: some of them, or others, are left. */
static int drop_all(struct store_tx *tx, const struct old *old, struct err *e)
{
	int64_t bytes = 0;
	size_t i = 0;
	int r = 0;

	for (; r >= 0 && i < old->n && bytes < AT_ONCE_BYTES; i++) {
		bytes += old->v[i].bytes;
		r = drop(tx, old->v[i].sandbox_id, old->v[i].n, e);
	}
	return r < 0 ? r : old->n == AT_ONCE || i < old->n;
}

#define KEPT_BYTES "CASE WHEN last_seq > 0 THEN stdout_bytes + stderr_bytes ELSE 0 END"

int execution_forget(struct store_tx *tx, const char *sandbox_id, struct err *e)
{
	struct old old = { .n = 0 };
	int r = store_query(tx,
		"SELECT sandbox_id, n, " KEPT_BYTES " FROM executions WHERE sandbox_id = $1 "
		"ORDER BY n LIMIT $2",
		STORE_PARAMS(P_TEXT(sandbox_id), P_INT(AT_ONCE)), add_old, &old, e);

	return r < 0 ? r : drop_all(tx, &old, e);
}

int history_trim(struct store_tx *tx, int64_t before_us, struct err *e)
{
	struct old old = { .n = 0 };
	int r = store_exec(tx,
		"DELETE FROM runs WHERE id IN "
		"(SELECT id FROM runs WHERE ended_us < $1 ORDER BY ended_us LIMIT $2)",
		STORE_PARAMS(P_INT(before_us), P_INT(AT_ONCE)), e);
	bool is_full = r == AT_ONCE;

	if (r >= 0)
		r = store_query(tx,
			"SELECT sandbox_id, n, " KEPT_BYTES " FROM executions old "
			"WHERE ended_us < $1 AND EXISTS (SELECT 1 FROM executions newer "
			"WHERE newer.sandbox_id = old.sandbox_id AND newer.n > old.n) "
			"ORDER BY ended_us LIMIT $2",
			STORE_PARAMS(P_INT(before_us), P_INT(AT_ONCE)), add_old, &old, e);
	if (r >= 0)
		r = drop_all(tx, &old, e);
	return r < 0 ? r : r || is_full;
}
