#include "warden/volume.h"
#include "base/userns.h"
#include "warden/host.h"
#include "warden/volume-image.h"

#include <sys/mount.h>

static int open_directory(const struct volumes *v, const struct warden_mount *m, struct err *e)
{
	int fd = open_beneath(v->dir_fd, m->volume, O_PATH | O_DIRECTORY);

	if (fd == -ENOENT || fd == -EBADF)
		return err_set(e, -ESTALE, "the volume for %s does not exist any more", m->path);
	return fd < 0 ? err_set(e, -EIO, "open volume %s: %s", m->volume, strerror(-fd)) : fd;
}

static int clone_plain(const struct volumes *v, const struct warden_mount *m, struct err *e)
{
	cleanup_close int dir = open_directory(v, m, e);
	int fd;

	if (dir < 0)
		return dir;
	fd = open_tree(dir, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
	return fd < 0 ? err_sys(e, -errno, "clone volume %s", m->volume) : fd;
}

/* Private: what is mounted in it inside must not appear in the host's tree. */
static int mount_one(const struct volumes *v, const struct warden_mount *m, int user_ns_fd,
	struct err *e)
{
	struct mount_attr attr = { .attr_set =
					   MOUNT_ATTR_IDMAP | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
		.propagation = MS_PRIVATE,
		.userns_fd = (uint64_t)user_ns_fd };
	cleanup_close int fd = -EBADF;
	int r = 0;

	if (volume_image_exists(v, m->volume))
		r = volume_image_mount(v, m->volume, &fd, e);
	else
		r = fd = clone_plain(v, m, e);
	if (r < 0)
		return r;
	if (mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
		return err_sys(e, -errno,
			"map a volume's uids (its file system must support idmapped mounts)");
	return TAKE_FD(fd);
}

int volumes_open(const struct volumes *v, const struct warden_mount *mounts, uint32_t n,
	uid_t first_uid, int *fds, struct err *e)
{
	cleanup_close int user_ns = userns_make(WARDEN_FIRST_UID, first_uid, WARDEN_UID_BLOCK, e);
	int r = MIN(user_ns, 0);

	for (uint32_t i = 0; r >= 0 && i < n; i++)
		r = fds[i] = mount_one(v, &mounts[i], user_ns, e);
	return MIN(r, 0);
}
