/* The right to write. SQLite gives it to one connection by itself; here it is a lock that lives as
 * long as the session which took it. It is taken before anything is looked at, migrations included,
 * so two servers that start at once do not both begin, and it is what keeps the event log in order:
 * all that appends goes through this one session, one transaction after the other, and nobody sees
 * a number before the one below it is there to be seen.
 *
 * It also answers the question that a connection which broke during COMMIT leaves behind. Each
 * transaction writes a mark of its own as it commits. Who has the lock again knows that the session
 * which had it is over; so the mark in the table is the last that counts, and stays it. (The
 * server's own transaction ids cannot be asked: after a crash, one that was given out and not yet
 * written down is given out again.)
 *
 * The lock is of the schema: rows do not say yet which of several servers they belong to, so two
 * must not share them. */
#include "store/postgres.h"

enum {
	LOCK_CLASS = 0x61746f6c, /* "atol" */
	FIRST_WAIT_MS = 5000,    /* what ended a moment ago may not have been noticed yet */
	AGAIN_WAIT_MS = 2000,
	PAUSE_US = 100000,
};

#define LOCK_CLASS_TEXT "1635020652"
#define LOCK_OBJECT "hashtext(current_schema())"

struct holder {
	int64_t pid; /* 0: nobody */
	char name[PG_NAME_SIZE];
};

/* 1: it is ours. */
static int try_lock(struct pg_link *link, struct err *e)
{
	CLEANUP(pg_clear) PGresult *res = NULL;
	int r = pg_link_simple(link,
		"SELECT pg_try_advisory_lock(" LOCK_CLASS_TEXT ", " LOCK_OBJECT ")", PG_ANSWER_MS,
		&res, e);

	static_assert(LOCK_CLASS == 1635020652, "the text says the same");
	if (r < 0)
		return r;
	if (PQgetisnull(res, 0, 0))
		return err_set(e, -EINVAL,
			"the database has no schema for this user: its search_path names none "
			"that exists");
	return PQgetvalue(res, 0, 0)[0] == 't';
}

static int find_holder(struct pg_link *link, struct holder *ret, struct err *e)
{
	CLEANUP(pg_clear) PGresult *res = NULL;
	int r = pg_link_simple(link,
		"SELECT l.pid, COALESCE(a.application_name, '') FROM pg_locks l "
		"LEFT JOIN pg_stat_activity a ON a.pid = l.pid "
		"WHERE l.locktype = 'advisory' AND l.granted AND l.classid = " LOCK_CLASS_TEXT
		" AND l.objid::bigint = (" LOCK_OBJECT "::bigint & 4294967295) AND l.database = "
		"(SELECT oid FROM pg_database WHERE datname = current_database())",
		PG_ANSWER_MS, &res, e);

	*ret = (struct holder){ 0 };
	if (r < 0 || PQntuples(res) == 0)
		return r;
	ret->pid = pg_number(res, 0, 0);
	(void)snprintf(ret->name, sizeof ret->name, "%s", PQgetvalue(res, 0, 1));
	return 0;
}

/* A session of a name that nobody else has is one of ours that the server has not seen the end of.
 */
static int end_own(struct pg_link *link, const struct holder *holder, struct err *e)
{
	char sql[64];

	if (!holder->pid || !link->is_own_name || strcmp(holder->name, link->name) != 0)
		return 0;
	(void)snprintf(sql, sizeof sql, "SELECT pg_terminate_backend(%" PRId64 ")", holder->pid);
	return pg_link_simple(link, sql, PG_ANSWER_MS, NULL, e);
}

static int is_taken(const struct holder *holder, bool is_first, struct err *e)
{
	return err_set(e, is_first ? -EBUSY : -EAGAIN,
		"another program (%s) %s this database: stop it, or give this one its own",
		holder->name[0] ? holder->name : "unnamed", is_first ? "uses" : "has taken over");
}

int pg_lock_take(struct pg_link *link, bool is_first, struct err *e)
{
	int64_t until_ms = time_now_ms() + (is_first ? FIRST_WAIT_MS : AGAIN_WAIT_MS);
	struct holder holder = { 0 };
	int r;

	while ((r = try_lock(link, e)) == 0) {
		r = find_holder(link, &holder, e);
		if (r >= 0)
			r = end_own(link, &holder, e);
		if (r >= 0 && time_now_ms() > until_ms)
			r = is_taken(&holder, is_first, e);
		if (r < 0)
			break;
		(void)usleep(PAUSE_US);
	}
	return MIN(r, 0);
}

int pg_mark_read(struct pg_link *link, int64_t *ret, struct err *e)
{
	CLEANUP(pg_clear) PGresult *res = NULL;
	int r = pg_link_simple(link,
		"CREATE TABLE IF NOT EXISTS store_session (id BIGINT PRIMARY KEY, mark BIGINT NOT "
		"NULL); "
		"INSERT INTO store_session (id, mark) VALUES (1, 0) ON CONFLICT (id) DO NOTHING; "
		"SELECT mark FROM store_session WHERE id = 1",
		PG_ANSWER_MS, &res, e);

	if (r >= 0)
		*ret = pg_number(res, 0, 0);
	return r;
}
