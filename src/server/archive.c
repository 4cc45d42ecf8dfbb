#include "server/archive.h"
#include "server/interrupt.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum {
	LOOK_MS = 100,
	CHANGED = 1, /* the exit status of one that found a file changed while it read it */
	SOME_FAILED = 2,
	CANNOT_RUN = 127,
};

void archive_add(struct archive_words *words, const char *fmt, ...)
{
	char text[5200];
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
		"--delay-directory-restore", "--force-local", "--warning=none",
		"--quoting-style=escape" };

	for (size_t i = 0; i < ARRAY_SIZE(usual); i++)
		archive_add(words, "%s", usual[i]);
	archive_add(words, "--directory=/proc/self/fd/%d", into_fd);
}

/* ---- one program ---- */

struct program {
	const struct archive_words *words;
	int in_fd, out_fd, err_fd; /* its */
	int said_fd;               /* our end of err_fd; -EBADF: nothing will come any more */
	pid_t pid;                 /* 0: it has ended, or there is none */
	int status;
	struct said said;
};

struct both {
	struct program programs[2]; /* one that creates, one that extracts */
	int names_fd;
	struct said names;
	int64_t told_ms;
};

/* Its words are read back, and its operator's own options are for other archives. */
static void set_environment(void)
{
	(void)setenv("LC_ALL", "C", 1);
	(void)unsetenv("TAR_OPTIONS");
	(void)unsetenv("POSIXLY_CORRECT");
}

static _Noreturn void execute(const struct program *p, const struct archive_run *run, pid_t parent)
{
	sigset_t none;

	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)signal(SIGPIPE, SIG_DFL);
	set_environment();
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent ||
		dup2(p->in_fd, STDIN_FILENO) < 0 || dup2(p->out_fd, STDOUT_FILENO) < 0 ||
		dup2(p->err_fd, STDERR_FILENO) < 0)
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
	if (p->pid < 0) {
		p->pid = 0;
		return err_sys(e, -errno, "start tar");
	}
	return 0;
}

static int judge(const struct program *p, int fine, struct said_lost *ret, struct err *e)
{
	const struct said *said = &p->said;

	if (WIFSIGNALED(p->status))
		return err_set(e, -EIO, "tar was ended by signal %d", WTERMSIG(p->status));
	if (WEXITSTATUS(p->status) == 0)
		return 0;
	if (said->cause[0])
		return err_set(e, -EIO, "%s", said->cause);
	if (WEXITSTATUS(p->status) > fine &&
		(WEXITSTATUS(p->status) != SOME_FAILED || !said->has_spoken))
		return err_set(e, -EIO, "tar failed without a word");
	said_add_lost(ret, &said->lost);
	return 0;
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

static void shut(int *fd)
{
	close_fdp(fd);
	*fd = -EBADF;
}

static void hear(int *fd, struct said *said)
{
	char bytes[4096];
	ssize_t n = read(*fd, bytes, sizeof bytes);

	if (n > 0)
		said_feed(said, bytes, (size_t)n);
	else if (n == 0 || errno != EINTR)
		shut(fd);
}

/* All that they say is taken from them, or they would wait for us. */
static void hear_all(struct both *b)
{
	struct {
		int *fd;
		struct said *said;
	} const from[] = { { &b->programs[0].said_fd, &b->programs[0].said },
		{ &b->programs[1].said_fd, &b->programs[1].said }, { &b->names_fd, &b->names } };
	struct pollfd polled[ARRAY_SIZE(from)];

	for (size_t i = 0; i < ARRAY_SIZE(from); i++)
		polled[i] = (struct pollfd){ .fd = *from[i].fd, .events = POLLIN };
	if (poll(polled, ARRAY_SIZE(polled), LOOK_MS) <= 0)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(from); i++)
		if (polled[i].fd >= 0 && polled[i].revents)
			hear(from[i].fd, from[i].said);
}

static void tell(struct both *b, const struct archive_run *run)
{
	int64_t now_ms = time_now_ms();
	pid_t reader = b->programs[0].pid ? b->programs[0].pid : b->programs[1].pid;

	if (!run->fn || !reader || now_ms < b->told_ms + LOOK_MS)
		return;
	b->told_ms = now_ms;
	run->fn(run->arg, bytes_read(reader));
}

static void look_for_end(struct program *p)
{
	pid_t ended = p->pid > 0 ? waitpid(p->pid, &p->status, WNOHANG) : 0;

	if (ended == p->pid || (ended < 0 && errno != EINTR))
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

static int wait_for_both(struct both *b, const struct archive_run *run, struct err *e)
{
	struct program *p = b->programs;

	while (p[0].pid || p[1].pid || p[0].said_fd >= 0 || p[1].said_fd >= 0 || b->names_fd >= 0) {
		if (interrupt_came())
			return err_set(e, -EINTR, "it was ended by a signal");
		hear_all(b);
		for (int i = 0; i < 2; i++)
			look_for_end(&p[i]);
		tell(b, run);
	}
	return 0;
}

static int run_both(struct both *b, const struct archive_run *run, struct err *e)
{
	static const int fine[2] = { CHANGED, 0 };
	struct program *programs = b->programs;
	int r = 0;

	for (int i = 0; r >= 0 && i < 2; i++)
		if (programs[i].words)
			r = start(&programs[i], run, e);
	/* Nobody else shall keep the pipes open. */
	for (int i = 0; i < 2; i++) {
		shut(&programs[i].in_fd);
		shut(&programs[i].out_fd);
		shut(&programs[i].err_fd);
	}
	if (r >= 0)
		r = wait_for_both(b, run, e);
	if (r < 0)
		for (int i = 0; i < 2; i++)
			stop(&programs[i]);
	/* One that ends early breaks the other's pipe: what it says comes first. */
	for (int i = 1; r >= 0 && i >= 0; i--)
		if (programs[i].words)
			r = judge(&programs[i], fine[i], run->lost, e);
	if (r >= 0)
		said_add_lost(run->lost, &b->names.lost);
	return r;
}

/* What is not opened is -EBADF, and dup2 in the new process says so. */
static void pipe_between(int *in, int *out)
{
	int pair[2];

	close_fdp(in);
	close_fdp(out);
	if (pipe2(pair, O_CLOEXEC) < 0)
		pair[0] = pair[1] = -EBADF;
	*in = pair[0];
	*out = pair[1];
}

int archive_run(const struct archive_run *run, struct err *e)
{
	struct both b = { .programs = { { .words = run->create }, { .words = run->extract } },
		.names_fd = -EBADF,
		.names = { .kind = SAID_NAMES } };
	int r;

	for (int i = 0; i < 2; i++) {
		struct program *p = &b.programs[i];

		p->in_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		p->out_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		p->err_fd = p->said_fd = -EBADF;
		p->said.kind = i == 0 ? SAID_READING : SAID_WRITING;
		pipe_between(&p->said_fd, &p->err_fd);
	}
	if (run->create && run->extract)
		pipe_between(&b.programs[1].in_fd, &b.programs[0].out_fd);
	else if (run->create && run->has_names)
		pipe_between(&b.names_fd, &b.programs[0].out_fd);
	r = run_both(&b, run, e);
	for (int i = 0; i < 2; i++)
		close_fdp(&b.programs[i].said_fd);
	close_fdp(&b.names_fd);
	return r;
}
