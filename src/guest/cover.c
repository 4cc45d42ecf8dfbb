#include "guest/cover.h"

#include <sys/mount.h>
#include <sys/stat.h>

#define DIRECTORY ".seen"
#define CPU "/sys/devices/system/cpu/"

enum {
	KERNEL_FILE_BYTES = 4096, /* two processors of cpuinfo, or three */
};

static const struct {
	const char *name, *target;
} files[COVER_FILES] = {
	[COVER_MEMINFO] = { DIRECTORY "/meminfo", "/proc/meminfo" },
	[COVER_CPUINFO] = { DIRECTORY "/cpuinfo", "/proc/cpuinfo" },
	[COVER_STAT] = { DIRECTORY "/stat", "/proc/stat" },
	[COVER_LOADAVG] = { DIRECTORY "/loadavg", "/proc/loadavg" },
	[COVER_ONLINE] = { DIRECTORY "/online", CPU "online" },
	[COVER_POSSIBLE] = { DIRECTORY "/possible", CPU "possible" },
};

/* The kernel gives whole processors only, as many as fit: one would do. */
static int copy_cpuinfo(int to, struct err *e)
{
	cleanup_close int from = open(files[COVER_CPUINFO].target, O_RDONLY | O_CLOEXEC);
	char text[KERNEL_FILE_BYTES];
	ssize_t n = from < 0 ? -1 : read(from, text, sizeof text);

	if (n < 0 && errno != ENOENT)
		return err_sys(e, -errno, "read /proc/cpuinfo");
	return n > 0 ? fd_write_all(to, text, (size_t)n) : 0;
}

void covers_done(struct covers *c)
{
	for (size_t i = 0; i < COVER_FILES; i++)
		close_fdp(&c->fds[i]);
	*c = (struct covers)COVERS_INIT;
}

int covers_make(int tree_fd, struct covers *ret, struct err *e)
{
	CLEANUP(covers_done) struct covers c = COVERS_INIT;
	int r;

	if (mkdirat(tree_fd, DIRECTORY, 0555) < 0)
		return err_sys(e, -errno, "make /sys/" DIRECTORY);
	for (size_t i = 0; i < COVER_FILES; i++) {
		c.fds[i] =
			openat(tree_fd, files[i].name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0444);
		if (c.fds[i] < 0)
			return err_sys(e, -errno, "make /sys/%s", files[i].name);
	}
	r = copy_cpuinfo(c.fds[COVER_CPUINFO], e);
	if (r < 0)
		return r;
	*ret = c;
	c = (struct covers)COVERS_INIT;
	return 0;
}

#define PLACE "/dev/atoll-seen"

/* It has no calls for mounts by descriptor, but it keeps what is open when its mount has gone. */
int covers_make_in_gvisor(struct covers *ret, struct err *e)
{
	static const char path[] = PLACE "/meminfo";
	cleanup_close int fd = -EBADF;
	int r = 0;

	if (mkdir(PLACE, 0700) < 0 ||
		mount("none", PLACE, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0555") < 0)
		return err_sys(e, -errno, "mount " PLACE);
	fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0444);
	if (fd < 0 || mount(path, files[COVER_MEMINFO].target, NULL, MS_BIND | MS_RDONLY, NULL) < 0)
		r = err_sys(e, -errno, "cover %s", files[COVER_MEMINFO].target);
	if (umount2(PLACE, MNT_DETACH) < 0 && r >= 0)
		r = err_sys(e, -errno, "unmount " PLACE);
	(void)rmdir(PLACE);
	if (r >= 0)
		ret->fds[COVER_MEMINFO] = TAKE_FD(fd);
	return r;
}

static int put(enum cover_file file, const char *target, struct err *e)
{
	char path[64];

	(void)snprintf(path, sizeof path, "/sys/%s", files[file].name);
	if (mount(path, target, NULL, MS_BIND, NULL) < 0 && errno != ENOENT)
		return err_sys(e, -errno, "cover %s", target);
	return 0;
}

/* What lies below /proc and /sys is the kernel's own: there are no links of a template on the way.
 * What this kernel does not have needs no cover. */
int covers_put(struct err *e)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < COVER_FILES; i++)
		r = put((enum cover_file)i, files[i].target, e);
	return r < 0 ? r : put(COVER_ONLINE, CPU "present", e);
}

const char *cover_in_proc(size_t i)
{
	for (size_t k = 0; k < COVER_FILES; k++)
		if (str_has_prefix(str_of(files[k].target), STR("/proc/")) && i-- == 0)
			return files[k].target;
	return NULL;
}

int cover_write(const struct covers *c, enum cover_file file, struct str text, struct err *e)
{
	int fd = c->fds[file];
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return 0;
	n = pwrite(fd, text.p, text.n, 0);
	if (n < 0 || (size_t)n != text.n)
		return err_sys(e, n < 0 ? -errno : -ENOSPC, "write %s", files[file].name);
	if (fstat(fd, &st) == 0 && st.st_size > n && ftruncate(fd, n) < 0)
		return err_sys(e, -errno, "shorten %s", files[file].name);
	return 0;
}

int cover_read(const struct covers *c, enum cover_file file, struct buf *out, struct err *e)
{
	if (lseek(c->fds[file], 0, SEEK_SET) < 0)
		return err_sys(e, -errno, "read %s", files[file].name);
	return fd_read_all(c->fds[file], out);
}
