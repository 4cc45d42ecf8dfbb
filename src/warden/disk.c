#include "warden/disk.h"
#include "warden/loopdev.h"
#include "warden/run.h"

#include <dirent.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>

enum {
	MIB = 1 << 20,
	SEED_VERSION = 2, /* part of a blank's name: raise it when what mkfs is told changes */
};

#define IMAGE_SUFFIX ".ext4"
#define DIR_SUFFIX ".dir"
#define BLANK_PREFIX "blank-"

static const char hosts_text[] = "127.0.0.1\tlocalhost\n"
				 "127.0.1.1\tatoll\n"
				 "::1\tlocalhost ip6-localhost ip6-loopback\n";

static int write_new(int dir_fd, const char *name, struct str text, struct err *e)
{
	return file_replace(dir_fd, name, text, 0644, e);
}

/* upper/ and work/ as every sandbox begins with them. */
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

static int make_layer(const struct disk *disk, const char *name, int *ret_fd, struct err *e)
{
	cleanup_close int fd = -EBADF;
	int r = dir_remove_tree(disk->dir_fd, name, e);

	if (r >= 0)
		r = dir_make(disk->dir_fd, name, 0755, e);
	if (r < 0)
		return r;
	fd = openat(disk->dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, -errno, "open %s", name);
	r = fill_layer(disk, fd, e);
	if (r >= 0 && ret_fd)
		*ret_fd = TAKE_FD(fd);
	return r;
}

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

static int make_blank(const struct disk *disk, const char *name, uint64_t mib, struct err *e)
{
	/* A small journal: without one, ext4 becomes slow after mass deletes. All tables together
	 * at the front, not written ahead, and no backups of what nobody will ever repair: a blank
	 * of 10 GiB is 140 KiB in four pieces, which is what every sandbox pays for. */
	static const char extended[] = "lazy_itable_init=1,lazy_journal_init=1,nodiscard,"
				       "packed_meta_blocks=1,num_backup_sb=0,root_owner=0:0";
	static const char *const argv[] = { "mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-J",
		"size=4", "-G", "4096", "-O", "sparse_super2,^resize_inode", "-E", extended, "-d",
		".seed", ".blank", NULL };
	cleanup_close int fd = -EBADF;
	int r = make_layer(disk, ".seed", NULL, e);

	if (r < 0)
		return r;
	(void)unlinkat(disk->dir_fd, ".blank", 0);
	fd = openat(disk->dir_fd, ".blank", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)(mib * MIB)) < 0)
		return err_sys(e, -errno, "make a blank image of %" PRIu64 " MiB", mib);
	r = run_program(argv, STR_NONE, disk->dir_fd, e);
	(void)dir_remove_tree(disk->dir_fd, ".seed", NULL);
	if (r < 0)
		return err_wrap(e, r, "blank disk image (needs e2fsprogs)");
	if (renameat(disk->dir_fd, ".blank", disk->dir_fd, name) < 0)
		return err_sys(e, -errno, "name the blank image");
	return 0;
}

static int open_blank(const struct disk *disk, uint64_t bytes, struct err *e)
{
	uint64_t mib = (bytes + MIB - 1) / MIB;
	char name[64];
	int fd, r;

	(void)snprintf(name, sizeof name, BLANK_PREFIX "%" PRIu64 "-%08x" IMAGE_SUFFIX, mib,
		seed_hash(disk));
	fd = openat(disk->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	r = make_blank(disk, name, mib, e);
	if (r < 0)
		return r;
	fd = openat(disk->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? err_sys(e, -errno, "open %s", name) : fd;
}

static int copy_range(int from, int to, off_t at, off_t end)
{
	while (at < end) {
		off_t in = at, out = at;
		ssize_t n = copy_file_range(from, &in, to, &out, (size_t)(end - at), 0);

		if (n < 0)
			return -errno;
		if (n == 0)
			return -EIO;
		at += n;
	}
	return 0;
}

/* By reference where the file system can, else only what is not a hole. */
static int copy_sparse(int from, int to, struct err *e)
{
	struct stat st;
	off_t at = 0;

	if (ioctl(to, FICLONE, from) == 0)
		return 0;
	if (fstat(from, &st) < 0 || ftruncate(to, st.st_size) < 0)
		return err_sys(e, -errno, "size the image");
	for (;;) {
		off_t end;
		int r;

		at = lseek(from, at, SEEK_DATA);
		if (at < 0)
			return errno == ENXIO ? 0 : err_sys(e, -errno, "read the blank image");
		end = lseek(from, at, SEEK_HOLE);
		if (end < 0)
			return err_sys(e, -errno, "read the blank image");
		r = copy_range(from, to, at, end);
		if (r < 0)
			return err_sys(e, r, "copy the blank image");
		at = end;
	}
}

static bool uses_images(const struct disk *disk)
{
	return disk->control_fd >= 0;
}

static void name_image(const char *key, bool file, struct image *ret)
{
	*ret = (struct image)IMAGE_INIT;
	(void)snprintf(ret->name, sizeof ret->name, "%s%s", key, file ? IMAGE_SUFFIX : DIR_SUFFIX);
}

void disk_find(const struct disk *disk, const char *key, struct image *ret)
{
	name_image(key, false, ret);
	if (faccessat(disk->dir_fd, ret->name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		name_image(key, true, ret);
}

int disk_copy(struct disk *disk, const char *key, uint64_t bytes, struct image *ret, struct err *e)
{
	cleanup_close int from = -EBADF, to = -EBADF;

	name_image(key, uses_images(disk), ret);
	if (!uses_images(disk))
		return make_layer(disk, ret->name, NULL, e);
	from = open_blank(disk, bytes, e);
	if (from < 0)
		return from;
	to = openat(disk->dir_fd, ret->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (to < 0)
		return err_sys(e, -errno, "create %s", ret->name);
	return copy_sparse(from, to, e);
}

static int mount_ext4(int loop, int *ret, struct err *e)
{
	/* The layer is volatile anyway: a flush inside the sandbox need not reach the disk. */
	static const char *const flags[] = { "noinit_itable", "nobarrier" };
	cleanup_close int fs = fsopen("ext4", FSOPEN_CLOEXEC);
	char path[32];
	int fd;

	(void)snprintf(path, sizeof path, "/dev/loop%d", loop);
	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "source", path, 0) < 0)
		return err_sys(e, -errno, "open %s as ext4", path);
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
		(void)fsconfig(fs, FSCONFIG_SET_FLAG, flags[i], NULL, 0);
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return err_sys(e, -errno, "mount %s", path);
	fd = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME);
	if (fd < 0)
		return err_sys(e, -errno, "mount %s", path);
	*ret = fd;
	return 0;
}

int disk_prepare(struct disk *disk, uint64_t bytes, struct err *e)
{
	cleanup_close int fd = uses_images(disk) ? open_blank(disk, bytes, e) : -EBADF;

	return uses_images(disk) && fd < 0 ? fd : 0;
}

int disk_attach(struct disk *disk, struct image *image, struct err *e)
{
	cleanup_close int file = -EBADF;

	if (!uses_images(disk))
		return 0;
	file = openat(disk->dir_fd, image->name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (file < 0)
		return err_sys(e, -errno, "open %s", image->name);
	return loopdev_attach(disk->control_fd, file, image->name, &disk->no_direct_io,
		&image->device_fd, &image->loop, e);
}

int disk_mount(struct disk *disk, struct image *image, struct err *e)
{
	int r;

	if (uses_images(disk)) {
		r = mount_ext4(image->loop, &image->mount_fd, e);
		/* The device clears itself with its last user: the mount, from now on. */
		close_fdp(&image->device_fd);
		image->device_fd = -EBADF;
		return r;
	}
	r = open_tree(disk->dir_fd, image->name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (r < 0)
		return err_sys(e, -errno, "clone %s", image->name);
	image->mount_fd = r;
	return 0;
}

void disk_let_go(struct image *image)
{
	close_fdp(&image->device_fd);
	close_fdp(&image->mount_fd);
	image->device_fd = image->mount_fd = -EBADF;
}

static bool ends_in(struct str s, struct str suffix, struct str *ret_stem)
{
	if (s.n <= suffix.n || !str_eq(str_from(s, s.n - suffix.n), suffix))
		return false;
	*ret_stem = (struct str){ s.p, s.n - suffix.n };
	return true;
}

static bool is_dir(const struct image *image)
{
	struct str stem;

	return ends_in(str_of(image->name), STR(DIR_SUFFIX), &stem);
}

void disk_unlink(const struct disk *disk, const struct image *image)
{
	if (image->name[0] && !is_dir(image))
		(void)unlinkat(disk->dir_fd, image->name, 0);
}

int disk_remove(const struct disk *disk, struct image *image)
{
	disk_let_go(image);
	if (!image->name[0])
		return 0;
	if (is_dir(image))
		return dir_remove_tree(disk->dir_fd, image->name, NULL) < 0 ? -EBUSY : 0;
	disk_unlink(disk, image);
	return image->loop >= 0 && loopdev_is_attached(image->loop, image->name) ? -EBUSY : 0;
}

void disk_each(const struct disk *disk, void (*fn)(void *arg, const char *key), void *arg)
{
	int fd = openat(disk->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		struct str name = str_of(entry->d_name), stem;
		char key[64];

		if (str_has_prefix(name, STR(BLANK_PREFIX)) ||
			(!ends_in(name, STR(IMAGE_SUFFIX), &stem) &&
				!ends_in(name, STR(DIR_SUFFIX), &stem)))
			continue;
		if (snprintf(key, sizeof key, "%.*s", STR_ARG(stem)) < (int)sizeof key)
			fn(arg, key);
	}
	if (dir)
		(void)closedir(dir);
}

/* Blanks made for another resolv.conf, or by another version. */
static void remove_old_blanks(const struct disk *disk)
{
	int fd = openat(disk->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	char current[32];

	(void)snprintf(current, sizeof current, "-%08x" IMAGE_SUFFIX, seed_hash(disk));
	while (dir && (entry = readdir(dir))) {
		struct str name = str_of(entry->d_name), stem;

		if (str_has_prefix(name, STR(BLANK_PREFIX)) &&
			!ends_in(name, str_of(current), &stem))
			(void)unlinkat(disk->dir_fd, entry->d_name, 0);
	}
	if (dir)
		(void)closedir(dir);
}

void disk_set_resolvers(struct disk *disk, const struct resolvers *resolvers)
{
	(void)snprintf(disk->resolv_conf, sizeof disk->resolv_conf, "%s", resolvers->text);
	remove_old_blanks(disk);
}

int disk_open(struct disk *disk, int take_dir_fd, bool plain, const struct resolvers *resolvers,
	struct err *e)
{
	disk->dir_fd = take_dir_fd;
	disk->control_fd = plain ? -EBADF : loopdev_open();
	disk_set_resolvers(disk, resolvers);
	if (uses_images(disk) && !run_finds("mkfs.ext4"))
		return err_set(e, -ENOENT, "this host has no mkfs.ext4: install e2fsprogs");
	return 0;
}

void disk_close(struct disk *disk)
{
	close_fdp(&disk->dir_fd);
	close_fdp(&disk->control_fd);
	*disk = (struct disk)DISK_INIT;
}
