#include "warden/pool.h"
#include "warden/loopdev.h"
#include "warden/run.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define POOL_NAME "pool.xfs"
#define NEW_POOL_NAME ".pool.xfs"

enum {
	MIB = 1 << 20,
	MIN_MIB = 512,      /* below, mkfs.xfs refuses */
	MAX_MIB = 15 << 20, /* above, ext4 refuses */
};

static int check_kernel(struct err *e)
{
	cleanup_close int fs = fsopen("xfs", FSOPEN_CLOEXEC);

	return fs < 0 ? err_set(e, -ENODEV, "this kernel has no XFS") : 0;
}

int pool_check(struct err *e)
{
	int r = check_kernel(e);

	if (r >= 0 && !run_finds("mkfs.xfs"))
		r = err_set(e, -ENOENT, "this host has no mkfs.xfs");
	return r;
}

bool pool_exists(int dir_fd)
{
	return faccessat(dir_fd, POOL_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* As large as what is below, which is all there can ever be in it: it takes only what is used. */
static int make_pool(int dir_fd, struct err *e)
{
	static const char *const argv[] = { "mkfs.xfs", "-q", "-K", "-s", "size=4096", "-l",
		"size=64m", "-m", "reflink=1,rmapbt=0", NEW_POOL_NAME, NULL };
	cleanup_close int fd = -EBADF;
	struct statvfs st;
	uint64_t mib;
	int r;

	if (fstatvfs(dir_fd, &st) < 0)
		return err_sys(e, -errno, "look at the data directory's file system");
	mib = MIN((uint64_t)st.f_blocks * st.f_frsize / MIB, (uint64_t)MAX_MIB);
	if (mib < MIN_MIB)
		return err_set(e, -ENOSPC, "the data directory's file system is too small");
	(void)unlinkat(dir_fd, NEW_POOL_NAME, 0);
	fd = openat(dir_fd, NEW_POOL_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)(mib * MIB)) < 0)
		return err_sys(e, -errno, "make a pool of %" PRIu64 " MiB", mib);
	r = run_program(argv, STR_NONE, dir_fd, e);
	if (r < 0)
		(void)unlinkat(dir_fd, NEW_POOL_NAME, 0);
	else if (renameat(dir_fd, NEW_POOL_NAME, dir_fd, POOL_NAME) < 0)
		r = err_sys(e, -errno, "name the pool");
	return r;
}

static int open_file(int dir_fd, struct err *e)
{
	int fd = openat(dir_fd, POOL_NAME, O_RDWR | O_NOFOLLOW | O_CLOEXEC), r;

	if (fd >= 0)
		return fd;
	if (errno != ENOENT)
		return err_sys(e, -errno, "open %s", POOL_NAME);
	r = make_pool(dir_fd, e);
	if (r < 0)
		return r;
	fd = openat(dir_fd, POOL_NAME, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? err_sys(e, -errno, "open %s", POOL_NAME) : fd;
}

/* The same device twice gives the same file system twice. That its uuid may not come twice stays
 * checked (no `nouuid`): the last guard against two devices for one file. */
static int mount_pool(int number, int *ret_dir_fd, struct err *e)
{
	cleanup_close int fs = fsopen("xfs", FSOPEN_CLOEXEC), mount_fd = -EBADF;
	char path[32];
	int fd;

	(void)snprintf(path, sizeof path, "/dev/loop%d", number);
	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "source", path, 0) < 0)
		return err_sys(e, -errno, "open %s as XFS", path);
	(void)fsconfig(fs, FSCONFIG_SET_FLAG, "discard", NULL, 0);
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return err_sys(e, -errno, "mount %s", POOL_NAME);
	mount_fd = fsmount(fs, FSMOUNT_CLOEXEC,
		MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOATIME);
	if (mount_fd < 0)
		return err_sys(e, -errno, "mount %s", POOL_NAME);
	fd = openat(mount_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, -errno, "open %s", POOL_NAME);
	*ret_dir_fd = fd;
	return 0;
}

int pool_open(int dir_fd, int control_fd, int *ret_dir_fd, struct err *e)
{
	cleanup_close int file = -EBADF, device = -EBADF;
	bool no_direct_io = false;
	int number, r = check_kernel(e);

	if (r < 0)
		return r;
	file = open_file(dir_fd, e);
	if (file < 0)
		return file;
	r = loopdev_find(file, POOL_NAME, &device, &number);
	if (r < 0)
		r = loopdev_attach(control_fd, file, POOL_NAME, &no_direct_io, &device, &number, e);
	return r < 0 ? r : mount_pool(number, ret_dir_fd, e);
}
