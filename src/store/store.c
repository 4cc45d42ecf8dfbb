#include "store/store-internal.h"

enum {
	START_MS = 15000, /* how long a database may take to come up when the server does */
	START_PAUSE_US = 250000,
};

static const struct store_ops *const implementations[] = { &store_sqlite_ops, &store_postgres_ops };

/* ---- opening ---- */

static const struct store_ops *find_ops(const char *url, struct err *e)
{
	const char *colon = strchr(url, ':');
	struct str scheme = { url, colon ? (size_t)(colon - url) : 0 };

	for (size_t i = 0; i < ARRAY_SIZE(implementations); i++)
		if (str_is(scheme, implementations[i]->scheme) ||
			(implementations[i]->alias && str_is(scheme, implementations[i]->alias)))
			return implementations[i];
	/* The rest of it may hold a password. */
	(void)err_set(e, -EPROTONOSUPPORT,
		"no database of the kind '%.*s': use sqlite:PATH or postgresql://HOST/NAME",
		STR_ARG(scheme));
	return NULL;
}

static int make_conns(struct store *store, const struct store_config *config, struct err *e)
{
	int r = store->ops->make(config, STORE_WRITES, &store->writer.conn, e);

	for (size_t i = 0; r >= 0 && i < STORE_READERS; i++)
		r = store->ops->make(config, STORE_READS, &store->readers[i].conn, e);
	return r;
}

/* Both may be starting with the machine: a database that is not there yet is waited for. */
static int open_patiently(struct store_conn *conn, struct err *e)
{
	int64_t until_ms = time_now_ms() + START_MS;
	int r;

	while ((r = conn->ops->open(conn, e)) == -EAGAIN && time_now_ms() < until_ms)
		(void)usleep(START_PAUSE_US);
	return r;
}

int store_open_offline(struct loop *loop, const struct store_config *config, bool to_change,
	struct store **ret, struct err *e)
{
	const struct store_ops *ops = find_ops(config->url, e);
	CLEANUP(store_freep) struct store *store = NULL;
	int r;

	if (!ops)
		return -EPROTONOSUPPORT;
	store = XNEW(struct store);
	store->ops = ops;
	store->loop = loop;
	store->on_state = config->on_state;
	store->state_arg = config->state_arg;
	store_queue_init(store);
	r = make_conns(store, config, e);
	store->now = to_change ? store->writer.conn : store->readers[0].conn;
	if (r >= 0)
		r = open_patiently(store->now, e);
	if (r < 0)
		return r;
	*ret = TAKE(store);
	return 0;
}

int store_open_as(struct loop *loop, const struct store_config *config, struct store **ret,
	struct err *e)
{
	CLEANUP(store_freep) struct store *store = NULL;
	int r = store_open_offline(loop, config, true, &store, e);

	if (r >= 0)
		r = store_migrate(store, 0, e);
	if (r >= 0)
		r = store_run_now(store, store_used_load, store, e);
	if (r < 0)
		return r;
	*ret = TAKE(store);
	return 0;
}

int store_open(struct loop *loop, const char *url, struct store **ret, struct err *e)
{
	const struct store_config config = { .url = url };

	return store_open_as(loop, &config, ret, e);
}

struct store *store_free(struct store *store)
{
	if (store)
		store_queue_close(store);
	return NULL;
}

static void free_conn(struct store_conn *conn)
{
	if (conn)
		conn->ops->free(conn);
}

void store_destroy(struct store *store)
{
	for (size_t i = 0; i < STORE_READERS; i++)
		free_conn(store->readers[i].conn);
	free_conn(store->writer.conn); /* last: so SQLite leaves one whole file behind */
	store_used_done(store);
	map_done(&store->writes.by_team);
	map_done(&store->reads.by_team);
	free(store);
}

/* ---- transactions ---- */

/* It is us whom the database refuses, not whoever asked. */
static int blame_us(int r, struct err *e)
{
	return r == -EACCES ? err_wrap(e, -EIO, "refused") : r;
}

static int finish(struct store_tx *tx, struct store_outcome *outcome, struct err *e)
{
	const struct store_ops *ops = tx->conn->ops;
	int r;

	/* What one database would commit all the same, the other would not. */
	r = tx->failed && outcome->r >= 0 ? tx->failed : MIN(outcome->r, 0);
	if (r >= 0)
		r = MIN(store_counts_write(tx, e), 0);
	if (r >= 0)
		r = tx->failed = ops->commit(tx->conn, e);
	outcome->is_away = (r == -EAGAIN || r == -EPIPE) && tx->failed == r;
	outcome->has_events = tx->has_events;
	if (r < 0) {
		ops->rollback(tx->conn);
		store_counts_done(&tx->counts);
	}
	outcome->counts = tx->counts;
	return tx->failed ? blame_us(r, e) : r;
}

int store_transact(struct store_conn *conn, store_work_fn work, void *arg,
	struct store_outcome *ret, struct err *e)
{
	struct store_tx tx = { .conn = conn };
	int r = conn->ops->begin(conn, e);

	if (r < 0) {
		ret->is_away = r == -EAGAIN;
		return blame_us(r, e);
	}
	ret->has_run = true;
	ret->r = work(&tx, arg, e);
	return finish(&tx, ret, e);
}

int store_run_now(struct store *store, store_work_fn work, void *arg, struct err *e)
{
	struct store_outcome outcome = { 0 };
	struct store_conn *conn = store->now;
	int64_t until_ms = time_now_ms() + START_MS;
	int r = store_transact(conn, work, arg, &outcome, e);

	while (r == STORE_UNSETTLED || (r == -EAGAIN && outcome.is_away && !outcome.has_run)) {
		if (time_now_ms() > until_ms) {
			store_counts_done(&outcome.counts);
			return r == STORE_UNSETTLED ? -EAGAIN : r;
		}
		(void)usleep(START_PAUSE_US);
		if (r != STORE_UNSETTLED) {
			r = store_transact(conn, work, arg, &outcome, e);
			continue;
		}
		r = conn->ops->settle(conn, e);
		if (r == -EAGAIN)
			r = STORE_UNSETTLED;
	}
	if (r >= 0)
		store_counts_take(store, &outcome.counts);
	else
		store_counts_done(&outcome.counts);
	return r < 0 ? r : outcome.r;
}

static int note(struct store_tx *tx, int r)
{
	if (r < 0 && !tx->failed)
		tx->failed = r;
	return r;
}

static int after_failure(const struct store_tx *tx, struct err *e)
{
	return err_set(e, tx->failed, "database: the transaction has failed already");
}

int store_script(struct store_tx *tx, const char *sql, struct err *e)
{
	if (tx->failed)
		return after_failure(tx, e);
	return note(tx, tx->conn->ops->script(tx->conn, sql, e));
}

/* PostgreSQL has no NUL in texts; SQLite would keep one that nobody gets to see again. */
static int check_params(const struct store_param *params, size_t n, struct err *e)
{
	for (size_t i = 0; i < n; i++)
		if (params[i].type == STORE_TEXT && params[i].s.n &&
			memchr(params[i].s.p, '\0', params[i].s.n))
			return err_set(e, -EINVAL, "a text with a NUL in it cannot be stored");
	return 0;
}

int store_exec(struct store_tx *tx, const char *sql, const struct store_param *params, size_t n,
	struct err *e)
{
	int r;

	assert(!tx->in_rows);
	if (tx->failed)
		return after_failure(tx, e);
	r = check_params(params, n, e);
	return note(tx, r < 0 ? r : tx->conn->ops->exec(tx->conn, sql, params, n, e));
}

/* A row's function that wants no more has not failed. */
struct each {
	store_row_fn fn;
	void *arg;
	bool has_stopped;
};

static int each_row(void *arg, const struct store_row *row, struct err *e)
{
	struct each *each = arg;
	int r = each->fn(each->arg, row, e);

	each->has_stopped = r < 0;
	return r;
}

int store_query(struct store_tx *tx, const char *sql, const struct store_param *params, size_t n,
	store_row_fn fn, void *arg, struct err *e)
{
	struct each each = { fn, arg, false };
	int r;

	assert(!tx->in_rows);
	if (tx->failed)
		return after_failure(tx, e);
	r = check_params(params, n, e);
	tx->in_rows = true;
	if (r >= 0)
		r = tx->conn->ops->query(tx->conn, sql, params, n, each_row, &each, e);
	tx->in_rows = false;
	return each.has_stopped ? r : note(tx, r);
}

int64_t store_int(const struct store_row *row, int column)
{
	return row->ops->row_int(row, column);
}

struct str store_text(const struct store_row *row, int column)
{
	return row->ops->row_text(row, column);
}

bool store_is_null(const struct store_row *row, int column)
{
	return row->ops->row_is_null(row, column);
}

void store_copy_text(const struct store_row *row, int column, char *to, size_t size)
{
	(void)snprintf(to, size, "%.*s", STR_ARG(store_text(row, column)));
}

char *store_dup_text(const struct store_row *row, int column)
{
	struct str text = store_text(row, column);

	return xstrdup(text.p ? text.p : "");
}

int store_add_event(struct store_tx *tx, const struct store_event *event, struct err *e)
{
	struct store_cause none = { .at_us = time_wall_us() };

	return store_add_caused_event(tx, event, &none, e);
}

static struct store_param text_or_null(const char *text)
{
	return text && text[0] ? P_TEXT(text) : P_NULL;
}

static size_t length(const char *text)
{
	return text ? strlen(text) : 0;
}

struct counted_event {
	struct store_tx *tx;
	const char *team_id;
};

static int count_event(void *arg, const struct store_row *row, struct err *e)
{
	const struct counted_event *c = arg;

	(void)e;
	store_count(c->tx, c->team_id, STORE_USE_EVENTS, store_int(row, 0));
	return 0;
}

int store_add_caused_event(struct store_tx *tx, const struct store_event *event,
	const struct store_cause *cause, struct err *e)
{
	struct counted_event counted = { tx, cause->team_id };
	struct str data = event->data.p ? event->data : STR("{}");
	struct str source = actor_source(event->actor);
	size_t bytes = STORE_EVENT_BYTES + data.n + length(event->actor) + length(event->kind) +
		       length(event->subject) + length(cause->team_id) + length(cause->agent_id) +
		       length(cause->task_id) + length(cause->text);
	int r;

	tx->has_events = true;
	/* The next number is taken here and not by a sequence, so that readers never see a hole
	 * that a slower transaction fills later. The key's name is found here as well, and counted
	 * as it was found. */
	r = store_query(tx,
		"INSERT INTO events (seq, at_us, actor, kind, subject, data, team_id, agent_id, "
		"task_id, cause, bytes, source, actor_name) "
		"SELECT COALESCE(MAX(seq), 0) + 1, $1, $2, $3, $4, $5, $6, $7, $8, $9, "
		"CAST($10 AS BIGINT) + COALESCE((SELECT OCTET_LENGTH(name) FROM api_keys WHERE id "
		"= $2), 0), $11, (SELECT name FROM api_keys WHERE id = $2) FROM events "
		"RETURNING bytes",
		STORE_PARAMS(P_INT(cause->at_us ? cause->at_us : time_wall_us()),
			P_STR(actor_id(event->actor)), P_TEXT(event->kind), P_TEXT(event->subject),
			P_STR(data), text_or_null(cause->team_id), text_or_null(cause->agent_id),
			text_or_null(cause->task_id), text_or_null(cause->text),
			P_INT((int64_t)bytes), source.n ? P_STR(source) : P_NULL),
		count_event, &counted, e);
	return r < 0 ? r : 1;
}
