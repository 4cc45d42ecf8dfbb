/* Files that are open and have no name: the kernel keeps each, and removes it when it is closed. */
#include "attack/attack.h"

#include <sys/resource.h>

enum {
	SPARE_FILES = 64,
	LIFE_S = 300,
};

static int make_one(void)
{
	int fd = open("orphan", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	return fd < 0 || write(fd, "x", 1) != 1 || unlink("orphan") < 0 ? -errno : 0;
}

/* Makes as many as one process may have open, tells how many, and keeps them. */
static _Noreturn void keep(int64_t n, int told_fd)
{
	struct rlimit files = { 0 };
	int64_t made = 0;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	while (made < MIN(n, (int64_t)files.rlim_cur - SPARE_FILES) && make_one() >= 0)
		made++;
	(void)!write(told_fd, &made, sizeof made);
	(void)setsid();
	for (int fd = 0; fd < 3; fd++)
		(void)close(fd);
	(void)sleep(LIFE_S);
	_exit(0);
}

int orphans_start(int64_t n)
{
	int told[2];

	if (pipe2(told, O_CLOEXEC) < 0)
		return -errno;
	while (n > 0) {
		int64_t made = 0;
		pid_t pid = fork();

		if (pid == 0)
			keep(n, told[1]);
		if (pid < 0 || read(told[0], &made, sizeof made) != sizeof made || made <= 0)
			return -EIO;
		n -= made;
	}
	return 0;
}
