/* `atoll db`: a database without its server. The data directory's lock keeps a server away from
 * SQLite meanwhile; PostgreSQL has a lock of its own (see src/store/postgres-lock.c).
 *
 * SQLite believes what lies beside a database, down to the names of files to remove that a journal
 * holds, and that directory is the server's. So root never opens one itself: a process that has
 * become its owner does (become.h), with files that were opened before. */
#include "server/become.h"
#include "server/config.h"
#include "server/db.h"
#include "server/prepare.h"
#include "server/server.h"

#include <libgen.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>

enum {
	PASSWORD_SIZE = 1024
};

struct place { /* where a database is */
	char url[4200];
	char password[PASSWORD_SIZE];
	int lock_fd;
	int dir_fd;              /* of SQLite's file; -EBADF: it is no file */
	char name[NAME_MAX + 1]; /* of that file */
	const char *data;        /* the data directory that it is in; NULL: a URL was given */
	bool is_shared;          /* with the server that runs there */
	bool is_locked;          /* by who asks */
};

#define PLACE_INIT                                  \
	{                                           \
		.lock_fd = -EBADF, .dir_fd = -EBADF \
	}

static void place_done(struct place *place)
{
	close_fdp(&place->lock_fd);
	close_fdp(&place->dir_fd);
	explicit_bzero(place->password, sizeof place->password);
	explicit_bzero(place->url, sizeof place->url);
}

/* ---- where it is ---- */

int db_read_config(const struct server_db_request *request, struct config *ret, struct err *e)
{
	const char *const words[][2] = { { "--data", request->data },
		{ "--config", request->config }, { "--database", request->database },
		{ "--database-password-file", request->password_file } };
	const char *argv[2 * ARRAY_SIZE(words) + 2] = { "serve" };
	int argc = 1;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (!words[i][1])
			continue;
		argv[argc++] = words[i][0];
		argv[argc++] = words[i][1];
	}
	return config_read(argc, (char **)(uintptr_t)argv, environ, ret, e);
}

static int use_data(const char *data, struct place *place, struct err *e)
{
	cleanup_close int data_fd = open(data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (data_fd < 0)
		return err_sys(e, -errno, "open it");
	place->dir_fd = openat(data_fd, "state", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	place->lock_fd = openat(data_fd, "lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (place->dir_fd < 0 || place->lock_fd < 0)
		return errno == ENOENT
			       ? err_set(e, -ENOENT,
					 "no server has ever run on it: is it the right one?")
			       : err_sys(e, -errno, "open its state");
	if (!place->is_shared && !place->is_locked && flock(place->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return err_set(e, -EBUSY, "a server runs on it: stop that one first");
	if (!place->is_locked && prepare_check_whole(data_fd, e) < 0)
		return -EUCLEAN;
	(void)snprintf(place->name, sizeof place->name, "atoll.db");
	if (snprintf(place->url, sizeof place->url, "sqlite:%s/state/%s", data, place->name) >=
		(int)sizeof place->url)
		return err_set(e, -ENAMETOOLONG, "its path is too long");
	return 0;
}

/* Links to it are whoever's wrote the URL: SQLite puts its other files beside what they lead to. */
static int use_url(const char *url, struct place *place, struct err *e)
{
	static const struct str scheme = { "sqlite:", 7 };
	cleanup_free char *real = NULL, *dir = NULL, *base = NULL;
	const char *path = url + scheme.n;

	(void)snprintf(place->url, sizeof place->url, "%s", url);
	if (!str_has_prefix(str_of(url), scheme) || strcmp(path, ":memory:") == 0)
		return 0;
	real = realpath(path, NULL);
	dir = xstrdup(real ? real : path);
	base = xstrdup(real ? real : path);
	(void)snprintf(place->name, sizeof place->name, "%s", basename(base));
	place->dir_fd = open(dirname(dir), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return place->dir_fd < 0 ? err_sys(e, -errno, "open the directory of %s", path) : 0;
}

static int find_place(const struct config *config, struct place *place, struct err *e)
{
	int r;

	if (config->database) {
		r = use_url(config->database, place, e);
	} else {
		place->data = config->data;
		r = use_data(config->data, place, e);
		if (r < 0)
			(void)err_wrap(e, r, "data directory %s", config->data);
	}
	if (r >= 0 && config->database_password_file)
		r = config_read_password(config->database_password_file, place->password,
			sizeof place->password, e);
	return r;
}

/* ---- what is done ---- */

struct work { /* on one database */
	const struct place *place;
	enum server_db what;
	int fd; /* of export and import */
	bool replace;
	bool only_version; /* instead of all that */
	const char *url;
};

static bool is_change(enum server_db what)
{
	return what == SERVER_DB_IMPORT || what == SERVER_DB_MIGRATE;
}

/* The report speaks of what is there; SQLite alone would make another. */
static int check_file(const struct work *w, struct err *e)
{
	struct stat st;

	if (w->place->dir_fd < 0)
		return 0;
	if (fstatat(w->place->dir_fd, w->place->name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno != ENOENT)
			return err_sys(e, -errno, "look at the database");
		return is_change(w->what) ? 0 : err_set(e, -ENOENT, "there is no database in it");
	}
	return S_ISREG(st.st_mode) ? 0 : err_set(e, -EBADMSG, "its database is not a plain file");
}

static int do_work(const struct work *w, struct store *store, struct store_report *ret,
	struct err *e)
{
	if (w->only_version)
		return store_look(store, ret, e);
	switch (w->what) {
	case SERVER_DB_CHECK:
		return store_check(store, ret, e);
	case SERVER_DB_EXPORT:
	case SERVER_DB_COPY:
		return store_export(store, w->fd, ret, e);
	case SERVER_DB_IMPORT:
		return store_import(store, w->fd, w->replace, ret, e);
	case SERVER_DB_MIGRATE:
		return store_upgrade(store, ret, e);
	}
	return -EINVAL;
}

static int open_and_work(void *arg, void *ret, struct err *e)
{
	const struct work *w = arg;
	struct store_config config = { .url = w->url,
		.name = "atoll db",
		.password = w->place->password[0] ? w->place->password : NULL };
	struct store *store = NULL;
	struct loop *loop = NULL;
	int r = check_file(w, e);

	(void)umask(077); /* what SQLite makes is its owner's alone */
	if (r >= 0)
		r = loop_new(&loop, e);
	if (r >= 0)
		r = store_open_offline(loop, &config, is_change(w->what), &store, e);
	if (r >= 0)
		r = do_work(w, store, ret, e);
	store = store_free(store);
	loop = loop_free(loop);
	return r;
}

/* It comes from a process that has read what others wrote. */
static int check_report(struct store_report *report, struct err *e)
{
	if (report->n_tables > STORE_MAX_TABLES || report->n_problems > STORE_MAX_PROBLEMS)
		return err_set(e, -EPROTO, "the report about the database makes no sense");
	for (size_t i = 0; i < report->n_tables; i++)
		report->tables[i].name[sizeof report->tables[i].name - 1] = '\0';
	for (size_t i = 0; i < report->n_problems; i++)
		report->problems[i][sizeof report->problems[i] - 1] = '\0';
	return 0;
}

static int run_as_owner(struct work *w, struct store_report *ret, struct err *e)
{
	char url[sizeof "sqlite:" + NAME_MAX];
	int r;

	(void)snprintf(url, sizeof url, "sqlite:%s", w->place->name); /* it is in that directory */
	w->url = url;
	r = become_run(w->place->dir_fd, open_and_work, w, ret, sizeof *ret, e);
	return r < 0 ? r : check_report(ret, e);
}

static int run(struct work *w, struct store_report *ret, struct err *e)
{
	const char *data = w->place->data;
	int r;

	w->url = w->place->url;
	r = w->place->dir_fd >= 0 && geteuid() == 0 ? run_as_owner(w, ret, e)
						    : open_and_work(w, ret, e);
	return r < 0 && data ? err_wrap(e, r, "data directory %s", data) : r;
}

static int export(struct work *w, const char *path, struct store_report *ret, struct err *e)
{
	cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return err_sys(e, -errno, "make %s", path);
	w->fd = fd;
	r = run(w, ret, e);
	if (r < 0)
		(void)unlink(path); /* half of it would be none */
	return r;
}

static int import(struct work *w, const char *path, struct store_report *ret, struct err *e)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return err_sys(e, -errno, "open %s", path);
	w->fd = fd;
	return run(w, ret, e);
}

/* By way of a file that has no name. */
static int copy(struct work *from, const struct config *config,
	const struct server_db_request *request, struct store_report *ret, struct err *e)
{
	CLEANUP(place_done) struct place to = PLACE_INIT;
	cleanup_close int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	struct work into = { .place = &to,
		.what = SERVER_DB_IMPORT,
		.fd = fd,
		.replace = request->replace };
	struct config target = *config;
	int r;

	if (fd < 0)
		return err_sys(e, -errno, "make a file in /tmp");
	if (config_has_password(str_of(request->to)))
		return err_set(e, -EINVAL,
			"--to: a password here is seen by every user of the host: use "
			"--database-password-file");
	target.database = request->to;
	from->fd = fd;
	r = find_place(&target, &to, e);
	if (r >= 0)
		r = run(from, ret, e);
	if (r >= 0 && lseek(fd, 0, SEEK_SET) < 0)
		r = err_sys(e, -errno, "read it again");
	return r < 0 ? r : run(&into, ret, e);
}

static int find_and_run(const struct server_db_request *request, const struct config *config,
	struct store_report *ret, struct err *e)
{
	CLEANUP(place_done) struct place place = PLACE_INIT;
	struct work w = { .place = &place,
		.what = request->what,
		.fd = -EBADF,
		.replace = request->replace };
	int r;

	place.is_shared = request->is_beside;
	place.is_locked = request->is_locked;
	r = find_place(config, &place, e);

	if (r < 0)
		return r;
	switch (request->what) {
	case SERVER_DB_COPY:
		return copy(&w, config, request, ret, e);
	case SERVER_DB_EXPORT:
		return export(&w, request->file, ret, e);
	case SERVER_DB_IMPORT:
		return import(&w, request->file, ret, e);
	case SERVER_DB_CHECK:
	case SERVER_DB_MIGRATE:
		return run(&w, ret, e);
	}
	return -EINVAL;
}

static int look(const struct config *config, struct store_report *ret, struct err *e)
{
	CLEANUP(place_done) struct place place = PLACE_INIT;
	struct work w = { .place = &place,
		.what = SERVER_DB_CHECK,
		.fd = -EBADF,
		.only_version = true };
	int r;

	place.is_shared = true;
	r = find_place(config, &place, e);
	return r < 0 ? r : run(&w, ret, e);
}

int db_check_version(const struct config *config, struct err *e)
{
	struct store_report report = { 0 };
	int r = look(config, &report, e);

	if (r == -ENOENT)
		return 0;
	return r;
}

int server_db(const struct server_db_request *request, struct store_report *ret, struct err *e)
{
	struct config config;
	int r = db_read_config(request, &config, e);

	if (r < 0)
		return r;
	r = find_and_run(request, &config, ret, e);
	config_done(&config);
	return MIN(r, 0);
}
