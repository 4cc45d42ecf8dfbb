/* Loaded into programs of a sandbox whose kernel (gVisor's, up to early 2023) refuses
 * AT_NO_AUTOMOUNT, a flag that changes nothing there and that coreutils' ls and stat always pass.
 * It stands in front of any libc, so it needs nothing but errno of one. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int without_automount(int flags)
{
	return flags & ~AT_NO_AUTOMOUNT;
}

int statx(int dir_fd, const char *restrict path, int flags, unsigned mask,
	struct statx *restrict out)
{
	return (int)syscall(SYS_statx, dir_fd, path, without_automount(flags), mask, out);
}

int fstatat(int dir_fd, const char *restrict path, struct stat *restrict out, int flags)
{
	return (int)syscall(SYS_newfstatat, dir_fd, path, out, without_automount(flags));
}

/* With 64 bits for offsets glibc's is called fstatat64; this is what others call theirs. */
int plain_fstatat(int dir_fd, const char *restrict path, struct stat *restrict out,
	int flags) __asm__("fstatat");
int plain_fstatat(int dir_fd, const char *restrict path, struct stat *restrict out, int flags)
{
	return fstatat(dir_fd, path, out, flags);
}
