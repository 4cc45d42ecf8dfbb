#include "warden/place.h"
#include "warden/host.h"
#include "warden/meter.h"
#include "warden/slot-child.h"

#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

enum {
	BACKLOG = 1024,
};

/* Somebody of the server's block who is nobody else: the kernel counts watches, queued signals,
 * message queues and the like also for who made the user namespace. With root for all, one sandbox
 * could take them from every other and from the host's own root. */
static uid_t pick_owner(void)
{
	uint16_t any;

	random_bytes(&any, sizeof any);
	return (uid_t)WARDEN_FIRST_UID + (uid_t)MAX(any, 1);
}

/* Leaving euid 0 takes the effective capabilities away, and the child's place in its cgroup needs
 * one; coming back gives them again. A process that cannot come back does not go on. */
static pid_t clone_for(uid_t owner, struct clone_args *args)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2];
	pid_t pid = -1;
	int error;

	/* The raw calls: this process has one thread, and its child must not ask for others. */
	if (syscall(SYS_capget, &head, caps) < 0 ||
		syscall(SYS_setresuid, (uid_t)-1, owner, (uid_t)-1) < 0)
		return -1;
	if (syscall(SYS_capset, &head, caps) == 0)
		pid = (pid_t)syscall(SYS_clone3, args, sizeof *args);
	if (pid == 0)
		return 0;
	error = errno;
	if (syscall(SYS_setresuid, (uid_t)-1, 0, (uid_t)-1) < 0 ||
		syscall(SYS_capset, &head, caps) < 0)
		abort();
	errno = error;
	return pid;
}

static int clone_child(const struct slot_child *child, int cgroup_fd, pid_t *ret_pid,
	int *ret_pid_fd, struct err *e)
{
	int pid_fd = -EBADF;
	struct clone_args args = {
		.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
			 CLONE_NEWUTS | CLONE_PIDFD | CLONE_PARENT,
		.pidfd = (uintptr_t)&pid_fd,
	};
	pid_t pid;

	if (cgroup_fd >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)cgroup_fd;
	}
	pid = clone_for(pick_owner(), &args);
	if (pid == 0)
		slot_child_main(child);
	if (pid < 0)
		return err_sys(e, -errno, "clone a process into new namespaces");
	*ret_pid = pid;
	*ret_pid_fd = pid_fd;
	return 0;
}

static int open_namespace(pid_t pid, const char *name, int *ret, struct err *e)
{
	char path[64];
	int fd;

	(void)snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, -errno, "open %s", path);
	*ret = fd;
	return 0;
}

static int start_child(const struct workers *ws, const char *key, struct work_report *report,
	int fds[PLACE_FDS], struct err *e)
{
	struct slot_child child = { .guest_fd = ws->guest_fd };
	cleanup_close int cgroup_fd = -EBADF;
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, -errno, "socketpair");
	fds[PLACE_GUEST] = pair[0];
	child.socket_fd = pair[1];
	(void)fd_set_nonblock(fds[PLACE_GUEST], true);
	r = cgroup_open_unified(ws->cgroups, key, &cgroup_fd, e);
	if (r >= 0)
		r = cgroup_open_legacy(ws->cgroups, key, child.procs_fds, &child.n_procs, e);
	if (r >= 0)
		r = clone_child(&child, cgroup_fd, &report->pid, &fds[PLACE_PID], e);
	for (int i = 0; i < child.n_procs; i++)
		(void)close(child.procs_fds[i]);
	(void)close(child.socket_fd);
	if (r >= 0 && process_start_time(report->pid, &report->start_time) < 0)
		r = err_set(e, -ESRCH, "the cloned process is gone");
	if (r >= 0)
		r = open_namespace(report->pid, "net", &fds[PLACE_NET], e);
	return r >= 0 ? open_namespace(report->pid, "user", &fds[PLACE_USER], e) : r;
}

static int write_map(const struct work_report *report, const char *name, struct err *e)
{
	char path[64], text[64];

	(void)snprintf(path, sizeof path, "/proc/%d/%s", (int)report->pid, name);
	(void)snprintf(text, sizeof text, "0 %u %d", (unsigned)place_first_uid(report->number),
		WARDEN_UID_BLOCK);
	return file_write(AT_FDCWD, path, str_of(text), e);
}

/* When memory runs out everything else in the sandbox goes first: with PID 1 all would end. The
 * first file also sets the least that a process and its children may choose for themselves; the
 * second, the old one, does not, so that nothing the guest starts can follow it down there. Not
 * -17, which is never: with nothing else left to kill the sandbox must end and not hang. A warden
 * that lacks the capability leaves it at what the guest does: everything else volunteers. */
static void protect(pid_t pid)
{
	char path[64];

	(void)snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)pid);
	(void)file_write(AT_FDCWD, path, STR("0"), NULL);
	(void)snprintf(path, sizeof path, "/proc/%d/oom_adj", (int)pid);
	(void)file_write(AT_FDCWD, path, STR("-16"), NULL);
}

/* The first of the numbers that no other server of this host has taken meanwhile: it gives the
 * addresses and the user ids. */
static int attach(struct network *net, const struct work_order *order, int ns_fd,
	struct work_report *report, struct err *e)
{
	int r = -EEXIST;

	for (uint32_t i = 0; i < order->n_numbers && r == -EEXIST; i++) {
		r = net_attach(net, ns_fd, order->numbers[i], e);
		report->number = r == -EEXIST ? 0 : order->numbers[i];
	}
	return r;
}

/* Bound through /proc, since the path of a data directory may be longer than a socket's may. */
static int bind_socket(int dir_fd, uid_t owner, int *ret, struct err *e)
{
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	(void)snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/guest.sock",
		dir_fd);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0)
		return err_sys(e, -errno, "bind the guest's socket");
	if (fchownat(dir_fd, "guest.sock", owner, (gid_t)-1, AT_SYMLINK_NOFOLLOW) < 0 ||
		fchmodat(dir_fd, "guest.sock", 0600, 0) < 0)
		return err_sys(e, -errno, "give the guest's socket to the server");
	if (listen(fd, BACKLOG) < 0)
		return err_sys(e, -errno, "listen");
	*ret = TAKE_FD(fd);
	return 0;
}

static int make_run_dir(const struct workers *ws, const char *key, int *ret_listen, struct err *e)
{
	cleanup_close int dir_fd = -EBADF;
	char name[SLOT_KEY_SIZE + 1];

	(void)snprintf(name, sizeof name, ".%s", key);
	if (mkdirat(ws->run_fd, name, 0711) < 0)
		return err_sys(e, -errno, "make the run directory");
	dir_fd = openat(ws->run_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir_fd < 0)
		return err_sys(e, -errno, "open the run directory");
	return bind_socket(dir_fd, ws->server_uid, ret_listen, e);
}

static int make_all(const struct workers *ws, struct network *net, const struct work_order *order,
	struct work_report *report, int fds[PLACE_FDS], struct err *e)
{
	struct limits none = { 0 };
	int r = cgroup_make(ws->cgroups, order->key, e);

	if (r >= 0)
		r = cgroup_limit(ws->cgroups, order->key, &order->limits, &none, e);
	if (r >= 0)
		r = start_child(ws, order->key, report, fds, e);
	if (r >= 0)
		r = attach(net, order, fds[PLACE_NET], report, e);
	if (r >= 0)
		r = write_map(report, "uid_map", e);
	if (r >= 0)
		r = write_map(report, "gid_map", e);
	if (r < 0)
		return r;
	protect(report->pid);
	return make_run_dir(ws, order->key, &fds[PLACE_LISTEN], e);
}

int place_make(const struct workers *ws, struct network *net, const struct work_order *order,
	struct work_report *report, int ret_fds[PLACE_FDS], struct err *e)
{
	int r, n_groups = 0;

	for (int i = 0; i < PLACE_FDS; i++)
		ret_fds[i] = -EBADF;
	r = make_all(ws, net, order, report, ret_fds, e);
	if (r >= 0)
		r = groups_clone(ws->cgroups, order->key, ret_fds + PLACE_GROUPS, &n_groups, e);
	for (int i = 0; r < 0 && i < PLACE_FDS; i++)
		close_fdp(&ret_fds[i]);
	return r < 0 ? err_wrap(e, r, "prepare a sandbox") : PLACE_GROUPS + n_groups;
}
