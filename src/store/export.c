/* A whole database, looked at and written out. Everything here blocks, and runs with no loop. */
#include "store/dump.h"

enum {
	CHUNK = 256 << 10,
};

/* ---- looking ---- */

static void add_problem(struct store_report *report, const char *text)
{
	if (report->n_problems < STORE_MAX_PROBLEMS)
		(void)snprintf(report->problems[report->n_problems++], sizeof report->problems[0],
			"%.*s", (int)sizeof report->problems[0] - 1, text);
}

static int note_problem(void *arg, const struct store_row *row, struct err *e)
{
	char text[200];

	(void)e;
	store_copy_text(row, 0, text, sizeof text);
	add_problem(arg, text);
	return 0;
}

static int note_count(void *arg, const struct store_row *row, struct err *e)
{
	(void)e;
	*(int64_t *)arg = store_int(row, 0);
	return 0;
}

static int stream(struct store_tx *tx, const char *sql, store_row_fn fn, void *arg, struct err *e)
{
	return tx->conn->ops->stream(tx->conn, sql, fn, arg, e);
}

static int count_rows(struct store_tx *tx, const struct catalog *catalog,
	struct store_report *report, struct err *e)
{
	int r = 0;

	static_assert((int)CATALOG_TABLES <= (int)STORE_MAX_TABLES, "there is room for all");
	report->rows = 0;
	report->n_tables = catalog->n;
	for (size_t i = 0; r >= 0 && i < catalog->n; i++) {
		char sql[128];

		(void)snprintf(report->tables[i].name, sizeof report->tables[i].name, "%s",
			catalog->v[i].name);
		(void)snprintf(sql, sizeof sql, "SELECT COUNT(*) FROM \"%s\"", catalog->v[i].name);
		r = stream(tx, sql, note_count, &report->tables[i].rows, e);
		report->rows += report->tables[i].rows;
	}
	return r;
}

struct look {
	struct loop *loop;
	struct catalog catalog, model;
	struct store_report *report;
	bool with_problems; /* among which are tables of others */
};

/* All that there is. What cannot be ours is a problem, and then nothing is counted. */
static int read_all(struct store_tx *tx, struct look *l, struct err *e)
{
	struct err problem = { 0 };
	int r = catalog_read(tx, &l->catalog, &problem);

	if (r < 0 && r != -EBADMSG)
		return err_set(e, r, "%s", problem.msg);
	if (r < 0) {
		add_problem(l->report, problem.msg);
		l->catalog.n = 0;
	}
	return 0;
}

/* Ours alone, whatever else is there. */
static int read_ours(struct store_tx *tx, struct look *l, struct err *e)
{
	int r = catalog_model(l->loop, l->report->version, &l->model, e);

	return r < 0 ? r : catalog_read_ours(tx, &l->model, &l->catalog, e);
}

static int look(struct store_tx *tx, void *arg, struct err *e)
{
	struct look *l = arg;
	int r = store_read_version(tx, &l->report->version, e);

	l->report->newest = store_newest_version();
	if (r >= 0)
		r = l->with_problems ? read_all(tx, l, e) : read_ours(tx, l, e);
	if (r >= 0)
		r = count_rows(tx, &l->catalog, l->report, e);
	if (r >= 0 && l->with_problems)
		r = stream(tx, tx->conn->ops->catalog->problems, note_problem, l->report, e);
	return r;
}

int store_check(struct store *store, struct store_report *ret, struct err *e)
{
	cleanup_free struct look *l = XNEW(struct look);
	struct err problem = { 0 };
	int r;

	*ret = (struct store_report){ 0 };
	l->report = ret;
	l->with_problems = true;
	r = store_run_now(store, look, l, e);
	if (r < 0 || ret->version != ret->newest || ret->n_problems)
		return r;
	r = catalog_model(store->loop, ret->version, &l->model, e);
	if (r >= 0 && catalog_compare(&l->model, &l->catalog, &problem) < 0)
		add_problem(ret, problem.msg);
	return r;
}

static int report_rows(struct store *store, struct store_report *ret, struct err *e)
{
	cleanup_free struct look *l = XNEW(struct look);

	*ret = (struct store_report){ 0 };
	l->loop = store->loop;
	l->report = ret;
	return store_run_now(store, look, l, e);
}

int store_upgrade(struct store *store, struct store_report *ret, struct err *e)
{
	int r = store_migrate(store, 0, e);

	return r < 0 ? r : report_rows(store, ret, e);
}

/* ---- out ---- */

struct export
{
	struct loop *loop;
	int fd;
	struct buf out;
	struct catalog catalog, model;
	const struct catalog_table *table; /* that is being written */
	struct dump_value values[CATALOG_COLUMNS];
	struct store_report *report;
};

static int flush(struct export *x, size_t above, struct err *e)
{
	int r;

	if (x->out.failed)
		return err_set(e, -E2BIG, "a row of %s is longer than %d MiB",
			x->table ? x->table->name : "?", DUMP_LINE >> 20);
	if (x->out.n <= above)
		return 0;
	r = fd_write_all(x->fd, x->out.p, x->out.n);
	buf_clear(&x->out);
	return r < 0 ? err_sys(e, r, "write the file") : 0;
}

static int write_line(struct export *x, const struct dump_line *line, struct err *e)
{
	dump_write(line, &x->out);
	return flush(x, CHUNK, e);
}

static int export_row(void *arg, const struct store_row *row, struct err *e)
{
	struct export *x = arg;
	struct dump_line line = { .kind = DUMP_ROW,
		.table = str_of(x->table->name),
		.values = x->values,
		.n_values = x->table->n_columns };

	for (size_t i = 0; i < x->table->n_columns; i++) {
		const struct catalog_column *column = &x->table->columns[i];
		struct str text = store_text(row, (int)i);

		x->values[i].column = str_of(column->name);
		x->values[i].value = column->is_int ? P_INT(store_int(row, (int)i)) : P_STR(text);
		if (store_is_null(row, (int)i))
			x->values[i].value = P_NULL;
		else if (!column->is_int && !str_is_utf8(text))
			return err_set(e, -EILSEQ, "table %s, column %s: a text is not UTF-8",
				x->table->name, column->name);
	}
	x->report->rows++;
	return write_line(x, &line, e);
}

/* In the order of the key; what has none, by all columns. */
static void add_order(const struct catalog_table *table, const char *by_bytes, struct buf *sql)
{
	const char *between = " ORDER BY ";
	int n_keys = 0;

	for (size_t i = 0; i < table->n_columns; i++)
		n_keys += table->columns[i].key > 0;
	for (int place = 1; place <= MAX(n_keys, 1); place++)
		for (size_t i = 0; i < table->n_columns; i++) {
			const struct catalog_column *column = &table->columns[i];

			if (n_keys && column->key != place)
				continue;
			(void)buf_printf(sql, "%s\"%s\" %s", between, column->name,
				column->is_int ? "" : by_bytes);
			between = ", ";
		}
}

static int export_table(struct store_tx *tx, struct export *x, struct err *e)
{
	CLEANUP(buf_done) struct buf sql = BUF_INIT(64 << 10);
	int64_t before = x->report->rows;
	int r;

	(void)buf_adds(&sql, "SELECT ");
	for (size_t i = 0; i < x->table->n_columns; i++)
		(void)buf_printf(&sql, "%s\"%s\"", i ? ", " : "", x->table->columns[i].name);
	(void)buf_printf(&sql, " FROM \"%s\"", x->table->name);
	add_order(x->table, tx->conn->ops->catalog->by_bytes, &sql);
	r = stream(tx, sql.p, export_row, x, e);
	x->report->tables[x->report->n_tables].rows = x->report->rows - before;
	(void)snprintf(x->report->tables[x->report->n_tables++].name,
		sizeof x->report->tables[0].name, "%s", x->table->name);
	return r < 0 ? err_wrap(e, r, "export") : 0;
}

static int export_all(struct store_tx *tx, void *arg, struct err *e)
{
	struct export *x = arg;
	struct dump_line line = { .kind = DUMP_HEADER };
	int r = store_read_version(tx, &line.version, e);

	x->report->version = line.version;
	if (r >= 0 && line.version == 0)
		r = err_set(e, -ENOENT, "the database is empty");
	if (r >= 0)
		r = catalog_model(x->loop, line.version, &x->model, e);
	if (r >= 0)
		r = catalog_read_ours(tx, &x->model, &x->catalog, e);
	if (r >= 0)
		r = write_line(x, &line, e);
	for (size_t i = 0; r >= 0 && i < x->catalog.n; i++) {
		x->table = &x->catalog.v[i];
		r = export_table(tx, x, e);
	}
	line = (struct dump_line){ .kind = DUMP_END, .rows = x->report->rows };
	if (r >= 0)
		r = write_line(x, &line, e);
	return r < 0 ? r : flush(x, 0, e);
}

int store_export(struct store *store, int fd, struct store_report *ret, struct err *e)
{
	cleanup_free struct export *x = XNEW(struct export);
	int r;

	*ret = (struct store_report){ .newest = store_newest_version() };
	x->loop = store->loop;
	x->fd = fd;
	x->out = BUF_INIT(DUMP_LINE);
	x->report = ret;
	r = store_run_now(store, export_all, x, e);
	buf_done(&x->out);
	if (r >= 0 && fsync(fd) < 0 && errno != EINVAL && errno != EROFS)
		r = err_sys(e, -errno, "write the file to the disk");
	return MIN(r, 0);
}
