#include "store/store-internal.h"

enum {
	STORE_LANE = 0
}; /* one connection, one writer: transactions queue here */

static const struct store_ops *const implementations[] = { &store_sqlite_ops };

int store_open(struct loop *loop, const char *url, struct store **ret, struct err *e)
{
	const char *colon = strchr(url, ':');
	struct str scheme = { url, colon ? (size_t)(colon - url) : 0 };

	for (size_t i = 0; i < ARRAY_SIZE(implementations); i++) {
		CLEANUP(store_freep) struct store *store = NULL;
		int r;

		if (!str_is(scheme, implementations[i]->scheme))
			continue;
		r = implementations[i]->open(colon + 1, &store, e);
		if (r < 0)
			return r;
		store->ops = implementations[i];
		store->loop = loop;
		r = store_migrate(store, e);
		if (r < 0)
			return r;
		*ret = TAKE(store);
		return 0;
	}
	return err_set(e, -EPROTONOSUPPORT, "no store for '%s': use sqlite:PATH", url);
}

struct store *store_free(struct store *store)
{
	if (store)
		store->ops->close(store);
	return NULL;
}

int store_run_now(struct store *store, store_work_fn work, void *arg, struct err *e)
{
	struct store_tx tx = { store };
	int r = store->ops->begin(store, e), committed;

	if (r < 0)
		return r;
	r = work(&tx, arg, e);
	if (r < 0) {
		store->ops->rollback(store);
		return r;
	}
	committed = store->ops->commit(store, e);
	if (committed < 0)
		store->ops->rollback(store);
	return committed < 0 ? committed : r;
}

struct pending {
	struct store *store;
	store_work_fn work;
	done_fn done;
	void *arg;
};

static int run_pending(void *arg, struct err *e)
{
	struct pending *p = arg;

	return store_run_now(p->store, p->work, p->arg, e);
}

static void pending_done(void *arg, int r, const struct err *e)
{
	struct pending *p = arg;

	p->done(p->arg, r, e);
	free(p);
}

void store_run(struct store *store, store_work_fn work, done_fn done, void *arg)
{
	struct pending *p = XNEW(struct pending);

	*p = (struct pending){ store, work, done, arg };
	loop_job(store->loop, STORE_LANE, run_pending, pending_done, p);
}

int store_exec(struct store_tx *tx, const char *sql, const struct store_param *params, size_t n,
	struct err *e)
{
	return tx->store->ops->exec(tx->store, sql, params, n, e);
}

int store_query(struct store_tx *tx, const char *sql, const struct store_param *params, size_t n,
	store_row_fn fn, void *arg, struct err *e)
{
	return tx->store->ops->query(tx->store, sql, params, n, fn, arg, e);
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

int store_add_caused_event(struct store_tx *tx, const struct store_event *event,
	const struct store_cause *cause, struct err *e)
{
	/* The next number is taken here and not by a sequence, so that readers never see a hole
	 * that a slower transaction fills later. */
	return store_exec(tx,
		"INSERT INTO events (seq, at_us, actor, kind, subject, data, team_id, cause) "
		"SELECT COALESCE(MAX(seq), 0) + 1, $1, $2, $3, $4, $5, $6, $7 FROM events",
		STORE_PARAMS(P_INT(cause->at_us), P_TEXT(event->actor), P_TEXT(event->kind),
			P_TEXT(event->subject), P_STR(event->data.p ? event->data : STR("{}")),
			cause->team_id ? P_TEXT(cause->team_id) : P_NULL,
			cause->text ? P_TEXT(cause->text) : P_NULL),
		e);
}
