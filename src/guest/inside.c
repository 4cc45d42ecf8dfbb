#include "guest/inside.h"
#include "guest/engine.h"
#include "guest/seal.h"
#include "guest/seccomp.h"
#include "guest/view.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

enum {
	BACKLOG = 1024,
};

static int null_stdio(struct err *e)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return err_sys(e, -errno, "open /dev/null");
	for (int i = 0; i <= STDERR_FILENO; i++)
		(void)dup2(fd, i);
	(void)close(fd);
	return 0;
}

/* The host's end of these is moved away before START, and their directory is removed: nothing that
 * runs later finds them. */
static int listen_at(const char *path, int *ret, struct err *e)
{
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	(void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
		listen(fd, BACKLOG) < 0)
		return err_sys(e, -errno, "listen at %s", path);
	*ret = TAKE_FD(fd);
	return 0;
}

/* The ways in, of our program and of its sockets: whoever comes later finds neither, nor the file
 * systems of the host that they lie on. The door is only covered: gVisor accepts through it. */
static int leave_no_trace(enum boot_place place, struct err *e)
{
	if (umount2(ENGINE_GUEST, MNT_DETACH) < 0)
		return err_sys(e, -errno, "unmount %s", ENGINE_GUEST);
	if (unlink(ENGINE_GUEST) < 0)
		(void)rmdir(ENGINE_GUEST); /* what it was mounted on is the engine's choice */
	if (place != BOOT_GVISOR) {
		if (umount2(ENGINE_GROUPS, MNT_DETACH) < 0)
			return err_sys(e, -errno, "unmount %s", ENGINE_GROUPS);
		(void)rmdir(ENGINE_GROUPS);
		return 0;
	}
	if (mount("none", ENGINE_DOOR, "tmpfs", MS_RDONLY | MS_NOEXEC, "mode=0555") < 0)
		return err_sys(e, -errno, "cover %s", ENGINE_DOOR);
	return 0;
}

/* In a process of its own. Older ones say that they have made a mount namespace, and have not. */
static bool can_nest(void)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID) < 0 ||
			mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
			mount("none", "/proc", "tmpfs", 0, NULL) < 0);
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
	       WEXITSTATUS(status) == 0 && access("/proc/self", F_OK) == 0;
}

static int check_nesting(struct err *e)
{
	if (can_nest())
		return 0;
	return err_set(e, -EOPNOTSUPP,
		"this runsc cannot nest: its kernel has no mount namespaces (Debian 12's has "
		"none); "
		"the runtime 'local' can");
}

/* gVisor's own kernel is what separates this sandbox from the host: nothing to mask, no calls to
 * forbid. */
static int prepare_gvisor(enum boot_place place, struct boot *ret, struct err *e)
{
	int r;

	if (dup3(STDIN_FILENO, WARDEN_GUEST_FD, O_CLOEXEC) < 0)
		return err_sys(e, -errno, "move the warden's socket");
	r = null_stdio(e);
	if (r >= 0 && place == BOOT_GVISOR_NESTED)
		r = check_nesting(e);
	if (r >= 0)
		r = covers_make_in_gvisor(&ret->covers, e);
	if (r >= 0)
		r = listen_at(ENGINE_DOOR "/" GUEST_SOCKET, &ret->listen_fd, e);
	if (r >= 0)
		r = listen_at(ENGINE_DOOR "/" GUEST_DIAL, &ret->dial_fd, e);
	if (r >= 0)
		r = leave_no_trace(BOOT_GVISOR, e);
	return r < 0 ? r : seal_capabilities(e);
}

/* How many there are: all, or none. */
static int clone_groups(int fds[GUEST_GROUPS])
{
	int n = 0;

	for (; n < GUEST_GROUPS; n++) {
		char path[64];

		(void)snprintf(path, sizeof path, ENGINE_GROUPS "/%s", engine_groups[n]);
		fds[n] = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
		if (fds[n] < 0)
			break;
	}
	if (n == GUEST_GROUPS)
		return n;
	while (n > 0)
		(void)close(fds[--n]);
	return 0;
}

/* Comes before leave_no_trace, which takes the groups away. */
static int show_kernel_files(struct boot *ret, struct err *e)
{
	int groups[GUEST_GROUPS], n = clone_groups(groups), r;
	struct view view = VIEW_INIT;

	r = view_make(&view, e);
	if (r >= 0)
		r = view_unstage(e);
	if (r >= 0)
		r = seal_kernel_files(&view, n ? groups : NULL, e);
	if (r >= 0) {
		ret->covers = view.covers;
		view.covers = (struct covers)COVERS_INIT;
	}
	view_done(&view);
	while (n > 0)
		(void)close(groups[--n]);
	return r;
}

static int prepare_container(struct boot *ret, struct err *e)
{
	const struct seccomp_kind kind = { .has_volumes = true };
	int r;

	(void)fcntl(WARDEN_GUEST_FD, F_SETFD, FD_CLOEXEC);
	(void)fcntl(ENGINE_LISTEN_FD, F_SETFD, FD_CLOEXEC);
	ret->listen_fd = ENGINE_LISTEN_FD;
	if (close_range(ENGINE_LISTEN_FD + 1, ~0U, 0) < 0)
		return err_sys(e, -errno, "close_range");
	r = null_stdio(e);
	if (r >= 0)
		r = seal_device_nodes(e);
	if (r >= 0)
		r = show_kernel_files(ret, e);
	if (r >= 0)
		r = leave_no_trace(BOOT_CONTAINER, e);
	/* The engine has mounted them, if there are any: as if there were. */
	return r < 0 ? r : seal_self(&kind, &ret->asked_fd, e);
}

int inside_prepare(enum boot_place place, struct boot *ret, struct err *e)
{
	int r = place == BOOT_CONTAINER ? prepare_container(ret, e) : prepare_gvisor(place, ret, e);

	if (r < 0)
		return r;
	/* Nothing inside may look into this process: it holds the socket of the API. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_sys(e, -errno, "PR_SET_DUMPABLE");
	seal_limits();
	return 0;
}
