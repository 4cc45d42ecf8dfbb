#include "server/program.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum {
	SAID_BYTES = 16384
};

int program_own_path(char ret[PROGRAM_PATH_SIZE], struct err *e)
{
	ssize_t n = readlink("/proc/self/exe", ret, PROGRAM_PATH_SIZE - 1);

	if (n < 0)
		return err_sys(e, -errno, "find this executable");
	ret[n] = '\0';
	return 0;
}

int program_find_helper(const char *name, char ret[PROGRAM_PATH_SIZE], struct err *e)
{
	static const char *const places[] = { "", "../libexec/atoll/" };
	char self[PROGRAM_PATH_SIZE], *slash;
	int r = program_own_path(self, e);

	if (r < 0)
		return r;
	slash = strrchr(self, '/');
	*(slash ? slash : self) = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		if (snprintf(ret, PROGRAM_PATH_SIZE, "%s/%s%s", self, places[i], name) >=
			PROGRAM_PATH_SIZE)
			return err_set(e, -ENAMETOOLONG, "the path of %s is too long", name);
		if (access(ret, F_OK) == 0)
			return 0;
	}
	return err_set(e, -ENOENT, "%s is not beside the atoll executable: run make build", name);
}

/* ---- whose it is ---- */

/* In one with the sticky bit others can neither remove nor rename what is root's. */
static bool is_roots(const struct stat *st)
{
	bool is_shared = S_ISDIR(st->st_mode) && st->st_mode & S_ISVTX;

	return st->st_uid == 0 && (is_shared || !(st->st_mode & (S_IWGRP | S_IWOTH)));
}

int program_check_owner(const char *path, struct err *e)
{
	cleanup_free char *real = realpath(path, NULL);
	struct stat st;

	if (!real || stat(real, &st) < 0)
		return err_sys(e, -errno, "open %s", path);
	if (!S_ISREG(st.st_mode) || !(st.st_mode & S_IXUSR))
		return err_set(e, -EACCES, "%s is not a program", real);
	for (;;) {
		char *slash = strrchr(real, '/');

		if (!is_roots(&st))
			return err_set(e, -EPERM,
				"%s: others than root can write there, so root does not run it: "
				"install the programs as root (make install), or restart the "
				"server",
				real);
		if (slash == real && slash[1] == '\0')
			return 0;
		slash[slash == real] = '\0';
		if (stat(real, &st) < 0)
			return err_sys(e, -errno, "look at %s", real);
	}
}

/* ---- running one ---- */

static _Noreturn void execute(const char *const argv[], int out_fd)
{
	int in_fd = open("/dev/null", O_RDONLY | O_CLOEXEC), r;
	sigset_t none;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* nobody else waits for it */
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	if (in_fd < 0 || dup2(in_fd, STDIN_FILENO) < 0 || dup2(out_fd, STDOUT_FILENO) < 0 ||
		dup2(out_fd, STDERR_FILENO) < 0)
		_exit(127);
	(void)execv(argv[0], (char *const *)(uintptr_t)argv);
	r = errno;
	(void)dprintf(out_fd, "it cannot be executed: %s\n", strerror(r));
	_exit(127);
}

/* Its wait status. */
static int wait_until(const char *path, pid_t pid, int64_t timeout_ms, int *ret, struct err *e)
{
	cleanup_close int fd = pidfd_open(pid, 0);
	struct pollfd end = { .fd = fd, .events = POLLIN };
	int64_t until_ms = time_now_ms() + timeout_ms;
	bool is_late = false;
	int n = 0;

	while (fd >= 0 && n <= 0 && !is_late) {
		int64_t left_ms = until_ms - time_now_ms();

		is_late = left_ms <= 0;
		n = poll(&end, 1, (int)MAX(left_ms, (int64_t)0));
	}
	if (n <= 0)
		(void)kill(pid, SIGKILL);
	while (waitpid(pid, ret, 0) < 0)
		if (errno != EINTR)
			return err_sys(e, -errno, "wait for %s", path);
	return n > 0 ? 0
		     : err_set(e, -ETIMEDOUT, "%s did not end within %d s", path,
			       (int)(timeout_ms / 1000));
}

/* What it says last, if it is a program of ours that gives up: it knows best. */
static struct str last_words(struct str text)
{
	static const struct str ours = { "atoll: ", 7 }, helper = { "atoll-", 6 };
	struct str line, last = STR_NONE;

	while (str_split(&text, '\n', &line))
		if (line.n)
			last = line;
	if (str_has_prefix(last, ours))
		return str_from(last, ours.n);
	return str_has_prefix(last, helper) ? last : STR_NONE;
}

static int read_said(int fd, struct buf *said, struct err *e)
{
	int r;

	(void)lseek(fd, 0, SEEK_SET);
	r = fd_read_all(fd, said);
	return r == -ENOBUFS ? 0 : r < 0 ? err_sys(e, r, "read what a program says") : 0;
}

static int judge(const char *path, int status, struct buf *said, struct err *e)
{
	struct str words = last_words(buf_str(said));

	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (words.n)
		return err_set(e, -EPROTO, "%.*s", STR_ARG(words));
	if (WIFSIGNALED(status))
		return err_set(e, -EPROTO, "%s was ended by signal %d", path, WTERMSIG(status));
	return err_set(e, -EPROTO, "%s ended with %d: %.*s", path, WEXITSTATUS(status),
		STR_ARG(buf_str(said)));
}

int program_try(const char *const argv[], int64_t timeout_ms, struct buf *said, struct err *e)
{
	CLEANUP(buf_done) struct buf own = BUF_INIT(SAID_BYTES);
	cleanup_close int out_fd = memfd_create("said", MFD_CLOEXEC);
	int status = 0, r;
	pid_t pid;

	if (out_fd < 0)
		return err_sys(e, -errno, "memfd_create");
	said = said ? said : &own;
	pid = fork();
	if (pid == 0)
		execute(argv, out_fd);
	if (pid < 0)
		return err_sys(e, -errno, "start %s", argv[0]);
	r = wait_until(argv[0], pid, timeout_ms, &status, e);
	if (r >= 0)
		r = read_said(out_fd, said, e);
	if (r >= 0)
		r = judge(argv[0], status, said, e);
	return r;
}
