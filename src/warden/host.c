#include "warden/host.h"

#include <linux/openat2.h>
#include <sys/syscall.h>

int file_lock(int fd, short type)
{
	struct flock lock = { .l_type = type, .l_whence = SEEK_SET };

	if (fcntl(fd, F_SETLK, &lock) < 0)
		return errno == EACCES ? -EAGAIN : -errno;
	return 0;
}

int file_lock_shared_by_forks(int fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	if (fcntl(fd, F_OFD_SETLK, &lock) < 0)
		return errno == EACCES ? -EAGAIN : -errno;
	return 0;
}

int open_beneath(int dir_fd, const char *path, int flags)
{
	struct open_how how = { .flags = (uint64_t)(flags | O_CLOEXEC),
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
	int fd = (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof how);

	return fd < 0 ? -errno : fd;
}
