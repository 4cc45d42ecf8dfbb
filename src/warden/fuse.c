#include "warden/fuse.h"
#include "warden/proto.h"

#include <dirent.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum {
	MISC_MAJOR = 10,
	FUSE_MINOR = 229,
};

static int make_tree(struct err *e)
{
	cleanup_close int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
	int fd;

	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "size", "4k", 0) < 0 ||
		fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0555", 0) < 0 ||
		fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return err_sys(e, -errno, "make a file system in memory");
	fd = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	return fd < 0 ? err_sys(e, -errno, "mount a file system in memory") : fd;
}

/* For everybody, as it is on other machines: the host's own may be root's alone. In a tree of its
 * own, since programs read in /proc where what is mounted comes from. */
int fuse_make(struct err *e)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };
	cleanup_close int fd = make_tree(e);

	if (fd < 0)
		return fd;
	if (mknodat(fd, FUSE_NODE, S_IFCHR | 0666, makedev(MISC_MAJOR, FUSE_MINOR)) < 0 ||
		fchmodat(fd, FUSE_NODE, 0666, 0) < 0)
		return err_sys(e, -errno, "make a device node");
	if (mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
		return err_sys(e, -errno, "make a device node read-only");
	return TAKE_FD(fd);
}

/* Each is a directory of its owner's. */
static bool cut_one(int dir_fd, const char *name, uid_t first_uid)
{
	char path[64];
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode) ||
		st.st_uid < first_uid || st.st_uid - first_uid >= WARDEN_UID_BLOCK)
		return false;
	(void)snprintf(path, sizeof path, "%.32s/abort", name);
	return file_write(dir_fd, path, STR("1"), NULL) >= 0;
}

static int open_control(struct err *e)
{
	cleanup_close int fs = fsopen("fusectl", FSOPEN_CLOEXEC), fd = -EBADF;

	if (fs < 0 || fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return err_sys(e, -errno, "open the file system fusectl");
	fd = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	return fd < 0 ? err_sys(e, -errno, "mount fusectl") : TAKE_FD(fd);
}

int fuse_cut(uid_t first_uid, struct err *e)
{
	cleanup_close int mount_fd = open_control(e);
	struct dirent *entry;
	int fd, n = 0;
	DIR *dir;

	if (mount_fd < 0)
		return mount_fd;
	fd = openat(mount_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir)
		return err_sys(e, -errno, "list fusectl");
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			n += cut_one(fd, entry->d_name, first_uid);
	(void)closedir(dir);
	return n;
}

/* "first-inside first-outside count": what is outside is said as we see it, whatever user namespace
 * of its sandbox the process is in. */
void fuse_cut_of(pid_t pid)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	struct str rest, word;
	char path[64];
	int64_t outside;

	(void)snprintf(path, sizeof path, "/proc/%d/uid_map", (int)pid);
	if (file_read(AT_FDCWD, path, &text, NULL) < 0)
		return;
	rest = str_trim(buf_str(&text));
	if (!str_split(&rest, ' ', &word))
		return;
	rest = str_trim(rest);
	if (!str_split(&rest, ' ', &word) ||
		str_to_int(word, WARDEN_FIRST_UID + WARDEN_UID_BLOCK, INT32_MAX, &outside) < 0)
		return;
	(void)fuse_cut((uid_t)(outside - (outside - WARDEN_FIRST_UID) % WARDEN_UID_BLOCK), NULL);
}
