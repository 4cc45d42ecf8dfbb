#include "warden/blank.h"

#include "warden/run.h"

#include <dirent.h>
#include <sys/stat.h>

enum {
	MIB = 1 << 20,
	SEED_VERSION = 2, /* part of a blank's name: raise it when what mkfs is told changes */
	NAME_BYTES = 80,
};

/* What is not ready yet, with the number of the process that makes it. */
#define HALF_MADE ".blank-"
#define SEED ".seed-"

static const char hosts_text[] = "127.0.0.1\tlocalhost\n"
				 "127.0.1.1\tatoll\n"
				 "::1\tlocalhost ip6-localhost ip6-loopback\n";

/* ---- what is in it ---- */

int layer_fill(const struct disk *disk, int dir_fd, struct err *e)
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
	r = file_create(etc, "hosts", str_of(hosts_text), 0644, e);
	if (r >= 0)
		r = file_create(etc, "hostname", STR("atoll\n"), 0644, e);
	if (r >= 0)
		r = file_create(etc, "resolv.conf", str_of(disk->resolv_conf), 0644, e);
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
	return fd < 0 ? err_sys(e, -errno, "open %s", name) : layer_fill(disk, fd, e);
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

/* ---- making it ---- */

struct half {
	char image[32], seed[32];
};

static struct half half_names(void)
{
	struct half h;

	(void)snprintf(h.image, sizeof h.image, HALF_MADE "%d", (int)getpid());
	(void)snprintf(h.seed, sizeof h.seed, SEED "%d", (int)getpid());
	return h;
}

static int run_mkfs(const struct disk *disk, const struct half *h, struct disk_size size,
	struct err *e)
{
	char inodes[24];
	/* A small journal: without one, ext4 becomes slow after mass deletes. All tables together
	 * at the front, not written ahead, and no backups of what nobody will ever repair: a blank
	 * of 10 GiB is 140 KiB in four pieces, which is what every sandbox pays for. */
	static const char extended[] = "lazy_itable_init=1,lazy_journal_init=1,nodiscard,"
				       "packed_meta_blocks=1,num_backup_sb=0,root_owner=0:0";
	const char *const argv[] = { "mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-J",
		"size=4", "-G", "4096", "-O", "sparse_super2,^resize_inode", "-E", extended, "-d",
		h->seed, size.inodes ? "-N" : h->image, size.inodes ? inodes : NULL, h->image,
		NULL };

	(void)snprintf(inodes, sizeof inodes, "%" PRIu64, size.inodes);
	return run_program(argv, STR_NONE, disk->dir_fd, e);
}

static int make_half(const struct disk *disk, const struct half *h, struct disk_size size,
	struct err *e)
{
	uint64_t mib = mib_of(size);
	cleanup_close int fd = -EBADF;
	int r = layer_make(disk, h->seed, e);

	if (r < 0)
		return r;
	(void)unlinkat(disk->dir_fd, h->image, 0);
	fd = openat(disk->dir_fd, h->image, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)(mib * MIB)) < 0)
		return err_sys(e, -errno, "make a blank image of %" PRIu64 " MiB", mib);
	r = run_mkfs(disk, h, size, e);
	return r < 0 ? err_wrap(e, r, "blank disk image (needs e2fsprogs)") : 0;
}

/* Two processes may make the same size at once: either's will do. */
static int make(const struct disk *disk, struct disk_size size, const char *name, struct err *e)
{
	struct half h = half_names();
	int r = make_half(disk, &h, size, e);

	(void)dir_remove_tree(disk->dir_fd, h.seed, NULL);
	if (r >= 0 && renameat(disk->dir_fd, h.image, disk->dir_fd, name) < 0)
		r = err_sys(e, -errno, "name the blank image");
	if (r < 0)
		(void)unlinkat(disk->dir_fd, h.image, 0);
	return r;
}

/* ---- those that are there ---- */

static void each_named(const struct disk *disk, struct str prefix,
	void (*fn)(void *arg, const char *name), void *arg)
{
	int fd = openat(disk->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (str_has_prefix(str_of(entry->d_name), prefix))
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
	each_named(disk, STR(DISK_BLANK_PREFIX), find_oldest, &o);
	if (o.n > DISK_KNOWN_SIZES)
		(void)unlinkat(disk->dir_fd, o.name, 0);
}

int blank_prepare(const struct disk *disk, struct disk_size size, struct err *e)
{
	char name[NAME_BYTES];
	int r;

	name_of(disk, size, name);
	if (faccessat(disk->dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	r = make(disk, size, name, e);
	if (r >= 0)
		trim(disk);
	return r;
}

int blank_open(const struct disk *disk, struct disk_size size, struct err *e)
{
	char name[NAME_BYTES];
	int fd, r = blank_prepare(disk, size, e);

	if (r < 0)
		return r;
	name_of(disk, size, name);
	fd = openat(disk->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, -errno, "open %s", name);
	/* The time says when it was last used; the usual one stays anyway. */
	if (!disk_size_eq(size, disk->usual_size))
		(void)futimens(fd, NULL);
	return fd;
}

/* ---- tidying up ---- */

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

static void remove_image(void *arg, const char *name)
{
	const struct disk *disk = arg;

	(void)unlinkat(disk->dir_fd, name, 0);
}

static void remove_seed(void *arg, const char *name)
{
	const struct disk *disk = arg;

	(void)dir_remove_tree(disk->dir_fd, name, NULL);
}

void blank_tidy(struct disk *disk)
{
	struct outdated o = { .disk = disk };

	(void)snprintf(o.suffix, sizeof o.suffix, "-%08x" DISK_IMAGE_SUFFIX, seed_hash(disk));
	each_named(disk, STR(DISK_BLANK_PREFIX), remove_outdated, &o);
	each_named(disk, STR(HALF_MADE), remove_image, disk);
	each_named(disk, STR(SEED), remove_seed, disk);
}
