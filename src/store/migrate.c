/* Migrations run in order, each in its own transaction together with the row that records it, so a
 * crash between two of them leaves a version that is true. Whoever gets here has the database for
 * itself (SQLite: the data directory's lock; PostgreSQL: see postgres-lock.c), so two servers that
 * start at once do not migrate at once. */
#include "store/catalog.h"

static int read_version(void *arg, const struct store_row *row, struct err *e)
{
	(void)e;
	*(int64_t *)arg = store_int(row, 0);
	return 0;
}

static int make_table(struct store_tx *tx, void *arg, struct err *e)
{
	(void)arg;
	return store_script(tx,
		"CREATE TABLE IF NOT EXISTS migrations "
		"(version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_us BIGINT NOT NULL);",
		e);
}

static int note_table(void *arg, const struct store_row *row, struct err *e)
{
	(void)e;
	*(bool *)arg |= str_is(store_text(row, 0), "migrations");
	return 0;
}

int store_read_version(struct store_tx *tx, void *arg, struct err *e)
{
	bool is_there = false;
	int r = store_query(tx, tx->conn->ops->catalog->tables, NULL, 0, note_table, &is_there, e);

	*(int64_t *)arg = 0;
	if (r >= 0 && is_there)
		r = store_query(tx, "SELECT COALESCE(MAX(version), 0) FROM migrations", NULL, 0,
			read_version, arg, e);
	return r < 0 ? err_wrap(e, r, "read the database's version") : 0;
}

static int apply(struct store_tx *tx, void *arg, struct err *e)
{
	const struct store_migration *m = arg;
	int r = store_script(tx, m->sql, e);

	if (r < 0)
		return err_wrap(e, r, "migration %d (%s)", m->version, m->name);
	return store_exec(tx,
		"INSERT INTO migrations (version, name, applied_us) VALUES ($1, $2, $3)",
		STORE_PARAMS(P_INT(m->version), P_TEXT(m->name), P_INT(time_wall_us())), e);
}

int store_newest_version(void)
{
	return store_migrations[store_n_migrations - 1].version;
}

static int check_not_newer(int64_t have, struct err *e)
{
	if (have <= store_newest_version())
		return 0;
	return err_set(e, -ENOTSUP,
		"the database has version %" PRId64
		" and this program knows up to %d: start the newer "
		"program, or use another data directory",
		have, store_newest_version());
}

int store_look(struct store *store, struct store_report *ret, struct err *e)
{
	struct store_report report = { .newest = store_newest_version() };
	int r = store_run_now(store, store_read_version, &report.version, e);

	if (r >= 0)
		r = check_not_newer(report.version, e);
	if (r >= 0)
		*ret = report;
	return r;
}

int store_migrate(struct store *store, int64_t upto, struct err *e)
{
	int64_t have = 0;
	int r = store_run_now(store, store_read_version, &have, e);

	if (r >= 0 && have == 0)
		r = store_run_now(store, make_table, NULL, e);
	if (r < 0)
		return r;
	r = check_not_newer(have, e);
	if (r < 0)
		return r;
	for (size_t i = 0; i < store_n_migrations; i++) {
		struct store_migration m = store_migrations[i];

		if (m.version <= have || (upto && m.version > upto))
			continue;
		r = store_run_now(store, apply, &m, e);
		if (r < 0)
			return r;
	}
	return 0;
}
