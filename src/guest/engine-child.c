#include "guest/engine-child.h"
#include "guest/engine.h"

#include <signal.h>

enum {
	OUT_OF_THE_WAY = 64,
};

static _Noreturn void fail(const char *what, const char *name)
{
	int code = errno;

	(void)dprintf(STDERR_FILENO, "%s %s: %s", what, name, strerror(code));
	_exit(1);
}

static void reset_signals(void)
{
	sigset_t none;

	for (int i = 1; i < NSIG; i++)
		(void)signal(i, SIG_DFL);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* gVisor takes its standard descriptors in and no others; the containers take what follows those.
 * Moved twice, since source and target numbers may overlap. */
static void arrange_fds(const struct engine_child *c)
{
	bool gvisor = c->engine == WARDEN_GVISOR;
	int words = fcntl(c->words_fd, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
	int warden = fcntl(WARDEN_GUEST_FD, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
	int listening = fcntl(c->listen_fd, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	unsigned last = gvisor ? STDERR_FILENO : ENGINE_LISTEN_FD;

	if (dup2(words, STDERR_FILENO) < 0 || null_fd < 0 || warden < 0 || listening < 0)
		_exit(1);
	(void)dup2(gvisor ? warden : null_fd, STDIN_FILENO);
	(void)dup2(null_fd, STDOUT_FILENO);
	if (!gvisor) {
		(void)dup2(warden, WARDEN_GUEST_FD);
		(void)dup2(listening, ENGINE_LISTEN_FD);
	}
	(void)close_range(last + 1, ~0U, 0);
}

static void try_program(const char *dir, const char *name, char *const argv[])
{
	static char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	char *envp[] = { path, NULL };
	char file[128];

	(void)snprintf(file, sizeof file, "%s/%s", dir, name);
	(void)execve(file, argv, envp);
}

static void execute(const struct engine_child *c, const char *const *args)
{
	static const char *const dirs[] = { "/usr/local/bin", "/usr/local/sbin", "/usr/bin",
		"/usr/sbin", "/bin", "/sbin" };
	union {
		const char *const *in;
		char *const *out;
	} argv = { .in = args };

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		try_program(dirs[i], c->name, argv.out);
		if (errno != ENOENT)
			break;
	}
	fail("execute", c->name);
}

_Noreturn void engine_child_main(const struct engine_child *c)
{
	/* Files are shared with the host in the sense that nothing is kept back in gVisor's memory:
	 * a disk that is copied while all stands still is whole. Its cgroups are ours. */
	/* NOLINTBEGIN(bugprone-suspicious-missing-comma): the place is part of the word */
	static const char *const runsc[] = { "runsc", "--root=" ENGINE_PLACE "/state",
		"--ignore-cgroups", "--network=sandbox", "--host-uds=create",
		"--file-access=shared", "run", "--bundle=" ENGINE_PLACE, "sandbox", NULL };
	static const char *const runc[] = { "runc", "--root", ENGINE_PLACE "/state", "run",
		"--preserve-fds", "2", "--bundle", ENGINE_PLACE, "sandbox", NULL };
	static const char *const crun[] = { "crun", "--root", ENGINE_PLACE "/state",
		"--cgroup-manager=disabled", "run", "--preserve-fds", "2", "--bundle", ENGINE_PLACE,
		"sandbox", NULL };
	/* NOLINTEND(bugprone-suspicious-missing-comma) */
	static const char *const *const commands
		[] = { [WARDEN_GVISOR] = runsc, [WARDEN_RUNC] = runc, [WARDEN_CRUN] = crun };

	arrange_fds(c);
	reset_signals();
	/* All of the sandbox's memory will be this process's: unlike PID 1, it is the one to go. */
	if (c->engine == WARDEN_GVISOR)
		(void)file_write(AT_FDCWD, "/proc/self/oom_score_adj", STR("100"), NULL);
	(void)setsid();
	if (chdir("/") < 0)
		fail("enter", "/");
	execute(c, commands[c->engine]);
	_exit(1);
}
