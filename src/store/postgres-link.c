/* The connection: made with a deadline, waited on with a deadline. Of libpq's blocking calls only
 * the one that connects is used, since it alone can give up one host or address and take the next;
 * the others would be held for ever by a server that has stopped answering. */
#include "store/postgres.h"

#include <poll.h>

enum {
	MAX_KEYS = 64
};

/* ---- what libpq is told ---- */

static void set_key(struct pg_link *link, const char *key, const char *value)
{
	size_t at = 0;

	while (link->keys[at] && strcmp(link->keys[at], key) != 0)
		at++;
	assert(at < MAX_KEYS);
	if (link->keys[at])
		return; /* the URL's own word holds */
	link->keys[at] = xstrdup(key);
	link->values[at] = xstrdup(value);
}

static void set_url_keys(struct pg_link *link, const PQconninfoOption *options)
{
	for (; options->keyword; options++)
		if (options->val)
			set_key(link, options->keyword, options->val);
}

int pg_link_init(struct pg_link *link, const struct store_config *config, enum store_mode mode,
	struct err *e)
{
	static const char *const defaults[][2] = { { "connect_timeout", "5" }, /* of each address */
		{ "target_session_attrs", "primary" },                         /* of several */
		{ "gssencmode", "disable" }, /* looks for tickets that a server does not have */
		{ "keepalives_idle", "30" }, { "keepalives_interval", "10" },
		{ "keepalives_count", "3" }, { "tcp_user_timeout", "30000" } };
	char *problem = NULL;
	PQconninfoOption *options = PQconninfoParse(config->url, &problem);

	PQfreemem(problem); /* it may quote the URL, and with it the password */
	if (!options)
		return err_set(e, -EINVAL,
			"the database's URL cannot be read: use "
			"postgresql://USER@HOST:PORT/NAME, and %%XX for other characters");
	link->keys = XNEW_N(char *, MAX_KEYS + 1);
	link->values = XNEW_N(char *, MAX_KEYS + 1);
	link->mode = mode;
	link->is_own_name = config->is_own_name;
	(void)snprintf(link->name, sizeof link->name, "%s%s", config->name ? config->name : "atoll",
		mode == STORE_READS ? " reads" : "");
	set_key(link, "client_encoding", "UTF8"); /* whatever the URL says */
	set_url_keys(link, options);
	PQconninfoFree(options);
	if (config->password)
		set_key(link, "password", config->password);
	set_key(link, "application_name", link->name);
	for (size_t i = 0; i < ARRAY_SIZE(defaults); i++)
		set_key(link, defaults[i][0], defaults[i][1]);
	return 0;
}

void pg_link_done(struct pg_link *link)
{
	pg_link_close(link);
	for (size_t i = 0; link->keys && link->keys[i]; i++) {
		explicit_bzero(link->values[i], strlen(link->values[i]));
		free(link->values[i]);
		free(link->keys[i]);
	}
	free(link->keys);
	free(link->values);
	link->keys = link->values = NULL;
}

/* ---- failures ---- */

/* One line of it, and nothing of libpq's advice. */
static struct str first_line(const char *text)
{
	struct str rest = str_of(text), line = STR_NONE;

	(void)str_split(&rest, '\n', &line);
	return line;
}

static int code_of(const char *state)
{
	static const struct {
		const char *state;
		int code;
	} table[] = {
		{ "40001", PG_AGAIN }, /* serialization failure */
		{ "40P01", PG_AGAIN }, /* deadlock */
		{ "57P01", PG_LOST },  /* the server is told to stop */
		{ "57P02", PG_LOST },
		{ "57P03", PG_LOST },
		{ "57014", -ETIMEDOUT }, /* the statement took too long */
		{ "55P03", -EAGAIN },    /* somebody has it locked */
		{ "53100", -ENOSPC },
		{ "53200", -ENOMEM },
		{ "53300", -EAGAIN }, /* too many connections */
		{ "25006", -EROFS },
		{ "42501", -EACCES },
		{ "XX001", -EBADMSG },
		{ "XX002", -EBADMSG },
		{ "08", PG_LOST },
		{ "22", -EINVAL },
		{ "23", -EEXIST }, /* SQLite tells one broken constraint from another no better */
		{ "28", -EACCES },
		{ "53", -EAGAIN },
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (strncmp(state, table[i].state, strlen(table[i].state)) == 0)
			return table[i].code;
	return -EIO;
}

int pg_fail(const PGresult *res, struct err *e)
{
	const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);
	const char *text = PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY);

	return err_set(e, code_of(state ? state : "08"), "database: %.*s",
		STR_ARG(first_line(text ? text : PQresultErrorMessage(res))));
}

int pg_link_lost(struct pg_link *link, struct err *e)
{
	struct str why = link->c ? first_line(PQerrorMessage(link->c)) : STR_NONE;

	(void)err_set(e, PG_LOST, "database: %.*s",
		STR_ARG(why.n ? why : STR("the connection was lost")));
	pg_link_close(link);
	return PG_LOST;
}

/* ---- opening ---- */

static void hear_nothing(void *arg, const PGresult *res)
{
	(void)arg;
	(void)res;
}

void pg_link_close(struct pg_link *link)
{
	PQfinish(link->c);
	link->c = NULL;
}

/* 0: something came, or may be written. */
static int wait_for(const struct pg_link *link, short events, int64_t until_ms)
{
	struct pollfd p = { .fd = PQsocket(link->c), .events = events };
	int64_t left_ms = until_ms - time_now_ms();
	int n;

	if (p.fd < 0)
		return PG_LOST;
	do
		n = left_ms > 0 ? poll(&p, 1, (int)MIN(left_ms, INT32_MAX)) : 0;
	while (n < 0 && errno == EINTR);
	return n > 0 ? 0 : PG_LOST;
}

/* What only a person can put right. The server's words are all there is to tell it by; where they
 * are not English, it merely takes longer until somebody reads them. */
static bool is_refused(const char *text)
{
	static const char *const signs[] = { "password authentication failed", "no password",
		"pg_hba.conf", "authentication failed", "does not exist",
		"is not permitted to log in", "certificate", "does not support SSL", "unsupported",
		"invalid" };

	for (size_t i = 0; i < ARRAY_SIZE(signs); i++)
		if (strstr(text, signs[i]) && !strstr(text, "No such file"))
			return true;
	return false;
}

static int not_connected(struct pg_link *link, struct err *e)
{
	const char *text = link->c ? PQerrorMessage(link->c) : "";
	int code = !link->was_open && is_refused(text) ? -EACCES : -EAGAIN;

	(void)err_set(e, code, "database: %.*s",
		STR_ARG(text[0] ? first_line(text) : STR("it does not answer")));
	pg_link_close(link);
	return code;
}

static int check_server(struct pg_link *link, struct err *e)
{
	const char *encoding = PQparameterStatus(link->c, "server_encoding");
	int version = PQserverVersion(link->c);

	if (version < 150000)
		return err_set(e, -ENOTSUP,
			"the database is PostgreSQL %d: version 15 or later is needed",
			version / 10000);
	if (!encoding || strcmp(encoding, "UTF8") != 0)
		return err_set(e, -ENOTSUP,
			"the database's encoding is %s: make one with ENCODING 'UTF8'",
			encoding ? encoding : "unknown");
	return 0;
}

static int set_up(struct pg_link *link, struct err *e)
{
	char sql[512];

	(void)snprintf(sql, sizeof sql,
		"SET statement_timeout = %d; SET lock_timeout = 10000; "
		"SET idle_in_transaction_session_timeout = 60000; "
		"SET client_min_messages = warning; "
		"SET default_transaction_isolation = '%s'; SET default_transaction_read_only = %s",
		PG_STATEMENT_MS, link->mode == STORE_READS ? "repeatable read" : "read committed",
		link->mode == STORE_READS ? "on" : "off");
	return pg_link_simple(link, sql, PG_OPEN_MS, NULL, e);
}

int pg_link_open(struct pg_link *link, struct err *e)
{
	int r;

	if (link->c)
		return 0;
	link->c = PQconnectdbParams((const char *const *)link->keys,
		(const char *const *)link->values, 0);
	if (PQstatus(link->c) != CONNECTION_OK)
		return not_connected(link, e);
	(void)PQsetNoticeReceiver(link->c, hear_nothing, NULL);
	(void)PQsetnonblocking(link->c, 1);
	link->generation++;
	r = check_server(link, e);
	if (r >= 0)
		r = set_up(link, e);
	if (r >= 0)
		return 0;
	pg_link_close(link);
	return r == PG_LOST || r == PG_AGAIN ? err_wrap(e, -EAGAIN, "log in") : r;
}

/* ---- asking ---- */

static int flush(struct pg_link *link, int64_t until_ms)
{
	int left;

	while ((left = PQflush(link->c)) > 0) {
		if (wait_for(link, POLLIN | POLLOUT, until_ms) < 0 || !PQconsumeInput(link->c))
			return PG_LOST;
	}
	return left < 0 ? PG_LOST : 0;
}

/* TLS takes whole records, up to 16 KiB, and an older libpq of them what it has room for. Of the
 * rest poll() knows nothing, so it is looked for first. */
static int take_input(struct pg_link *link, int64_t until_ms)
{
	int r;

	if (PQsslInUse(link->c)) {
		if (!PQconsumeInput(link->c))
			return PG_LOST;
		if (!PQisBusy(link->c))
			return 0;
	}
	r = wait_for(link, POLLIN, until_ms);
	return r >= 0 && !PQconsumeInput(link->c) ? PG_LOST : r;
}

/* Nobody asks for one; libpq would say so again and again. */
static bool is_copy(const PGresult *res)
{
	ExecStatusType status = PQresultStatus(res);

	return status == PGRES_COPY_IN || status == PGRES_COPY_OUT || status == PGRES_COPY_BOTH;
}

int pg_link_next(struct pg_link *link, int64_t wait_ms, PGresult **ret, struct err *e)
{
	CLEANUP(pg_clear) PGresult *res = NULL;
	int64_t until_ms = time_now_ms() + wait_ms;
	int r = wait_ms < 0 ? PG_LOST : flush(link, until_ms);

	while (r >= 0 && PQisBusy(link->c))
		r = take_input(link, until_ms);
	if (r >= 0)
		res = PQgetResult(link->c);
	if (r < 0 || is_copy(res))
		return pg_link_lost(link, e);
	*ret = TAKE(res);
	return 0;
}

int pg_link_answer(struct pg_link *link, int64_t wait_ms, PGresult **ret, struct err *e)
{
	CLEANUP(pg_clear) PGresult *last = NULL;
	int64_t until_ms = time_now_ms() + wait_ms;
	PGresult *next = NULL;
	int r;

	while ((r = pg_link_next(link, until_ms - time_now_ms(), &next, e)) >= 0 && next) {
		PQclear(last);
		last = next;
	}
	if (r < 0)
		return r;
	if (!last || PQstatus(link->c) == CONNECTION_BAD)
		return pg_link_lost(link, e);
	if (PQresultStatus(last) != PGRES_COMMAND_OK && PQresultStatus(last) != PGRES_TUPLES_OK) {
		r = pg_fail(last, e);
		if (r == PG_LOST)
			pg_link_close(link);
		return r;
	}
	if (ret)
		*ret = TAKE(last);
	return 0;
}

int pg_link_simple(struct pg_link *link, const char *sql, int64_t wait_ms, PGresult **ret,
	struct err *e)
{
	if (!link->c || !PQsendQuery(link->c, sql))
		return pg_link_lost(link, e);
	return pg_link_answer(link, wait_ms, ret, e);
}

/* ---- rows ---- */

int64_t pg_number(const PGresult *res, int row, int column)
{
	int64_t n = 0;

	(void)str_to_int(str_of(PQgetvalue(res, row, column)), INT64_MIN, INT64_MAX, &n);
	return n;
}
