/* Runs between fork and the end of the server, as whoever started it. It takes one byte and gives
 * back two open files: it has nothing to parse, allocates nothing and knows two paths. */
#include "tls/tls-internal.h"
#include "base/confine.h"

#include <linux/capability.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Of root, only the right to read what others may not is kept. Without root there is nothing to
 * give up, and the calls fail without harm. */
static void keep_reading_only(void)
{
	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	(void)confine_capabilities(UINT64_C(1) << CAP_DAC_READ_SEARCH, NULL);
}

/* Only the socket stays open: the keeper must not keep a lock or a port of the server's. */
static int close_others(int fd)
{
	if (fd != 3 && (dup3(fd, 3, O_CLOEXEC) < 0))
		return -errno;
	return syscall(SYS_close_range, 4U, ~0U, 0) < 0 ? -errno : 3;
}

static int open_file(const char *path)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
	return TAKE_FD(fd);
}

static int answer(int fd, const char *const paths[2])
{
	struct keeper_answer text = { 0 };
	int files[2] = { -EBADF, -EBADF };
	int r;

	for (int i = 0; i < 2 && text.code == 0; i++) {
		files[i] = open_file(paths[i]);
		if (files[i] < 0)
			text = (struct keeper_answer){ .code = files[i], .which = i };
	}
	r = fd_send(fd, &text, sizeof text, files, text.code == 0 ? 2 : 0);
	close_fdp(&files[0]);
	close_fdp(&files[1]);
	return r;
}

_Noreturn void keeper_main(int fd, const char *const paths[2])
{
	static const int ignored[] = { SIGHUP, SIGINT, SIGTERM, SIGQUIT };
	char byte;

	/* These are meant for the server, and reach the whole group of a terminal. */
	for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
		(void)signal(ignored[i], SIG_IGN);
	(void)prctl(PR_SET_NAME, "atoll-tls-files");
	keep_reading_only();
	fd = close_others(fd);
	while (fd >= 0 && recv(fd, &byte, 1, 0) == 1)
		if (answer(fd, paths) < 0)
			break;
	_exit(0);
}
