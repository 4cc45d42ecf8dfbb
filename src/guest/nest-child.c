/* Forked from PID 1, whose other threads are not here: nothing allocates. Its own mounts, and those
 * that it makes for others, may wait for a file system that a program inside serves; then only who
 * asked waits with it. */
#include "guest/nest-child.h"
#include "base/filter.h"
#include "guest/seal.h"

#include <limits.h>
#include <linux/capability.h>
#include <linux/nsfs.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum {
	DEADLINE_S = 10,
	STATUS_BYTES = 4096,
	TYPE_BYTES = 8, /* "proc" and its end are all that matters */
	PLAIN_MOUNT = MS_NOSUID | MS_NODEV | MS_NOEXEC,
};

/* On a second stack, of which the sanitizers' bookkeeping knows nothing. */
__attribute__((no_sanitize("address", "undefined"))) int nest_founder_main(void *arg)
{
	const struct nest_founder *f = arg;
	char unused;

	(void)close(f->other_fd);
	while (read(f->wait_fd, &unused, 1) < 0 && errno == EINTR)
		;
	_exit(0);
}

struct caller {
	int root_fd, cwd_fd, mounts_fd, pids_fd;
	char target[PATH_MAX];
};

/* ---- answers ---- */

static _Noreturn void answer(const struct nest_child *c, int error, uint32_t flags)
{
	struct seccomp_notif_resp resp = { .id = c->id, .error = error, .flags = flags };

	(void)ioctl(c->asked_fd, SECCOMP_IOCTL_NOTIF_SEND, &resp);
	_exit(0);
}

/* The kernel decides, as if nobody had looked. */
static _Noreturn void leave_to_kernel(const struct nest_child *c)
{
	answer(c, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE);
}

/* ---- who asks ---- */

static int open_of(const struct nest_child *c, const char *name, int flags)
{
	char path[64];

	(void)snprintf(path, sizeof path, "/proc/%" PRIu32 "/%s", c->thread, name);
	return open(path, flags | O_CLOEXEC);
}

/* Text of the caller's memory, with its end. */
static bool read_text(const struct nest_child *c, uint64_t from, char *to, size_t size)
{
	cleanup_close int fd = open_of(c, "mem", O_RDONLY);
	size_t n = 0;

	/* A page at a time, since the next one may not be there. */
	while (fd >= 0 && n < size) {
		size_t step = MIN(size - n, 4096 - (size_t)((from + n) % 4096));
		ssize_t got = pread(fd, to + n, step, (off_t)(from + n));

		if (got <= 0)
			return false;
		if (memchr(to + n, '\0', (size_t)got))
			return true;
		n += (size_t)got;
	}
	return false;
}

static bool has_admin(const struct nest_child *c)
{
	static const char name[] = "\nCapEff:\t";
	cleanup_close int fd = open_of(c, "status", O_RDONLY);
	char text[STATUS_BYTES];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	uint64_t caps = 0;
	const char *at;

	if (n < 0)
		return false;
	text[n] = '\0';
	at = strstr(text, name);
	for (at = at ? at + strlen(name) : ""; *at && *at != '\n'; at++)
		caps = caps << 4 | (uint64_t)(*at <= '9' ? *at - '0' : *at - 'a' + 10);
	return caps >> CAP_SYS_ADMIN & 1;
}

static bool is_same(int a, int b)
{
	struct stat x, y;

	return a >= 0 && b >= 0 && fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev &&
	       x.st_ino == y.st_ino;
}

static bool is_of(int namespace_fd, int user_fd)
{
	cleanup_close int owner = ioctl(namespace_fd, NS_GET_USERNS);

	return is_same(owner, user_fd);
}

/* Stricter than the kernel, which takes a caller from further up as well: who has its capability in
 * the very user namespace that its mounts and its processes belong to. */
static bool may_mount_proc(const struct nest_child *c, const struct caller *who)
{
	cleanup_close int user_fd = open_of(c, "ns/user", O_RDONLY);

	return user_fd >= 0 && has_admin(c) && is_of(who->mounts_fd, user_fd) &&
	       is_of(who->pids_fd, user_fd);
}

/* By its thread's number, which is its own as long as it waits for the answer. */
static bool take_caller(const struct nest_child *c, struct caller *ret)
{
	uint64_t id = c->id;
	char type[TYPE_BYTES];

	if (!c->type || !c->target || !read_text(c, c->type, type, sizeof type) ||
		strcmp(type, "proc") != 0 || !read_text(c, c->target, ret->target, PATH_MAX))
		return false;
	ret->root_fd = open_of(c, "root", O_PATH | O_DIRECTORY);
	ret->cwd_fd = open_of(c, "cwd", O_PATH | O_DIRECTORY);
	ret->mounts_fd = open_of(c, "ns/mnt", O_RDONLY);
	ret->pids_fd = open_of(c, "ns/pid", O_RDONLY);
	return ret->root_fd >= 0 && ret->cwd_fd >= 0 && ret->mounts_fd >= 0 && ret->pids_fd >= 0 &&
	       may_mount_proc(c, ret) && ioctl(c->asked_fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

/* ---- a /proc of its processes, covered as the sandbox's own ---- */

/* The last argument, which mount(2) has not, has the filter let it pass. */
static int mount_own(const char *target)
{
	return (int)syscall(SYS_mount, "proc", target, "proc", PLAIN_MOUNT, NULL, FILTER_OWN_MOUNT);
}

/* What lies over a directory was removed when it had been mounted, and cannot be again. */
static int cover(const char *name)
{
	char path[64];
	struct stat st;

	(void)snprintf(path, sizeof path, NEST_PROC "%s", name + strlen("/proc"));
	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (mount(name, path, NULL, MS_BIND | MS_REC, NULL) == 0)
		return 0;
	return errno == ENOENT && S_ISDIR(st.st_mode) &&
			       mount(NEST_EMPTY, path, NULL, MS_BIND, NULL) == 0
		       ? 0
		       : -errno;
}

static int cover_all(void)
{
	const char *name;
	int r = 0;

	for (size_t i = 0; r == 0 && (name = seal_covered(i)); i++)
		r = cover(name);
	return r;
}

/* One of the caller's process namespace. What is copied into a mount namespace of another user
 * namespace is locked, and stays so. */
static _Noreturn void maker_main(const struct nest_child *c, int socket_fd)
{
	int fd = -EBADF, r = 0;

	if (setns(c->place_fd, CLONE_NEWNS) < 0 || unshare(CLONE_NEWNS) < 0 ||
		mount_own(NEST_PROC) < 0)
		r = -errno;
	if (r == 0)
		r = cover_all();
	if (r == 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		r = -errno;
	if (r == 0) {
		fd = open_tree(AT_FDCWD, NEST_PROC,
			OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
		r = fd < 0 ? -errno : 0;
	}
	(void)fd_send(socket_fd, &r, sizeof r, &fd, fd >= 0);
	_exit(0);
}

static int make_proc(const struct nest_child *c, const struct caller *who, int *ret)
{
	int pair[2], fds[FD_MAX_PASS], n = 0, r = -EIO;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 ||
		setns(who->pids_fd, CLONE_NEWPID) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		maker_main(c, pair[1]);
	(void)close(pair[1]);
	if (pid < 0)
		return -errno;
	if (fd_recv(pair[0], &r, sizeof r, fds, &n) != sizeof r)
		r = -EIO;
	(void)waitpid(pid, NULL, 0);
	if (r < 0 || n != 1)
		return r < 0 ? r : -EIO;
	*ret = fds[0];
	return 0;
}

/* ---- where the caller wants it ---- */

static int enter(const struct caller *who)
{
	if (setns(who->mounts_fd, CLONE_NEWNS) < 0 || fchdir(who->root_fd) < 0 || chroot(".") < 0 ||
		fchdir(who->cwd_fd) < 0)
		return -errno;
	return 0;
}

static int put(const struct nest_child *c, const struct caller *who, int proc_fd)
{
	/* Links that mean "mine" would mean this process's. */
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS };
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };
	int target;

	target = (int)syscall(SYS_openat2, AT_FDCWD, who->target, &how, sizeof how);
	if (target < 0)
		return -errno;
	if (c->flags & MS_RDONLY &&
		mount_setattr(proc_fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof attr) < 0)
		return -errno;
	if (move_mount(proc_fd, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) <
		0)
		return -errno;
	return 0;
}

/* Connections of PID 1's clients would not end while this process has a copy of them. */
static void keep_only(int a, int b)
{
	int low = MIN(a, b), high = MAX(a, b);

	(void)close_range(0, (unsigned)low - 1, 0);
	if (low + 1 < high)
		(void)close_range((unsigned)low + 1, (unsigned)high - 1, 0);
	(void)close_range((unsigned)high + 1, ~0U, 0);
}

static void reset_signals(void)
{
	sigset_t none;

	(void)signal(SIGALRM, SIG_DFL);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)alarm(DEADLINE_S);
}

_Noreturn void nest_child_main(const struct nest_child *c)
{
	struct caller who;
	int proc_fd = -EBADF, r;

	keep_only(c->asked_fd, c->place_fd);
	reset_signals();
	if (!take_caller(c, &who))
		leave_to_kernel(c);
	r = make_proc(c, &who, &proc_fd);
	if (r >= 0)
		r = enter(&who);
	if (r >= 0)
		r = put(c, &who, proc_fd);
	answer(c, r, 0);
}
