#include "warden/disk.h"
#include "warden/blank.h"
#include "warden/copy.h"
#include "warden/loopdev.h"
#include "warden/pool.h"
#include "warden/run.h"

#include <dirent.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum {
	MIB = 1 << 20,
	RESERVE_MIB = 128, /* a full disk below the pool would end every sandbox in it */
	SHUTDOWN_WITHOUT_FLUSH = 2,
	REMOVE_US = 10000, /* of a turn of the loop, for a directory that somebody has filled */
};

/* The kernel's own name for it is in no header for programs. */
#define EXT4_SHUTDOWN _IOR('X', 125, uint32_t)

#define DIR_SUFFIX ".dir"

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

bool disk_has_images(const struct disk *disk)
{
	return disk->control_fd >= 0;
}

static void name_image(int dir_fd, const char *key, bool file, struct image *ret)
{
	*ret = (struct image)IMAGE_INIT;
	ret->dir_fd = dir_fd;
	(void)snprintf(ret->name, sizeof ret->name, "%s%s", key,
		file ? DISK_IMAGE_SUFFIX : DIR_SUFFIX);
}

static bool has_image(const struct image *image)
{
	return faccessat(image->dir_fd, image->name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void disk_find(const struct disk *disk, const char *key, struct image *ret)
{
	name_image(disk->host_fd, key, false, ret);
	if (has_image(ret))
		return;
	name_image(disk->host_fd, key, true, ret);
	if (!has_image(ret))
		name_image(disk->dir_fd, key, true, ret);
}

int disk_check_room(const struct disk *disk, struct err *e)
{
	const int fds[] = { disk->host_fd, disk->dir_fd };

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		struct statvfs st;
		uint64_t mib;

		if (fstatvfs(fds[i], &st) < 0)
			return err_sys(e, -errno, "look at the data directory's file system");
		mib = (uint64_t)st.f_bavail * st.f_frsize / MIB;
		if (mib < RESERVE_MIB)
			return err_set(e, -ENOSPC,
				"the data directory's file system has only %" PRIu64
				" MiB left, %d are needed",
				mib, RESERVE_MIB);
	}
	return 0;
}

int disk_begin(struct disk *disk, const char *key, struct image *ret, struct err *e)
{
	int r = disk_check_room(disk, e), fd;

	if (r < 0)
		return r;
	name_image(disk->dir_fd, key, true, ret);
	fd = openat(ret->dir_fd, ret->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return fd < 0 ? err_sys(e, -errno, "create %s", ret->name) : fd;
}

int disk_copy(struct disk *disk, const char *key, struct disk_size size, struct image *ret,
	struct err *e)
{
	cleanup_close int from = -EBADF, to = -EBADF;

	if (!disk_has_images(disk)) {
		name_image(disk->dir_fd, key, false, ret);
		return layer_make(disk, ret->name, e);
	}
	from = blank_open(disk, size, e);
	if (from < 0)
		return from;
	to = disk_begin(disk, key, ret, e);
	return to < 0 ? to : copy_image(from, to, e);
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

int disk_prepare(struct disk *disk, struct disk_size size, struct err *e)
{
	disk->usual_size = size;
	return disk_has_images(disk) ? blank_prepare(disk, e) : 0;
}

bool disk_is_prepared(const struct disk *disk, struct disk_size size)
{
	return !disk_has_images(disk) || blank_exists(disk, size);
}

static int open_image(const struct image *image, struct err *e)
{
	int fd = openat(image->dir_fd, image->name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? err_sys(e, -errno, "open %s", image->name) : fd;
}

int disk_attach(struct disk *disk, struct image *image, struct err *e)
{
	cleanup_close int file = -EBADF;
	int r;

	if (!disk_has_images(disk))
		return 0;
	file = open_image(image, e);
	if (file < 0)
		return file;
	r = loopdev_attach(disk->control_fd, file, image->name, &disk->no_direct_io,
		&image->device_fd, &image->loop, e);
	/* What mounting will read is together at the front: in one piece, and meanwhile. */
	if (r >= 0)
		(void)posix_fadvise(image->device_fd, 0, MIB, POSIX_FADV_WILLNEED);
	return r;
}

int disk_mount(struct disk *disk, struct image *image, struct err *e)
{
	int r;

	if (disk_has_images(disk)) {
		r = mount_ext4(image->loop, &image->mount_fd, e);
		/* The device clears itself with its last user: the mount, from now on. */
		close_fdp(&image->device_fd);
		image->device_fd = -EBADF;
		return r;
	}
	r = open_tree(image->dir_fd, image->name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (r < 0)
		return err_sys(e, -errno, "clone %s", image->name);
	image->mount_fd = r;
	return 0;
}

/* Overlay marks a volatile layer, so that it is not trusted after a crash. A copy was made when all
 * of it had been written: it may be. */
int disk_renew(const struct image *image, struct err *e)
{
	cleanup_close int work =
		openat(image->mount_fd, "work", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (work < 0)
		return err_sys(e, -errno, "open work of the layer");
	return dir_remove_tree(work, "work", e);
}

int disk_open_layer(const struct disk *disk, const struct image *image, int *ret_file,
	struct err *e)
{
	cleanup_close int file = -EBADF, device = -EBADF, mount_fd = -EBADF;
	int fd, r;

	if (!disk_has_images(disk) || is_dir(image) || image->loop < 0)
		return err_set(e, -EOPNOTSUPP,
			"the sandbox's disk is a plain directory, since this host had no loop "
			"devices");
	file = open_image(image, e);
	if (file < 0)
		return file;
	device = loopdev_reopen(image->loop, file);
	if (device < 0)
		return err_sys(e, device, "find the device of %s", image->name);
	/* The device is mounted already: this is another mount of the same file system. */
	r = mount_ext4(image->loop, &mount_fd, e);
	if (r < 0)
		return r;
	fd = openat(mount_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, -errno, "open the layer");
	*ret_file = TAKE_FD(file);
	return fd;
}

void disk_abandon(const struct disk *disk, const struct image *image)
{
	cleanup_close int file = -EBADF;
	cleanup_close int layer = disk_open_layer(disk, image, &file, NULL);
	uint32_t flags = SHUTDOWN_WITHOUT_FLUSH;

	if (layer >= 0)
		(void)ioctl(layer, EXT4_SHUTDOWN, &flags);
}

void disk_let_go(struct image *image)
{
	close_fdp(&image->device_fd);
	close_fdp(&image->mount_fd);
	image->device_fd = image->mount_fd = -EBADF;
}

void disk_unlink(const struct image *image)
{
	if (image->name[0] && !is_dir(image))
		(void)unlinkat(image->dir_fd, image->name, 0);
}

int disk_remove(struct image *image)
{
	disk_let_go(image);
	if (!image->name[0])
		return 0;
	if (is_dir(image)) {
		int r = dir_remove_some(image->dir_fd, image->name, time_now_us() + REMOVE_US);

		return r < 0 && r != -EAGAIN ? -EBUSY : r;
	}
	disk_unlink(image);
	return image->loop >= 0 && loopdev_is_attached(image->loop, image->name) ? -EBUSY : 0;
}

static void each_in(int dir_fd, void (*fn)(void *arg, const char *key), void *arg)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		struct str name = str_of(entry->d_name), stem;
		char key[64];

		if (str_has_prefix(name, STR(DISK_BLANK_PREFIX)) ||
			(!ends_in(name, STR(DISK_IMAGE_SUFFIX), &stem) &&
				!ends_in(name, STR(DIR_SUFFIX), &stem)))
			continue;
		if (snprintf(key, sizeof key, "%.*s", STR_ARG(stem)) < (int)sizeof key)
			fn(arg, key);
	}
	if (dir)
		(void)closedir(dir);
}

void disk_each(const struct disk *disk, void (*fn)(void *arg, const char *key), void *arg)
{
	each_in(disk->host_fd, fn, arg);
	if (disk->dir_fd != disk->host_fd)
		each_in(disk->dir_fd, fn, arg);
}

/* Images by reference if there is any way. A pool that is there and cannot be used is no reason to
 * go on without it: it may hold what somebody saved. */
static int choose_dir(struct disk *disk, bool no_pool, struct err *e)
{
	bool has_pool = pool_exists(disk->host_fd);
	int fd, r;

	if (!disk_has_images(disk) || (!has_pool && copy_is_cheap_in(disk->host_fd)))
		return 0;
	if (!has_pool && no_pool) {
		(void)err_set(&disk->slow, -ENODEV, "told to do without XFS");
		return 0;
	}
	r = pool_open(disk->host_fd, disk->control_fd, &fd, &disk->slow);
	if (r < 0 && !has_pool)
		return 0;
	if (r < 0) {
		if (e)
			*e = disk->slow;
		return err_wrap(e, r, "the pool of disk images");
	}
	disk->dir_fd = fd;
	return 0;
}

int disk_open(struct disk *disk, int take_dir_fd, bool plain, bool no_pool,
	const struct network *net, struct err *e)
{
	int r;

	disk->dir_fd = disk->host_fd = take_dir_fd;
	disk->control_fd = plain ? -EBADF : loopdev_open();
	if (disk_has_images(disk) && !run_finds("mkfs.ext4"))
		return err_set(e, -ENOENT, "this host has no mkfs.ext4: install e2fsprogs");
	r = choose_dir(disk, no_pool, e);
	if (r < 0)
		return r;
	net_resolv_conf(net, disk->resolv_conf);
	blank_tidy(disk);
	return 0;
}

void disk_close(struct disk *disk)
{
	if (disk->dir_fd != disk->host_fd)
		close_fdp(&disk->dir_fd);
	close_fdp(&disk->host_fd);
	close_fdp(&disk->control_fd);
	*disk = (struct disk)DISK_INIT;
}
