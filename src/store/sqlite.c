/* SQLite in WAL mode. synchronous=NORMAL: a commit survives a crash of the server at once and a
 * crash of the host from the last checkpoint on, which is as long as any sandbox survives that; so
 * no commit waits for the disk. Statements are prepared once and kept. The log is folded into the
 * database, which does wait for the disk, when nobody has written for a moment, and in a commit
 * only where no such moment came for long: every sixty creates would otherwise be one that takes
 * ten times as long as the others.
 *
 * One connection writes, and the others only read: in WAL mode each sees the last commit before it
 * began, and neither waits for the other. */
#include "store/catalog.h"

#include <limits.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>

enum {
	CACHED = 64, /* places for statements, of which each has so many: */
	WAYS = 4,
	READ_MS = 30000,       /* the longest that a read may take */
	STREAM_MS = 3600000,   /* and one of a whole table */
	STEPS_A_LOOK = 100000, /* of SQLite's machine: some milliseconds */
	LOG_PAGES = 256,       /* of the log that are worth folding in */
	LOG_MOST_PAGES = 16384 /* and that are not waited for any longer: 64 MiB */
};

struct sqlite {
	struct store_conn base;
	enum store_mode mode;
	char *path;
	sqlite3 *db;         /* NULL: not open */
	int lock_fd;         /* of the writer: held as long as it is open */
	int64_t deadline_ms; /* of the read that runs */
	int log_pages;       /* of the writer: after the last commit */
	struct cached {
		const char *sql; /* found by address, since nearly every caller passes a literal */
		sqlite3_stmt *stmt;
		uint64_t used; /* when: the one that was not for longest makes way */
	} cache[CACHED][WAYS];
	uint64_t uses;
};

struct sqlite_row {
	struct store_row base;
	sqlite3_stmt *stmt;
};

static struct sqlite *sqlite_from(struct store_conn *conn)
{
	return container_of(conn, struct sqlite, base);
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
	case SQLITE_BUSY: /* another program has it locked: that passes */
	case SQLITE_LOCKED:
		code = -EAGAIN;
		break;
	case SQLITE_INTERRUPT:
		code = -ETIMEDOUT;
		break;
	case SQLITE_READONLY:
		code = -EROFS;
		break;
	case SQLITE_PERM:
		code = -EACCES;
		break;
	case SQLITE_CANTOPEN: /* too many are open just now, or it never will */
		code = s->db && (sqlite3_system_errno(s->db) == EMFILE ||
					sqlite3_system_errno(s->db) == ENFILE)
			       ? -EAGAIN
			       : -EACCES;
		break;
	case SQLITE_NOTADB:
	case SQLITE_CORRUPT:
		code = -EBADMSG;
		break;
	}
	return err_set(e, code, "database: %s", s->db ? sqlite3_errmsg(s->db) : sqlite3_errstr(rc));
}

static void close_db(struct sqlite *s)
{
	for (size_t i = 0; i < CACHED; i++)
		for (size_t way = 0; way < WAYS; way++)
			(void)sqlite3_finalize(s->cache[i][way].stmt);
	memset(s->cache, 0, sizeof s->cache);
	(void)sqlite3_close(s->db);
	s->db = NULL;
	close_fdp(&s->lock_fd);
}

static void sqlite_free(struct store_conn *conn)
{
	struct sqlite *s = sqlite_from(conn);

	close_db(s);
	free(s->path);
	free(s);
}

static int sqlite_make(const struct store_config *config, enum store_mode mode,
	struct store_conn **ret, struct err *e)
{
	const char *path = strchr(config->url, ':') + 1;
	struct sqlite *s;

	if (!path[0])
		return err_set(e, -EINVAL, "sqlite: needs a path behind it");
	s = XNEW(struct sqlite);
	s->base.ops = &store_sqlite_ops;
	s->mode = mode;
	s->lock_fd = -EBADF;
	s->path = xstrdup(path);
	*ret = &s->base;
	return 0;
}

static int sqlite_script(struct store_conn *conn, const char *sql, struct err *e)
{
	struct sqlite *s = sqlite_from(conn);
	int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : fail(s, rc, e);
}

/* A read that takes too long keeps the log from being folded into the database: it is ended. */
static int is_overdue(void *arg)
{
	const struct sqlite *s = arg;

	return time_now_ms() > s->deadline_ms;
}

/* Nobody waits for it but the one who calls: readers and writers go on. */
static void fold_log(struct sqlite *s)
{
	(void)sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
	s->log_pages = 0;
}

static int on_logged(void *arg, sqlite3 *db, const char *name, int pages)
{
	struct sqlite *s = arg;

	(void)db;
	(void)name;
	s->log_pages = pages;
	if (pages >= LOG_MOST_PAGES)
		fold_log(s);
	return SQLITE_OK;
}

static void sqlite_tidy(struct store_conn *conn)
{
	struct sqlite *s = sqlite_from(conn);

	if (s->db && s->log_pages >= LOG_PAGES)
		fold_log(s);
}

/* As PostgreSQL has it, and SQLite from 3.43 on. */
static void octet_length(sqlite3_context *context, int n, sqlite3_value **values)
{
	(void)n;
	if (sqlite3_value_type(values[0]) != SQLITE_NULL)
		sqlite3_result_int(context, sqlite3_value_bytes(values[0]));
}

static int set_up(struct sqlite *s, struct err *e)
{
	int rc = sqlite3_create_function(s->db, "octet_length", 1,
		SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL, octet_length, NULL, NULL);

	if (rc != SQLITE_OK)
		return fail(s, rc, e);
	(void)sqlite3_busy_timeout(s->db, 5000);
	if (s->mode == STORE_WRITES)
		(void)sqlite3_wal_hook(s->db, on_logged, s); /* in the place of SQLite's own */
	if (s->mode == STORE_WRITES)
		return sqlite_script(&s->base,
			"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA "
			"foreign_keys=ON;",
			e);
	sqlite3_progress_handler(s->db, STEPS_A_LOOK, is_overdue, s);
	return 0;
}

/* One server has it, wherever it is. SQLite's own locks are of one transaction; and since Linux
 * drops those of a process with any descriptor of the file that it closes, this one is closed when
 * all else is. */
static int take_lock(struct sqlite *s, struct err *e)
{
	if (s->mode != STORE_WRITES || strcmp(s->path, ":memory:") == 0)
		return 0;
	s->lock_fd = open(s->path, O_RDONLY | O_CLOEXEC);
	if (s->lock_fd < 0)
		return err_sys(e, -errno, "lock it");
	if (flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		return err_set(e, -EBUSY,
			"another program uses this database: stop it, or give this one its own");
	return 0;
}

/* A pipe would be waited for, and a link beside a database is nobody's good idea. */
static int check_plain(const char *path, struct err *e)
{
	static const char *const beside[] = { "-journal", "-wal", "-shm" };
	char name[PATH_MAX];
	struct stat st;

	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
		return err_set(e, -EBADMSG, "it is not a plain file");
	for (size_t i = 0; i < ARRAY_SIZE(beside); i++) {
		(void)snprintf(name, sizeof name, "%s%s", path, beside[i]);
		if (lstat(name, &st) == 0 && !S_ISREG(st.st_mode))
			return err_set(e, -EBADMSG, "%s is not a plain file: remove it", name);
	}
	return 0;
}

static int sqlite_open(struct store_conn *conn, struct err *e)
{
	struct sqlite *s = sqlite_from(conn);
	int flags = s->mode == STORE_WRITES ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
					    : SQLITE_OPEN_READONLY;
	int rc, r;

	if (s->db)
		return 0;
	r = check_plain(s->path, e);
	if (r < 0)
		return err_wrap(e, r, "open %s", s->path);
	rc = sqlite3_open_v2(s->path, &s->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
	r = rc == SQLITE_OK ? take_lock(s, e) : fail(s, rc, e);
	if (r >= 0)
		r = set_up(s, e);
	if (r < 0) {
		close_db(s);
		return err_wrap(e, r, "open %s", s->path);
	}
	return 0;
}

/* Where the statement is, or may be. */
static struct cached *find_cached(struct sqlite *s, const char *sql)
{
	struct cached *set = s->cache[((uintptr_t)sql >> 3) % CACHED], *oldest = set;

	for (size_t way = 0; way < WAYS; way++) {
		if (set[way].sql == sql)
			return &set[way];
		if (set[way].used < oldest->used)
			oldest = &set[way];
	}
	return oldest;
}

static int prepare(struct sqlite *s, const char *sql, sqlite3_stmt **ret, struct err *e)
{
	struct cached *at = find_cached(s, sql);
	int rc;

	if (at->sql != sql || strcmp(sqlite3_sql(at->stmt), sql) != 0) {
		(void)sqlite3_finalize(at->stmt);
		at->sql = NULL;
		at->stmt = NULL;
		rc = sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &at->stmt, NULL);
		if (rc != SQLITE_OK)
			return fail(s, rc, e);
		at->sql = sql;
	}
	at->used = ++s->uses;
	*ret = at->stmt;
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

static int sqlite_query(struct store_conn *conn, const char *sql, const struct store_param *params,
	size_t n, store_row_fn fn, void *arg, struct err *e)
{
	struct sqlite *s = sqlite_from(conn);
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

static int sqlite_exec(struct store_conn *conn, const char *sql, const struct store_param *params,
	size_t n, struct err *e)
{
	int r = sqlite_query(conn, sql, params, n, NULL, NULL, e);

	return r < 0 ? r : sqlite3_changes(sqlite_from(conn)->db);
}

static int sqlite_begin(struct store_conn *conn, struct err *e)
{
	struct sqlite *s = sqlite_from(conn);
	int r = sqlite_open(conn, e);

	if (r < 0)
		return r;
	s->deadline_ms = time_now_ms() + READ_MS;
	return sqlite_query(conn, s->mode == STORE_WRITES ? "BEGIN IMMEDIATE" : "BEGIN", NULL, 0,
		NULL, NULL, e);
}

static int sqlite_commit(struct store_conn *conn, struct err *e)
{
	return sqlite_query(conn, "COMMIT", NULL, 0, NULL, NULL, e);
}

/* A commit of SQLite is done or not when it returns: there is nothing to find out. */
static int sqlite_settle(struct store_conn *conn, struct err *e)
{
	(void)conn;
	(void)e;
	return 0;
}

static void sqlite_rollback(struct store_conn *conn)
{
	/* Some errors have rolled back already. */
	if (!sqlite3_get_autocommit(sqlite_from(conn)->db))
		(void)sqlite_query(conn, "ROLLBACK", NULL, 0, NULL, NULL, NULL);
}

static int sqlite_stream(struct store_conn *conn, const char *sql, store_row_fn fn, void *arg,
	struct err *e)
{
	sqlite_from(conn)->deadline_ms = time_now_ms() + STREAM_MS;
	return sqlite_query(conn, sql, NULL, 0, fn, arg, e); /* holds one row at a time anyway */
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

static const struct store_catalog sqlite_catalog = {
	.tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE "
		  "'sqlite!_%' ESCAPE '!' ORDER BY name",
	.columns = "SELECT name, type, pk FROM pragma_table_info($1) ORDER BY cid",
	.references = "SELECT DISTINCT \"table\" FROM pragma_foreign_key_list($1) ORDER BY 1",
	.problems = "SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> "
		    "'ok' UNION ALL SELECT 'a row of ' || \"table\" || ' refers to one of ' || "
		    "parent || ' that is not there' FROM pragma_foreign_key_check",
	.by_bytes = "COLLATE BINARY",
};

const struct store_ops store_sqlite_ops = {
	.scheme = "sqlite",
	.make = sqlite_make,
	.free = sqlite_free,
	.open = sqlite_open,
	.begin = sqlite_begin,
	.commit = sqlite_commit,
	.settle = sqlite_settle,
	.rollback = sqlite_rollback,
	.tidy = sqlite_tidy,
	.script = sqlite_script,
	.exec = sqlite_exec,
	.query = sqlite_query,
	.stream = sqlite_stream,
	.catalog = &sqlite_catalog,
	.row_int = sqlite_row_int,
	.row_text = sqlite_row_text,
	.row_is_null = sqlite_row_is_null,
};
