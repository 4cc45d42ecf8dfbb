/* What an implementation of the store provides. */
#pragma once

#include "store/store.h"

struct store_ops {
	const char *scheme;
	int (*open)(const char *rest, struct store **ret, struct err *e);
	void (*close)(struct store *store);
	int (*begin)(struct store *store, struct err *e);
	int (*commit)(struct store *store, struct err *e);
	void (*rollback)(struct store *store);
	int (*script)(struct store *store, const char *sql, struct err *e); /* several statements */
	int (*exec)(struct store *store, const char *sql, const struct store_param *params,
		size_t n, struct err *e);
	int (*query)(struct store *store, const char *sql, const struct store_param *params,
		size_t n, store_row_fn fn, void *arg, struct err *e);
	int64_t (*row_int)(const struct store_row *row, int column);
	struct str (*row_text)(const struct store_row *row, int column);
	bool (*row_is_null)(const struct store_row *row, int column);
};

struct store { /* first member of every implementation */
	const struct store_ops *ops;
	struct loop *loop;
};

struct store_tx {
	struct store *store;
};

struct store_row { /* first member of every implementation's row */
	const struct store_ops *ops;
};

struct store_migration {
	int version;
	const char *name, *sql;
};
extern const struct store_migration store_migrations[];
extern const size_t store_n_migrations;
int store_migrate(struct store *store, struct err *e);

extern const struct store_ops store_sqlite_ops;
