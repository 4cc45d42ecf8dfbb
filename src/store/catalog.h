/* What tables a database has: read from the database itself, so that moving one needs no list that
 * somebody would forget to keep. */
#pragma once

#include "store/store-internal.h"

enum {
	CATALOG_NAME = 64,
	CATALOG_COLUMNS = 64,
	CATALOG_TABLES = 64,
	CATALOG_REFERENCES = 16,
};

struct store_catalog {          /* how an implementation is asked */
	const char *tables;     /* names, sorted by bytes */
	const char *columns;    /* of table $1: name, BIGINT or TEXT, place in the key or 0 */
	const char *references; /* of table $1: names of tables */
	const char *problems;   /* what is damaged, one a row; none: all is well */
	const char *by_bytes;   /* behind a text's name in ORDER BY: the same order everywhere */
};

struct catalog_column {
	char name[CATALOG_NAME];
	bool is_int;
	int key; /* place in the primary key, from 1; 0: not in it */
};

struct catalog_table {
	char name[CATALOG_NAME];
	struct catalog_column columns[CATALOG_COLUMNS];
	size_t n_columns;
	char references[CATALOG_REFERENCES][CATALOG_NAME];
	size_t n_references;
};

struct catalog {
	struct catalog_table v[CATALOG_TABLES]; /* none before one that it refers to */
	size_t n;
};

/* Only what holds rows of the rooms: neither the migrations nor PostgreSQL's session. A
 * store_work_fn; arg is a struct catalog. */
int catalog_read(struct store_tx *tx, void *arg, struct err *e);
/* What there should be in a database of this version: its tables, as they are in one just made. */
int catalog_model(struct loop *loop, int64_t version, struct catalog *ret, struct err *e);
/* Those of the model alone, in case others keep theirs beside them. -EBADMSG: they differ. */
int catalog_read_ours(struct store_tx *tx, const struct catalog *model, struct catalog *ret,
	struct err *e);
const struct catalog_table *catalog_find(const struct catalog *catalog, struct str name);
/* What is missing in `have` or differs, in e; 0: nothing. */
int catalog_compare(const struct catalog *want, const struct catalog *have, struct err *e);
