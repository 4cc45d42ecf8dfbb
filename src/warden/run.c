#include "warden/run.h"

#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

static int find(const char *program, char *path, size_t size)
{
	static const char *const dirs[] = { "/usr/sbin", "/sbin", "/usr/bin", "/bin",
		"/usr/local/sbin", "/usr/local/bin" };

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		(void)snprintf(path, size, "%s/%s", dirs[i], program);
		if (access(path, X_OK) == 0)
			return 0;
	}
	return -ENOENT;
}

bool run_finds(const char *program)
{
	char path[128];

	return find(program, path, sizeof path) >= 0;
}

/* Input and output are files in memory, so that neither side can ever wait for the other. */
static int start(const char *path, const char *const argv[], int in_fd, int out_fd, int dir_fd,
	pid_t *ret)
{
	static char env_path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin", env_lang[] = "LC_ALL=C";
	char *envp[] = { env_path, env_lang, NULL };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none;
	union {
		const char *const *in;
		char *const *out;
	} args = { .in = argv };
	int r;

	(void)sigemptyset(&none);
	(void)posix_spawnattr_init(&attr);
	(void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	(void)posix_spawnattr_setsigmask(&attr, &none);
	(void)posix_spawn_file_actions_init(&actions);
	(void)posix_spawn_file_actions_adddup2(&actions, in_fd, 0);
	(void)posix_spawn_file_actions_adddup2(&actions, out_fd, 1);
	(void)posix_spawn_file_actions_adddup2(&actions, out_fd, 2);
	if (dir_fd != AT_FDCWD)
		(void)posix_spawn_file_actions_addfchdir_np(&actions, dir_fd);
	r = posix_spawn(ret, path, &actions, &attr, args.out, envp);
	(void)posix_spawn_file_actions_destroy(&actions);
	(void)posix_spawnattr_destroy(&attr);
	return -r;
}

static int wait_for(pid_t pid, const char *program, int out_fd, struct err *e)
{
	char text[200] = "";
	int status = 0;
	ssize_t n;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_sys(e, -errno, "wait for %s", program);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	n = pread(out_fd, text, sizeof text - 1, 0);
	for (ssize_t i = 0; i < n; i++)
		if (text[i] == '\n')
			text[i] = ' ';
	return err_set(e, -EIO, "%s failed (status %d): %s", program, status, text);
}

int run_start(const char *const argv[], struct str input, int dir_fd, struct run *ret,
	struct err *e)
{
	cleanup_close int in_fd = memfd_create("input", MFD_CLOEXEC);
	cleanup_close int out_fd = memfd_create("output", MFD_CLOEXEC);
	char path[128];
	pid_t pid;
	int r;

	if (in_fd < 0 || out_fd < 0)
		return err_sys(e, -errno, "memfd_create");
	r = find(argv[0], path, sizeof path);
	if (r < 0)
		return err_set(e, r, "this host has no %s", argv[0]);
	r = fd_write_all(in_fd, input.p, input.n);
	if (r < 0)
		return err_sys(e, r, "write the input of %s", argv[0]);
	(void)lseek(in_fd, 0, SEEK_SET);
	r = start(path, argv, in_fd, out_fd, dir_fd, &pid);
	if (r < 0)
		return err_sys(e, r, "run %s", path);
	*ret = (struct run){ pid, pidfd_open(pid, 0), TAKE_FD(out_fd), argv[0] };
	if (ret->pid_fd >= 0)
		return 0;
	r = err_sys(e, -errno, "watch %s", argv[0]);
	run_abandon(ret);
	return r;
}

static void run_done(struct run *run)
{
	close_fdp(&run->pid_fd);
	close_fdp(&run->out_fd);
	*run = (struct run)RUN_INIT;
}

int run_end(struct run *run, struct err *e)
{
	int r = wait_for(run->pid, run->program, run->out_fd, e);

	run_done(run);
	return r;
}

void run_abandon(struct run *run)
{
	if (run->pid > 0) {
		(void)kill(run->pid, SIGKILL);
		(void)waitpid(run->pid, NULL, 0);
	}
	run_done(run);
}

int run_program(const char *const argv[], struct str input, int dir_fd, struct err *e)
{
	struct run run = RUN_INIT;
	int r = run_start(argv, input, dir_fd, &run, e);

	return r < 0 ? r : run_end(&run, e);
}
