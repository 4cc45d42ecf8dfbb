/* A whole database, read in again. Everything here blocks, and runs with no loop. */
#include "store/dump.h"

enum {
	CHUNK = 256 << 10,
	HEADER_MAX = 4096,
};

struct import {
	int fd;
	bool replace;
	struct store_tx *tx;
	struct catalog catalog, model;
	struct buf inserts[CATALOG_TABLES]; /* made when a table's first row comes */
	struct buf chunk;
	struct str rest; /* of the chunk: not fed yet */
	int64_t version; /* of the file */
	int64_t rows;
	bool has_ended;
};

/* 0: the file has ended. */
static int read_chunk(struct import *m, struct err *e)
{
	ssize_t n;

	buf_clear(&m->chunk);
	if (!buf_reserve(&m->chunk, CHUNK))
		return err_set(e, -ENOMEM, "out of memory");
	do
		n = read(m->fd, m->chunk.p, CHUNK);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_sys(e, -errno, "read the file");
	m->rest = str_make(m->chunk.p, (size_t)n);
	return n > 0;
}

/* The tables are made as the file's version had them before the first row is looked at. */
static int read_header(struct import *m, struct err *e)
{
	struct arena *arena = arena_new((size_t)16 * HEADER_MAX);
	struct dump_line line = { 0 };
	ptrdiff_t end;
	int r = read_chunk(m, e);

	end = r < 0 ? -1 : str_find(m->rest, '\n');
	if (r >= 0 &&
		(end < 0 || end > HEADER_MAX ||
			dump_parse(arena, str_make(m->rest.p, (size_t)end), &line, NULL) < 0 ||
			line.kind != DUMP_HEADER))
		r = err_set(e, -EBADMSG, "this is no file of atoll db export, or of a newer one");
	else if (r >= 0 && line.version > store_newest_version())
		r = err_set(e, -ENOTSUP,
			"the file has version %" PRId64
			" and this program knows up to %d: use the newer program",
			line.version, store_newest_version());
	m->version = line.version;
	m->rest = str_from(m->rest, (size_t)MAX(end, 0) + 1);
	(void)arena_free(arena);
	return MIN(r, 0);
}

static void make_insert(const struct catalog_table *table, struct buf *sql)
{
	(void)buf_printf(sql, "INSERT INTO \"%s\" (", table->name);
	for (size_t i = 0; i < table->n_columns; i++)
		(void)buf_printf(sql, "%s\"%s\"", i ? ", " : "", table->columns[i].name);
	(void)buf_adds(sql, ") VALUES (");
	for (size_t i = 0; i < table->n_columns; i++)
		(void)buf_printf(sql, "%s$%zu", i ? ", " : "", i + 1);
	(void)buf_adds(sql, ")");
}

/* Each column of the table once, of the right kind. */
static int match_values(const struct catalog_table *table, const struct dump_line *line,
	struct store_param *params, struct err *e)
{
	if (line->n_values != table->n_columns)
		return err_set(e, -EBADMSG, "table %s has %zu columns and the row %zu", table->name,
			table->n_columns, line->n_values);
	for (size_t i = 0; i < table->n_columns; i++) {
		const struct catalog_column *column = &table->columns[i];
		const struct dump_value *value = &line->values[i];

		if (!str_is(value->column, column->name))
			return err_set(e, -EBADMSG,
				"table %s: '%s' is missing, or not in its place", table->name,
				column->name);
		if (value->value.type != STORE_NULL &&
			(value->value.type == STORE_INT) != column->is_int)
			return err_set(e, -EBADMSG, "table %s: '%s' must be %s", table->name,
				column->name, column->is_int ? "a number" : "a text");
		params[i] = value->value;
	}
	return 0;
}

static int import_row(struct import *m, const struct dump_line *line, struct err *e)
{
	const struct catalog_table *table = catalog_find(&m->catalog, line->table);
	struct store_param params[CATALOG_COLUMNS];
	struct buf *insert;
	int r;

	if (!table)
		return err_set(e, -EBADMSG, "there is no table '%.*s'", STR_ARG(line->table));
	r = match_values(table, line, params, e);
	if (r < 0)
		return r;
	insert = &m->inserts[table - m->catalog.v];
	if (!insert->p)
		make_insert(table, insert);
	m->rows++;
	return store_exec(m->tx, insert->p, params, table->n_columns, e);
}

static int import_line(void *arg, const struct dump_line *line, struct err *e)
{
	struct import *m = arg;

	if (m->has_ended)
		return err_set(e, -EBADMSG, "something stands behind the end");
	switch (line->kind) {
	case DUMP_HEADER:
		return err_set(e, -EBADMSG, "a second header");
	case DUMP_ROW:
		return import_row(m, line, e);
	case DUMP_END:
		m->has_ended = true;
		if (line->rows != m->rows)
			return err_set(e, -EBADMSG,
				"%" PRId64 " rows were read and %" PRId64 " were written", m->rows,
				line->rows);
		return 0;
	}
	return 0;
}

static int note_row(void *arg, const struct store_row *row, struct err *e)
{
	(void)row;
	(void)e;
	*(bool *)arg = true;
	return 0;
}

/* Those that refer to others go first. */
static int empty_tables(struct import *m, struct err *e)
{
	int r = 0;

	for (size_t i = m->catalog.n; r >= 0 && i-- > 0;) {
		char sql[128];
		bool has_rows = false;

		(void)snprintf(sql, sizeof sql, "SELECT 1 FROM \"%s\" LIMIT 1",
			m->catalog.v[i].name);
		r = store_query(m->tx, sql, NULL, 0, note_row, &has_rows, e);
		if (r < 0 || !has_rows)
			continue;
		if (!m->replace)
			return err_set(e, -ENOTEMPTY,
				"the database has rows in it (%s): --force takes them away first",
				m->catalog.v[i].name);
		(void)snprintf(sql, sizeof sql, "DELETE FROM \"%s\"", m->catalog.v[i].name);
		r = store_script(m->tx, sql, e); /* as long as it takes */
	}
	return r;
}

static int import_all(struct store_tx *tx, void *arg, struct err *e)
{
	struct import *m = arg;
	struct dump_reader reader;
	int r;

	m->tx = tx;
	dump_reader_init(&reader, import_line, m);
	reader.n_lines = 1;
	r = catalog_read_ours(tx, &m->model, &m->catalog, e);
	if (r >= 0)
		r = empty_tables(m, e);
	while (r >= 0) {
		r = dump_reader_feed(&reader, m->rest, e);
		if (r >= 0)
			r = read_chunk(m, e);
		if (r == 0)
			break;
	}
	if (r >= 0)
		r = dump_reader_end(&reader, e);
	if (r >= 0 && !m->has_ended)
		r = err_set(e, -EBADMSG, "the file has no end: it was cut after line %" PRId64,
			reader.n_lines);
	dump_reader_done(&reader);
	return r;
}

/* A database that is newer than the file has been used, or at least made, since. */
static int make_tables(struct store *store, struct import *m, struct err *e)
{
	int64_t have = 0;
	int r = store_run_now(store, store_read_version, &have, e);

	if (r >= 0 && have > m->version)
		r = err_set(e, -EEXIST,
			"the file has version %" PRId64 " and the database %" PRId64
			": import it into an empty one",
			m->version, have);
	return r < 0 ? r : store_migrate(store, m->version, e);
}

int store_import(struct store *store, int fd, bool replace, struct store_report *ret, struct err *e)
{
	cleanup_free struct import *m = XNEW(struct import);
	int r;

	m->fd = fd;
	m->replace = replace;
	m->chunk = BUF_INIT((size_t)2 * CHUNK);
	for (size_t i = 0; i < CATALOG_TABLES; i++)
		m->inserts[i] = BUF_INIT(64 << 10);
	r = read_header(m, e);
	if (r >= 0)
		r = make_tables(store, m, e);
	if (r >= 0)
		r = catalog_model(store->loop, m->version, &m->model, e);
	if (r >= 0)
		r = store_run_now(store, import_all, m, e);
	buf_done(&m->chunk);
	for (size_t i = 0; i < CATALOG_TABLES; i++)
		buf_done(&m->inserts[i]);
	return r < 0 ? r : store_upgrade(store, ret, e);
}
