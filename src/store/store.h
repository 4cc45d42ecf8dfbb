/* store - rows that outlive the process.
 * Owns:   the database, its migrations, transactions, the file that it is moved by.
 * Uses:   base, loop (every transaction is a job), json (that file), SQLite, libpq.
 * Never:  knows what a row means: the rooms above keep their own SQL, in files named rows.c.
 *
 * SQL is kept to what SQLite and PostgreSQL both take: $1 parameters, TEXT, BIGINT, no upsert
 * tricks beyond ON CONFLICT. Booleans are BIGINT 0/1, times are µs since 1970, ids are TEXT. Texts
 * are UTF-8 without NUL. A statement that failed ends its transaction: the next ones fail too. */
#pragma once

#include "base/base.h"
#include "loop/loop.h"

struct store;
struct store_tx;
struct store_row;

/* "sqlite:PATH" or "postgresql://...". Opens and migrates; blocking, at start.
 * -EPROTONOSUPPORT: no such kind of store. -ENOTSUP: the data was written by a newer version.
 * -EBUSY: another server uses it. */
int store_open(struct loop *loop, const char *url, struct store **ret, struct err *e);
/* The database has gone (r < 0, and again when the reason becomes another) or is back (0); on the
 * loop. Calls wait meanwhile. -EREMCHG: while it was away somebody else has written to it; what is
 * held in memory may be wrong, nothing works any more, and only a new start helps. */
typedef void (*store_state_fn)(void *arg, int r, const struct err *e);
struct store_config {
	const char *url;
	const char *password; /* of PostgreSQL, when the URL has none; NULL: none */
	const char *name;     /* how others see who has it open; NULL: "atoll" */
	bool is_own_name;     /* nobody else has it: its sessions are ours, left behind */
	store_state_fn on_state;
	void *state_arg;
};
int store_open_as(struct loop *loop, const struct store_config *config, struct store **ret,
	struct err *e);
/* What was asked for before is still done, by loop_free at the latest. */
struct store *store_free(struct store *store);
DEFINE_CLEANUP(struct store, store_free)

/* Runs work in one transaction on a job thread: committed when it returns >= 0, else rolled back.
 * work owns arg meanwhile and touches nothing else. Transactions run one after the other, of one
 * team in order. -EAGAIN: the database was away or busy for too long, and nothing was done; clients
 * may ask again.
 */
typedef int (*store_work_fn)(struct store_tx *tx, void *arg, struct err *e);
void store_run(struct store *store, store_work_fn work, done_fn done, void *arg);
/* The same for one team, or nobody (""): teams have their turns, and only within a team is it done
 * in order. What no team asked for is in order too, as if it were a team's. */
void store_run_for(struct store *store, const char *team_id, store_work_fn work, done_fn done,
	void *arg);
/* The same for what has happened already and only has to be written down: waits for the database as
 * long as it takes, so never ends in -EAGAIN unless far too much waits or the store is freed. work
 * may run again from its beginning. */
void store_record(struct store *store, store_work_fn work, done_fn done, void *arg);
void store_record_for(struct store *store, const char *team_id, store_work_fn work, done_fn done,
	void *arg);
/* One that only reads: several run at once, beside and not behind those that write. It sees one
 * moment of the database, and in it all that had been done when it was asked for. */
void store_read(struct store *store, store_work_fn work, done_fn done, void *arg);
/* store_run here and now: only at start and in tests, before the loop runs. */
int store_run_now(struct store *store, store_work_fn work, void *arg, struct err *e);
/* Called on the loop after a transaction of store_run that appended events was committed: the log
 * has grown. One listener; NULL: none any more. */
void store_on_events(struct store *store, loop_fn fn, void *arg);

/* ---- what the rows of each team take, for the ceilings of those who write them ---- */
enum store_use {
	STORE_USE_HISTORY,  /* sandboxes, those that ended too */
	STORE_USE_COMMANDS, /* executions and runs */
	STORE_USE_OUTPUT,   /* what executions printed */
	STORE_USE_EVENTS,   /* which the store itself counts as they are appended */
	STORE_USES,
};
/* So many bytes of this team's rows more, or less, once the transaction counts. Nobody's (NULL or
 * empty) are not counted. */
void store_count(struct store_tx *tx, const char *team_id, enum store_use use, int64_t bytes);
/* By the transactions that were told. On the loop. */
int64_t store_used(const struct store *store, const char *team_id, enum store_use use);
void store_each_used(const struct store *store, enum store_use use,
	void (*fn)(void *arg, const char *team_id, int64_t bytes), void *arg);

/* How transactions of store_run fared since the store was opened, from being asked for to being
 * told. */
enum {
	STORE_BUCKETS = 12,
};
extern const int64_t store_bucket_us[STORE_BUCKETS]; /* each counts those up to this long */
struct store_stats {
	int64_t waiting; /* now, the one that runs included */
	int64_t done, failed, sum_us;
	int64_t buckets[STORE_BUCKETS]; /* not cumulated */
};
void store_stats(const struct store *store, struct store_stats *ret);

/* ---- for `atoll db`: blocking, with no loop running ---- */

/* Opens what is there, whatever its version. Who is to_change it has it alone, as a server has; who
 * only looks may do so beside one. */
int store_open_offline(struct loop *loop, const struct store_config *config, bool to_change,
	struct store **ret, struct err *e);
enum {
	STORE_MAX_TABLES = 64,
	STORE_MAX_PROBLEMS = 8,
};
struct store_report {
	int64_t version, newest; /* the database's, 0: it is empty; and this program's */
	int64_t rows;
	struct {
		char name[64];
		int64_t rows;
	} tables[STORE_MAX_TABLES];
	size_t n_tables;
	char problems[STORE_MAX_PROBLEMS][200]; /* the first that were found */
	size_t n_problems;
};
int store_upgrade(struct store *store, struct store_report *ret, struct err *e);
/* Reads its version alone. -ENOTSUP: it is newer than this program's. */
int store_look(struct store *store, struct store_report *ret, struct err *e);
/* Reads all of it. What is wrong with the database is in the report and no failure. */
int store_check(struct store *store, struct store_report *ret, struct err *e);
/* All rows as they were at one moment, into a file of JSON lines, and back. What is sealed stays
 * sealed, with this data directory's seed. */
int store_export(struct store *store, int fd, struct store_report *ret, struct err *e);
/* All or nothing. -ENOTEMPTY: there are rows; `replace` takes them away first. -EBADMSG: the file
 * is damaged. */
int store_import(struct store *store, int fd, bool replace, struct store_report *ret,
	struct err *e);

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
/* Calls fn for each row; its negative result stops and is returned. fn asks for nothing itself. */
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
	const char *actor;   /* key id, "system", "timeout", as base/actor.h has it */
	const char *kind;    /* "sandbox.created" */
	const char *subject; /* id of what it happened to */
	struct str data;     /* JSON object */
};
int store_add_event(struct store_tx *tx, const struct store_event *event, struct err *e);
/* One that happened at another time, to somebody's, or for a reason that people should read. */
struct store_cause {
	int64_t at_us; /* 0: now */
	/* NULL or empty: not known, or nobody in particular. */
	const char *team_id, *agent_id, *task_id;
	const char *text;
};
int store_add_caused_event(struct store_tx *tx, const struct store_event *event,
	const struct store_cause *cause, struct err *e);
