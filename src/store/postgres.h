/* PostgreSQL, shared by the files that are its implementation: the link, who may use it, and the
 * transactions on it. */
#pragma once

#include "store/store-internal.h"

#include <libpq-fe.h>

enum {
	/* What a function here returns beside 0 and what callers of the store may see. */
	PG_LOST = -ENOTCONN,  /* the link broke: what was asked may have been done */
	PG_AGAIN = -ERESTART, /* somebody was in the way, it was undone: the same again may work */

	PG_OPEN_MS = 5000,       /* to set a session up */
	PG_STATEMENT_MS = 30000, /* the server ends a statement that takes longer */
	PG_ANSWER_MS = 35000,    /* and if it does not even do that, the link counts as lost */
	PG_SCRIPT_MS = 3600000,  /* migrations and counts of large tables take their time */
	PG_MAX_PARAMS = 64,
	PG_NAME_SIZE = 64, /* of identifiers, as PostgreSQL cuts them */
};

struct pg_link {               /* one connection, remade when it breaks */
	PGconn *c;             /* NULL: not open */
	unsigned generation;   /* counts the connections: what was prepared on another is gone */
	char **keys, **values; /* what libpq is told, NULL-terminated */
	char name[PG_NAME_SIZE];
	enum store_mode mode;
	bool is_own_name; /* see store_config */
	bool was_open;    /* the URL and the password are right, then */
};

/* From the URL and what we want for ourselves. -EINVAL: no URL of PostgreSQL's. */
int pg_link_init(struct pg_link *link, const struct store_config *config, enum store_mode mode,
	struct err *e);
void pg_link_done(struct pg_link *link);
/* Connects, unless it is connected. -EAGAIN: it is away. */
int pg_link_open(struct pg_link *link, struct err *e);
void pg_link_close(struct pg_link *link);
/* Statements that need no parameters, several with ';' between; the last one's result, of which
 * ret may be NULL. */
int pg_link_simple(struct pg_link *link, const char *sql, int64_t wait_ms, PGresult **ret,
	struct err *e);
/* The last result of what was sent, 0 or why not. */
int pg_link_answer(struct pg_link *link, int64_t wait_ms, PGresult **ret, struct err *e);
/* The next of several, as they come; *ret NULL: there are no more. */
int pg_link_next(struct pg_link *link, int64_t wait_ms, PGresult **ret, struct err *e);
int pg_fail(const PGresult *res, struct err *e);       /* what the server says went wrong */
int pg_link_lost(struct pg_link *link, struct err *e); /* closes it; PG_LOST */
/* A whole number in a result; what is none is 0. */
int64_t pg_number(const PGresult *res, int row, int column);
static inline void pg_clear(PGresult **res)
{
	PQclear(*res);
}

/* postgres-lock.c: the right to write, which at most one connection to a database has. Being given
 * it means that whoever had it before is gone, and its last transaction is done or undone. */
int pg_lock_take(struct pg_link *link, bool is_first, struct err *e);
/* The mark that the last transaction left. */
int pg_mark_read(struct pg_link *link, int64_t *ret, struct err *e);

/* postgres-rows.c: parts of the table of operations. */
extern const struct store_catalog pg_catalog;
int pg_each_row(const PGresult *res, store_row_fn fn, void *arg, struct err *e);
int64_t pg_row_int(const struct store_row *row, int column);
struct str pg_row_text(const struct store_row *row, int column);
bool pg_row_is_null(const struct store_row *row, int column);
