/* The kernel shows nobody the root of a mount namespace, but who enters one, also the one he is in,
 * gets it for his own. */
#include "base/chroot.h"
#include "base/base.h"

#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int look_at_root(struct statx *ret)
{
	return statx(AT_FDCWD, "/", 0, STATX_INO | STATX_MNT_ID, ret);
}

static bool is_elsewhere(void)
{
	cleanup_close int ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	struct statx here, there;

	if (ns < 0 || look_at_root(&here) < 0 || setns(ns, CLONE_NEWNS) < 0 ||
		look_at_root(&there) < 0)
		return false;
	return here.stx_ino != there.stx_ino || here.stx_dev_major != there.stx_dev_major ||
	       here.stx_dev_minor != there.stx_dev_minor || here.stx_mnt_id != there.stx_mnt_id;
}

bool root_is_changed(void)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(is_elsewhere());
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 1;
}
