/* PostgreSQL: transactions on a connection that may break at any moment.
 *
 * Work runs once, whatever happens to the connection below it. Each statement of a transaction is
 * kept with its parameters and a digest of what came out of it. When the connection breaks, or the
 * server undid the transaction to let another one pass, a new one is begun, the same statements are
 * made again, and if all of them end as they did before, work never learns of it. If one does not,
 * the transaction fails and nothing was done.
 *
 * A connection that breaks during COMMIT leaves open whether it was done. postgres-lock.c says how
 * that is found out; what turns out not to be done is made again from the same statements. So
 * nothing is done twice, and what was answered with success is there. */
#include "store/postgres.h"

enum {
	MAX_STATEMENTS = 512, /* prepared on one connection */
	MAX_KEPT = 4 << 20,   /* bytes of a transaction that can be made again */
	MEND_MS = 3000,       /* how long work is held up while that is tried */
	MEND_TRIES = 10,
	MEND_PAUSE_US = 50000,
	AWAY_MS = 50, /* several may ask at the same moment; each would wait for an answer */
};

struct statement {
	struct list node;
	char *sql;
	uint64_t hash; /* of the text and the types */
	Oid types[PG_MAX_PARAMS];
	size_t n;
	char name[16];
	unsigned generation; /* of the connection that it is prepared on */
};

struct kept { /* a statement that was made in this transaction; all of it in the arena */
	struct kept *next;
	struct statement *statement;
	struct store_param *params;
	uint64_t digest; /* of what came out of it */
};

struct pg {
	struct store_conn base;
	struct pg_link link;
	struct list statements;
	unsigned n_statements;
	struct statement other; /* beyond the limit: made anew each time */
	struct arena *arena;    /* of the transaction */
	struct kept *first, *last;
	bool is_kept;            /* all statements of it are */
	bool has_written;        /* one of them changes something */
	bool is_unsettled;       /* nobody knows whether it counts */
	int64_t mark, next_mark; /* the last that counts, and of the transaction that runs */
	int64_t found_mark;      /* when the connection was made */
	int64_t not_before_ms;   /* it is away: who tries at once again is told so */
};

static struct pg *pg_from(struct store_conn *conn)
{
	return container_of(conn, struct pg, base);
}

static int pg_make(const struct store_config *config, enum store_mode mode, struct store_conn **ret,
	struct err *e)
{
	struct pg *pg = XNEW(struct pg);
	int r = pg_link_init(&pg->link, config, mode, e);

	if (r < 0) {
		free(pg);
		return r;
	}
	pg->base.ops = &store_postgres_ops;
	list_init(&pg->statements);
	random_bytes(&pg->next_mark, sizeof pg->next_mark);
	pg->next_mark = (pg->next_mark & INT64_MAX) >> 1; /* room to count from there */
	*ret = &pg->base;
	return 0;
}

static void pg_free(struct store_conn *conn)
{
	struct pg *pg = pg_from(conn);

	LIST_EACH(&pg->statements, node)
	{
		struct statement *st = container_of(node, struct statement, node);

		free(st->sql);
		free(st);
	}
	free(pg->other.sql);
	pg_link_done(&pg->link);
	pg->arena = arena_free(pg->arena);
	free(pg);
}

/* ---- opening ---- */

static int take_lock(struct pg *pg, struct err *e)
{
	int r = pg_lock_take(&pg->link, !pg->link.was_open, e);

	if (r >= 0)
		r = pg_mark_read(&pg->link, &pg->found_mark, e);
	if (r >= 0 && !pg->link.was_open)
		pg->mark = pg->found_mark;
	/* Whoever has written meanwhile has also read what we hold in memory, and changed it. */
	if (r >= 0 && pg->found_mark != pg->mark &&
		!(pg->is_unsettled && pg->found_mark == pg->next_mark))
		r = err_set(e, -EREMCHG, "another program has written to the database meanwhile");
	return r;
}

static int connect_anew(struct pg *pg, struct err *e)
{
	int r = pg_link_open(&pg->link, e);

	if (r >= 0 && pg->link.mode == STORE_WRITES)
		r = take_lock(pg, e);
	if (r >= 0) {
		pg->link.was_open = true;
		return 0;
	}
	pg_link_close(&pg->link);
	pg->not_before_ms = time_now_ms() + AWAY_MS;
	/* What has worked will work again: a standby is promoted, a disk has room, a certificate is
	 * renewed. */
	return r == PG_LOST || r == PG_AGAIN || (pg->link.was_open && r != -EREMCHG)
		       ? err_wrap(e, -EAGAIN, "open")
		       : r;
}

static int pg_open(struct store_conn *conn, struct err *e)
{
	struct pg *pg = pg_from(conn);

	if (pg->link.c)
		return 0;
	if (time_now_ms() < pg->not_before_ms)
		return err_set(e, -EAGAIN, "database: it does not answer");
	return connect_anew(pg, e);
}

/* ---- statements ---- */

static uint64_t mix(uint64_t hash, const void *bytes, size_t n)
{
	const unsigned char *p = bytes;

	for (size_t i = 0; i < n; i++)
		hash = (hash ^ p[i]) * 0x100000001b3;
	return hash;
}

enum {
	OID_INT8 = 20,
	OID_TEXT = 25,
};

/* NULL has no type of its own: the server finds one. */
static Oid type_of(const struct store_param *param)
{
	switch (param->type) {
	case STORE_NULL:
		return 0;
	case STORE_INT:
		return OID_INT8;
	case STORE_TEXT:
		return OID_TEXT;
	}
	return 0;
}

static struct statement *new_statement(struct pg *pg)
{
	struct statement *st = &pg->other;

	if (pg->n_statements < MAX_STATEMENTS) {
		st = XNEW(struct statement);
		(void)snprintf(st->name, sizeof st->name, "s%u", ++pg->n_statements);
		list_append(&pg->statements, &st->node);
		return st;
	}
	free(st->sql);
	pg->is_kept = false; /* its text will be another's */
	return st;
}

static struct statement *find_statement(struct pg *pg, const char *sql,
	const struct store_param *params, size_t n)
{
	uint64_t hash = mix(0xcbf29ce484222325, sql, strlen(sql));
	struct statement *st;

	assert(n <= PG_MAX_PARAMS);
	for (size_t i = 0; i < n; i++)
		hash = (hash ^ type_of(&params[i])) * 0x100000001b3;
	LIST_EACH(&pg->statements, node)
	{
		st = container_of(node, struct statement, node);
		if (st->hash == hash && st->n == n && strcmp(st->sql, sql) == 0)
			return st;
	}
	st = new_statement(pg);
	st->sql = xstrdup(sql);
	st->hash = hash;
	st->n = n;
	for (size_t i = 0; i < n; i++)
		st->types[i] = type_of(&params[i]);
	return st;
}

static int prepare(struct pg *pg, struct statement *st, struct err *e)
{
	int r;

	if (!pg->link.c)
		return pg_link_lost(&pg->link, e);
	if (st->name[0] && st->generation == pg->link.generation)
		return 0;
	if (!PQsendPrepare(pg->link.c, st->name, st->sql, (int)st->n, st->types))
		return pg_link_lost(&pg->link, e);
	r = pg_link_answer(&pg->link, PG_ANSWER_MS, NULL, e);
	if (r >= 0)
		st->generation = pg->link.generation;
	return r;
}

/* Everything goes as bytes with a length: nothing is quoted, copied or terminated. */
static int make_statement(struct pg *pg, struct statement *st, const struct store_param *params,
	PGresult **ret, struct err *e)
{
	static const int binary[PG_MAX_PARAMS] = { [0 ... PG_MAX_PARAMS - 1] = 1 };
	const char *values[PG_MAX_PARAMS];
	uint64_t numbers[PG_MAX_PARAMS];
	int lengths[PG_MAX_PARAMS];
	int r = prepare(pg, st, e);

	if (r < 0)
		return r;
	for (size_t i = 0; i < st->n; i++) {
		bool is_int = params[i].type == STORE_INT;

		numbers[i] = htobe64((uint64_t)params[i].i);
		values[i] = is_int ? (const char *)&numbers[i]
				   : (params[i].type == STORE_TEXT ? params[i].s.p : NULL);
		lengths[i] = is_int ? (int)sizeof numbers[i] : (int)params[i].s.n;
	}
	if (!PQsendQueryPrepared(pg->link.c, st->name, (int)st->n, values, lengths, binary, 0))
		return pg_link_lost(&pg->link, e);
	return pg_link_answer(&pg->link, PG_ANSWER_MS, ret, e);
}

static uint64_t digest_of(const PGresult *res)
{
	const char *changed = PQcmdTuples((PGresult *)(uintptr_t)res);
	uint64_t hash = mix(0xcbf29ce484222325, changed, strlen(changed));

	for (int row = 0; row < PQntuples(res); row++)
		for (int column = 0; column < PQnfields(res); column++) {
			int n = PQgetisnull(res, row, column) ? -1 : PQgetlength(res, row, column);

			hash = mix(hash, &n, sizeof n);
			hash = mix(hash, PQgetvalue(res, row, column), (size_t)MAX(n, 0));
		}
	return hash;
}

/* ---- keeping them, and making them again ---- */

static void forget(struct pg *pg)
{
	pg->arena = arena_free(pg->arena);
	pg->first = pg->last = NULL;
	pg->is_kept = true;
	pg->has_written = false;
}

static struct store_param *copy_params(struct arena *arena, const struct store_param *params,
	size_t n)
{
	struct store_param *copy = arena_alloc(arena, (n + 1) * sizeof *copy);

	for (size_t i = 0; copy && i < n; i++) {
		copy[i] = params[i];
		if (params[i].type != STORE_TEXT || !params[i].s.p)
			continue;
		copy[i].s.p = arena_dup(arena, params[i].s);
		if (!copy[i].s.p)
			return NULL;
	}
	return copy;
}

static struct kept *keep(struct pg *pg, struct statement *st, const struct store_param *params)
{
	struct kept *kept;

	if (!pg->is_kept)
		return NULL;
	if (!pg->arena)
		pg->arena = arena_new(MAX_KEPT);
	kept = arena_alloc(pg->arena, sizeof *kept);
	if (kept)
		kept->params = copy_params(pg->arena, params, st->n);
	if (!kept || !kept->params) {
		pg->is_kept = false;
		return NULL;
	}
	kept->statement = st;
	if (pg->last)
		pg->last->next = kept;
	else
		pg->first = kept;
	pg->last = kept;
	return kept;
}

static int begin_anew(struct pg *pg, struct err *e)
{
	int r = pg_open(&pg->base, e);

	if (r < 0)
		return r;
	if (PQtransactionStatus(pg->link.c) != PQTRANS_IDLE)
		r = pg_link_simple(&pg->link, "ROLLBACK", PG_OPEN_MS, NULL, e);
	return r < 0 ? r : pg_link_simple(&pg->link, "BEGIN", PG_OPEN_MS, NULL, e);
}

/* All that were made before `until`, each with the result it had. */
static int make_again(struct pg *pg, const struct kept *until, struct err *e)
{
	int r = begin_anew(pg, e);

	for (struct kept *k = pg->first; r >= 0 && k != until; k = k->next) {
		CLEANUP(pg_clear) PGresult *res = NULL;

		r = make_statement(pg, k->statement, k->params, &res, e);
		if (r >= 0 && digest_of(res) != k->digest)
			r = err_set(e, -EPIPE,
				"database: what the transaction had read has changed meanwhile");
	}
	return r;
}

/* For people who do not know where the database is, and need not. */
static int given_up(struct err *e)
{
	return err_set(e, -EAGAIN, "the database does not answer: try again in a moment");
}

static bool is_worth_another_try(int r)
{
	return r == PG_LOST || r == PG_AGAIN || r == -EAGAIN;
}

/* What breaks a transaction in the middle must not reach work: it is made again up to and with its
 * last statement. */
static int mend(struct pg *pg, struct kept *last, PGresult **ret, struct err *e)
{
	int64_t until_ms = time_now_ms() + MEND_MS;
	int r = -EAGAIN;

	for (int i = 0; i < MEND_TRIES && pg->is_kept && time_now_ms() < until_ms; i++) {
		r = make_again(pg, last, e);
		if (r >= 0 && last)
			r = make_statement(pg, last->statement, last->params, ret, e);
		if (!is_worth_another_try(r))
			return r;
		(void)usleep((useconds_t)(MEND_PAUSE_US << MIN(i, 4)));
	}
	return given_up(e);
}

static int run(struct pg *pg, const char *sql, const struct store_param *params, size_t n,
	PGresult **ret, struct err *e)
{
	struct statement *st = find_statement(pg, sql, params, n);
	struct kept *kept = keep(pg, st, params);
	int r = make_statement(pg, st, params, ret, e);

	if (r == PG_LOST || r == PG_AGAIN)
		r = kept ? mend(pg, kept, ret, e) : given_up(e);
	if (r >= 0 && kept)
		kept->digest = digest_of(*ret);
	return r;
}

/* ---- transactions ---- */

static int pg_begin(struct store_conn *conn, struct err *e)
{
	struct pg *pg = pg_from(conn);
	int r;

	if (pg->is_unsettled)
		return err_set(e, -EAGAIN, "database: it is away");
	pg->link.was_open = true; /* this one, or the writer's in its place */
	forget(pg);
	r = begin_anew(pg, e);
	if (r == PG_LOST) /* what was idle may have been cut long ago: the next one is fresh */
		r = begin_anew(pg, e);
	return r == PG_LOST || r == PG_AGAIN ? err_wrap(e, -EAGAIN, "begin") : r;
}

/* The mark goes with the transaction or not at all. */
static int try_commit(struct pg *pg, struct err *e)
{
	CLEANUP(pg_clear) PGresult *res = NULL;
	char sql[128];
	int r;

	(void)snprintf(sql, sizeof sql,
		"UPDATE store_session SET mark = %" PRId64 " WHERE id = 1; COMMIT", pg->next_mark);
	r = pg_link_simple(&pg->link, pg->has_written ? sql : "COMMIT", PG_ANSWER_MS, &res, e);
	if (r >= 0 && strcmp(PQcmdStatus(res), "COMMIT") != 0)
		return err_set(e, -EIO, "database: the transaction was rolled back");
	if (r >= 0 && pg->has_written)
		pg->mark = pg->next_mark++;
	return r;
}

/* Again, as it certainly was not done. */
static int commit_again(struct pg *pg, struct err *e)
{
	int r = PG_AGAIN;

	for (int i = 0; i < MEND_TRIES && r == PG_AGAIN; i++) {
		r = mend(pg, NULL, NULL, e);
		if (r >= 0)
			r = try_commit(pg, e);
	}
	return r == PG_AGAIN ? given_up(e) : r;
}

static int pg_settle(struct store_conn *conn, struct err *e)
{
	struct pg *pg = pg_from(conn);
	int r = pg_open(conn, e);

	if (!pg->is_unsettled)
		return r;
	if (r >= 0 && pg->found_mark == pg->next_mark) {
		pg->mark = pg->next_mark++; /* it was done: only the answer was lost */
	} else if (r >= 0 && !pg->is_kept) {
		r = err_set(e, -EPIPE, "the database went away before it was done");
	} else if (r >= 0) {
		r = commit_again(pg, e);
	}
	if (r == PG_LOST || r == -EAGAIN)
		return -EAGAIN;
	pg->is_unsettled = false;
	return r;
}

static int pg_commit(struct store_conn *conn, struct err *e)
{
	struct pg *pg = pg_from(conn);
	int r = try_commit(pg, e);

	if (r == PG_AGAIN)
		r = commit_again(pg, e);
	if (r == PG_LOST && !pg->has_written)
		return 0; /* it has read what it wanted */
	if (r != PG_LOST)
		return r;
	pg->is_unsettled = true;
	r = pg_settle(conn, e);
	return r == -EAGAIN ? STORE_UNSETTLED : r;
}

static void pg_rollback(struct store_conn *conn)
{
	struct pg *pg = pg_from(conn);

	forget(pg);
	if (pg->link.c && PQtransactionStatus(pg->link.c) != PQTRANS_IDLE)
		(void)pg_link_simple(&pg->link, "ROLLBACK", PG_ANSWER_MS, NULL, NULL);
}

/* What follows may take its time, and is not made again. */
static int allow_long(struct pg *pg, struct err *e)
{
	pg->is_kept = false;
	return pg_link_simple(&pg->link, "SET LOCAL statement_timeout = 0", PG_ANSWER_MS, NULL, e);
}

static int pg_script(struct store_conn *conn, const char *sql, struct err *e)
{
	struct pg *pg = pg_from(conn);
	int r = allow_long(pg, e);

	pg->has_written = true;
	if (r >= 0)
		r = pg_link_simple(&pg->link, sql, PG_SCRIPT_MS, NULL, e);
	return r == PG_LOST || r == PG_AGAIN ? -EAGAIN : r;
}

static int pg_exec(struct store_conn *conn, const char *sql, const struct store_param *params,
	size_t n, struct err *e)
{
	CLEANUP(pg_clear) PGresult *res = NULL;
	struct pg *pg = pg_from(conn);
	int64_t changed = 0;
	int r;

	pg->has_written = pg->link.mode == STORE_WRITES;
	r = run(pg, sql, params, n, &res, e);
	if (r < 0)
		return r;
	(void)str_to_int(str_of(PQcmdTuples(res)), 0, INT32_MAX, &changed);
	return (int)changed;
}

/* ---- rows ---- */

static int pg_query(struct store_conn *conn, const char *sql, const struct store_param *params,
	size_t n, store_row_fn fn, void *arg, struct err *e)
{
	CLEANUP(pg_clear) PGresult *res = NULL;
	int r = run(pg_from(conn), sql, params, n, &res, e);

	return r < 0 ? r : pg_each_row(res, fn, arg, e);
}

static int pg_stream(struct store_conn *conn, const char *sql, store_row_fn fn, void *arg,
	struct err *e)
{
	struct pg *pg = pg_from(conn);
	int r = allow_long(pg, e), stopped = 0;
	PGresult *res = NULL;

	if (r >= 0 && (!PQsendQuery(pg->link.c, sql) || !PQsetSingleRowMode(pg->link.c)))
		r = pg_link_lost(&pg->link, e);
	while (r >= 0 && (r = pg_link_next(&pg->link, PG_SCRIPT_MS, &res, e)) >= 0 && res) {
		if (stopped >= 0) /* else it only has to be read to its end */
			stopped = PQresultStatus(res) == PGRES_SINGLE_TUPLE ||
						  PQresultStatus(res) == PGRES_TUPLES_OK
					  ? pg_each_row(res, fn, arg, e)
					  : pg_fail(res, e);
		PQclear(res);
	}
	return r < 0 || stopped == PG_LOST || stopped == PG_AGAIN ? given_up(e) : stopped;
}

const struct store_ops store_postgres_ops = {
	.scheme = "postgresql",
	.alias = "postgres",
	.make = pg_make,
	.free = pg_free,
	.open = pg_open,
	.begin = pg_begin,
	.commit = pg_commit,
	.settle = pg_settle,
	.rollback = pg_rollback,
	.script = pg_script,
	.exec = pg_exec,
	.query = pg_query,
	.stream = pg_stream,
	.catalog = &pg_catalog,
	.row_int = pg_row_int,
	.row_text = pg_row_text,
	.row_is_null = pg_row_is_null,
};
