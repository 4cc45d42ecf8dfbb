#include "warden/slot-child.h"
#include "warden/proto.h"

#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum {
	GUEST_PROGRAM_FD = WARDEN_GUEST_FD + 1,
	FIRST_PROCS_FD = GUEST_PROGRAM_FD + 1,
	OUT_OF_THE_WAY = 64,
};

static _Noreturn void fail(const char *what)
{
	struct err e = { 0 };

	(void)err_sys(&e, -errno, "start the guest: %s", what);
	(void)send(WARDEN_GUEST_FD, &e, sizeof e, MSG_NOSIGNAL);
	_exit(1);
}

/* Puts the descriptors where they are expected and closes the copies of all others: they would keep
 * other slots' sockets open. Moved twice, since source and target numbers may overlap. */
static void arrange_fds(const struct slot_child *c)
{
	int fds[2 + CGROUP_CONTROLLERS] = { c->socket_fd, c->guest_fd }, n = 2 + c->n_procs;

	for (int i = 0; i < c->n_procs; i++)
		fds[2 + i] = c->procs_fds[i];
	for (int i = 0; i < n; i++)
		fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
	for (int i = 0; i < n; i++)
		if (fds[i] < 0 || dup2(fds[i], WARDEN_GUEST_FD + i) < 0)
			_exit(1);
	if (close_range((unsigned)(WARDEN_GUEST_FD + n), ~0U, 0) < 0)
		fail("close_range");
}

static void wait_for_go(void)
{
	char go;
	ssize_t n;

	do
		n = recv(WARDEN_GUEST_FD, &go, sizeof go, 0);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		_exit(0);
}

static void reset_signals(void)
{
	sigset_t none;

	for (int i = 1; i < NSIG; i++)
		(void)signal(i, SIG_DFL);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static void become_root(void)
{
	/* The raw calls: glibc's wrappers would talk to threads that are not here. */
	if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, 0, 0, 0) < 0 ||
		syscall(SYS_setresuid, 0, 0, 0) < 0)
		fail("become root inside");
}

static void null_stdio(void)
{
	int fd = open("/dev/null", O_RDWR);

	if (fd < 0)
		fail("open /dev/null");
	for (int i = 0; i <= 2; i++)
		(void)dup2(fd, i);
	(void)close(fd);
}

_Noreturn void slot_child_main(const struct slot_child *c)
{
	static char name[] = "atoll-guest", path[] =
						    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:"
						    "/usr/bin:/sbin:/bin";
	char *argv[] = { name, NULL }, *envp[] = { path, NULL };

	arrange_fds(c);
	wait_for_go(); /* until then this process has no uid */
	for (int i = 0; i < c->n_procs; i++)
		if (write(FIRST_PROCS_FD + i, "0", 1) != 1)
			fail("join a cgroup");
	reset_signals();
	become_root();
	null_stdio();
	(void)setsid();
	(void)fcntl(GUEST_PROGRAM_FD, F_SETFD, FD_CLOEXEC);
	(void)close_range(FIRST_PROCS_FD, ~0U, 0);
	(void)syscall(SYS_execveat, GUEST_PROGRAM_FD, "", argv, envp, AT_EMPTY_PATH);
	fail("execute it");
}
