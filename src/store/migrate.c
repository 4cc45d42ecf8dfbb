/* Migrations run in order, each in its own transaction together with the row that records it, so a
 * crash between two of them leaves a version that is true. */
#include "store/store-internal.h"

static int read_version(void *arg, const struct store_row *row, struct err *e)
{
	(void)e;
	*(int64_t *)arg = store_int(row, 0);
	return 0;
}

static int current_version(struct store_tx *tx, void *arg, struct err *e)
{
	int r = tx->store->ops->script(tx->store,
		"CREATE TABLE IF NOT EXISTS migrations "
		"(version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_us BIGINT NOT NULL);",
		e);

	if (r < 0)
		return r;
	return store_query(tx, "SELECT COALESCE(MAX(version), 0) FROM migrations", NULL, 0,
		read_version, arg, e);
}

static int apply(struct store_tx *tx, void *arg, struct err *e)
{
	const struct store_migration *m = arg;
	int r = tx->store->ops->script(tx->store, m->sql, e);

	if (r < 0)
		return err_wrap(e, r, "migration %d (%s)", m->version, m->name);
	return store_exec(tx,
		"INSERT INTO migrations (version, name, applied_us) VALUES ($1, $2, $3)",
		STORE_PARAMS(P_INT(m->version), P_TEXT(m->name), P_INT(time_wall_us())), e);
}

int store_migrate(struct store *store, struct err *e)
{
	int64_t have = 0;
	int r = store_run_now(store, current_version, &have, e);

	if (r < 0)
		return err_wrap(e, r, "read the database's version");
	if (have > store_migrations[store_n_migrations - 1].version)
		return err_set(e, -ENOTSUP,
			"the database has version %" PRId64
			" and this program knows up to %d: start the newer "
			"program, or use another data directory",
			have, store_migrations[store_n_migrations - 1].version);
	for (size_t i = 0; i < store_n_migrations; i++) {
		struct store_migration m = store_migrations[i];

		if (m.version <= have)
			continue;
		r = store_run_now(store, apply, &m, e);
		if (r < 0)
			return r;
	}
	return 0;
}
