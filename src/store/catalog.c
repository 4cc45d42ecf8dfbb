#include "store/catalog.h"

static bool is_name(struct str name)
{
	for (size_t i = 0; i < name.n; i++)
		if (!(name.p[i] >= 'a' && name.p[i] <= 'z') &&
			!(name.p[i] >= '0' && name.p[i] <= '9') && name.p[i] != '_')
			return false;
	return name.n > 0 && name.n < CATALOG_NAME;
}

/* Names become part of statements. Ours are plain; whatever else somebody put there is not ours to
 * move. */
static int take_name(const struct store_row *row, int column, char to[CATALOG_NAME], struct err *e)
{
	struct str name = store_text(row, column);

	if (!is_name(name))
		return err_set(e, -EBADMSG, "the database has a table or column called '%.*s'",
			STR_ARG(name));
	store_copy_text(row, column, to, CATALOG_NAME);
	return 0;
}

static int add_table(void *arg, const struct store_row *row, struct err *e)
{
	struct catalog *catalog = arg;
	struct str name = store_text(row, 0);

	if (str_is(name, "migrations") || str_is(name, "store_session"))
		return 0;
	if (catalog->n == CATALOG_TABLES)
		return err_set(e, -E2BIG, "the database has more than %d tables", CATALOG_TABLES);
	return take_name(row, 0, catalog->v[catalog->n++].name, e);
}

static int add_column(void *arg, const struct store_row *row, struct err *e)
{
	struct catalog_table *table = arg;
	struct catalog_column *column = &table->columns[table->n_columns];
	struct str type = store_text(row, 1);

	if (table->n_columns == CATALOG_COLUMNS)
		return err_set(e, -E2BIG, "table %s has too many columns", table->name);
	if (!str_is(type, "BIGINT") && !str_is(type, "TEXT"))
		return err_set(e, -EBADMSG, "table %s has a column of type '%.*s'", table->name,
			STR_ARG(type));
	table->n_columns++;
	column->is_int = str_is(type, "BIGINT");
	column->key = (int)store_int(row, 2);
	return take_name(row, 0, column->name, e);
}

static int add_reference(void *arg, const struct store_row *row, struct err *e)
{
	struct catalog_table *table = arg;

	if (table->n_references == CATALOG_REFERENCES)
		return err_set(e, -E2BIG, "table %s refers to too many others", table->name);
	return take_name(row, 0, table->references[table->n_references++], e);
}

static bool is_placed(const struct catalog *catalog, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(catalog->v[i].name, name) == 0)
			return true;
	return false;
}

static bool may_follow(const struct catalog *catalog, size_t n, const struct catalog_table *table)
{
	for (size_t i = 0; i < table->n_references; i++)
		if (strcmp(table->references[i], table->name) != 0 &&
			!is_placed(catalog, n, table->references[i]))
			return false;
	return true;
}

/* By name, but none before one that it refers to: the same order in every database. */
static int sort(struct catalog *catalog, struct err *e)
{
	for (size_t n = 0; n < catalog->n; n++) {
		struct catalog_table next;
		size_t at = n;

		while (at < catalog->n && !may_follow(catalog, n, &catalog->v[at]))
			at++;
		if (at == catalog->n)
			return err_set(e, -ELOOP, "tables refer to each other in a circle: %s",
				catalog->v[n].name);
		next = catalog->v[at];
		memmove(&catalog->v[n + 1], &catalog->v[n], (at - n) * sizeof next);
		catalog->v[n] = next;
	}
	return 0;
}

/* Whose names are known already. */
static int read_tables(struct store_tx *tx, struct catalog *catalog, struct err *e)
{
	const struct store_catalog *sql = tx->conn->ops->catalog;
	int r = 0;

	for (size_t i = 0; r >= 0 && i < catalog->n; i++) {
		struct catalog_table *table = &catalog->v[i];

		r = store_query(tx, sql->columns, STORE_PARAMS(P_TEXT(table->name)), add_column,
			table, e);
		if (r >= 0)
			r = store_query(tx, sql->references, STORE_PARAMS(P_TEXT(table->name)),
				add_reference, table, e);
	}
	return r < 0 ? r : sort(catalog, e);
}

int catalog_read(struct store_tx *tx, void *arg, struct err *e)
{
	struct catalog *catalog = arg;
	int r;

	memset(catalog, 0, sizeof *catalog);
	r = store_query(tx, tx->conn->ops->catalog->tables, NULL, 0, add_table, catalog, e);
	return r < 0 ? r : read_tables(tx, catalog, e);
}

int catalog_model(struct loop *loop, int64_t version, struct catalog *ret, struct err *e)
{
	const struct store_config config = { .url = "sqlite::memory:" };
	CLEANUP(store_freep) struct store *model = NULL;
	int r;

	if (version > store_newest_version())
		return err_set(e, -ENOTSUP,
			"the database has version %" PRId64
			" and this program knows up to %d: use the newer program",
			version, store_newest_version());
	r = store_open_offline(loop, &config, true, &model, e);
	if (r >= 0)
		r = store_migrate(model, version, e);
	return r < 0 ? r : store_run_now(model, catalog_read, ret, e);
}

int catalog_read_ours(struct store_tx *tx, const struct catalog *model, struct catalog *ret,
	struct err *e)
{
	int r;

	memset(ret, 0, sizeof *ret);
	for (ret->n = 0; ret->n < model->n; ret->n++)
		memcpy(ret->v[ret->n].name, model->v[ret->n].name, CATALOG_NAME);
	r = read_tables(tx, ret, e);
	return r < 0 ? r : catalog_compare(model, ret, e);
}

const struct catalog_table *catalog_find(const struct catalog *catalog, struct str name)
{
	for (size_t i = 0; i < catalog->n; i++)
		if (str_is(name, catalog->v[i].name))
			return &catalog->v[i];
	return NULL;
}

static int compare_table(const struct catalog_table *want, const struct catalog_table *have,
	struct err *e)
{
	if (!have || !have->n_columns)
		return err_set(e, -EBADMSG, "table %s is missing", want->name);
	for (size_t i = 0; i < MAX(want->n_columns, have->n_columns); i++) {
		const struct catalog_column *a = &want->columns[i], *b = &have->columns[i];

		if (i >= want->n_columns || i >= have->n_columns || strcmp(a->name, b->name) != 0 ||
			a->is_int != b->is_int || a->key != b->key)
			return err_set(e, -EBADMSG, "table %s: column %zu is '%s' and not '%s'",
				want->name, i + 1, b->name, a->name);
	}
	return 0;
}

int catalog_compare(const struct catalog *want, const struct catalog *have, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < want->n; i++)
		r = compare_table(&want->v[i], catalog_find(have, str_of(want->v[i].name)), e);
	for (size_t i = 0; r >= 0 && i < have->n; i++)
		if (!catalog_find(want, str_of(have->v[i].name)))
			r = err_set(e, -EBADMSG, "table %s is none of ours", have->v[i].name);
	return r;
}
