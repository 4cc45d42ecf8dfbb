#include "guest/nest.h"
#include "guest/mounts.h"
#include "guest/nest-child.h"
#include "warden/proto.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MAP "0 0 65536" /* as the sandbox has them: WARDEN_UID_BLOCK */

enum {
	MOMENT_MS = 1000,
	FOUNDER_STACK = 16 << 10,
};

int nest_limit(struct err *e)
{
	static const struct {
		const char *name;
		int most;
	} limits[] = { { "user", NEST_MAX_KIND }, { "mnt", NEST_MAX_KIND },
		{ "pid", NEST_MAX_KIND }, { "ipc", NEST_MAX_KIND }, { "uts", NEST_MAX_KIND },
		{ "cgroup", NEST_MAX_KIND }, { "time", NEST_MAX_KIND },
		{ "net", NEST_MAX_NETWORKS } };
	int r = 0;

	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(limits); i++) {
		char path[64], text[16];

		(void)snprintf(path, sizeof path, "/proc/sys/user/max_%s_namespaces",
			limits[i].name);
		(void)snprintf(text, sizeof text, "%d", limits[i].most);
		r = file_write(AT_FDCWD, path, str_of(text), e);
	}
	return r;
}

/* Only what is attached somewhere can be cloned. */
int nest_put_fuse(int tree_fd, struct err *e)
{
	static const char path[] = "/dev/fuse";
	cleanup_close int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
	cleanup_close int node = -EBADF;
	int r;

	if (fd < 0)
		return err_sys(e, -errno, "make %s", path);
	r = mount_put(tree_fd, NEST_PROC, e);
	if (r < 0)
		return r;
	node = open_tree(AT_FDCWD, NEST_PROC "/" FUSE_NODE, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	r = node < 0 ? err_sys(e, -errno, "clone %s", path) : mount_put(node, path, e);
	if (umount2(NEST_PROC, MNT_DETACH) < 0 && r >= 0)
		r = err_sys(e, -errno, "unmount " NEST_PROC);
	return r;
}

/* ---- the way in ---- */

static int open_of(pid_t pid, const char *name, struct err *e)
{
	char path[64];
	int fd;

	(void)snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? err_sys(e, -errno, "open %s", path) : fd;
}

static int take_namespaces(pid_t pid, int *ret_user_fd, int *ret_place_fd, struct err *e)
{
	static const char *const maps[] = { "uid_map", "gid_map" };
	char path[64];
	int r = 0;

	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(maps); i++) {
		(void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, maps[i]);
		r = file_write(AT_FDCWD, path, STR(MAP), e);
	}
	if (r >= 0)
		r = *ret_user_fd = open_of(pid, "user", e);
	if (r >= 0)
		r = *ret_place_fd = open_of(pid, "mnt", e);
	return r;
}

/* In our memory, as a thread would be: a process of its own would enter the time namespace that is
 * not set yet. Its files in /proc are ours only while this one can be looked into. */
static int found(int *ret_user_fd, int *ret_place_fd, struct err *e)
{
	_Alignas(16) static char stack[FOUNDER_STACK];
	struct nest_founder f;
	int pair[2], r;
	pid_t pid;

	if (pipe2(pair, O_CLOEXEC) < 0)
		return err_sys(e, -errno, "make a pipe");
	(void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	f = (struct nest_founder){ .wait_fd = pair[0], .other_fd = pair[1] };
	pid = clone(nest_founder_main, stack + sizeof stack,
		CLONE_VM | CLONE_NEWUSER | CLONE_NEWNS | SIGCHLD, &f);
	if (pid < 0)
		r = err_sys(e, -errno, "make a user namespace in the sandbox");
	else
		r = take_namespaces(pid, ret_user_fd, ret_place_fd, e);
	(void)close(pair[0]);
	(void)close(pair[1]);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	return r;
}

/* The whole /proc is only where nobody gets to: not in what is entered. */
int nest_enter(int *ret_place_fd, struct err *e)
{
	static const struct mount_option none[MOUNT_MAX_OPTIONS];
	cleanup_close int user_fd = -EBADF, place_fd = -EBADF, proc_fd = -EBADF;
	int r = mount_make("proc", none, MOUNT_PLAIN, &proc_fd, e);

	if (r >= 0)
		r = mount_put(proc_fd, NEST_PROC, e);
	if (r >= 0)
		r = found(&user_fd, &place_fd, e);
	if (r < 0)
		return r;
	if (umount2(NEST_PROC, MNT_DETACH) < 0)
		return err_sys(e, -errno, "unmount " NEST_PROC);
	if (setns(user_fd, CLONE_NEWUSER) < 0)
		return err_sys(e, -errno, "enter the inner user namespace");
	if (unshare(CLONE_NEWNS) < 0)
		return err_sys(e, -errno, "make an inner mount namespace");
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_sys(e, -errno, "PR_SET_DUMPABLE");
	*ret_place_fd = TAKE_FD(place_fd);
	return 0;
}

/* ---- mounting ---- */

int nest_mount(struct nest *n, int asked_fd, const struct seccomp_notif *asked, int64_t now_ms)
{
	const struct nest_child child = { .asked_fd = asked_fd,
		.place_fd = n->place_fd,
		.id = asked->id,
		.thread = asked->pid,
		.target = asked->data.args[1],
		.type = asked->data.args[2],
		.flags = asked->data.args[3] };
	pid_t pid;

	if (now_ms - n->moment_ms >= MOMENT_MS) {
		n->moment_ms = now_ms;
		n->n_mounts = 0;
	}
	if (n->place_fd < 0 || n->n_mounts >= NEST_MOUNTS_A_SECOND)
		return n->place_fd < 0 ? -EPERM : -EAGAIN;
	n->n_mounts++;
	pid = fork();
	if (pid == 0)
		nest_child_main(&child);
	return pid < 0 ? -errno : 0;
}
