#include "warden/volume-image.h"
#include "warden/disk.h"
#include "warden/loopdev.h"
#include "warden/run.h"

#include <dirent.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* In an image. */
#define ROOT "data"
#define BESIDE "incoming"

/* What is not ready yet, with the number of the process that makes it. */
#define HALF_MADE ".new-"
#define SEED ".seed-"

enum {
	MIB = 1 << 20,
	/* What the file system takes for itself besides: the journal, and for every 64 MiB the
	 * tables of their inodes. */
	JOURNAL_MIB = 4,
	LEAST_MIB = 8, /* a journal is not larger than half of what it lies in */
	MIB_OF_TABLES = 64,
	/* Somebody else is about to attach it, or the kernel to let it go. */
	ATTACH_MS = 10000,
	NAME_BYTES = 64,
};

bool volume_image_exists(const struct volumes *v, const char *id)
{
	return v->images_fd >= 0 && faccessat(v->images_fd, id, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ---- making one ---- */

struct half {
	char image[NAME_BYTES], seed[NAME_BYTES];
};

static int make_part(int seed_fd, const char *name, mode_t mode, struct err *e)
{
	if (mkdirat(seed_fd, name, 0700) < 0 || fchmodat(seed_fd, name, mode, 0) < 0 ||
		fchownat(seed_fd, name, WARDEN_FIRST_UID, WARDEN_FIRST_UID, AT_SYMLINK_NOFOLLOW) <
			0)
		return err_sys(e, -errno, "make %s of a volume", name);
	return 0;
}

/* The first is for every user of the sandboxes that will see it. */
static int make_seed(const struct volumes *v, const char *name, struct err *e)
{
	cleanup_close int fd = -EBADF;
	int r = dir_remove_tree(v->images_fd, name, e);

	if (r >= 0)
		r = dir_make(v->images_fd, name, 0700, e);
	if (r < 0)
		return r;
	fd = openat(v->images_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, -errno, "open %s", name);
	r = make_part(fd, ROOT, 0777, e);
	return r < 0 ? r : make_part(fd, BESIDE, 0700, e);
}

/* All tables together at the front and not written ahead: an empty one of 20 GiB is 140 KiB. */
static int run_mkfs(const struct volumes *v, const struct half *h, uint64_t mib, struct err *e)
{
	char inodes[24], journal[24];
	static const char extended[] = "lazy_itable_init=1,lazy_journal_init=1,nodiscard,"
				       "packed_meta_blocks=1,num_backup_sb=0,root_owner=0:0";
	const char *const argv[] = { "mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-J",
		journal, "-G", "4096", "-O", "sparse_super2,^resize_inode", "-E", extended, "-d",
		h->seed, "-N", inodes, h->image, NULL };

	(void)snprintf(inodes, sizeof inodes, "%" PRIu64, mib * VOLUME_INODES_PER_MIB);
	(void)snprintf(journal, sizeof journal, "size=%d", JOURNAL_MIB);
	return run_program(argv, STR_NONE, v->images_fd, e);
}

static int make_half(const struct volumes *v, const struct half *h, uint64_t bytes, struct err *e)
{
	uint64_t mib = MAX(bytes / MIB, (uint64_t)LEAST_MIB);
	cleanup_close int fd = -EBADF;
	int r = make_seed(v, h->seed, e);

	if (r < 0)
		return r;
	(void)unlinkat(v->images_fd, h->image, 0);
	fd = openat(v->images_fd, h->image, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)((mib + mib / MIB_OF_TABLES + JOURNAL_MIB) * MIB)) < 0)
		return err_sys(e, -errno, "make an image of %" PRIu64 " MiB", mib);
	r = run_mkfs(v, h, mib, e);
	if (r >= 0 && fsync(fd) < 0)
		r = err_sys(e, -errno, "write the image");
	return r;
}

int volume_image_make(const struct volumes *v, const char *id, uint64_t bytes, struct err *e)
{
	struct half h;
	int r;

	if (v->images_fd < 0 || v->control_fd < 0)
		return err_set(e, -EOPNOTSUPP, "this host has no loop devices for volumes");
	(void)snprintf(h.image, sizeof h.image, HALF_MADE "%d", (int)getpid());
	(void)snprintf(h.seed, sizeof h.seed, SEED "%d", (int)getpid());
	r = make_half(v, &h, bytes, e);
	(void)dir_remove_tree(v->images_fd, h.seed, NULL);
	if (r >= 0 && renameat2(v->images_fd, h.image, v->images_fd, id, RENAME_NOREPLACE) < 0)
		r = err_sys(e, -errno, "name the volume's image");
	if (r < 0)
		(void)unlinkat(v->images_fd, h.image, 0);
	else if (fsync(v->images_fd) < 0)
		r = err_sys(e, -errno, "write the directory of volumes");
	return r < 0 ? err_wrap(e, r, "make volume %s", id) : 0;
}

void volume_image_tidy(const struct volumes *v)
{
	int fd = openat(v->images_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		if (str_has_prefix(str_of(entry->d_name), STR(HALF_MADE)))
			(void)unlinkat(v->images_fd, entry->d_name, 0);
		else if (str_has_prefix(str_of(entry->d_name), STR(SEED)))
			(void)dir_remove_tree(v->images_fd, entry->d_name, NULL);
	}
	if (dir)
		(void)closedir(dir);
}

/* ---- reaching it ---- */

/* What was written to it shall last, so it has its barriers; and what is removed from it is given
 * back to the host. Tables that are not used yet are not written. */
static int mount_device(int loop, unsigned attributes, int *ret, struct err *e)
{
	cleanup_close int fs = fsopen("ext4", FSOPEN_CLOEXEC);
	char path[32];
	int fd;

	(void)snprintf(path, sizeof path, "/dev/loop%d", loop);
	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "source", path, 0) < 0 ||
		fsconfig(fs, FSCONFIG_SET_STRING, "errors", "remount-ro", 0) < 0 ||
		fsconfig(fs, FSCONFIG_SET_FLAG, "noinit_itable", NULL, 0) < 0 ||
		fsconfig(fs, FSCONFIG_SET_FLAG, "discard", NULL, 0) < 0)
		return err_sys(e, -errno, "open %s as ext4", path);
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return err_sys(e, -errno, "mount %s", path);
	fd = fsmount(fs, FSMOUNT_CLOEXEC, attributes | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID);
	if (fd < 0)
		return err_sys(e, -errno, "mount %s", path);
	*ret = fd;
	return 0;
}

/* The same device mounted again is the same file system. */
static int mount_named(int images_fd, int control_fd, const char *name, unsigned attributes,
	int *ret_mount, struct err *e)
{
	cleanup_close int device = -EBADF;
	int number, r = loopdev_attach_once(control_fd, images_fd, name, time_now_ms() + ATTACH_MS,
			    &device, &number, e);

	return r < 0 ? r : mount_device(number, attributes, ret_mount, e);
}

/* Frozen by a backup that was killed: one that lives has the lock (lend.c). */
static void thaw_forgotten(const struct volumes *v, int mount_fd)
{
	cleanup_close int lock = openat(v->images_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_close int root = openat(mount_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (lock >= 0 && root >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0)
		(void)ioctl(root, FITHAW, 0);
}

static int mount_volume(const struct volumes *v, const char *id, unsigned attributes, int *ret,
	struct err *e)
{
	int r = v->images_fd < 0 ? -ENOENT
		: v->control_fd < 0
			? err_set(e, -EOPNOTSUPP,
				  "this host has no loop devices, and the volume needs one")
			: mount_named(v->images_fd, v->control_fd, id, attributes, ret, e);

	if (r == -ENOENT)
		return err_set(e, -ESTALE, "the volume %s does not exist any more", id);
	if (r < 0)
		return err_wrap(e, r, "volume %s", id);
	thaw_forgotten(v, *ret);
	return 0;
}

static int open_part(int mount_fd, const char *name, struct err *e)
{
	int fd = openat(mount_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? err_sys(e, -errno, "open %s of a volume", name) : fd;
}

int volume_image_open(const struct volumes *v, const char *id, int ret_fds[VOLUME_OPEN_FDS],
	struct err *e)
{
	cleanup_close int mount_fd = -EBADF, root = -EBADF, beside = -EBADF;
	int r = mount_volume(v, id, MOUNT_ATTR_NOEXEC, &mount_fd, e);

	if (r >= 0)
		r = root = open_part(mount_fd, ROOT, e);
	if (r >= 0)
		r = beside = open_part(mount_fd, BESIDE, e);
	if (r < 0)
		return r;
	ret_fds[0] = TAKE_FD(root);
	ret_fds[1] = TAKE_FD(beside);
	return 0;
}

int volume_image_mount(const struct volumes *v, const char *id, int *ret_mount, struct err *e)
{
	cleanup_close int mount_fd = -EBADF;
	int r = mount_volume(v, id, 0, &mount_fd, e);

	return r < 0 ? r : rootfs_clone_inside(v->rootfs, mount_fd, ROOT, ret_mount, e);
}

int volume_image_reach(int images_fd, int control_fd, const char *name, struct err *e)
{
	cleanup_close int mount_fd = -EBADF;
	int fd, r = mount_named(images_fd, control_fd, name, MOUNT_ATTR_NOEXEC, &mount_fd, e);

	if (r < 0)
		return r;
	fd = openat(mount_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_sys(e, -errno, "open %s", name) : fd;
}

/* ---- its end ---- */

/* Who has it mounted is told at once, and nothing more is written to where it was. */
static void shut(int file_fd, const char *id)
{
	cleanup_close int device = -EBADF, mount_fd = -EBADF, root = -EBADF;
	int number;

	if (loopdev_find_noted(file_fd, id, &device, &number) < 0 ||
		mount_device(number, 0, &mount_fd, NULL) < 0)
		return;
	root = openat(mount_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root >= 0)
		disk_shut(root);
}

int volume_image_remove(const struct volumes *v, const char *id, struct err *e)
{
	cleanup_close int file =
		v->images_fd < 0
			? -EBADF
			: openat(v->images_fd, id, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (file < 0 && v->images_fd >= 0 && errno != ENOENT)
		return err_sys(e, -errno, "open volume %s", id);
	if (file < 0 || unlinkat(v->images_fd, id, 0) < 0)
		return err_set(e, -ENOENT, "there is no volume %s", id);
	shut(file, id);
	(void)!ftruncate(file, 0);
	return 0;
}
