#include "warden/rootfs.h"

#include <linux/capability.h>
#include <limits.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

int rootfs_idmap(int mount_fd, int user_ns_fd, struct err *e)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP,
		.userns_fd = (uint64_t)user_ns_fd };

	if (mount_setattr(mount_fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
		return err_sys(e, -errno,
			"map a layer's uids (its file system must support idmapped mounts)");
	return 0;
}

/* A probe that costs nothing: kernels that cannot take a layer by descriptor say so before they
 * look at the descriptor. */
static bool takes_descriptors(void)
{
	cleanup_close int fs = fsopen("overlay", FSOPEN_CLOEXEC);
	cleanup_close int dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	return fs >= 0 && fsconfig(fs, FSCONFIG_SET_FD, "lowerdir+", NULL, dir) == 0;
}

static bool clones_detached(void)
{
	cleanup_close int fs = fsopen("tmpfs", FSOPEN_CLOEXEC), mount_fd = -EBADF, copy = -EBADF;

	if (fs < 0 || fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return false;
	mount_fd = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	copy = mount_fd < 0 ? -EBADF
			    : open_tree(mount_fd, "",
				      OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
	return copy >= 0;
}

static int make_private(struct err *e)
{
	if (unshare(CLONE_NEWNS) < 0)
		return err_sys(e, -errno, "make a mount namespace");
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return err_sys(e, -errno, "keep mounts private");
	return 0;
}

int rootfs_open(struct rootfs *rf, bool attach, struct err *e)
{
	cleanup_close int fs = fsopen("overlay", FSOPEN_CLOEXEC);

	if (fs < 0)
		return err_sys(e, -errno,
			"this kernel has no overlay file system (modprobe overlay)");
	rf->attach = attach || !takes_descriptors() || !clones_detached();
	return rf->attach ? make_private(e) : 0;
}

void rootfs_use_dir(struct rootfs *rf, int dir_fd)
{
	rf->dir_fd = dir_fd;
}

int rootfs_use_place(struct rootfs *rf, int number, struct err *e)
{
	int r;

	if (!rf->attach)
		return 0;
	(void)snprintf(rf->lower, sizeof rf->lower, ".lower-%d", number);
	(void)snprintf(rf->upper, sizeof rf->upper, ".upper-%d", number);
	r = dir_make(rf->dir_fd, rf->lower, 0700, e);
	return r < 0 ? r : dir_make(rf->dir_fd, rf->upper, 0700, e);
}

/* Overlay works with the credentials of its mounter, and host root has no id in an idmapped layer:
 * it would silently become read-only. So the mounter is the sandbox's root for this one call. */
static int create_as(int fs, uid_t uid)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct now[2], all[2];
	int r = 0;

	if (syscall(SYS_capget, &head, now) < 0)
		return -errno;
	memcpy(all, now, sizeof all);
	for (int i = 0; i < 2; i++)
		all[i].effective = all[i].permitted;
	(void)setfsgid(uid);
	(void)setfsuid(uid);
	/* Leaving fsuid 0 took the file capabilities away. */
	if (syscall(SYS_capset, &head, all) < 0)
		r = -errno;
	if (r >= 0 && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		r = -errno;
	(void)setfsuid(0);
	(void)setfsgid(0);
	if (syscall(SYS_capset, &head, now) < 0)
		abort();
	return r;
}

static int open_inside(int mount_fd, const char *name, struct err *e)
{
	int fd = openat(mount_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? err_sys(e, -errno, "open %s of the layer", name) : fd;
}

static int give_descriptors(int fs, int lower, int image, struct err *e)
{
	cleanup_close int upper = open_inside(image, "upper", e),
			  work = open_inside(image, "work", e);

	if (upper < 0 || work < 0)
		return upper < 0 ? upper : work;
	if (fsconfig(fs, FSCONFIG_SET_FD, "lowerdir+", NULL, lower) < 0 ||
		fsconfig(fs, FSCONFIG_SET_FD, "upperdir", NULL, upper) < 0 ||
		fsconfig(fs, FSCONFIG_SET_FD, "workdir", NULL, work) < 0)
		return err_sys(e, -errno, "give the layers to overlay");
	return 0;
}

static int attach_at(const struct rootfs *rf, int mount_fd, const char *name, struct err *e)
{
	if (move_mount(mount_fd, "", rf->dir_fd, name, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return err_sys(e, -errno, "attach a layer");
	return 0;
}

static void detach_paths(const struct rootfs *rf)
{
	if (fchdir(rf->dir_fd) == 0) {
		(void)umount2(rf->lower, MNT_DETACH | UMOUNT_NOFOLLOW);
		(void)umount2(rf->upper, MNT_DETACH | UMOUNT_NOFOLLOW);
	}
	(void)!chdir("/");
}

int rootfs_clone_inside(const struct rootfs *rf, int mount_fd, const char *name, int *ret,
	struct err *e)
{
	char path[sizeof rf->upper + NAME_MAX];
	int fd, r = rf->attach ? attach_at(rf, mount_fd, rf->upper, e) : 0;

	if (r < 0)
		return r;
	(void)snprintf(path, sizeof path, "%s/%s", rf->upper, name);
	fd = open_tree(rf->attach ? rf->dir_fd : mount_fd, rf->attach ? path : name,
		OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);
	r = fd < 0 ? err_sys(e, -errno, "clone %s", name) : 0;
	if (rf->attach)
		detach_paths(rf);
	if (r >= 0)
		*ret = fd;
	return r;
}

/* Names are relative, so that no character of the data directory's path can mean anything. */
static int give_paths(const struct rootfs *rf, int fs, int lower, int image, struct err *e)
{
	char upper[sizeof rf->upper + 8], work[sizeof rf->upper + 8];
	int r = attach_at(rf, lower, rf->lower, e);

	(void)snprintf(upper, sizeof upper, "%s/upper", rf->upper);
	(void)snprintf(work, sizeof work, "%s/work", rf->upper);
	if (r >= 0)
		r = attach_at(rf, image, rf->upper, e);
	if (r >= 0 && fchdir(rf->dir_fd) < 0)
		r = err_sys(e, -errno, "enter the run directory");
	if (r >= 0 && (fsconfig(fs, FSCONFIG_SET_STRING, "lowerdir", rf->lower, 0) < 0 ||
			      fsconfig(fs, FSCONFIG_SET_STRING, "upperdir", upper, 0) < 0 ||
			      fsconfig(fs, FSCONFIG_SET_STRING, "workdir", work, 0) < 0))
		r = err_sys(e, -errno, "give the layers to overlay");
	return r;
}

static int finish(int fs, uid_t uid, int *ret, struct err *e)
{
	cleanup_close int fd = -EBADF;
	struct statvfs st;
	int r;

	/* Without it, ending a sandbox would write its whole layer out first. */
	if (fsconfig(fs, FSCONFIG_SET_FLAG, "volatile", NULL, 0) < 0 ||
		fsconfig(fs, FSCONFIG_SET_STRING, "source", "atoll", 0) < 0)
		return err_sys(e, -errno, "set overlay options");
	r = create_as(fs, uid);
	if (r < 0)
		return err_sys(e, r, "mount the overlay");
	fd = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV);
	if (fd < 0)
		return err_sys(e, -errno, "mount the overlay");
	if (fstatvfs(fd, &st) < 0 || st.f_flag & ST_RDONLY)
		return err_set(e, -EROFS, "the kernel made the sandbox's root read-only");
	*ret = TAKE_FD(fd);
	return 0;
}

int rootfs_mount(const struct rootfs *rf, const struct rootfs_layers *layers, int *ret,
	struct err *e)
{
	cleanup_close int fs = fsopen("overlay", FSOPEN_CLOEXEC), lower = -EBADF;
	int r;

	if (fs < 0)
		return err_sys(e, -errno, "open overlay");
	lower = open_tree(layers->lower_fd, "",
		OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
	if (lower < 0)
		return err_sys(e, -errno, "clone the template's tree");
	r = rootfs_idmap(lower, layers->user_ns_fd, e);
	if (r < 0)
		return r;
	if (rf->attach)
		r = give_paths(rf, fs, lower, layers->image_fd, e);
	else
		r = give_descriptors(fs, lower, layers->image_fd, e);
	if (r >= 0)
		r = finish(fs, layers->first_uid, ret, e);
	if (rf->attach)
		detach_paths(rf);
	return r;
}
