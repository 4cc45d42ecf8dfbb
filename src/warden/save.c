#include "warden/save.h"
#include "warden/copy.h"
#include "warden/freezer.h"
#include "warden/host.h"
#include "warden/saved.h"

#include <sys/ioctl.h>
#include <sys/stat.h>

/* The kernel's own name for it is in no header for programs. */
#define EXT4_CHECKPOINT _IOW('f', 43, uint32_t)

enum {
	STOP_DEADLINE_MS = 2000,
	BLOCK_BYTES = 512, /* of st_blocks */
	/* Of the superblock of ext4, which begins at 1024: the first file that has no name any more
	 * and was open, and the flag of those that keep a list of them in a file. */
	LAST_ORPHAN_AT = 1024 + 0xe8,
	FEATURES_AT = 1024 + 0x64,
	ORPHANS_PRESENT = 0x10000,
};

struct live {
	int from_fd, to_fd, layer_fd, marker_fd;
	struct freezer freezer;        /* not open: it stands still already */
	const struct cgroups *cgroups; /* NULL: its programs serve no files */
	const char *key;
};

/* A write that found no room below is told of once, to whoever asks next, maybe long after there is
 * room again; its bytes are gone for good. So it is remembered here. */
static int fail_write(struct work_report *report, const char *what, struct err *e)
{
	int code = -errno;

	report->has_lost_writes = code == -EIO || code == -ENOSPC || code == -EROFS;
	return err_sys(e, code, "write the sandbox's %s out", what);
}

/* All of the file system down to the file it lies in, and the journal emptied, so that nothing has
 * to be replayed when the copy is mounted. Not fsfreeze: three grace periods make that 50 ms. */
static int write_out(const struct live *o, struct work_report *report, struct err *e)
{
	uint32_t flags = 0;

	if (syncfs(o->layer_fd) < 0)
		return fail_write(report, "disk", e);
	/* Kernels that cannot do this say so in other words, and the journal is replayed instead.
	 */
	if (ioctl(o->layer_fd, EXT4_CHECKPOINT, &flags) < 0 && (errno == EIO || errno == EROFS))
		return fail_write(report, "journal", e);
	if (sync_file_range(o->from_fd, 0, 0,
		    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
			    SYNC_FILE_RANGE_WAIT_AFTER) < 0)
		return fail_write(report, "image", e);
	return 0;
}

/* A warden that came after the one which started this process has taken the marker away. */
static int take_marker(int fd, struct err *e)
{
	struct stat st;

	if (file_lock(fd, F_WRLCK) < 0 || fstat(fd, &st) < 0 || st.st_nlink == 0)
		return err_set(e, -ECANCELED, "another warden took over");
	return 0;
}

static int stop(const struct live *o, struct err *e)
{
	int64_t deadline_ms = time_now_ms() + STOP_DEADLINE_MS;
	int r = freezer_order(&o->freezer, true);

	if (r < 0)
		return err_sys(e, r, "stop the sandbox");
	r = o->cgroups ? freezer_await_served(&o->freezer, o->cgroups, o->key, deadline_ms)
		       : freezer_await(&o->freezer, deadline_ms);
	return r < 0 ? err_set(e, r, "the sandbox's processes cannot be stopped") : 0;
}

static int copy_live(const struct live *o, struct work_report *report, struct err *e)
{
	int64_t from_us;
	int r = take_marker(o->marker_fd, e);

	if (r >= 0)
		r = write_out(o, report, e);
	if (r >= 0 && o->freezer.order_fd < 0)
		return copy_image(o->from_fd, o->to_fd, e);
	if (r < 0)
		return r;
	from_us = time_now_us();
	r = stop(o, e);
	if (r >= 0)
		r = write_out(o, report, e);
	if (r >= 0)
		r = copy_image(o->from_fd, o->to_fd, e);
	(void)freezer_order(&o->freezer, false);
	report->still_us = time_now_us() - from_us;
	return r;
}

static uint64_t allocated_bytes(int fd)
{
	struct stat st;

	return fstat(fd, &st) < 0 ? 0 : (uint64_t)st.st_blocks * BLOCK_BYTES;
}

/* Each sandbox that starts from the copy would have to remove the files that were open and had no
 * name: with thousands of them that takes seconds. */
static bool has_orphans(int fd)
{
	uint32_t last = 0, features = 0;

	return pread(fd, &last, sizeof last, LAST_ORPHAN_AT) == sizeof last &&
	       pread(fd, &features, sizeof features, FEATURES_AT) == sizeof features &&
	       (last || le32toh(features) & ORPHANS_PRESENT);
}

static int open_live(const struct disk *disk, const struct work_order *order,
	const int fds[WORK_FDS], struct live *o, struct err *e)
{
	int r = o->from_fd = disk_open_file(disk, &order->disk, O_RDWR, e);

	o->marker_fd = fds[WORK_MARKER];
	o->freezer =
		(struct freezer){ fds[WORK_FREEZE], fds[WORK_FROZEN], order->freezer_is_legacy };
	if (r < 0)
		return r;
	if (fds[WORK_LAYER] >= 0)
		r = o->layer_fd = fcntl(fds[WORK_LAYER], F_DUPFD_CLOEXEC, 0);
	else
		return o->layer_fd = disk_open_layer(disk, &order->disk, e);
	return r < 0 ? err_sys(e, -errno, "keep the layer") : 0;
}

static int copy_and_name(struct disk *disk, const struct work_order *order, const struct live *o,
	int saved_fd, struct work_report *report, struct err *e)
{
	int r = copy_live(o, report, e);

	if (r >= 0 && has_orphans(o->to_fd))
		r = disk_settle(disk, o->to_fd, order->image_name, e);
	if (r >= 0 && fdatasync(o->to_fd) < 0)
		r = err_sys(e, -errno, "write the copy out");
	report->bytes = allocated_bytes(o->to_fd);
	return r < 0 ? r : saved_finish(saved_fd, order->image_name, e);
}

int save_disk(struct disk *disk, const struct cgroups *cg, const struct work_order *order,
	const int fds[WORK_FDS], struct work_report *report, struct err *e)
{
	struct live o = { -EBADF, -EBADF, -EBADF, -EBADF, FREEZER_INIT,
		order->may_serve ? cg : NULL, order->key };
	int saved_fd = -EBADF, r;

	if (!disk_has_images(disk))
		return disk_open_layer(disk, &order->disk, e);
	r = o.to_fd = saved_begin(disk, order->image_name, &saved_fd, e);
	if (r < 0)
		return r;
	r = open_live(disk, order, fds, &o, e);
	if (r >= 0)
		r = copy_and_name(disk, order, &o, saved_fd, report, e);
	if (r < 0)
		saved_cancel(disk, order->image_name);
	close_fdp(&o.from_fd);
	close_fdp(&o.to_fd);
	close_fdp(&o.layer_fd);
	close_fdp(&saved_fd);
	return r;
}
