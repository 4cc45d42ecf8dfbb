#include "guest/mounts.h"

#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/syscall.h>

int mount_make(const char *type, const struct mount_option options[MOUNT_MAX_OPTIONS],
	unsigned attributes, int *ret, struct err *e)
{
	cleanup_close int fs = fsopen(type, FSOPEN_CLOEXEC);
	int fd;

	if (fs < 0)
		return err_sys(e, -errno, "open file system type %s", type);
	for (size_t i = 0; i < MOUNT_MAX_OPTIONS && options[i].key; i++)
		if (fsconfig(fs, FSCONFIG_SET_STRING, options[i].key, options[i].value, 0) < 0)
			return err_sys(e, -errno, "%s option %s", type, options[i].key);
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return err_sys(e, -errno, "create %s", type);
	fd = fsmount(fs, FSMOUNT_CLOEXEC, attributes);
	if (fd < 0)
		return err_sys(e, -errno, "mount %s", type);
	*ret = fd;
	return 0;
}

static int open_target(const char *path)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS };

	return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
}

int mount_put(int mount_fd, const char *path, struct err *e)
{
	cleanup_close int target = open_target(path);

	/* The template's doing, and its author's to mend. */
	if (target < 0 && (errno == ELOOP || errno == ENOTDIR))
		return err_set(e, -ENOTDIR, "%s of the template is a link or below one", path);
	if (target < 0)
		return err_sys(e, -errno, "open %s", path);
	if (move_mount(mount_fd, "", target, "",
		    MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return err_sys(e, -errno, "mount on %s", path);
	return 0;
}
