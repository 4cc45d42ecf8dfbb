/* What an implementation of the store provides, and what the room's files share. */
#pragma once

#include "store/store.h"

enum store_mode {
	STORE_WRITES, /* the one that changes rows; nobody else may meanwhile */
	STORE_READS,
};

/* A connection to the database. It belongs to whoever runs a job with it, and is never used by two
 * at once: a lane of the loop each. */
struct store_conn { /* first member of every implementation */
	const struct store_ops *ops;
};

struct store_row { /* first member of every implementation's row */
	const struct store_ops *ops;
};

enum {
	STORE_UNSETTLED = 1, /* of commit: nobody knows yet whether it counts; settle finds out */
};

struct store_ops {
	const char *scheme, *alias; /* alias may be NULL */
	/* Nothing is opened yet when it returns. */
	int (*make)(const struct store_config *config, enum store_mode mode,
		struct store_conn **ret, struct err *e);
	void (*free)(struct store_conn *conn);
	/* What is open stays so. -EAGAIN: it is away just now. All else does not mend itself. */
	int (*open)(struct store_conn *conn, struct err *e);
	/* -EAGAIN: as open. Only what a transaction meets later is mended without its knowing. */
	int (*begin)(struct store_conn *conn, struct err *e);
	int (*commit)(struct store_conn *conn, struct err *e);
	/* After STORE_UNSETTLED: makes sure that the transaction counts. -EAGAIN: still away. */
	int (*settle)(struct store_conn *conn, struct err *e);
	void (*rollback)(struct store_conn *conn);
	/* Optional: what may wait for a disk and has time until nobody writes. NULL: nothing. */
	void (*tidy)(struct store_conn *conn);
	int (*script)(struct store_conn *conn, const char *sql, struct err *e); /* several */
	int (*exec)(struct store_conn *conn, const char *sql, const struct store_param *params,
		size_t n, struct err *e);
	int (*query)(struct store_conn *conn, const char *sql, const struct store_param *params,
		size_t n, store_row_fn fn, void *arg, struct err *e);
	/* As query, for more rows than memory should hold. */
	int (*stream)(struct store_conn *conn, const char *sql, store_row_fn fn, void *arg,
		struct err *e);
	int64_t (*row_int)(const struct store_row *row, int column);
	struct str (*row_text)(const struct store_row *row, int column);
	bool (*row_is_null)(const struct store_row *row, int column);
	const struct store_catalog *catalog;
};

enum {
	STORE_TEAM_SIZE = 64,
	STORE_EVENT_BYTES = 192, /* that an event takes besides its texts: numbers and indexes */
};

struct store_count {
	char team_id[STORE_TEAM_SIZE];
	int64_t bytes[STORE_USES];
};
struct store_counts {
	struct store_count *v;
	size_t n;
};

struct store_outcome {   /* of one call's transaction */
	int r;           /* of work */
	bool has_run;    /* work was asked */
	bool is_away;    /* it failed because the database was: nothing was done, for certain */
	bool is_late;    /* its time was up before it began */
	bool has_events; /* it appended to the event log */
	struct store_counts counts; /* what its rows take; the outcome's owner takes or frees it */
};

struct store_tx {
	struct store_conn *conn;
	int failed; /* the first statement that did, as -errno */
	bool has_events;
	struct store_counts counts;
	bool in_rows; /* SQLite's statement is under way, and its place in the cache not free */
};

enum {
	STORE_READERS = 4,
};

struct store_queue {       /* calls that wait for their turn */
	struct list calls; /* in the order they came */
	size_t n;
	struct list turns;        /* teams that have some of them, the next one first */
	struct map by_team;       /* of struct store_turn: those, and who has some in the lane */
	struct loop_timer expiry; /* of the oldest that may not wait for ever */
};

struct store_lane { /* a connection and who uses it now */
	struct store *store;
	struct store_conn *conn;
	int number;           /* of the loop's lane */
	int busy;             /* calls given to it */
	int64_t rest_till_ms; /* the database was away: not before then */
};

struct store {
	const struct store_ops *ops;
	struct loop *loop;
	store_state_fn on_state;
	void *state_arg;
	struct store_lane writer, readers[STORE_READERS];
	struct store_conn *now; /* what is used before the loop runs: the writer's, mostly */
	struct store_queue writes, reads;
	loop_fn on_events; /* NULL: nobody listens */
	void *events_arg;
	struct store_stats stats;
	struct map used;              /* of struct store_count, by team */
	struct store_call *unsettled; /* committed or not: to be found out first */
	uint64_t n_calls;
	struct loop_timer again; /* when to try a database that is away */
	struct loop_timer quiet; /* nobody has written for a while: the writer may tidy */
	int64_t again_after_ms;
	struct loop_timer rested; /* when a reader may try again to connect */
	struct err why;           /* it is away, as far as it was told */
	bool is_away, is_closing;
};

/* queue.c: calls on their way from the loop to a connection and back. */
void store_queue_init(struct store *store);
void store_queue_close(struct store *store); /* frees the store when the last call has ended */
/* One transaction on this connection, here and now: 0, -errno, or STORE_UNSETTLED as commit. */
int store_transact(struct store_conn *conn, store_work_fn work, void *arg,
	struct store_outcome *ret, struct err *e);
/* Closes the connections; nothing may be under way. */
void store_destroy(struct store *store);

/* used.c */
int store_counts_write(struct store_tx *tx, struct err *e);
void store_counts_done(struct store_counts *counts);
void store_counts_take(struct store *store, struct store_counts *counts);
int store_used_load(struct store_tx *tx, void *store, struct err *e); /* a store_work_fn */
void store_used_done(struct store *store);

struct store_migration {
	int version;
	const char *name, *sql;
};
extern const struct store_migration store_migrations[];
extern const size_t store_n_migrations;
/* Up to this version; 0: the newest. */
int store_migrate(struct store *store, int64_t upto, struct err *e);
int store_newest_version(void);
/* Of the database as it is; 0: there is nothing in it. A store_work_fn; arg is an int64_t. */
int store_read_version(struct store_tx *tx, void *arg, struct err *e);

int store_script(struct store_tx *tx, const char *sql, struct err *e); /* several statements */

extern const struct store_ops store_sqlite_ops, store_postgres_ops;
