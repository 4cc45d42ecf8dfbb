/* store - rows that outlive the process.
 * Owns:   the database, its migrations, transactions.
 * Uses:   base, loop (every transaction is a job), SQLite.
 * Never:  knows what a row means: the rooms above keep their own SQL, in files named rows.c.
 *
 * SQL is kept to what SQLite and PostgreSQL both take: $1 parameters, TEXT, BIGINT, no upsert
 * tricks beyond ON CONFLICT. Booleans are BIGINT 0/1, times are µs since 1970, ids are TEXT. */
#pragma once

#include "base/base.h"
#include "loop/loop.h"

struct store;
struct store_tx;
struct store_row;

/* "sqlite:PATH". Opens and migrates; blocking, at start. -EPROTONOSUPPORT: no such kind of store.
 * -ENOTSUP: the data was written by a newer version. */
int store_open(struct loop *loop, const char *url, struct store **ret, struct err *e);
struct store *store_free(struct store *store);
DEFINE_CLEANUP(struct store, store_free)

/* Runs work in one transaction on a job thread: committed when it returns >= 0, else rolled back.
 * work owns arg meanwhile and touches nothing else. Transactions run one after the other, in order.
 */
typedef int (*store_work_fn)(struct store_tx *tx, void *arg, struct err *e);
void store_run(struct store *store, store_work_fn work, done_fn done, void *arg);
/* The same here and now: only at start and in tests, before the loop runs. */
int store_run_now(struct store *store, store_work_fn work, void *arg, struct err *e);

enum store_type {
	STORE_NULL,
	STORE_INT,
	STORE_TEXT,
};
struct store_param {
	enum store_type type;
	int64_t i;
	struct str s;
};
#define P_NULL ((struct store_param){ .type = STORE_NULL })
#define P_INT(v) ((struct store_param){ .type = STORE_INT, .i = (v) })
#define P_STR(v) ((struct store_param){ .type = STORE_TEXT, .s = (v) })
#define P_TEXT(z) P_STR(str_of(z))
#define STORE_PARAMS(...)                              \
	((const struct store_param[]){ __VA_ARGS__ }), \
		(sizeof((const struct store_param[]){ __VA_ARGS__ }) / sizeof(struct store_param))

/* Returns the rows changed, or -errno (-EEXIST: a unique key is taken; -ENOSPC: the disk is full).
 */
int store_exec(struct store_tx *tx, const char *sql, const struct store_param *params, size_t n,
	struct err *e);
/* Calls fn for each row; its negative result stops and is returned. */
typedef int (*store_row_fn)(void *arg, const struct store_row *row, struct err *e);
int store_query(struct store_tx *tx, const char *sql, const struct store_param *params, size_t n,
	store_row_fn fn, void *arg, struct err *e);
int64_t store_int(const struct store_row *row, int column);
struct str store_text(const struct store_row *row,
	int column); /* borrowed for the call; p NULL: NULL */
bool store_is_null(const struct store_row *row, int column);
/* Text that outlives the row; NULL becomes "". The first cuts what does not fit. */
void store_copy_text(const struct store_row *row, int column, char *to, size_t size);
char *store_dup_text(const struct store_row *row, int column); /* the caller frees it */

/* Appends to the event log, in the same transaction as the change it tells of. */
struct store_event {
	const char *actor;   /* key id, "system", "timeout" */
	const char *kind;    /* "sandbox.created" */
	const char *subject; /* id of what it happened to */
	struct str data;     /* JSON object */
};
int store_add_event(struct store_tx *tx, const struct store_event *event, struct err *e);
/* One that happened at another time, or for a reason that people should read. */
struct store_cause {
	int64_t at_us;
	const char *team_id, *text; /* NULL: not known */
};
int store_add_caused_event(struct store_tx *tx, const struct store_event *event,
	const struct store_cause *cause, struct err *e);
