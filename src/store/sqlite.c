/* SQLite in WAL mode. synchronous=NORMAL: a commit survives a crash of the server at once and a
 * crash of the host from the last checkpoint on, which is as long as any sandbox survives that; so
 * no commit waits for the disk. Statements are prepared once and kept. */
#include "store/store-internal.h"

#include <sqlite3.h>

enum {
	CACHED = 64
};

struct sqlite {
	struct store base;
	sqlite3 *db;
	struct {
		const char *sql; /* compared by address: every caller passes a literal */
		sqlite3_stmt *stmt;
	} cache[CACHED];
};

struct sqlite_row {
	struct store_row base;
	sqlite3_stmt *stmt;
};

static struct sqlite *sqlite_from(struct store *store)
{
	return container_of(store, struct sqlite, base);
}

static int fail(struct sqlite *s, int rc, struct err *e)
{
	int code = -EIO;

	switch (rc & 0xff) {
	case SQLITE_CONSTRAINT:
		code = -EEXIST;
		break;
	case SQLITE_FULL:
		code = -ENOSPC;
		break;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		code = -EBUSY;
		break;
	case SQLITE_READONLY:
	case SQLITE_PERM:
	case SQLITE_CANTOPEN:
		code = -EACCES;
		break;
	case SQLITE_NOTADB:
	case SQLITE_CORRUPT:
		code = -EBADMSG;
		break;
	}
	return err_set(e, code, "database: %s", s->db ? sqlite3_errmsg(s->db) : sqlite3_errstr(rc));
}

static void sqlite_close_store(struct store *store)
{
	struct sqlite *s = sqlite_from(store);

	for (size_t i = 0; i < CACHED; i++)
		(void)sqlite3_finalize(s->cache[i].stmt);
	(void)sqlite3_close(s->db);
	free(s);
}

static int sqlite_script(struct store *store, const char *sql, struct err *e)
{
	struct sqlite *s = sqlite_from(store);
	int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : fail(s, rc, e);
}

static int sqlite_open_store(const char *path, struct store **ret, struct err *e)
{
	struct sqlite *s = XNEW(struct sqlite);
	int rc, r;

	s->base.ops = &store_sqlite_ops;
	rc = sqlite3_open_v2(path, &s->db,
		SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
	if (rc == SQLITE_OK) {
		(void)sqlite3_busy_timeout(s->db, 5000);
		r = sqlite_script(&s->base,
			"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA "
			"foreign_keys=ON;",
			e);
	} else {
		r = fail(s, rc, e);
	}
	if (r < 0) {
		sqlite_close_store(&s->base);
		return err_wrap(e, r, "open %s", path);
	}
	*ret = &s->base;
	return 0;
}

static int prepare(struct sqlite *s, const char *sql, sqlite3_stmt **ret, struct err *e)
{
	size_t at = ((uintptr_t)sql >> 3) % CACHED;
	int rc;

	if (s->cache[at].sql != sql) {
		(void)sqlite3_finalize(s->cache[at].stmt);
		s->cache[at].sql = NULL;
		s->cache[at].stmt = NULL;
		rc = sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT,
			&s->cache[at].stmt, NULL);
		if (rc != SQLITE_OK)
			return fail(s, rc, e);
		s->cache[at].sql = sql;
	}
	*ret = s->cache[at].stmt;
	return 0;
}

static int bind_params(struct sqlite *s, sqlite3_stmt *stmt, const struct store_param *params,
	size_t n, struct err *e)
{
	assert(sqlite3_bind_parameter_count(stmt) == (int)n);
	for (size_t i = 0; i < n; i++) {
		char name[24];
		int at, rc = SQLITE_OK;

		(void)snprintf(name, sizeof name, "$%zu", i + 1);
		at = sqlite3_bind_parameter_index(stmt, name);
		assert(at > 0);
		switch (params[i].type) {
		case STORE_NULL:
			rc = sqlite3_bind_null(stmt, at);
			break;
		case STORE_INT:
			rc = sqlite3_bind_int64(stmt, at, params[i].i);
			break;
		case STORE_TEXT:
			rc = params[i].s.p ? sqlite3_bind_text64(stmt, at, params[i].s.p,
						     params[i].s.n, SQLITE_STATIC, SQLITE_UTF8)
					   : sqlite3_bind_null(stmt, at);
			break;
		}
		if (rc != SQLITE_OK)
			return fail(s, rc, e);
	}
	return 0;
}

static int step_rows(struct sqlite *s, sqlite3_stmt *stmt, store_row_fn fn, void *arg,
	struct err *e)
{
	struct sqlite_row row = { { &store_sqlite_ops }, stmt };
	int rc, r;

	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		r = fn ? fn(arg, &row.base, e) : 0;
		if (r < 0)
			return r;
	}
	return rc == SQLITE_DONE ? 0 : fail(s, rc, e);
}

static int sqlite_query(struct store *store, const char *sql, const struct store_param *params,
	size_t n, store_row_fn fn, void *arg, struct err *e)
{
	struct sqlite *s = sqlite_from(store);
	sqlite3_stmt *stmt = NULL;
	int r = prepare(s, sql, &stmt, e);

	if (r < 0)
		return r;
	r = bind_params(s, stmt, params, n, e);
	if (r >= 0)
		r = step_rows(s, stmt, fn, arg, e);
	(void)sqlite3_reset(stmt);
	(void)sqlite3_clear_bindings(stmt);
	return r;
}

static int sqlite_exec(struct store *store, const char *sql, const struct store_param *params,
	size_t n, struct err *e)
{
	int r = sqlite_query(store, sql, params, n, NULL, NULL, e);

	return r < 0 ? r : sqlite3_changes(sqlite_from(store)->db);
}

static int sqlite_begin(struct store *store, struct err *e)
{
	return sqlite_query(store, "BEGIN IMMEDIATE", NULL, 0, NULL, NULL, e);
}

static int sqlite_commit(struct store *store, struct err *e)
{
	return sqlite_query(store, "COMMIT", NULL, 0, NULL, NULL, e);
}

static void sqlite_rollback(struct store *store)
{
	if (!sqlite3_get_autocommit(
		    sqlite_from(store)->db)) /* some errors have rolled back already */
		(void)sqlite_query(store, "ROLLBACK", NULL, 0, NULL, NULL, NULL);
}

static sqlite3_stmt *stmt_of(const struct store_row *row)
{
	return ((const struct sqlite_row *)row)->stmt; /* base comes first */
}

static int64_t sqlite_row_int(const struct store_row *row, int column)
{
	return sqlite3_column_int64(stmt_of(row), column);
}

static struct str sqlite_row_text(const struct store_row *row, int column)
{
	const unsigned char *text = sqlite3_column_text(stmt_of(row), column);

	return str_make(text, text ? (size_t)sqlite3_column_bytes(stmt_of(row), column) : 0);
}

static bool sqlite_row_is_null(const struct store_row *row, int column)
{
	return sqlite3_column_type(stmt_of(row), column) == SQLITE_NULL;
}

const struct store_ops store_sqlite_ops = {
	.scheme = "sqlite",
	.open = sqlite_open_store,
	.close = sqlite_close_store,
	.begin = sqlite_begin,
	.commit = sqlite_commit,
	.rollback = sqlite_rollback,
	.script = sqlite_script,
	.exec = sqlite_exec,
	.query = sqlite_query,
	.row_int = sqlite_row_int,
	.row_text = sqlite_row_text,
	.row_is_null = sqlite_row_is_null,
};
