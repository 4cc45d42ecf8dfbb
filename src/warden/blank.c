#include "warden/blank.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>

enum {
	MIB = 1 << 20,
	MAX_BLANKS = 32,
	SEED_VERSION = 2, /* part of a blank's name: raise it when what mkfs is told changes */
	NAME_BYTES = 80,
	DEADLINE_MS = 60000, /* it takes tens of milliseconds, unless the disk below hangs */
};

#define HALF_MADE ".blank"
#define SEED ".seed"

static const char hosts_text[] = "127.0.0.1\tlocalhost\n"
				 "127.0.1.1\tatoll\n"
				 "::1\tlocalhost ip6-localhost ip6-loopback\n";

/* ---- what is in it ---- */

static int write_new(int dir_fd, const char *name, struct str text, struct err *e)
{
	return file_replace(dir_fd, name, text, 0644, e);
}

static int fill_layer(const struct disk *disk, int dir_fd, struct err *e)
{
	cleanup_close int etc = -EBADF;
	int r = dir_make(dir_fd, "upper", 0755, e);

	if (r >= 0)
		r = dir_make(dir_fd, "work", 0755, e);
	if (r >= 0)
		r = dir_make(dir_fd, "upper/etc", 0755, e);
	if (r < 0)
		return r;
	etc = openat(dir_fd, "upper/etc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (etc < 0)
		return err_sys(e, -errno, "open upper/etc");
	r = write_new(etc, "hosts", str_of(hosts_text), e);
	if (r >= 0)
		r = write_new(etc, "hostname", STR("atoll\n"), e);
	if (r >= 0)
		r = write_new(etc, "resolv.conf", str_of(disk->resolv_conf), e);
	return r;
}

int layer_make(const struct disk *disk, const char *name, struct err *e)
{
	cleanup_close int fd = -EBADF;
	int r = dir_remove_tree(disk->dir_fd, name, e);

	if (r >= 0)
		r = dir_make(disk->dir_fd, name, 0755, e);
	if (r < 0)
		return r;
	fd = openat(disk->dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? err_sys(e, -errno, "open %s", name) : fill_layer(disk, fd, e);
}

/* ---- its name ---- */

/* What a blank was made from, so that a changed resolv.conf makes a new one. */
static uint32_t seed_hash(const struct disk *disk)
{
	uint8_t digest[SHA256_SIZE];
	char text[sizeof disk->resolv_conf + sizeof hosts_text + 32];
	uint32_t hash;
	int n = snprintf(text, sizeof text, "%d\n%s\n%s", SEED_VERSION, hosts_text,
		disk->resolv_conf);

	sha256(text, (size_t)n, digest);
	memcpy(&hash, digest, sizeof hash);
	return hash;
}

static uint64_t mib_of(struct disk_size size)
{
	return (size.bytes + MIB - 1) / MIB;
}

static void name_of(const struct disk *disk, struct disk_size size, char ret[NAME_BYTES])
{
	(void)snprintf(ret, NAME_BYTES,
		DISK_BLANK_PREFIX "%" PRIu64 "-%" PRIu64 "-%08x" DISK_IMAGE_SUFFIX, mib_of(size),
		size.inodes, seed_hash(disk));
}

bool blank_exists(const struct disk *disk, struct disk_size size)
{
	char name[NAME_BYTES];

	name_of(disk, size, name);
	return faccessat(disk->dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int blank_open(const struct disk *disk, struct disk_size size, struct err *e)
{
	char name[NAME_BYTES];
	int fd;

	name_of(disk, size, name);
	fd = openat(disk->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, -errno, "open %s", name);
	/* The time says when it was last used; the usual one stays anyway. */
	if (!disk_size_eq(size, disk->usual_size))
		(void)futimens(fd, NULL);
	return fd;
}

/* ---- making it ---- */

static int begin_make(const struct disk *disk, struct disk_size size, struct run *ret,
	struct err *e)
{
	uint64_t mib = mib_of(size);
	char inodes[24];
	/* A small journal: without one, ext4 becomes slow after mass deletes. All tables together
	 * at the front, not written ahead, and no backups of what nobody will ever repair: a blank
	 * of 10 GiB is 140 KiB in four pieces, which is what every sandbox pays for. */
	static const char extended[] = "lazy_itable_init=1,lazy_journal_init=1,nodiscard,"
				       "packed_meta_blocks=1,num_backup_sb=0,root_owner=0:0";
	const char *const argv[] = { "mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-J",
		"size=4", "-G", "4096", "-O", "sparse_super2,^resize_inode", "-E", extended, "-d",
		SEED, size.inodes ? "-N" : HALF_MADE, size.inodes ? inodes : NULL, HALF_MADE,
		NULL };
	cleanup_close int fd = -EBADF;
	int r = layer_make(disk, SEED, e);

	if (r < 0)
		return r;
	(void)snprintf(inodes, sizeof inodes, "%" PRIu64, size.inodes);
	(void)unlinkat(disk->dir_fd, HALF_MADE, 0);
	fd = openat(disk->dir_fd, HALF_MADE, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)(mib * MIB)) < 0)
		return err_sys(e, -errno, "make a blank image of %" PRIu64 " MiB", mib);
	return run_start(argv, STR_NONE, disk->dir_fd, ret, e);
}

static int end_make(const struct disk *disk, struct disk_size size, struct run *run, struct err *e)
{
	char name[NAME_BYTES];
	int r = run_end(run, e);

	(void)dir_remove_tree(disk->dir_fd, SEED, NULL);
	if (r < 0)
		return err_wrap(e, r, "blank disk image (needs e2fsprogs)");
	name_of(disk, size, name);
	if (renameat(disk->dir_fd, HALF_MADE, disk->dir_fd, name) < 0)
		return err_sys(e, -errno, "name the blank image");
	return 0;
}

int blank_prepare(const struct disk *disk, struct err *e)
{
	struct run run = RUN_INIT;
	int r;

	if (blank_exists(disk, disk->usual_size))
		return 0;
	r = begin_make(disk, disk->usual_size, &run, e);
	return r < 0 ? r : end_make(disk, disk->usual_size, &run, e);
}

/* ---- those that are there ---- */

static void each_blank(const struct disk *disk, void (*fn)(void *arg, const char *name), void *arg)
{
	int fd = openat(disk->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (str_has_prefix(str_of(entry->d_name), STR(DISK_BLANK_PREFIX)))
			fn(arg, entry->d_name);
	if (dir)
		(void)closedir(dir);
}

struct oldest {
	const struct disk *disk;
	const char *usual;
	int n;
	struct timespec at;
	char name[NAME_MAX + 1];
};

static void find_oldest(void *arg, const char *name)
{
	struct oldest *o = arg;
	struct stat st;

	if (strcmp(name, o->usual) == 0 ||
		fstatat(o->disk->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	if (o->n++ == 0 || st.st_mtim.tv_sec < o->at.tv_sec ||
		(st.st_mtim.tv_sec == o->at.tv_sec && st.st_mtim.tv_nsec < o->at.tv_nsec)) {
		o->at = st.st_mtim;
		(void)snprintf(o->name, sizeof o->name, "%s", name);
	}
}

static void trim(const struct disk *disk)
{
	char usual[NAME_BYTES];
	struct oldest o = { .disk = disk, .usual = usual };

	name_of(disk, disk->usual_size, usual);
	each_blank(disk, find_oldest, &o);
	if (o.n > MAX_BLANKS)
		(void)unlinkat(disk->dir_fd, o.name, 0);
}

struct outdated {
	const struct disk *disk;
	char suffix[32];
};

static void remove_outdated(void *arg, const char *name)
{
	const struct outdated *o = arg;
	size_t n = strlen(name), suffix = strlen(o->suffix);

	if (n < suffix || strcmp(name + n - suffix, o->suffix) != 0)
		(void)unlinkat(o->disk->dir_fd, name, 0);
}

void blank_tidy(const struct disk *disk)
{
	struct outdated o = { .disk = disk };

	(void)snprintf(o.suffix, sizeof o.suffix, "-%08x" DISK_IMAGE_SUFFIX, seed_hash(disk));
	each_blank(disk, remove_outdated, &o);
	(void)unlinkat(disk->dir_fd, HALF_MADE, 0);
	(void)dir_remove_tree(disk->dir_fd, SEED, NULL);
}

/* ---- beside the loop ---- */

static struct blank_wait *find_waiting(const struct blanks *b, struct disk_size size)
{
	LIST_EACH(&b->waiting, node)
	{
		struct blank_wait *wait = container_of(node, struct blank_wait, node);

		if (disk_size_eq(wait->size, size))
			return wait;
	}
	return NULL;
}

/* All who wait for this size hear of it at once. Whoever hears of it may make any of the others
 * wait no longer (the server has gone), so each is looked for anew. */
static void answer(struct blanks *b, struct disk_size size, const struct err *e)
{
	struct blank_wait *wait;

	while ((wait = find_waiting(b, size))) {
		list_remove(&wait->node);
		wait->fn(wait->arg, e);
	}
}

static void begin_next(void *arg);

/* Then its end tells, as any other does. */
static void on_deadline(void *arg)
{
	struct blanks *b = arg;

	(void)kill(b->run.pid, SIGKILL);
}

static void on_exited(void *arg, uint32_t events)
{
	struct blanks *b = arg;
	struct err e = { 0 };

	(void)events;
	loop_io_remove(&b->io);
	loop_timer_cancel(&b->deadline);
	if (end_make(b->disk, b->making, &b->run, &e) >= 0)
		trim(b->disk);
	answer(b, b->making, &e);
	loop_defer(b->loop, &b->next, begin_next, b);
}

static int begin_one(struct blanks *b, struct err *e)
{
	int r = begin_make(b->disk, b->making, &b->run, e);

	if (r >= 0)
		r = loop_io_add(b->loop, &b->io, b->run.pid_fd, EPOLLIN, on_exited, b, e);
	if (r < 0)
		run_abandon(&b->run);
	else
		loop_timer_set(&b->deadline, loop_now_ms(b->loop) + DEADLINE_MS);
	return r;
}

static void begin_next(void *arg)
{
	struct blanks *b = arg;

	while (b->run.pid_fd < 0 && !list_empty(&b->waiting)) {
		struct err e = { 0 };

		b->making = container_of(b->waiting.next, struct blank_wait, node)->size;
		if (!blank_exists(b->disk, b->making) && begin_one(b, &e) >= 0)
			return;
		answer(b, b->making, &e);
	}
}

void blanks_ask(struct blanks *b, struct blank_wait *wait, struct disk_size size, blank_fn fn,
	void *arg)
{
	*wait = (struct blank_wait){ .size = size, .fn = fn, .arg = arg };
	list_append(&b->waiting, &wait->node);
	loop_defer(b->loop, &b->next, begin_next, b);
}

void blanks_forget(struct blank_wait *wait)
{
	if (wait->node.next)
		list_remove(&wait->node);
}

void blanks_open(struct blanks *b, struct loop *loop, const struct disk *disk)
{
	*b = (struct blanks){ .loop = loop, .disk = disk, .run = RUN_INIT };
	list_init(&b->waiting);
	loop_timer_init(&b->deadline, loop, on_deadline, b);
}

void blanks_close(struct blanks *b)
{
	if (!b->loop)
		return;
	loop_io_remove(&b->io);
	loop_timer_cancel(&b->deadline);
	loop_task_cancel(&b->next);
	run_abandon(&b->run);
}
