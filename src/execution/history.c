/* What ran long ago is forgotten, with its sandbox or, in one that lives on, before it. So is,
 * before its time, the oldest of a team that has more of it than its ceiling: first what commands
 * printed, whose records stay, and of the records themselves the oldest. Nobody else writes
 * meanwhile, so it is done in small pieces. */
#include "execution/execution-internal.h"

enum {
	AT_ONCE = 100,
	AT_ONCE_BYTES = 32 << 20, /* of output */
};

struct old {
	struct {
		char sandbox_id[SANDBOX_ID_SIZE], team_id[SANDBOX_TEAM_SIZE];
		int64_t n, bytes, output_bytes;
	} v[AT_ONCE];
	size_t n;
};
#define OLD_COLUMNS "sandbox_id, n, team_id, bytes, output_bytes"

static int add_old(void *arg, const struct store_row *row, struct err *e)
{
	struct old *old = arg;

	(void)e;
	store_copy_text(row, 0, old->v[old->n].sandbox_id, SANDBOX_ID_SIZE);
	store_copy_text(row, 2, old->v[old->n].team_id, SANDBOX_TEAM_SIZE);
	old->v[old->n].n = store_int(row, 1);
	old->v[old->n].bytes = store_int(row, 3);
	old->v[old->n++].output_bytes = store_int(row, 4);
	return 0;
}

/* ---- one ---- */

static int drop_chunks(struct store_tx *tx, const struct old *old, size_t i, struct err *e)
{
	store_count(tx, old->v[i].team_id, STORE_USE_OUTPUT, -old->v[i].output_bytes);
	return store_exec(tx, "DELETE FROM output WHERE sandbox_id = $1 AND n = $2",
		STORE_PARAMS(P_TEXT(old->v[i].sandbox_id), P_INT(old->v[i].n)), e);
}

static int drop(struct store_tx *tx, const struct old *old, size_t i, struct err *e)
{
	int r = drop_chunks(tx, old, i, e);

	store_count(tx, old->v[i].team_id, STORE_USE_COMMANDS, -old->v[i].bytes);
	return r < 0 ? r
		     : store_exec(tx, "DELETE FROM executions WHERE sandbox_id = $1 AND n = $2",
			       STORE_PARAMS(P_TEXT(old->v[i].sandbox_id), P_INT(old->v[i].n)), e);
}

/* The record of the command stays, and says that its output is no longer whole. */
static int drop_output(struct store_tx *tx, const struct old *old, size_t i, struct err *e)
{
	int r = drop_chunks(tx, old, i, e);

	return r < 0 ? r
		     : store_exec(tx,
			       "UPDATE executions SET last_seq = 0, truncated = 1, "
			       "output_bytes = 0 WHERE sandbox_id = $1 AND n = $2",
			       STORE_PARAMS(P_TEXT(old->v[i].sandbox_id), P_INT(old->v[i].n)), e);
}

int history_drop(struct store_tx *tx, const char *sandbox_id, int64_t n, struct err *e)
{
	struct old old = { .n = 0 };
	int r = store_query(tx,
		"SELECT " OLD_COLUMNS " FROM executions WHERE sandbox_id = $1 AND n = $2",
		STORE_PARAMS(P_TEXT(sandbox_id), P_INT(n)), add_old, &old, e);

	return r < 0 || !old.n ? r : drop(tx, &old, 0, e);
}

/* ---- many ---- */

/* 1: some of them, or others, are left. */
static int drop_all(struct store_tx *tx, const struct old *old, struct err *e)
{
	int64_t bytes = 0;
	size_t i = 0;
	int r = 0;

	for (; r >= 0 && i < old->n && bytes < AT_ONCE_BYTES; i++) {
		bytes += old->v[i].output_bytes;
		r = drop(tx, old, i, e);
	}
	return r < 0 ? r : old->n == AT_ONCE || i < old->n;
}

struct old_runs {
	struct {
		char id[UUID_SIZE], team_id[SANDBOX_TEAM_SIZE];
	} v[AT_ONCE];
	size_t n;
};

static int add_run(void *arg, const struct store_row *row, struct err *e)
{
	struct old_runs *runs = arg;

	(void)e;
	store_copy_text(row, 0, runs->v[runs->n].id, UUID_SIZE);
	store_copy_text(row, 1, runs->v[runs->n++].team_id, SANDBOX_TEAM_SIZE);
	return 0;
}

static int drop_run(struct store_tx *tx, const struct old_runs *runs, size_t i, struct err *e)
{
	store_count(tx, runs->v[i].team_id, STORE_USE_COMMANDS, -KEPT_RUN_BYTES);
	return store_exec(tx, "DELETE FROM runs WHERE id = $1", STORE_PARAMS(P_TEXT(runs->v[i].id)),
		e);
}

static int drop_runs(struct store_tx *tx, const struct old_runs *runs, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < runs->n; i++)
		r = drop_run(tx, runs, i, e);
	return r;
}

int execution_forget(struct store_tx *tx, const char *sandbox_id, struct err *e)
{
	struct old_runs runs = { .n = 0 };
	struct old old = { .n = 0 };
	int r = store_query(tx,
		"SELECT " OLD_COLUMNS " FROM executions WHERE sandbox_id = $1 ORDER BY n LIMIT $2",
		STORE_PARAMS(P_TEXT(sandbox_id), P_INT(AT_ONCE)), add_old, &old, e);

	if (r >= 0)
		r = store_query(tx,
			"SELECT id, team_id FROM runs WHERE sandbox_id = $1 AND ended_us IS NOT "
			"NULL LIMIT $2",
			STORE_PARAMS(P_TEXT(sandbox_id), P_INT(AT_ONCE)), add_run, &runs, e);
	if (r >= 0)
		r = drop_runs(tx, &runs, e);
	return r < 0 ? r : drop_all(tx, &old, e);
}

int history_trim(struct store_tx *tx, int64_t before_us, struct err *e)
{
	struct old_runs runs = { .n = 0 };
	struct old old = { .n = 0 };
	int r = store_query(tx,
		"SELECT id, team_id FROM runs WHERE ended_us < $1 ORDER BY ended_us LIMIT $2",
		STORE_PARAMS(P_INT(before_us), P_INT(AT_ONCE)), add_run, &runs, e);

	if (r >= 0)
		r = drop_runs(tx, &runs, e);
	if (r >= 0)
		r = store_query(tx,
			"SELECT " OLD_COLUMNS " FROM executions old "
			"WHERE ended_us < $1 AND EXISTS (SELECT 1 FROM executions newer "
			"WHERE newer.sandbox_id = old.sandbox_id AND newer.n > old.n) "
			"ORDER BY ended_us LIMIT $2",
			STORE_PARAMS(P_INT(before_us), P_INT(AT_ONCE)), add_old, &old, e);
	if (r >= 0)
		r = drop_all(tx, &old, e);
	return r < 0 ? r : r || runs.n == AT_ONCE;
}

int history_trim_output(struct store_tx *tx, int64_t from_us, int64_t before_us, struct err *e)
{
	struct old old = { .n = 0 };
	int64_t bytes = 0;
	int r = store_query(tx,
		"SELECT " OLD_COLUMNS " FROM executions "
		"WHERE ended_us >= $3 AND ended_us < $1 AND last_seq > 0 "
		"ORDER BY ended_us LIMIT $2",
		STORE_PARAMS(P_INT(before_us), P_INT(AT_ONCE), P_INT(from_us)), add_old, &old, e);

	for (size_t i = 0; r >= 0 && i < old.n && bytes < AT_ONCE_BYTES; i++) {
		bytes += old.v[i].output_bytes;
		r = drop_output(tx, &old, i, e);
	}
	return r < 0 ? r : old.n == AT_ONCE || bytes >= AT_ONCE_BYTES;
}

/* ---- a team's ceilings ---- */

/* The oldest output first. */
static int make_output_room(struct store_tx *tx, const struct history_over *over, struct err *e)
{
	struct old old = { .n = 0 };
	int64_t bytes = 0;
	int r = store_query(tx,
		"SELECT " OLD_COLUMNS " FROM executions WHERE team_id = $1 AND output_bytes > 0 "
		"AND ended_us IS NOT NULL ORDER BY ended_us LIMIT $2",
		STORE_PARAMS(P_TEXT(over->team_id), P_INT(AT_ONCE)), add_old, &old, e);

	for (size_t i = 0; r >= 0 && i < old.n && bytes < MIN(over->output, AT_ONCE_BYTES); i++) {
		bytes += old.v[i].output_bytes;
		r = drop_output(tx, &old, i, e);
	}
	return r < 0 ? r : bytes > 0 && bytes < over->output;
}

/* The oldest records; but not the newest of a sandbox that lives, whose number the next one counts
 * on. Where that is not enough, of runs. */
static int make_record_room(struct store_tx *tx, const struct history_over *over, struct err *e)
{
	struct old_runs runs = { .n = 0 };
	struct old old = { .n = 0 };
	int64_t bytes = 0;
	int r = store_query(tx,
		"SELECT " OLD_COLUMNS " FROM executions old "
		"WHERE team_id = $1 AND ended_us IS NOT NULL AND (EXISTS (SELECT 1 FROM executions "
		"newer WHERE newer.sandbox_id = old.sandbox_id AND newer.n > old.n) OR EXISTS "
		"(SELECT 1 FROM sandboxes s WHERE s.id = old.sandbox_id AND s.state = 'ended')) "
		"ORDER BY ended_us LIMIT $2",
		STORE_PARAMS(P_TEXT(over->team_id), P_INT(AT_ONCE)), add_old, &old, e);

	for (size_t i = 0; r >= 0 && i < old.n && bytes < over->commands; i++) {
		bytes += old.v[i].bytes;
		r = drop(tx, &old, i, e);
	}
	if (r >= 0 && bytes < over->commands)
		r = store_query(tx,
			"SELECT id, team_id FROM runs WHERE team_id = $1 AND ended_us IS NOT NULL "
			"ORDER BY ended_us LIMIT $2",
			STORE_PARAMS(P_TEXT(over->team_id), P_INT(AT_ONCE)), add_run, &runs, e);
	for (size_t i = 0; r >= 0 && i < runs.n && bytes < over->commands; i++) {
		bytes += KEPT_RUN_BYTES;
		r = drop_run(tx, &runs, i, e);
	}
	return r < 0 ? r : bytes > 0 && bytes < over->commands;
}

int history_make_room(struct store_tx *tx, const struct history_over *over, struct err *e)
{
	int r = over->output > 0 ? make_output_room(tx, over, e) : 0;
	bool is_more = r > 0;

	if (r >= 0 && over->commands > 0)
		r = make_record_room(tx, over, e);
	return r < 0 ? r : r || is_more;
}
