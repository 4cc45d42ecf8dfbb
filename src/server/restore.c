/* `atoll restore`: a backup into a data directory of its own, in which nothing may be but a seed.
 * All of it comes to its place, or nothing is left. */
#include "server/archive.h"
#include "server/backup.h"
#include "server/db.h"
#include "server/prepare.h"

#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>

#define STAGE ".restore"

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

bool backup_is_empty(int dir_fd, const char *but)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	bool is_empty = dir;

	while (dir && (entry = readdir(dir)))
		is_empty &= strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
			    (but && strcmp(entry->d_name, but) == 0);
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
	int data_fd, stage_fd;
	bool has_seed, made_seed, is_begun;
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

static int unpack(struct restore *s, struct err *e)
{
	static const char *const reading[] = { "tar", "--create", "--sparse", "--xattrs",
		"--xattrs-include=*", "--acls", "--numeric-owner", "--warning=none",
		"--warning=file-shrank", "--quoting-style=escape", "--file=-" };
	CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_BYTES);
	struct archive_words extract = { .arena = arena }, create = { .arena = arena };
	const char *path = s->request->path;
	const int pass[] = { s->stage_fd };
	struct archive_run run = { .extract = &extract,
		.pass = pass,
		.n_pass = 1,
		.fn = s->request->fn,
		.arg = s->request->arg,
		.lost = &s->lost };
	struct stat st;

	if (stat(path, &st) < 0)
		return err_sys(e, -errno, "open %s", path);
	archive_add_unpack(&extract, s->stage_fd);
	if (S_ISDIR(st.st_mode)) {
		for (size_t i = 0; i < ARRAY_SIZE(reading); i++)
			archive_add(&create, "%s", reading[i]);
		archive_add(&create, "--directory=%s", path);
		for (size_t i = 0; i < BACKUP_PARTS; i++)
			if (is_in(path, backup_parts[i]))
				archive_add(&create, "%s", backup_parts[i]);
		archive_add(&extract, "--file=-");
		run.create = &create;
	} else {
		cleanup_free char *real = realpath(path, NULL);

		archive_add(&extract, "--file=%s", real ? real : path);
	}
	return archive_run(&run, e);
}

static int read_about(struct restore *s, char ret_check[BACKUP_CHECK_SIZE], struct err *e)
{
	CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_BYTES);
	CLEANUP(buf_done) struct buf text = BUF_INIT(ABOUT_BYTES);
	struct backup_about about;
	int r = file_read(s->stage_fd, BACKUP_ABOUT, &text, NULL);

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

static int use_seed(struct restore *s, const char *wanted, struct err *e)
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
	else if (path)
		r = file_create(s->data_fd, "seed", str_make(seed, sizeof seed), 0600, e);
	s->made_seed = path && r >= 0;
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
		.replace = q->replace };
	int r;

	(void)snprintf(path, sizeof path, "%s/" STAGE "/" BACKUP_ROWS, s->config.data);
	r = server_db(&rows, report, e);
	s->report.rows = report->rows;
	s->report.version = report->version;
	return r;
}

/* ---- the whole ---- */

static int open_data(struct restore *s, struct err *e)
{
	const char *data = s->config.data;
	int r = dir_make(AT_FDCWD, data, 0711, e);

	s->data_fd = r < 0 ? -EBADF : open(data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->data_fd < 0)
		return r < 0 ? r : err_sys(e, -errno, "open %s", data);
	if (!backup_is_empty(s->data_fd, "seed"))
		return err_set(e, -ENOTEMPTY,
			"data directory %s is not empty: restore into one of its own (--data)",
			data);
	s->has_seed = faccessat(s->data_fd, "seed", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	if (s->has_seed && s->request->seed)
		return err_set(e, -EEXIST,
			"data directory %s has a seed: leave out --seed, or "
			"remove it",
			data);
	if (!s->has_seed && !s->request->seed && !s->request->new_seed)
		return err_set(e, -ENOKEY,
			"a backup does not hold the seed, which opens what is sealed: --seed FILE "
			"(DATA/seed of its server); with --new-seed its secrets and tokens are "
			"lost");
	s->is_begun = true;
	r = prepare_empty(s->data_fd, e);
	if (r >= 0 && mkdirat(s->data_fd, STAGE, 0700) < 0)
		r = err_sys(e, -errno, "make " STAGE);
	if (r < 0)
		return r;
	s->stage_fd = openat(s->data_fd, STAGE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return s->stage_fd < 0 ? err_sys(e, -errno, "open " STAGE) : 0;
}

static int restore(struct restore *s, struct err *e)
{
	char check[BACKUP_CHECK_SIZE] = "";
	int r = open_data(s, e);

	if (r >= 0)
		r = unpack(s, e);
	if (r >= 0)
		r = read_about(s, check, e);
	if (r >= 0)
		r = use_seed(s, check, e);
	if (r >= 0)
		r = place_all(s, e);
	if (r >= 0)
		r = read_rows(s, e);
	if (r >= 0)
		r = dir_remove_tree(s->data_fd, STAGE, e);
	if (r >= 0 && syncfs(s->data_fd) < 0)
		r = err_sys(e, -errno, "write %s to the disk", s->config.data);
	return r;
}

static void undo(const struct restore *s)
{
	static const char *const made[] = { STAGE, "state", "volumes", "images", "run", "templates",
		"version", "lock", "seed" };
	size_t n = ARRAY_SIZE(made) - !s->made_seed;

	for (size_t i = 0; s->is_begun && i < n; i++)
		(void)dir_remove_tree(s->data_fd, made[i], NULL);
}

int server_restore(const struct server_backup_request *request, struct server_backup_report *ret,
	struct err *e)
{
	struct restore s = { .request = request, .data_fd = -EBADF, .stage_fd = -EBADF };
	int r = geteuid() == 0 ? 0
			       : err_set(e, -EPERM, "to restore needs root, as the server does");

	if (r >= 0)
		r = backup_read_config(request, &s.config, e);
	if (r < 0)
		return r;
	r = restore(&s, e);
	s.report.lost = s.lost.n;
	(void)snprintf(s.report.first_lost, sizeof s.report.first_lost, "%s", s.lost.first);
	if (r < 0)
		undo(&s);
	else
		*ret = s.report;
	close_fdp(&s.stage_fd);
	close_fdp(&s.data_fd);
	config_done(&s.config);
	return MIN(r, 0);
}
