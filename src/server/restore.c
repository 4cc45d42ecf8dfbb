/* `atoll restore`: a backup into a data directory of its own, in which nothing may be but a seed.
 * All of it comes to its place, or nothing is left. We have the directory's lock until then, and no
 * server starts on one in which .restore lies, so that nobody works with half of it, even where we
 * are killed. The rows are read last: in PostgreSQL they may be in the place of others, and nothing
 * after them can fail that would have to be undone. */
#include "server/archive.h"
#include "server/backup.h"
#include "server/db.h"
#include "server/interrupt.h"
#include "server/prepare.h"

#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>

#define STAGE PREPARE_HALF

enum {
	ARENA_BYTES = 1 << 20,
	ABOUT_BYTES = 4096,
};

const char *const backup_parts[BACKUP_PARTS] = { BACKUP_ABOUT, BACKUP_ROWS, "saved", "volumes",
	"artifacts" };

int backup_read_config(const struct server_backup_request *request, struct config *ret,
	struct err *e)
{
	const struct server_db_request words = { .data = request->data,
		.config = request->config,
		.database = request->database,
		.password_file = request->password_file };

	return db_read_config(&words, ret, e);
}

static bool is_among(const char *name, const char *const *names)
{
	while (*names && strcmp(*names, name) != 0)
		names++;
	return *names;
}

bool backup_is_empty(int dir_fd, const char *const *but)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	bool is_empty = dir;

	while (dir && (entry = readdir(dir)))
		is_empty &= strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
			    is_among(entry->d_name, but);
	if (dir)
		(void)closedir(dir);
	return is_empty;
}

int backup_read_seed(int dir_fd, const char *path, uint8_t ret[SHA256_SIZE], struct err *e)
{
	CLEANUP(buf_done) struct buf bytes = BUF_INIT(SHA256_SIZE);
	int r = file_read(dir_fd, path, &bytes, e);

	if (r < 0 && r != -ENOBUFS)
		return r;
	if (r < 0 || bytes.n != SHA256_SIZE)
		return err_set(e, -EBADMSG, "it is none: a seed has %d bytes", SHA256_SIZE);
	memcpy(ret, bytes.p, SHA256_SIZE);
	explicit_bzero(bytes.p, bytes.n);
	return 0;
}

void backup_check_of(const uint8_t seed[SHA256_SIZE], char ret[BACKUP_CHECK_SIZE])
{
	uint8_t digest[SHA256_SIZE];

	hmac_sha256(seed, STR("atoll backup"), digest);
	hex_encode(digest, (BACKUP_CHECK_SIZE - 1) / 2, ret);
}

/* ---- what it is ---- */

static const struct json_field about_fields[] = {
	JSON_FIELD(struct backup_about, kind, "atoll", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct backup_about, format, "format", JSON_INT, .flags = JSON_REQUIRED,
		.min = 1, .max = INT32_MAX),
	JSON_FIELD(struct backup_about, rows, "rows", JSON_INT, .min = 0, .max = INT64_MAX),
	JSON_FIELD(struct backup_about, seed, "seed", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct backup_about, program, "program", JSON_STR),
	JSON_FIELD(struct backup_about, made, "made", JSON_STR),
};
static const struct json_shape about_shape =
	JSON_SHAPE(struct backup_about, about_fields, .ignore_unknown = true);

int backup_parse_about(struct arena *arena, struct str text, struct backup_about *ret,
	struct err *e)
{
	struct backup_about about = { 0 };
	struct err why = { 0 };

	if (json_decode(arena, text, &about_shape, &about, &why) < 0)
		return err_set(e, -EBADMSG, BACKUP_ABOUT ": %s: is this a backup?", why.msg);
	if (!str_is(about.kind, "backup"))
		return err_set(e, -EBADMSG, "it is no backup: see 'atoll backup'");
	if (about.format.value > BACKUP_FORMAT)
		return err_set(e, -ENOTSUP,
			"it was made by a newer version (%.*s): restore it with that one",
			STR_ARG(about.program));
	*ret = about;
	return 0;
}

struct restore {
	const struct server_backup_request *request;
	struct config config;
	int data_fd, lock_fd, stage_fd;
	bool has_seed, made_seed, is_begun;
	bool is_imported; /* from here on nothing is undone */
	mode_t kind;      /* of what we read */
	struct said_lost lost;
	struct server_backup_report report;
};

/* ---- unpacking ---- */

static bool is_in(const char *dir, const char *name)
{
	char path[4096 + NAME_MAX];

	return snprintf(path, sizeof path, "%s/%s", dir, name) < (int)sizeof path &&
	       faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int extract(struct restore *s, struct archive_words *words,
	const struct archive_words *create, struct err *e)
{
	const int pass[] = { s->stage_fd };
	const struct archive_run run = { .create = create,
		.extract = words,
		.pass = pass,
		.n_pass = 1,
		.fn = s->request->fn,
		.arg = s->request->arg,
		.lost = &s->lost };

	return archive_run(&run, e);
}

static void add_file(const struct restore *s, struct archive_words *words)
{
	cleanup_free char *real = realpath(s->request->path, NULL);

	archive_add_unpack(words, s->stage_fd);
	archive_add(words, "--file=%s", real ? real : s->request->path);
}

static int unpack_dir(struct restore *s, struct err *e)
{
	static const char *const reading[] = { "tar", "--create", "--sparse", "--xattrs",
		"--xattrs-include=*", "--acls", "--numeric-owner", "--warning=none",
		"--warning=file-shrank", "--quoting-style=escape", "--file=-" };
	CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_BYTES);
	struct archive_words words = { .arena = arena }, create = { .arena = arena };
	const char *path = s->request->path;

	for (size_t i = 0; i < ARRAY_SIZE(reading); i++)
		archive_add(&create, "%s", reading[i]);
	archive_add(&create, "--directory=%s", path);
	for (size_t i = 0; i < BACKUP_PARTS; i++)
		if (is_in(path, backup_parts[i]))
			archive_add(&create, "%s", backup_parts[i]);
	archive_add_unpack(&words, s->stage_fd);
	archive_add(&words, "--file=-");
	return extract(s, &words, &create, e);
}

static int unpack(struct restore *s, struct err *e)
{
	CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_BYTES);
	struct archive_words words = { .arena = arena };

	if (S_ISDIR(s->kind))
		return unpack_dir(s, e);
	add_file(s, &words);
	return extract(s, &words, NULL, e);
}

/* What it says of itself, before all of it is unpacked; a pipe is read once. */
static int unpack_about(struct restore *s, struct err *e)
{
	CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_BYTES);
	struct archive_words words = { .arena = arena };

	add_file(s, &words);
	archive_add(&words, "--occurrence=1");
	archive_add(&words, "%s", BACKUP_ABOUT);
	return extract(s, &words, NULL, e);
}

static int read_about(int dir_fd, char ret_check[BACKUP_CHECK_SIZE], struct err *e)
{
	CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_BYTES);
	CLEANUP(buf_done) struct buf text = BUF_INIT(ABOUT_BYTES);
	struct backup_about about;
	int r = file_read(dir_fd, BACKUP_ABOUT, &text, NULL);

	if (r == -ENOENT)
		return err_set(e, -EBADMSG,
			"there is no " BACKUP_ABOUT " in it: is this a backup?");
	if (r < 0)
		return err_sys(e, r, "read " BACKUP_ABOUT);
	r = backup_parse_about(arena, buf_str(&text), &about, e);
	if (r >= 0)
		(void)snprintf(ret_check, BACKUP_CHECK_SIZE, "%.*s", STR_ARG(about.seed));
	return r;
}

/* ---- the seed ---- */

static int use_seed(struct restore *s, const char *wanted, bool keeps, struct err *e)
{
	const char *path = s->request->seed;
	char check[BACKUP_CHECK_SIZE];
	uint8_t seed[SHA256_SIZE];
	int r;

	if (!path && !s->has_seed)
		return 0;
	r = backup_read_seed(path ? AT_FDCWD : s->data_fd, path ? path : "seed", seed, e);
	if (r < 0)
		return err_wrap(e, r, "%s", path ? path : "seed");
	backup_check_of(seed, check);
	if (strcmp(check, wanted) != 0)
		r = err_set(e, -EKEYREJECTED,
			"%s is the seed of another server: what this backup has sealed would not "
			"open",
			path ? path : "the seed in the data directory");
	else if (path && keeps)
		r = file_create(s->data_fd, "seed", str_make(seed, sizeof seed), 0600, e);
	s->made_seed = path && keeps && r >= 0;
	explicit_bzero(seed, sizeof seed);
	return r;
}

/* ---- places ---- */

/* One that the backup does not have is none. */
static int place(const struct restore *s, const char *name, const char *to, struct err *e)
{
	struct stat st;

	if (fstatat(s->stage_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_sys(e, -errno, "look at %s", name);
	if (!S_ISDIR(st.st_mode))
		return err_set(e, -EBADMSG, "%s in it is no directory", name);
	(void)unlinkat(s->data_fd, to, AT_REMOVEDIR); /* the empty one that was made */
	return renameat(s->stage_fd, name, s->data_fd, to) < 0
		       ? err_sys(e, -errno, "move %s to its place", name)
		       : 0;
}

static int place_all(const struct restore *s, struct err *e)
{
	int r = place(s, "saved", "images/saved", e);

	if (r >= 0)
		r = place(s, "volumes", "volumes", e);
	if (r >= 0)
		r = place(s, "artifacts", "state/artifacts", e);
	return r;
}

static int read_rows(struct restore *s, struct err *e)
{
	const struct server_backup_request *q = s->request;
	cleanup_free struct store_report *report = XNEW(struct store_report);
	char path[4200];
	const struct server_db_request rows = { .what = SERVER_DB_IMPORT,
		.data = q->data,
		.config = q->config,
		.database = q->database,
		.password_file = q->password_file,
		.file = path,
		.replace = q->replace,
		.is_locked = true };
	int r;

	(void)snprintf(path, sizeof path, "%s/" STAGE "/" BACKUP_ROWS, s->config.data);
	r = server_db(&rows, report, e);
	s->report.rows = report->rows;
	s->report.version = report->version;
	return r;
}

/* ---- the whole ---- */

static int check_seeds(struct restore *s, struct err *e)
{
	s->has_seed = faccessat(s->data_fd, "seed", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	if (s->has_seed && s->request->seed)
		return err_set(e, -EEXIST,
			"data directory %s has a seed: leave out --seed, or "
			"remove it",
			s->config.data);
	if (!s->has_seed && !s->request->seed && !s->request->new_seed)
		return err_set(e, -ENOKEY,
			"a backup does not hold the seed, which opens what is sealed: --seed FILE "
			"(DATA/seed of its server); with --new-seed its secrets and tokens are "
			"lost");
	return 0;
}

/* Once without the lock, whose file would be one more thing in somebody's directory. */
static int lock_empty(struct restore *s, struct err *e)
{
	static const char *const but[] = { "seed", "lock", "lost+found", NULL };

	for (;;) {
		int r = prepare_check_whole(s->data_fd, e);

		if (s->lock_fd >= 0 && r < 0)
			return err_wrap(e, r, "data directory %s", s->config.data);
		if (r >= 0 && !backup_is_empty(s->data_fd, but))
			return err_set(e, -ENOTEMPTY,
				"data directory %s is not empty: restore into one of its own "
				"(--data)",
				s->config.data);
		if (s->lock_fd >= 0)
			return 0;
		s->lock_fd = prepare_lock(s->data_fd, e);
		if (s->lock_fd < 0)
			return err_wrap(e, s->lock_fd, "data directory %s", s->config.data);
	}
}

static int open_data(struct restore *s, struct err *e)
{
	const char *data = s->config.data;
	int r = dir_make(AT_FDCWD, data, 0711, e);

	s->data_fd = r < 0 ? -EBADF : open(data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->data_fd < 0)
		return r < 0 ? r : err_sys(e, -errno, "open %s", data);
	r = lock_empty(s, e);
	if (r < 0)
		return r;
	s->is_begun = true;
	r = check_seeds(s, e);
	if (r >= 0 && mkdirat(s->data_fd, STAGE, 0700) < 0)
		r = err_sys(e, -errno, "make " STAGE);
	if (r >= 0)
		r = prepare_empty(s->data_fd, e);
	if (r < 0)
		return r;
	s->stage_fd = openat(s->data_fd, STAGE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return s->stage_fd < 0 ? err_sys(e, -errno, "open " STAGE) : 0;
}

/* What would be refused in the end is refused now. */
static int check_early(struct restore *s, struct err *e)
{
	cleanup_close int dir = -EBADF;
	char check[BACKUP_CHECK_SIZE] = "";
	struct stat st;
	int r = 0;

	if (stat(s->request->path, &st) < 0)
		return err_sys(e, -errno, "open %s", s->request->path);
	s->kind = st.st_mode;
	if (S_ISDIR(s->kind))
		dir = open(s->request->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	else if (S_ISREG(s->kind))
		r = unpack_about(s, e);
	else
		return 0;
	if (r >= 0)
		r = read_about(S_ISDIR(s->kind) ? dir : s->stage_fd, check, e);
	return r < 0 ? r : use_seed(s, check, false, e);
}

static int unpack_all(struct restore *s, struct err *e)
{
	char check[BACKUP_CHECK_SIZE] = "";
	int r = check_early(s, e);

	if (r >= 0)
		r = unpack(s, e);
	if (r >= 0)
		r = read_about(s->stage_fd, check, e);
	if (r >= 0)
		r = use_seed(s, check, true, e);
	if (r >= 0)
		r = place_all(s, e);
	if (r >= 0)
		r = prepare_version(s->data_fd, e);
	if (r >= 0 && syncfs(s->data_fd) < 0)
		r = err_sys(e, -errno, "write %s to the disk", s->config.data);
	if (r >= 0 && interrupt_came())
		r = err_set(e, -EINTR, "it was ended by a signal");
	return r;
}

/* All is there. */
static int finish(struct restore *s, struct err *e)
{
	int r = dir_remove_tree(s->data_fd, STAGE, e);

	if (r >= 0 && syncfs(s->data_fd) < 0)
		r = err_sys(e, -errno, "write it to the disk");
	return r < 0 ? err_wrap(e, r,
			       "data directory %s: all is restored, and the rows are in the "
			       "database, but before it can be used remove " STAGE " in it",
			       s->config.data)
		     : 0;
}

static int restore(struct restore *s, struct err *e)
{
	int r = open_data(s, e);

	if (r >= 0)
		r = unpack_all(s, e);
	if (r >= 0)
		r = read_rows(s, e);
	s->is_imported = r >= 0;
	return r < 0 ? r : finish(s, e);
}

/* It is ours as long as we have the lock, which goes last. */
static void undo(const struct restore *s)
{
	static const char *const made[] = { "state", "volumes", "images", "run", "templates",
		"version", STAGE };

	if (!s->is_begun || s->is_imported)
		return;
	if (s->made_seed)
		(void)unlinkat(s->data_fd, "seed", 0);
	for (size_t i = 0; i < ARRAY_SIZE(made); i++)
		(void)dir_remove_tree(s->data_fd, made[i], NULL);
	(void)unlinkat(s->data_fd, "lock", 0);
}

int server_restore(const struct server_backup_request *request, struct server_backup_report *ret,
	struct err *e)
{
	struct restore s = { .request = request,
		.data_fd = -EBADF,
		.lock_fd = -EBADF,
		.stage_fd = -EBADF };
	struct interrupt held;
	int r = geteuid() == 0 ? 0
			       : err_set(e, -EPERM, "to restore needs root, as the server does");

	if (r >= 0)
		r = backup_read_config(request, &s.config, e);
	if (r < 0)
		return r;
	interrupt_hold(&held);
	r = restore(&s, e);
	s.report.lost = s.lost.n;
	(void)snprintf(s.report.first_lost, sizeof s.report.first_lost, "%s", s.lost.first);
	if (r < 0)
		undo(&s);
	else
		*ret = s.report;
	close_fdp(&s.stage_fd);
	close_fdp(&s.data_fd);
	close_fdp(&s.lock_fd);
	interrupt_release(&held);
	config_done(&s.config);
	return MIN(r, 0);
}
