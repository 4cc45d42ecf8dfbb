#include "observe/observe.h"

enum {
	MAX_USES = 10000
};

struct uses {
	char team_id[UUID_SIZE];
	struct observe_use *v;
	size_t n, cap;
	observe_uses_fn fn;
	void *arg;
};

static int read_row(void *arg, const struct store_row *row, struct err *e)
{
	struct uses *uses = arg;
	struct observe_use *use;

	if (uses->n == uses->cap) {
		size_t cap = uses->cap ? 2 * uses->cap : 16;
		struct observe_use *more = realloc(uses->v, cap * sizeof *more);

		if (!more)
			return err_set(e, -ENOMEM, "out of memory");
		uses->v = more;
		uses->cap = cap;
	}
	use = &uses->v[uses->n++];
	(void)snprintf(use->template_id, sizeof use->template_id, "%.*s",
		STR_ARG(store_text(row, 0)));
	use->count = store_int(row, 1);
	use->last_us = store_int(row, 2);
	return 0;
}

static int look(struct store_tx *tx, void *arg, struct err *e)
{
	struct uses *uses = arg;

	return store_query(tx,
		"SELECT template_id, COUNT(*), MAX(started_us) FROM sandboxes WHERE team_id = $1 "
		"GROUP BY template_id ORDER BY MAX(started_us) DESC LIMIT $2",
		STORE_PARAMS(P_TEXT(uses->team_id), P_INT(MAX_USES)), read_row, uses, e);
}

static void looked(void *arg, int r, const struct err *e)
{
	struct uses *uses = arg;

	uses->fn(uses->arg, MIN(r, 0), uses->v, uses->n, e);
	free(uses->v);
	free(uses);
}

void observe_templates(struct store *store, const char *team_id, observe_uses_fn fn, void *arg)
{
	struct uses *uses = XNEW(struct uses);

	(void)snprintf(uses->team_id, sizeof uses->team_id, "%s", team_id);
	uses->fn = fn;
	uses->arg = arg;
	store_read(store, look, looked, uses);
}
