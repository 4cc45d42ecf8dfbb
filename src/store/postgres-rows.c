/* What comes out of PostgreSQL: rows, and what it says about its own tables. */
#include "store/catalog.h"
#include "store/postgres.h"

struct pg_row {
	struct store_row base;
	const PGresult *res;
	int at;
};

int pg_each_row(const PGresult *res, store_row_fn fn, void *arg, struct err *e)
{
	struct pg_row row = { { &store_postgres_ops }, res, 0 };
	int r = 0;

	for (; r >= 0 && row.at < PQntuples(res); row.at++)
		r = fn(arg, &row.base, e);
	return MIN(r, 0);
}

static const struct pg_row *row_from(const struct store_row *row)
{
	return (const struct pg_row *)row; /* base comes first */
}

bool pg_row_is_null(const struct store_row *row, int column)
{
	return PQgetisnull(row_from(row)->res, row_from(row)->at, column);
}

struct str pg_row_text(const struct store_row *row, int column)
{
	const struct pg_row *r = row_from(row);

	if (PQgetisnull(r->res, r->at, column))
		return STR_NONE;
	return str_make(PQgetvalue(r->res, r->at, column),
		(size_t)PQgetlength(r->res, r->at, column));
}

/* As SQLite does it: a truth is 1, of a fraction the whole part, and what is no number is 0. */
int64_t pg_row_int(const struct store_row *row, int column)
{
	struct str text = pg_row_text(row, column);
	ptrdiff_t point;
	int64_t n = 0;

	if (!text.p)
		return 0;
	point = str_find(text, '.');
	if (point >= 0)
		text.n = (size_t)point;
	if (text.n == 1 && text.p[0] == 't')
		return 1;
	(void)str_to_int(text, INT64_MIN, INT64_MAX, &n);
	return n;
}

#define OUR_SCHEMA "(SELECT oid FROM pg_namespace WHERE nspname = current_schema())"

const struct store_catalog pg_catalog = {
	.tables = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = " OUR_SCHEMA
		  " ORDER BY relname COLLATE \"C\"",
	.columns = "SELECT a.attname, upper(format_type(a.atttypid, a.atttypmod)), "
		   "COALESCE(array_position(k.conkey, a.attnum), 0) FROM pg_class c "
		   "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT "
		   "a.attisdropped "
		   "LEFT JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype = 'p' "
		   "WHERE c.relname = $1 AND c.relnamespace = " OUR_SCHEMA " ORDER BY a.attnum",
	.references = "SELECT DISTINCT f.relname FROM pg_class c "
		      "JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype = 'f' "
		      "JOIN pg_class f ON f.oid = k.confrelid "
		      "WHERE c.relname = $1 AND c.relnamespace = " OUR_SCHEMA " ORDER BY 1",
	/* The server itself refuses rows that refer to nothing. */
	.problems =
		"SELECT 'index ' || c.relname || ' is not valid' FROM pg_index i JOIN pg_class "
		"c ON c.oid = i.indexrelid WHERE NOT i.indisvalid AND c.relnamespace = " OUR_SCHEMA
		" UNION ALL SELECT 'constraint ' || conname || ' was never checked' FROM "
		"pg_constraint WHERE NOT convalidated AND connamespace = " OUR_SCHEMA,
	.by_bytes = "COLLATE \"C\"",
};
