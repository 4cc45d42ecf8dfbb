#include "guest/volumes.h"

#include <sys/mount.h>
#include <sys/stat.h>

/* One name further; takes dir_fd. O_NOFOLLOW is what counts: a link in a hostile image would lead
 * to where text cannot tell, such as below /proc. */
static int step_take(int dir_fd, const char *name)
{
	int fd, r = 0;

	if (mkdirat(dir_fd, name, 0755) < 0 && errno != EEXIST)
		r = -errno;
	fd = r < 0 ? r : openat(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (r >= 0 && fd < 0)
		fd = -errno;
	(void)close(dir_fd);
	return fd;
}

static int open_target(const char *root, const char *path)
{
	struct str rest = str_from(str_of(path), 1), part;
	int fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	while (fd >= 0 && str_split(&rest, '/', &part)) {
		char name[WARDEN_PATH_SIZE];

		(void)snprintf(name, sizeof name, "%.*s", STR_ARG(part));
		fd = step_take(fd, name);
	}
	return fd;
}

static int put_one(const char *root, int mount_fd, const char *path, struct err *e)
{
	cleanup_close int target = open_target(root, path);

	if (target == -ENOTDIR || target == -ELOOP)
		return err_set(e, -ENOTDIR,
			"no volume can be mounted at %s: a file or a link is in the way", path);
	if (target < 0)
		return err_sys(e, target, "make %s for a volume", path);
	if (move_mount(mount_fd, "", target, "",
		    MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return err_sys(e, -errno, "mount a volume at %s", path);
	return 0;
}

int volumes_put(const char *root, const int *mount_fds, const struct guest_boot *message,
	struct err *e)
{
	int r = 0;

	for (uint32_t i = 0; r >= 0 && i < message->n_mounts; i++)
		r = put_one(root, mount_fds[i], message->paths[i], e);
	return r;
}
