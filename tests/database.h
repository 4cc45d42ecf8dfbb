/* Where a test keeps its rows: in SQLite, or, when ATOLL_TEST_DATABASE names a PostgreSQL server,
 * in a schema of its own there. So the same tests run on both: tests/with-postgres. */
#pragma once

#include "base/base.h"

#include <libpq-fe.h>

static inline const char *database_server(void)
{
	return getenv("ATOLL_TEST_DATABASE");
}

/* One that is empty; `dir` is the test's own, for SQLite. */
static inline int database_url(const char *dir, char *url, size_t size)
{
	const char *server = database_server();
	char name[16], sql[64];
	PGconn *c;
	int r = 0;

	if (!server)
		return snprintf(url, size, "sqlite:%s/t.db", dir) < (int)size ? 0 : -ENAMETOOLONG;
	name[0] = 't';
	random_id(name + 1, 12);
	(void)snprintf(sql, sizeof sql, "CREATE SCHEMA %s", name);
	c = PQconnectdb(server);
	PQclear(PQexec(c, sql));
	if (PQstatus(c) != CONNECTION_OK)
		r = -ENOTCONN;
	PQfinish(c);
	if (snprintf(url, size, "%s&options=-csearch_path%%3D%s", server, name) >= (int)size)
		r = -ENAMETOOLONG;
	return r;
}
