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
	[COVER_ONLINE] = { DIRECTORY "/online", CPU "online" },
	[COVER_PRESENT] = { DIRECTORY "/present", CPU "present" },
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

int cover_make(int tree_fd, struct err *e)
{
	int r = 0;

	if (mkdirat(tree_fd, DIRECTORY, 0555) < 0)
		return err_sys(e, -errno, "make /sys/" DIRECTORY);
	for (size_t i = 0; r >= 0 && i < COVER_FILES; i++) {
		cleanup_close int fd = openat(tree_fd, files[i].name,
			O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0444);

		if (fd < 0)
			return err_sys(e, -errno, "make /sys/%s", files[i].name);
		if (i == COVER_CPUINFO)
			r = copy_cpuinfo(fd, e);
	}
	return r;
}

/* What lies below /proc and /sys is the kernel's own: there are no links of a template on the way.
 * What this kernel does not have needs no cover. */
int cover_put(struct err *e)
{
	for (size_t i = 0; i < COVER_FILES; i++) {
		char path[64];

		(void)snprintf(path, sizeof path, "/sys/%s", files[i].name);
		if (mount(path, files[i].target, NULL, MS_BIND, NULL) < 0 && errno != ENOENT)
			return err_sys(e, -errno, "cover %s", files[i].target);
	}
	return 0;
}

int cover_write(int tree_fd, enum cover_file file, struct str text, struct err *e)
{
	cleanup_close int fd = openat(tree_fd, files[file].name, O_WRONLY | O_CLOEXEC);
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return err_sys(e, -errno, "open %s", files[file].name);
	n = pwrite(fd, text.p, text.n, 0);
	if (n < 0 || (size_t)n != text.n)
		return err_sys(e, n < 0 ? -errno : -ENOSPC, "write %s", files[file].name);
	if (fstat(fd, &st) == 0 && st.st_size > n && ftruncate(fd, n) < 0)
		return err_sys(e, -errno, "shorten %s", files[file].name);
	return 0;
}

int cover_read(int tree_fd, enum cover_file file, struct buf *out, struct err *e)
{
	return file_read(tree_fd, files[file].name, out, e);
}
