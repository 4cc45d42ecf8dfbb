/* The directories of saved images, for `atoll backup`: one of them may be in the pool, whose mount
 * nobody but a warden can find. They are handed over, and stay mounted for as long as they are
 * open, whether a warden lives or not. */
#include "warden/loopdev.h"
#include "warden/pool.h"
#include "warden/proto.h"
#include "warden/volume-image.h"
#include "warden/warden.h"

#include <linux/fs.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>

enum {
	HOLD_MS = 600 * 1000, /* whoever writes there waits so long at most */
};

static int open_images(const char *data_dir, struct err *e)
{
	char path[4096];
	int fd;

	(void)snprintf(path, sizeof path, "%s/images", data_dir);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? err_sys(e, -errno, "open %s", path) : fd;
}

static int lend(const char *data_dir, struct err *e)
{
	cleanup_close int host = open_images(data_dir, e), pool = -EBADF, control = -EBADF;
	int fds[2], n = 0, r = MIN(host, 0);

	if (r >= 0 && pool_exists(host)) {
		control = loopdev_open();
		r = pool_open(host, control, &pool, e);
	}
	if (r < 0)
		return r;
	fds[n++] = host;
	if (pool >= 0)
		fds[n++] = pool;
	r = fd_send(WARDEN_CONTROL_FD, "", 1, fds, n);
	return r < 0 ? err_sys(e, r, "hand the directories of images over") : 0;
}

int lend_images(const struct options *options)
{
	struct err e = { 0 };

	if (lend(options->data_dir, &e) >= 0)
		return 0;
	(void)fprintf(stderr, "atoll-warden: %s\n", e.msg);
	return 1;
}

/* ---- volumes ---- */

/* The server owns the directory that they are in, and may have put something else there. */
static int open_volume_images(const char *data_dir, struct err *e)
{
	char path[4096];
	cleanup_close int volumes = -EBADF;
	int fd = -EBADF, r;

	(void)snprintf(path, sizeof path, "%s/volumes", data_dir);
	volumes = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (volumes < 0)
		return err_sys(e, -errno, "open %s", path);
	r = warden_open_own_dir(volumes, VOLUME_IMAGES_DIR, VOLUME_IMAGES_MODE, &fd, e);
	return r < 0 ? r : fd;
}

/* Mounted here as well, whether anybody else has it mounted or not: who comes meanwhile gets the
 * same file system, and waits. It stays frozen when the one who froze it is killed, so whoever has
 * the lock thaws it first. */
static int freeze(const struct options *options, int *ret_lock, int *ret, struct err *e)
{
	cleanup_close int control = loopdev_open();
	const char *name = options->hold_volume;
	int r;

	if (!str_is_uuid(str_of(name)))
		return err_set(e, -EINVAL, "'%s' is no volume", name);
	r = *ret_lock = open_volume_images(options->data_dir, e);
	if (r >= 0 && flock(*ret_lock, LOCK_EX | LOCK_NB) < 0)
		r = err_set(e, -EBUSY,
			"another backup of this data directory reads a volume: let it end first");
	if (r >= 0)
		r = *ret = volume_image_reach(*ret_lock, control, name, e);
	if (r < 0)
		return r;
	(void)ioctl(*ret, FITHAW, 0);
	return ioctl(*ret, FIFREEZE, 0) < 0 ? err_sys(e, -errno, "freeze %s", name) : 0;
}

static bool wait_for_end_of_input(void)
{
	struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };

	return poll(&in, 1, HOLD_MS) > 0;
}

/* Nothing but the end of who asked ends it: it must not stay frozen. */
int hold_volume(const struct options *options)
{
	static const int ignored[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE };
	cleanup_close int lock = -EBADF, fd = -EBADF;
	struct err e = { 0 };
	bool in_time;

	for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
		(void)signal(ignored[i], SIG_IGN);
	if (freeze(options, &lock, &fd, &e) < 0) {
		(void)fprintf(stderr, "atoll-warden: %s\n", e.msg);
		return 1;
	}
	(void)fd_write_all(STDOUT_FILENO, "held\n", 5);
	in_time = wait_for_end_of_input();
	(void)ioctl(fd, FITHAW, 0);
	return in_time ? 0 : 1;
}
