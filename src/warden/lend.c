/* The directories of saved images, for `atoll backup`: one of them may be in the pool, whose mount
 * nobody but a warden can find. They are handed over, and stay mounted for as long as they are
 * open, whether a warden lives or not. */
#include "warden/loopdev.h"
#include "warden/pool.h"
#include "warden/proto.h"
#include "warden/warden.h"

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
