/* `atoll db`: a database without its server. The data directory's lock keeps a server away from
 * SQLite meanwhile; PostgreSQL has a lock of its own (see src/store/postgres-lock.c). */
#include "server/config.h"
#include "server/server.h"

#include <sys/file.h>
#include <sys/stat.h>

enum {
	PASSWORD_SIZE = 1024
};

struct place { /* one database */
	char url[4200];
	char password[PASSWORD_SIZE];
	int lock_fd;
	struct loop *loop;
	struct store *store;
};

static void place_done(struct place *place)
{
	place->store = store_free(place->store);
	place->loop = loop_free(place->loop);
	close_fdp(&place->lock_fd);
	explicit_bzero(place->password, sizeof place->password);
	explicit_bzero(place->url, sizeof place->url);
}

/* ---- where it is ---- */

static int read_config(const struct server_db_request *request, struct config *ret, struct err *e)
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

/* A server's files belong to the server, whoever makes them: SQLite gives what it puts beside a
 * database to the database's owner. */
static int make_file(int state_fd, struct err *e)
{
	cleanup_close int fd = -EBADF;
	struct stat st;

	fd = openat(state_fd, "atoll.db", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || fstat(state_fd, &st) < 0)
		return err_sys(e, -errno, "make the database");
	if (geteuid() == 0 && fchown(fd, st.st_uid, st.st_gid) < 0)
		return err_sys(e, -errno, "give the database to the server's user");
	return 0;
}

/* Its directory is the server's, and this runs as root: whoever got hold of a server must not
 * choose what root opens next. */
static int check_file(int state_fd, bool to_change, struct err *e)
{
	struct stat st;

	if (fstatat(state_fd, "atoll.db", &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno == ENOENT && to_change)
			return make_file(state_fd, e);
		return err_set(e, -ENOENT, "there is no database in it");
	}
	return S_ISREG(st.st_mode) ? 0 : err_set(e, -EBADMSG, "its database is not a plain file");
}

static int use_data(const char *data, bool to_change, struct place *place, struct err *e)
{
	cleanup_close int data_fd = open(data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_close int state_fd = -EBADF;

	if (data_fd < 0)
		return err_sys(e, -errno, "open it");
	state_fd = openat(data_fd, "state", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	place->lock_fd = openat(data_fd, "lock", O_RDWR | O_CLOEXEC);
	if (state_fd < 0 || place->lock_fd < 0)
		return errno == ENOENT
			       ? err_set(e, -ENOENT,
					 "no server has ever run on it: is it the right one?")
			       : err_sys(e, -errno, "open its state");
	if (flock(place->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return err_set(e, -EBUSY, "a server runs on it: stop that one first");
	if (snprintf(place->url, sizeof place->url, "sqlite:%s/state/atoll.db", data) >=
		(int)sizeof place->url)
		return err_set(e, -ENAMETOOLONG, "its path is too long");
	return check_file(state_fd, to_change, e);
}

static int open_place(const struct config *config, bool to_change, struct place *place,
	struct err *e)
{
	struct store_config store = { .url = place->url, .name = "atoll db" };
	int r = 0;

	if (config->database)
		(void)snprintf(place->url, sizeof place->url, "%s", config->database);
	else
		r = use_data(config->data, to_change, place, e);
	if (r < 0)
		return err_wrap(e, r, "data directory %s", config->data);
	if (config->database_password_file) {
		r = config_read_password(config->database_password_file, place->password,
			sizeof place->password, e);
		store.password = place->password;
	}
	if (r >= 0)
		r = loop_new(&place->loop, e);
	return r < 0 ? r : store_open_offline(place->loop, &store, to_change, &place->store, e);
}

/* ---- what is done ---- */

static int export(struct store *store, const char *path, struct store_report *ret, struct err *e)
{
	cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return err_sys(e, -errno, "make %s", path);
	r = store_export(store, fd, ret, e);
	if (r < 0)
		(void)unlink(path); /* half of it would be none */
	return r;
}

static int import(struct store *store, const struct server_db_request *request,
	struct store_report *ret, struct err *e)
{
	cleanup_close int fd = open(request->file, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return err_sys(e, -errno, "open %s", request->file);
	return store_import(store, fd, request->replace, ret, e);
}

/* By way of a file that has no name. */
static int copy(struct store *from, const struct config *config,
	const struct server_db_request *request, struct store_report *ret, struct err *e)
{
	CLEANUP(place_done) struct place to = { .lock_fd = -EBADF };
	cleanup_close int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	struct config target = *config;
	int r;

	if (fd < 0)
		return err_sys(e, -errno, "make a file in /tmp");
	if (config_has_password(str_of(request->to)))
		return err_set(e, -EINVAL,
			"--to: a password here is seen by every user of the host: use "
			"--database-password-file");
	target.database = request->to;
	r = store_export(from, fd, ret, e);
	if (r >= 0)
		r = open_place(&target, true, &to, e);
	if (r >= 0 && lseek(fd, 0, SEEK_SET) < 0)
		r = err_sys(e, -errno, "read it again");
	return r < 0 ? r : store_import(to.store, fd, request->replace, ret, e);
}

static int run(const struct server_db_request *request, const struct config *config,
	struct store_report *ret, struct err *e)
{
	bool to_change = request->what == SERVER_DB_IMPORT || request->what == SERVER_DB_MIGRATE;
	CLEANUP(place_done) struct place place = { .lock_fd = -EBADF };
	int r = open_place(config, to_change, &place, e);

	if (r < 0)
		return r;
	switch (request->what) {
	case SERVER_DB_CHECK:
		return store_check(place.store, ret, e);
	case SERVER_DB_COPY:
		return copy(place.store, config, request, ret, e);
	case SERVER_DB_EXPORT:
		return export(place.store, request->file, ret, e);
	case SERVER_DB_IMPORT:
		return import(place.store, request, ret, e);
	case SERVER_DB_MIGRATE:
		return store_upgrade(place.store, ret, e);
	}
	return -EINVAL;
}

int server_db(const struct server_db_request *request, struct store_report *ret, struct err *e)
{
	struct config config;
	int r = read_config(request, &config, e);

	if (r < 0)
		return r;
	r = run(request, &config, ret, e);
	config_done(&config);
	return MIN(r, 0);
}
