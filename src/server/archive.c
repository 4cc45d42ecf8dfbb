#include "server/archive.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum {
	LOOK_US = 100 * 1000,
	CHANGED = 1, /* the exit status of one that found a file changed while it read it */
	SAID_BYTES = 4096,
	CANNOT_RUN = 127,
};

void archive_add(struct archive_words *words, const char *fmt, ...)
{
	char text[4200];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	/* One place is kept for the NULL behind them. */
	if (n < 0 || n >= (int)sizeof text || words->n + 1 >= ARRAY_SIZE(words->v))
		words->failed = true;
	else
		words->v[words->n++] = arena_dup(words->arena, str_of(text));
}

void archive_add_from(struct archive_words *words, int dir_fd, const char *name)
{
	archive_add(words, "--directory=/proc/self/fd/%d", dir_fd);
	archive_add(words, "%s", name);
}

void archive_add_unpack(struct archive_words *words, int into_fd)
{
	static const char *const usual[] = { "tar", "--extract", "--xattrs", "--xattrs-include=*",
		"--acls", "--numeric-owner", "--same-owner", "--same-permissions",
		"--delay-directory-restore" };

	for (size_t i = 0; i < ARRAY_SIZE(usual); i++)
		archive_add(words, "%s", usual[i]);
	archive_add(words, "--directory=/proc/self/fd/%d", into_fd);
}

/* ---- one program ---- */

struct program {
	const struct archive_words *words;
	int in_fd, out_fd, said_fd;
	pid_t pid;
};

static _Noreturn void execute(const struct program *p, const struct archive_run *run, pid_t parent)
{
	sigset_t none;

	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)signal(SIGPIPE, SIG_DFL);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent ||
		dup2(p->in_fd, STDIN_FILENO) < 0 || dup2(p->out_fd, STDOUT_FILENO) < 0 ||
		dup2(p->said_fd, STDERR_FILENO) < 0)
		_exit(CANNOT_RUN);
	for (size_t i = 0; i < run->n_pass; i++)
		if (run->pass[i] >= 0)
			(void)fcntl(run->pass[i], F_SETFD, 0);
	(void)execvp("tar", (char *const *)(uintptr_t)p->words->v);
	(void)dprintf(STDERR_FILENO, "tar cannot be executed: %s\n", strerror(errno));
	_exit(CANNOT_RUN);
}

static int start(struct program *p, const struct archive_run *run, struct err *e)
{
	pid_t parent = getpid();

	if (p->words->failed)
		return err_set(e, -E2BIG, "too many words for tar");
	p->pid = fork();
	if (p->pid == 0)
		execute(p, run, parent);
	return p->pid < 0 ? err_sys(e, -errno, "start tar") : 0;
}

static int judge(const struct program *p, int status, int fine, struct err *e)
{
	char said[SAID_BYTES], *end;
	ssize_t n;

	if (WIFEXITED(status) && WEXITSTATUS(status) <= fine)
		return 0;
	n = pread(p->said_fd, said, sizeof said - 1, 0);
	said[MAX(n, (ssize_t)0)] = '\0';
	end = strchr(said, '\n'); /* the first is the cause of the others */
	if (end)
		*end = '\0';
	if (WIFSIGNALED(status))
		return err_set(e, -EIO, "tar was ended by signal %d", WTERMSIG(status));
	return err_set(e, -EIO, "%s", said[0] ? said : "tar failed without a word");
}

/* ---- both ---- */

static uint64_t bytes_read(pid_t pid)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	struct str rest, line, name;
	int64_t n = 0;
	char path[64];

	(void)snprintf(path, sizeof path, "/proc/%d/io", (int)pid);
	if (pid <= 0 || file_read(AT_FDCWD, path, &text, NULL) < 0)
		return 0;
	rest = buf_str(&text);
	while (str_split(&rest, '\n', &line))
		if (str_split(&line, ':', &name) && str_is(name, "rchar"))
			(void)str_to_int(str_trim(line), 0, INT64_MAX, &n);
	return (uint64_t)n;
}

static void wait_for(struct program *p, const struct archive_run *run, pid_t reader, int *ret)
{
	for (;;) {
		pid_t ended = waitpid(p->pid, ret, WNOHANG);

		if (ended == p->pid || (ended < 0 && errno != EINTR))
			break;
		if (run->fn)
			run->fn(run->arg, bytes_read(reader));
		(void)usleep(LOOK_US);
	}
	p->pid = 0;
}

static void stop(struct program *p)
{
	if (p->pid > 0) {
		(void)kill(p->pid, SIGKILL);
		(void)waitpid(p->pid, NULL, 0);
	}
	p->pid = 0;
}

static int run_both(struct program programs[2], const struct archive_run *run, struct err *e)
{
	static const int fine[2] = { CHANGED, 0 };
	int status[2] = { 0 }, r = 0;

	for (int i = 0; r >= 0 && i < 2; i++)
		if (programs[i].words)
			r = start(&programs[i], run, e);
	/* Nobody else shall keep the pipe open. */
	for (int i = 0; i < 2; i++) {
		close_fdp(&programs[i].in_fd);
		close_fdp(&programs[i].out_fd);
		programs[i].in_fd = programs[i].out_fd = -EBADF;
	}
	for (int i = 0; i < 2; i++) {
		pid_t reader = programs[i].pid;

		if (r < 0)
			stop(&programs[i]);
		else if (reader > 0)
			wait_for(&programs[i], run, reader, &status[i]);
	}
	/* One that ends early breaks the other's pipe: what it says comes first. */
	for (int i = 1; r >= 0 && i >= 0; i--)
		if (programs[i].words)
			r = judge(&programs[i], status[i], fine[i], e);
	return r;
}

int archive_run(const struct archive_run *run, struct err *e)
{
	struct program programs[2] = { { run->create, -EBADF, -EBADF, -EBADF, 0 },
		{ run->extract, -EBADF, -EBADF, -EBADF, 0 } };
	int pair[2] = { -EBADF, -EBADF }, r;

	for (int i = 0; i < 2; i++) {
		programs[i].in_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		programs[i].out_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		programs[i].said_fd = memfd_create("said", MFD_CLOEXEC);
	}
	if (run->create && run->extract && pipe2(pair, O_CLOEXEC) == 0) {
		close_fdp(&programs[0].out_fd);
		close_fdp(&programs[1].in_fd);
		programs[0].out_fd = pair[1];
		programs[1].in_fd = pair[0];
	}
	r = run_both(programs, run, e);
	for (int i = 0; i < 2; i++)
		close_fdp(&programs[i].said_fd);
	return r;
}
