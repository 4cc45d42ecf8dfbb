#include "warden/host.h"

#include <linux/openat2.h>
#include <sys/syscall.h>

int process_start_time(pid_t pid, uint64_t *ret)
{
	enum {
		FIELD_AFTER_NAME =
			20, /* start time is field 22; fields are counted from the state, 3 */
	};
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	struct str rest, field = STR_NONE;
	int64_t value;
	char path[32];
	int r;

	(void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	r = file_read(AT_FDCWD, path, &text, NULL);
	if (r < 0)
		return r;
	/* The name may contain anything, also spaces and brackets; the last bracket ends it. */
	rest = buf_str(&text);
	for (const char *p = rest.p; (p = memchr(p, ')', text.n - (size_t)(p - text.p))); p++)
		rest = str_make(p + 1, text.n - (size_t)(p + 1 - text.p));
	rest = str_trim(rest);
	for (int i = 0; i < FIELD_AFTER_NAME; i++)
		if (!str_split(&rest, ' ', &field))
			return -EPROTO;
	r = str_to_int(field, 0, INT64_MAX, &value);
	if (r >= 0)
		*ret = (uint64_t)value;
	return r;
}

int file_lock(int fd, short type)
{
	struct flock lock = { .l_type = type, .l_whence = SEEK_SET };

	if (fcntl(fd, F_SETLK, &lock) < 0)
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
