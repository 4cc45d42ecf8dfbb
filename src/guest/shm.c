#include "guest/shm.h"

#include <sys/mount.h>

static int resize_dev(uint64_t bytes, struct err *e)
{
	cleanup_close int fs = fspick(AT_FDCWD, "/dev", FSPICK_CLOEXEC | FSPICK_SYMLINK_NOFOLLOW);
	char text[24];

	(void)snprintf(text, sizeof text, "%" PRIu64, bytes);
	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "size", text, 0) < 0 ||
		fsconfig(fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) < 0)
		return err_sys(e, -errno, "limit /dev/shm");
	return 0;
}

/* System V's objects have no owner either. What older kernels do not let a user namespace set stays
 * bounded by the memory limit alone. */
static void limit_sysv(uint64_t bytes)
{
	char pages[24];

	(void)snprintf(pages, sizeof pages, "%" PRIu64, bytes / (uint64_t)sysconf(_SC_PAGESIZE));
	(void)file_write(AT_FDCWD, "/proc/sys/kernel/shmall", str_of(pages), NULL);
	(void)file_write(AT_FDCWD, "/proc/sys/kernel/msgmni", STR("256"), NULL);
	(void)file_write(AT_FDCWD, "/proc/sys/kernel/sem", STR("250 32000 32 128"), NULL);
}

int shm_limit(uint64_t bytes, struct err *e)
{
	if (bytes == 0)
		return 0;
	limit_sysv(bytes);
	return resize_dev(bytes, e);
}
