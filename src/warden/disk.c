#include "warden/disk.h"
#include "warden/blank.h"
#include "warden/copy.h"
#include "warden/loopdev.h"
#include "warden/pool.h"
#include "warden/run.h"
#include "warden/space.h"

#include <dirent.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum {
	MIB = 1 << 20,
	SHUTDOWN_WITHOUT_FLUSH = 2,
	BLOCK_BYTES = 512, /* of st_blocks */
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

static bool is_dir(const struct image_name *image)
{
	struct str stem;

	return ends_in(str_of(image->name), STR(DIR_SUFFIX), &stem);
}

bool disk_has_images(const struct disk *disk)
{
	return disk->control_fd >= 0;
}

static int dir_of(const struct disk *disk, const struct image_name *image)
{
	return image->on_host ? disk->host_fd : disk->dir_fd;
}

static struct image_name name_image(const char *key, bool on_host, bool file)
{
	struct image_name image = { .on_host = on_host, .loop = -1 };

	(void)snprintf(image.name, sizeof image.name, "%s%s", key,
		file ? DISK_IMAGE_SUFFIX : DIR_SUFFIX);
	return image;
}

static bool has_image(const struct disk *disk, const struct image_name *image)
{
	return faccessat(dir_of(disk, image), image->name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

struct image_name disk_name(const struct disk *disk, const char *key)
{
	return name_image(key, false, disk_has_images(disk));
}

void disk_find(const struct disk *disk, const char *key, struct image_name *ret)
{
	*ret = name_image(key, true, false);
	if (has_image(disk, ret))
		return;
	*ret = name_image(key, true, true);
	if (!has_image(disk, ret))
		*ret = name_image(key, false, true);
}

uint64_t disk_bytes(const struct disk *disk, const struct image_name *image)
{
	struct stat st;

	return fstatat(dir_of(disk, image), image->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			       S_ISREG(st.st_mode)
		       ? (uint64_t)st.st_size
		       : 0;
}

uint64_t disk_taken(const struct disk *disk, const struct image_name *image)
{
	struct stat st;

	if (fstatat(dir_of(disk, image), image->name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		!S_ISREG(st.st_mode))
		return UINT64_MAX;
	return (uint64_t)st.st_blocks * BLOCK_BYTES;
}

int disk_check_room(const struct disk *disk, struct err *e)
{
	struct space s;
	int r = space_look(disk, &s);

	if (r < 0)
		return err_sys(e, r, "look at the data directory's file system");
	if (s.free_bytes >= (uint64_t)SPACE_RESERVE_MIB * SPACE_MIB)
		return 0;
	return err_set(e, -ENOSPC,
		"the data directory's file system has only %" PRIu64 " MiB left, %d are needed",
		s.free_bytes / SPACE_MIB, SPACE_RESERVE_MIB);
}

/* ---- sizes ---- */

int disk_prepare(struct disk *disk, struct disk_size size, struct err *e)
{
	disk->usual_size = size;
	return disk_has_images(disk) ? blank_prepare(disk, size, e) : 0;
}

bool disk_knows(const struct disk *disk, struct disk_size size)
{
	if (!disk_has_images(disk) || disk_size_eq(size, disk->usual_size))
		return true;
	for (size_t i = 0; i < DISK_KNOWN_SIZES; i++)
		if (disk_size_eq(disk->known[i], size))
			return true;
	return false;
}

void disk_learn(struct disk *disk, struct disk_size size)
{
	if (!disk_knows(disk, size))
		disk->known[disk->next_known++ % DISK_KNOWN_SIZES] = size;
}

/* ---- making one ---- */

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

int disk_open_file(const struct disk *disk, const struct image_name *image, int flags,
	struct err *e)
{
	int fd = openat(dir_of(disk, image), image->name, flags | O_NOFOLLOW | O_CLOEXEC, 0600);

	return fd < 0 ? err_sys(e, -errno, "open %s", image->name) : fd;
}

/* The device clears itself with its last user: the mount. */
static int mount_file(struct disk *disk, int file_fd, const char *name, int *ret_loop,
	int *ret_mount, struct err *e)
{
	cleanup_close int device = -EBADF;
	int r = loopdev_attach(disk->control_fd, file_fd, name, &disk->no_direct_io, &device,
		ret_loop, e);

	if (r < 0)
		return r;
	/* What mounting will read is together at the front: in one piece, and meanwhile. */
	(void)posix_fadvise(device, 0, MIB, POSIX_FADV_WILLNEED);
	return mount_ext4(*ret_loop, ret_mount, e);
}

/* Overlay marks a volatile layer, so that it is not trusted after a crash. A copy was made when all
 * of it had been written: it may be. */
static int renew(int mount_fd, struct err *e)
{
	cleanup_close int work =
		openat(mount_fd, "work", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (work < 0)
		return err_sys(e, -errno, "open work of the layer");
	return dir_remove_tree(work, "work", e);
}

static int open_root(int mount_fd, struct err *e)
{
	int fd = openat(mount_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? err_sys(e, -errno, "open the layer") : fd;
}

static int make_plain(const struct disk *disk, const char *key, struct image *ret, struct err *e)
{
	int r;

	ret->is = name_image(key, false, false);
	r = layer_make(disk, ret->is.name, e);
	if (r < 0)
		return r;
	ret->mount_fd = open_tree(disk->dir_fd, ret->is.name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	return ret->mount_fd < 0 ? err_sys(e, -errno, "clone %s", ret->is.name) : 0;
}

static int make_file(struct disk *disk, int from_fd, struct disk_size size, struct image *image,
	struct err *e)
{
	cleanup_close int blank = -EBADF, to = -EBADF;
	bool used = from_fd >= 0;
	int r = disk_check_room(disk, e);

	if (r >= 0 && !used)
		r = from_fd = blank = blank_open(disk, size, e);
	if (r >= 0)
		r = to = disk_open_file(disk, &image->is, O_RDWR | O_CREAT | O_EXCL, e);
	if (r >= 0)
		r = copy_image(from_fd, to, e);
	if (r >= 0)
		r = mount_file(disk, to, image->is.name, &image->is.loop, &image->mount_fd, e);
	if (r >= 0)
		r = image->layer_fd = open_root(image->mount_fd, e);
	return r >= 0 && used ? renew(image->mount_fd, e) : r;
}

static void image_close(struct image *image)
{
	close_fdp(&image->layer_fd);
	close_fdp(&image->mount_fd);
	image->layer_fd = image->mount_fd = -EBADF;
}

int disk_make(struct disk *disk, const char *key, int from_fd, struct disk_size size,
	struct image *ret, struct err *e)
{
	struct image image = IMAGE_INIT;
	int r;

	if (!disk_has_images(disk)) {
		r = make_plain(disk, key, &image, e);
	} else {
		image.is = disk_name(disk, key);
		r = make_file(disk, from_fd, size, &image, e);
	}
	if (r < 0) {
		image_close(&image);
		(void)disk_remove(disk, &image.is);
		return r;
	}
	*ret = image;
	return 0;
}

/* ---- one that is in use ---- */

int disk_open_layer(const struct disk *disk, const struct image_name *image, struct err *e)
{
	cleanup_close int file = -EBADF, device = -EBADF, mount_fd = -EBADF;
	int r;

	if (!disk_has_images(disk) || is_dir(image) || image->loop < 0)
		return err_set(e, -EOPNOTSUPP,
			"the sandbox's disk is a plain directory, since this host had no loop "
			"devices");
	file = disk_open_file(disk, image, O_RDWR, e);
	if (file < 0)
		return file;
	device = loopdev_reopen(image->loop, file);
	if (device < 0)
		return err_sys(e, device, "find the device of %s", image->name);
	/* The device is mounted already: this is another mount of the same file system. */
	r = mount_ext4(image->loop, &mount_fd, e);
	return r < 0 ? r : open_root(mount_fd, e);
}

void disk_shut(int layer_fd)
{
	uint32_t flags = SHUTDOWN_WITHOUT_FLUSH;

	(void)ioctl(layer_fd, EXT4_SHUTDOWN, &flags);
}

int disk_settle(struct disk *disk, int file_fd, const char *name, struct err *e)
{
	cleanup_close int mount_fd = -EBADF;
	int loop, r = mount_file(disk, file_fd, name, &loop, &mount_fd, e);

	return r < 0 ? r : renew(mount_fd, e);
}

/* ---- one that is used again ---- */

enum {
	LITTLE_INODES = 512,
	LITTLE_BLOCKS = (16 << 20) / 4096,
	GROWN_BLOCKS = 16,      /* what directories and maps may keep */
	GROWN_BYTES = 32 << 20, /* of the image: blocks that were freed stay allocated below */
	STAT_BLOCK_BYTES = 512,
};

int disk_use(int layer_fd, struct disk_use *ret, struct err *e)
{
	struct statvfs st;

	if (fstatvfs(layer_fd, &st) < 0)
		return err_sys(e, -errno, "look at the disk");
	*ret = (struct disk_use){ st.f_blocks - st.f_bfree, st.f_files - st.f_ffree };
	return 0;
}

bool disk_use_is_little(struct disk_use now, struct disk_use blank)
{
	return now.inodes <= blank.inodes + LITTLE_INODES &&
	       now.blocks <= blank.blocks + LITTLE_BLOCKS;
}

static int check_image_size(const struct disk *disk, const struct image_name *image, struct err *e)
{
	struct stat st;

	if (fstatat(dir_of(disk, image), image->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(e, -errno, "look at %s", image->name);
	return (uint64_t)st.st_blocks * STAT_BLOCK_BYTES <= GROWN_BYTES
		       ? 0
		       : err_set(e, -EFBIG, "%s has grown", image->name);
}

/* The directories themselves go as well: a sandbox can change the owner, the mode and the
 * attributes of its root. */
static int empty_layer(const struct disk *disk, int mount_fd, struct err *e)
{
	cleanup_close int root = open_root(mount_fd, e);
	int r = MIN(root, 0);

	if (r >= 0)
		r = dir_remove_tree(root, "upper", e);
	if (r >= 0)
		r = dir_remove_tree(root, "work", e);
	return r < 0 ? r : layer_fill(disk, root, e);
}

/* An inode more than the blank had is a file that somebody has open, or that lies where none of
 * ours looks. */
static int check_empty(int mount_fd, struct disk_use blank, struct err *e)
{
	struct disk_use now = { 0 };
	int r = disk_use(mount_fd, &now, e);

	if (r < 0)
		return r;
	return now.inodes == blank.inodes && now.blocks <= blank.blocks + GROWN_BLOCKS
		       ? 0
		       : err_set(e, -EBUSY, "%" PRIu64 " files are left", now.inodes);
}

int disk_empty(const struct disk *disk, const struct image_name *image, struct disk_use blank,
	int *ret_mount, struct err *e)
{
	cleanup_close int mount_fd = -EBADF;
	struct disk_use now = { 0 };
	int r = check_image_size(disk, image, e);

	/* Another mount of the same file system, which no user namespace has mapped yet. */
	if (r >= 0)
		r = mount_ext4(image->loop, &mount_fd, e);
	if (r >= 0)
		r = disk_use(mount_fd, &now, e);
	if (r >= 0 && !disk_use_is_little(now, blank))
		r = err_set(e, -EFBIG, "there is too much on it");
	if (r >= 0)
		r = empty_layer(disk, mount_fd, e);
	if (r >= 0)
		r = check_empty(mount_fd, blank, e);
	if (r >= 0)
		*ret_mount = TAKE_FD(mount_fd);
	return r;
}

int disk_reuse(const struct disk *disk, const struct image_name *from, int take_mount_fd,
	const char *key, struct image *ret, struct err *e)
{
	struct image image = { .is = *from, .mount_fd = take_mount_fd, .layer_fd = -EBADF };
	int r;

	image.is = name_image(key, from->on_host, true);
	image.is.loop = from->loop;
	if (renameat2(dir_of(disk, from), from->name, dir_of(disk, from), image.is.name,
		    RENAME_NOREPLACE) < 0)
		r = err_sys(e, -errno, "rename %s", from->name);
	else
		r = image.layer_fd = open_root(image.mount_fd, e);
	if (r < 0) {
		image_close(&image);
		(void)disk_remove(disk, from);
		(void)disk_remove(disk, &image.is);
		return r;
	}
	*ret = image;
	return 0;
}

bool disk_is_attached(const struct image_name *image)
{
	return image->loop >= 0 && !is_dir(image) && loopdev_is_attached(image->loop, image->name);
}

int disk_remove(const struct disk *disk, const struct image_name *image)
{
	if (!image->name[0])
		return 0;
	if (is_dir(image))
		return dir_remove_tree(dir_of(disk, image), image->name, NULL);
	if (unlinkat(dir_of(disk, image), image->name, 0) < 0 && errno != ENOENT)
		return -errno;
	return 0;
}

/* ---- all of them ---- */

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
