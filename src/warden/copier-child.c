#include "warden/copier-child.h"
#include "warden/copy.h"
#include "warden/host.h"
#include "warden/saved.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* The kernel's own name for it is in no header for programs. */
#define EXT4_CHECKPOINT _IOW('f', 43, uint32_t)

enum {
	STOP_DEADLINE_MS = 2000,
	LOOK_AGAIN_US = 20,
	BLOCK_BYTES = 512, /* of st_blocks */
};

/* Other sandboxes' mounts and sockets must not live on in this copy of the warden. */
static void keep_only(const int *keep, size_t n)
{
	unsigned from = STDERR_FILENO + 1;

	for (;;) {
		unsigned next = ~0U;

		for (size_t i = 0; i < n; i++)
			if (keep[i] >= 0 && (unsigned)keep[i] >= from)
				next = MIN(next, (unsigned)keep[i]);
		if (next > from)
			(void)close_range(from, next == ~0U ? next : next - 1, 0);
		if (next == ~0U)
			return;
		from = next + 1;
	}
}

static void close_others(const struct copy_order *o)
{
	const int keep[] = { o->from_fd, o->to_fd, o->layer_fd, o->marker_fd, o->saved_fd,
		o->freezer.order_fd, o->freezer.state_fd };

	keep_only(keep, ARRAY_SIZE(keep));
}

/* A write that found no room below is told of once, to whoever asks next, maybe long after there is
 * room again; its bytes are gone for good. So it is remembered here. */
static int fail_write(struct copy_report *report, const char *what, struct err *e)
{
	int code = -errno;

	report->has_lost_writes = code == -EIO || code == -ENOSPC || code == -EROFS;
	return err_sys(e, code, "write the sandbox's %s out", what);
}

/* All of the file system down to the file it lies in, and the journal emptied, so that nothing has
 * to be replayed when the copy is mounted. Not fsfreeze: three grace periods make that 50 ms. */
static int write_out(const struct copy_order *o, struct copy_report *report, struct err *e)
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

static int stop(const struct copy_order *o, struct err *e)
{
	int64_t deadline_ms = time_now_ms() + STOP_DEADLINE_MS;
	int r = freezer_order(&o->freezer, true);

	if (r < 0)
		return err_sys(e, r, "stop the sandbox");
	while (!freezer_is_still(&o->freezer)) {
		if (time_now_ms() > deadline_ms)
			return err_set(e, -EBUSY, "the sandbox's processes cannot be stopped");
		(void)usleep(LOOK_AGAIN_US);
	}
	return 0;
}

static int copy_live(const struct copy_order *o, struct copy_report *report, struct err *e)
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

_Noreturn void copier_child_main(const struct copy_order *o, struct copy_report *report)
{
	int64_t from_us = time_now_us();
	struct err e = { 0 };
	int r;

	close_others(o);
	if (o->layer_fd >= 0)
		r = copy_live(o, report, &e);
	else
		r = copy_image(o->from_fd, o->to_fd, &e);
	if (r >= 0 && o->saved_fd >= 0 && fdatasync(o->to_fd) < 0)
		r = err_sys(&e, -errno, "write the copy out");
	if (r >= 0 && o->saved_fd >= 0)
		r = saved_finish(o->saved_fd, o->name, &e);
	report->bytes = allocated_bytes(o->to_fd);
	report->total_us = time_now_us() - from_us;
	report->e = r < 0 ? e : (struct err){ 0 };
	_exit(0);
}
