#include "base/userns.h"
#include "base/base.h"
#include "base/userns-child.h"

#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static int open_mapped(pid_t pid, const char *map, struct err *e)
{
	static const char *const files[] = { "uid_map", "gid_map" };
	char path[64];
	int fd, r = 0;

	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(files); i++) {
		(void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, files[i]);
		r = file_write(AT_FDCWD, path, str_of(map), e);
	}
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? err_sys(e, -errno, "open %s", path) : fd;
}

int userns_make(uint32_t inside, uint32_t outside, uint32_t count, struct err *e)
{
	struct clone_args args = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
	int pair[2], fd;
	char map[64];
	pid_t pid;

	if (pipe2(pair, O_CLOEXEC) < 0)
		return err_sys(e, -errno, "make a pipe");
	(void)snprintf(map, sizeof map, "%" PRIu32 " %" PRIu32 " %" PRIu32, inside, outside, count);
	pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
	if (pid == 0)
		userns_child_main(pair[0]);
	fd = pid < 0 ? err_sys(e, -errno, "clone a process into a user namespace")
		     : open_mapped(pid, map, e);
	(void)close(pair[0]);
	(void)close(pair[1]);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return fd;
}
