/* `atoll backup`: all that a data directory knows and keeps, beside the server that has it.
 *
 *   atoll-backup.json   what it is, and of which versions
 *   rows.jsonl          the rows, as `atoll db export` writes them
 *   saved/              images of snapshots and of what is paused to disk
 *   volumes/, artifacts/
 *
 * Images and artifacts never change once they have their names, and a row is written when its file
 * is there. So the files are read first, then all rows at one moment, and then the files that came
 * meanwhile: whatever the rows speak of is there, unless somebody removes it in that moment. Files
 * in volumes change, and of kind too: no volume is read twice, or one and the same name would be a
 * directory and a link in one archive. A volume that is an image stands still while it is read.
 * What is sealed stays sealed, and the seed, which opens it, is no part of the backup. */
#include "server/backup.h"
#include "server/archive.h"
#include "server/config.h"
#include "server/db.h"
#include "server/hold.h"
#include "server/interrupt.h"
#include "server/prepare.h"
#include "server/program.h"
#include "warden/proto.h"

#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define SAVED "saved"
#define VOLUME_IMAGES "volumes/.images" /* of volumes that are no plain directories */
#define PART ".part"

enum {
	IMAGE_PLACES = 2,
	ARENA_BYTES = 1 << 20,
	SLACK_S = 2, /* by which a file may seem older than it is */
	MAX_VOLUMES = 1 << 20,
	/* No file can be made whose path has PATH_MAX bytes, and tar calls itself for each
	 * directory until its stack ends. The first that are too long are still read, and so known.
	 */
	TOO_DEEP = PATH_MAX + 2 * NAME_MAX,
};

struct backup {
	const struct server_backup_request *request;
	struct config config;
	int data_fd, state_fd;
	int image_fds[IMAGE_PLACES];
	bool to_dir;
	char target[4096]; /* the directory, or the file while it is half of one */
	char stage[4096];  /* the directory, or one beside the file */
	struct buf read;   /* which plain volumes were, each UUID_SIZE bytes, sorted */
	struct said_lost lost;
	struct server_backup_report report;
};

/* ---- where images are ---- */

static _Noreturn void become_lender(const char *path, const char *data, int socket_fd)
{
	const char *const argv[] = { "atoll-warden", "--data", data, "--lend-images", NULL };
	sigset_t none;

	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (socket_fd == WARDEN_CONTROL_FD)
		(void)fcntl(socket_fd, F_SETFD, 0);
	else if (dup2(socket_fd, WARDEN_CONTROL_FD) < 0)
		_exit(127);
	(void)execv(path, (char *const *)(uintptr_t)argv);
	_exit(127);
}

/* The warden's program alone knows how images are kept. */
static int borrow_images(struct backup *b, struct err *e)
{
	char path[PROGRAM_PATH_SIZE], byte;
	int pair[2], fds[FD_MAX_PASS], n = 0, status = 0;
	ssize_t got;
	pid_t pid;
	int r = program_find_helper("atoll-warden", path, e);

	if (r < 0)
		return r;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, -errno, "make a socket");
	pid = fork();
	if (pid == 0)
		become_lender(path, b->config.data, pair[1]);
	(void)close(pair[1]);
	got = pid < 0 ? -1 : fd_recv(pair[0], &byte, 1, fds, &n);
	(void)close(pair[0]);
	if (pid > 0)
		(void)waitpid(pid, &status, 0);
	for (int i = 0; i < n; i++)
		if (i < IMAGE_PLACES)
			b->image_fds[i] = fds[i];
		else
			(void)close(fds[i]);
	return got == 1 && n > 0 && status == 0 ? 0
						: err_set(e, -EIO,
							  "atoll-warden could not open the images "
							  "(its own words stand above)");
}

/* ---- files ---- */

static bool has(int dir_fd, const char *name)
{
	return dir_fd >= 0 && faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void add_usual(const struct backup *b, struct archive_words *words, const char *what)
{
	static const char *const usual[] = { "--sparse", "--xattrs", "--xattrs-include=*", "--acls",
		"--numeric-owner", "--force-local", "--warning=none", "--warning=file-shrank",
		"--quoting-style=escape", "--anchored", "--exclude=" SAVED "/.*" };
	char deep[TOO_DEEP + 1];

	memset(deep, '?', TOO_DEEP);
	deep[TOO_DEEP] = '\0';
	archive_add(words, "tar");
	archive_add(words, "%s", what);
	for (size_t i = 0; i < ARRAY_SIZE(usual); i++)
		archive_add(words, "%s", usual[i]);
	archive_add(words, "--exclude=%s*", deep);
	if (b->to_dir) {
		archive_add(words, "--file=-");
	} else {
		archive_add(words, "--verbose");
		archive_add(words, "--file=%s", b->target);
	}
}

static int write_files(struct backup *b, const struct archive_words *create, int extra_fd,
	int stage_fd, struct err *e)
{
	CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_BYTES);
	struct archive_words extract = { .arena = arena };
	const int pass[] = { b->data_fd, b->state_fd, b->image_fds[0], b->image_fds[1], stage_fd,
		extra_fd };
	const struct archive_run run = { .create = create,
		.extract = b->to_dir ? &extract : NULL,
		.pass = pass,
		.n_pass = ARRAY_SIZE(pass),
		.has_names = true,
		.fn = b->request->fn,
		.arg = b->request->arg,
		.lost = &b->lost };

	archive_add_unpack(&extract, stage_fd);
	archive_add(&extract, "--file=-");
	return archive_run(&run, e);
}

static void add_kept(const struct backup *b, struct archive_words *words)
{
	for (int i = 0; i < IMAGE_PLACES; i++)
		if (has(b->image_fds[i], SAVED))
			archive_add_from(words, b->image_fds[i], SAVED);
	if (has(b->state_fd, "artifacts"))
		archive_add_from(words, b->state_fd, "artifacts");
}

/* ---- plain volumes ---- */

static int by_name(const void *a, const void *b)
{
	return memcmp(a, b, UUID_SIZE);
}

static int list_volumes(const struct backup *b, struct buf *ret, struct err *e)
{
	int fd = openat(b->data_fd, "volumes", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!dir)
		return err_sys(e, -errno, "open the volumes");
	while ((entry = readdir(dir)))
		if (str_is_uuid(str_of(entry->d_name)))
			(void)buf_add(ret, entry->d_name, UUID_SIZE);
	(void)closedir(dir);
	if (ret->failed)
		return err_set(e, -E2BIG, "there are more than %d volumes", MAX_VOLUMES);
	if (ret->n)
		qsort(ret->p, ret->n / UUID_SIZE, UUID_SIZE, by_name);
	return 0;
}

static bool was_read(const struct backup *b, const char *name)
{
	return b->read.n && bsearch(name, b->read.p, b->read.n / UUID_SIZE, UUID_SIZE, by_name);
}

/* A file that has the names of all that are there and were not read, as tar takes them; counts. */
static int name_unread(const struct backup *b, const struct buf *there, size_t *ret_n,
	struct err *e)
{
	CLEANUP(buf_done)
	struct buf text = BUF_INIT(MAX_VOLUMES * (UUID_SIZE + sizeof "volumes/"));
	int fd = memfd_create("volumes", MFD_CLOEXEC), r;

	*ret_n = 0;
	for (const char *name = there->p; name && name < there->p + there->n; name += UUID_SIZE) {
		bool is_twice = name > there->p && by_name(name, name - UUID_SIZE) == 0;

		if (is_twice || was_read(b, name))
			continue;
		(void)buf_adds(&text, "volumes/");
		(void)buf_add(&text, name, UUID_SIZE);
		++*ret_n;
	}
	r = fd < 0 ? -errno : text.failed ? -ENOMEM : fd_write_all(fd, text.p, text.n);
	if (r < 0) {
		close_fdp(&fd);
		return err_sys(e, r, "list the volumes");
	}
	return fd;
}

/* What they are in, without what is in there. Not for --append, which takes that as well. */
static void add_volume_places(const struct backup *b, struct archive_words *words)
{
	archive_add(words, "--no-recursion");
	archive_add_from(words, b->data_fd, "volumes");
	if (has(b->data_fd, VOLUME_IMAGES))
		archive_add(words, "%s", VOLUME_IMAGES);
	archive_add(words, "--recursion");
}

/* All that are named in a file. */
static void add_volumes(const struct backup *b, struct archive_words *words, int names_fd)
{
	archive_add(words, "--directory=/proc/self/fd/%d", b->data_fd);
	archive_add(words, "--null");
	archive_add(words, "--files-from=/proc/self/fd/%d", names_fd);
}

static int write_first(struct backup *b, int stage_fd, struct err *e)
{
	CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_BYTES);
	struct archive_words words = { .arena = arena };
	cleanup_close int names_fd = -EBADF;
	size_t n;
	int r = list_volumes(b, &b->read, e);

	if (r < 0)
		return r;
	names_fd = name_unread(&(struct backup){ 0 }, &b->read, &n, e);
	if (names_fd < 0)
		return names_fd;
	add_usual(b, &words, "--create");
	add_kept(b, &words);
	add_volume_places(b, &words);
	add_volumes(b, &words, names_fd);
	return write_files(b, &words, names_fd, stage_fd, e);
}

/* Those that came since, some of which the rows know. */
static int write_new_volumes(struct backup *b, int stage_fd, struct err *e)
{
	CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_BYTES);
	CLEANUP(buf_done) struct buf there = BUF_INIT(MAX_VOLUMES * UUID_SIZE);
	struct archive_words words = { .arena = arena };
	cleanup_close int names_fd = -EBADF;
	size_t n;
	int r = list_volumes(b, &there, e);

	if (r < 0)
		return r;
	names_fd = name_unread(b, &there, &n, e);
	if (names_fd < 0 || n == 0)
		return MIN(names_fd, 0);
	add_usual(b, &words, b->to_dir ? "--create" : "--append");
	add_volumes(b, &words, names_fd);
	return write_files(b, &words, names_fd, stage_fd, e);
}

/* ---- volumes that are images ---- */

/* All who write there wait for as long as it is read, and no longer. */
static int write_volume(struct backup *b, int images_fd, int stage_fd, const char *name,
	struct err *e)
{
	CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_BYTES);
	struct archive_words words = { .arena = arena };
	struct holder holder;
	int r = hold_volume(b->config.data, name, &holder, e), left;

	add_usual(b, &words, b->to_dir ? "--create" : "--append");
	archive_add(&words, "--transform=s,^," VOLUME_IMAGES "/,");
	archive_add_from(&words, images_fd, name);
	if (r >= 0)
		r = write_files(b, &words, images_fd, stage_fd, e);
	left = hold_release(b->config.data, &holder, name, r < 0 ? NULL : e);
	return r < 0 ? r : left;
}

/* The server owns the directory that this one is in, and may have put another in its place: what
 * is not root's own is not read. From here on it is the descriptor that counts. */
static int open_volume_images(const struct backup *b, struct err *e)
{
	cleanup_close int fd =
		openat(b->data_fd, VOLUME_IMAGES, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 && errno == ENOENT)
		return -ENOENT;
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, -errno, "open " VOLUME_IMAGES);
	if (st.st_uid != 0 || st.st_mode & 022)
		return err_set(e, -EPERM, "'" VOLUME_IMAGES "' must belong to root alone");
	return TAKE_FD(fd);
}

static int write_volumes(struct backup *b, int stage_fd, struct err *e)
{
	cleanup_close int images = open_volume_images(b, e);
	DIR *dir;
	struct dirent *entry;
	int fd, r = 0;

	if (images < 0)
		return images == -ENOENT ? 0 : images;
	fd = openat(images, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir)
		return err_sys(e, -errno, "list " VOLUME_IMAGES);
	while (r >= 0 && (entry = readdir(dir))) {
		if (!str_is_uuid(str_of(entry->d_name)))
			continue;
		r = write_volume(b, images, stage_fd, entry->d_name, e);
		if (!has(images, entry->d_name)) /* it was removed meanwhile */
			r = 0;
	}
	(void)closedir(dir);
	return r;
}

/* Images and artifacts that came since; in a directory the rest lies there already. */
static int write_rest(struct backup *b, int stage_fd, int64_t since_s, struct err *e)
{
	CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_BYTES);
	struct archive_words words = { .arena = arena };

	add_usual(b, &words, b->to_dir ? "--create" : "--append");
	archive_add(&words, "--newer=@%" PRId64, since_s);
	add_kept(b, &words);
	if (!b->to_dir) {
		archive_add_from(&words, stage_fd, BACKUP_ABOUT);
		archive_add(&words, "%s", BACKUP_ROWS);
	}
	return write_files(b, &words, -EBADF, stage_fd, e);
}

/* ---- rows, and what it is ---- */

static int write_rows(struct backup *b, struct err *e)
{
	const struct server_backup_request *q = b->request;
	cleanup_free struct store_report *report = XNEW(struct store_report);
	char path[sizeof b->stage + sizeof BACKUP_ROWS];
	const struct server_db_request rows = { .what = SERVER_DB_EXPORT,
		.data = q->data,
		.config = q->config,
		.database = q->database,
		.password_file = q->password_file,
		.file = path,
		.is_beside = true };
	int r;

	(void)snprintf(path, sizeof path, "%s/" BACKUP_ROWS, b->stage);
	r = server_db(&rows, report, e);
	b->report.rows = report->rows;
	b->report.version = report->version;
	return r;
}

static int write_about(const struct backup *b, int stage_fd, struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	char check[BACKUP_CHECK_SIZE], made[RFC3339_SIZE];
	uint8_t seed[SHA256_SIZE];
	struct jsonw w;
	int r = backup_read_seed(b->data_fd, "seed", seed, e);

	if (r < 0)
		return err_wrap(e, r, "data directory %s: seed", b->config.data);
	backup_check_of(seed, check);
	explicit_bzero(seed, sizeof seed);
	time_rfc3339(time_wall_us(), made);
	jsonw_init(&w, &text);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "atoll", "backup");
	jsonw_int(&w, "format", BACKUP_FORMAT);
	jsonw_strz(&w, "program", ATOLL_VERSION);
	jsonw_strz(&w, "made", made);
	jsonw_int(&w, "rows", b->report.rows);
	jsonw_strz(&w, "seed", check);
	jsonw_end_object(&w);
	(void)buf_addc(&text, '\n');
	return file_create(stage_fd, BACKUP_ABOUT, buf_str(&text), 0600, e);
}

/* ---- the whole ---- */

static int open_source(struct backup *b, struct err *e)
{
	b->data_fd = open(b->config.data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	b->state_fd = openat(b->data_fd, "state", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (b->data_fd < 0 || b->state_fd < 0)
		return err_set(e, -ENOENT,
			"data directory %s: no server has ever run on it: is it the right one?",
			b->config.data);
	if (prepare_check_whole(b->data_fd, e) < 0)
		return err_wrap(e, -EUCLEAN, "data directory %s", b->config.data);
	return borrow_images(b, e);
}

static int open_target(struct backup *b, struct err *e)
{
	const char *path = b->request->path;
	size_t n = strlen(path);
	struct stat st;
	int r = stat(path, &st) < 0 ? -errno : 0;

	b->to_dir = (n && path[n - 1] == '/') || (r == 0 && S_ISDIR(st.st_mode));
	if (n + sizeof PART + sizeof ".d" >= sizeof b->target)
		return err_set(e, -ENAMETOOLONG, "%.64s...: too long", path);
	if (b->to_dir) {
		(void)snprintf(b->target, sizeof b->target, "%s", path);
		(void)snprintf(b->stage, sizeof b->stage, "%s", path);
		if (r < 0 && mkdir(path, 0700) < 0)
			return err_sys(e, -errno, "make %s", path);
		return 0;
	}
	if (r == 0)
		return err_set(e, -EEXIST, "%s exists: remove it, or choose another name", path);
	(void)snprintf(b->target, sizeof b->target, "%s" PART, path);
	(void)snprintf(b->stage, sizeof b->stage, "%s" PART ".d", path);
	(void)unlink(b->target); /* of one that was cut short */
	r = dir_remove_tree(AT_FDCWD, b->stage, e);
	if (r >= 0 && mkdir(b->stage, 0700) < 0)
		r = err_sys(e, -errno, "make %s", b->stage);
	if (r >= 0)
		r = file_create(AT_FDCWD, b->target, STR_NONE, 0600, e);
	return r;
}

static int check_empty(int fd, const char *path, struct err *e)
{
	static const char *const but[] = { "lost+found", NULL };

	return backup_is_empty(fd, but)
		       ? 0
		       : err_set(e, -ENOTEMPTY, "%s: is not empty: give another directory", path);
}

static int write_all(struct backup *b, int stage_fd, struct err *e)
{
	int64_t since_s = time_wall_us() / 1000000 - SLACK_S;
	int r = write_first(b, stage_fd, e);

	if (r >= 0)
		r = write_rows(b, e);
	if (r >= 0)
		r = write_volumes(b, stage_fd, e);
	if (r >= 0)
		r = write_new_volumes(b, stage_fd, e);
	if (r >= 0 && !b->to_dir)
		r = write_about(b, stage_fd, e);
	return r < 0 ? r : write_rest(b, stage_fd, since_s, e);
}

/* A directory is a backup when it says so: last, and when all else is on the disk. */
static int finish(struct backup *b, int stage_fd, struct err *e)
{
	cleanup_close int fd = open(b->target, O_RDONLY | O_CLOEXEC);
	struct stat st;
	int r = 0;

	if (b->to_dir && syncfs(stage_fd) < 0)
		return err_sys(e, -errno, "write %s to the disk", b->target);
	if (b->to_dir)
		r = write_about(b, stage_fd, e);
	if (r < 0)
		return r;
	if (fd < 0 || syncfs(fd) < 0 || fstat(fd, &st) < 0)
		return err_sys(e, -errno, "write %s to the disk", b->target);
	if (b->to_dir)
		return 0;
	b->report.bytes = (uint64_t)st.st_size;
	return rename(b->target, b->request->path) < 0
		       ? err_sys(e, -errno, "name %s", b->request->path)
		       : 0;
}

/* Half of a backup is none. */
static void clear(const struct backup *b, bool failed)
{
	if (!b->to_dir) {
		(void)dir_remove_tree(AT_FDCWD, b->stage, NULL);
		(void)unlink(b->target);
	} else if (failed) {
		cleanup_close int fd = open(b->stage, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		for (size_t i = 0; fd >= 0 && i < BACKUP_PARTS; i++)
			(void)dir_remove_tree(fd, backup_parts[i], NULL);
	}
}

static int make(struct backup *b, struct err *e)
{
	cleanup_close int stage_fd = -EBADF;
	int r = open_source(b, e);

	if (r >= 0)
		r = open_target(b, e);
	if (r < 0)
		return r;
	stage_fd = open(b->stage, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = stage_fd < 0 ? err_sys(e, -errno, "open %s", b->stage) : 0;
	if (r >= 0)
		r = check_empty(stage_fd, b->stage, e);
	if (r < 0)
		return r;
	r = write_all(b, stage_fd, e);
	if (r >= 0)
		r = finish(b, stage_fd, e);
	clear(b, r < 0);
	return r;
}

static void backup_done(struct backup *b)
{
	close_fdp(&b->data_fd);
	close_fdp(&b->state_fd);
	for (int i = 0; i < IMAGE_PLACES; i++)
		close_fdp(&b->image_fds[i]);
	buf_done(&b->read);
}

int server_backup(const struct server_backup_request *request, struct server_backup_report *ret,
	struct err *e)
{
	struct interrupt held;
	struct backup b = { .request = request,
		.data_fd = -EBADF,
		.state_fd = -EBADF,
		.image_fds = { -EBADF, -EBADF },
		.read = BUF_INIT(MAX_VOLUMES * UUID_SIZE) };
	int r = geteuid() == 0 ? 0 : err_set(e, -EPERM, "a backup needs root, as the server does");

	if (r >= 0)
		r = backup_read_config(request, &b.config, e);
	if (r < 0)
		return r;
	interrupt_hold(&held);
	r = make(&b, e);
	interrupt_release(&held);
	b.report.lost = b.lost.n;
	(void)snprintf(b.report.first_lost, sizeof b.report.first_lost, "%s", b.lost.first);
	if (r >= 0)
		*ret = b.report;
	backup_done(&b);
	config_done(&b.config);
	return MIN(r, 0);
}
