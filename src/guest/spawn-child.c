/* Runs on a stack of its own in the parent's memory, between clone and exec. Nothing here may
 * allocate, lock, log or call into libc beyond thin system call wrappers; ids are set by raw system
 * calls, because libc's wrappers would try to change every thread of the parent. */
#include "guest/spawn.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* The sanitizers' bookkeeping knows nothing of a second stack. */
#define IN_CHILD __attribute__((no_sanitize("address", "undefined")))

enum {
	EXIT_CANNOT_EXECUTE = 126,
	EXIT_NOT_FOUND = 127,
	SCRIPT_MAX_ARGS = 1024,
	SOFT_FILES = 1024,
};

IN_CHILD static void say(const char *text)
{
	size_t n = 0;

	while (text[n])
		n++;
	(void)!write(STDERR_FILENO, text, n);
}

IN_CHILD __attribute__((noreturn)) static void fail(struct spawn *s, const char *step)
{
	s->failed_errno = errno;
	s->failed_step = step;
	_exit(EXIT_CANNOT_EXECUTE);
}

IN_CHILD static void take_ids(struct spawn *s)
{
	const struct user *u = s->user;

	if (s->keep_ids)
		return;
	if (syscall(SYS_setgroups, u->n_groups, u->groups) < 0)
		fail(s, "set groups");
	if (syscall(SYS_setresgid, u->gid, u->gid, u->gid) < 0)
		fail(s, "set group");
	if (syscall(SYS_setresuid, u->uid, u->uid, u->uid) < 0)
		fail(s, "set user");
}

/* User commands go before the guest when memory runs out. Where the guest is protected they would
 * inherit that, so that one which cannot be made to go first is not started. */
IN_CHILD static void volunteer_for_oom(struct spawn *s)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		return; /* no /proc: nobody is protected */
	if (fd < 0 || write(fd, "100", 3) != 3)
		fail(s, "give up the guest's protection");
	(void)close(fd);
}

/* More than 1024 breaks select(); programs that want more raise it themselves. */
IN_CHILD static void limit_files(const struct spawn *s)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return;
	if (s->max_files > 0)
		files.rlim_max = MIN(files.rlim_max, s->max_files);
	files.rlim_cur = MIN(files.rlim_max, (rlim_t)SOFT_FILES);
	(void)setrlimit(RLIMIT_NOFILE, &files);
}

IN_CHILD static void take_signals(void)
{
	struct sigaction standard = { .sa_handler = SIG_DFL };
	sigset_t none;

	/* Handlers are reset by exec; what is ignored (only SIGPIPE, see main) is not. */
	(void)sigaction(SIGPIPE, &standard, NULL);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* A text without #! is a shell script, as for every shell and for execvp. */
IN_CHILD static void execute_script(const struct spawn *s, const char *program)
{
	char *argv[SCRIPT_MAX_ARGS + 3];
	char shell[] = "/bin/sh";
	union {
		const char *in;
		char *out;
	} script = { .in = program };
	size_t n = 0;

	argv[n++] = shell;
	argv[n++] = script.out;
	for (size_t i = 1; s->argv[i] && n < SCRIPT_MAX_ARGS + 2; i++)
		argv[n++] = s->argv[i];
	argv[n] = NULL;
	(void)execve(shell, argv, s->envp);
}

/* The kernel knows the format, but not for this processor. */
IN_CHILD static bool is_foreign(const char *program)
{
	static const char magic[4] = { 0x7f, 'E', 'L', 'F' };
	int fd = open(program, O_RDONLY | O_CLOEXEC);
	char start[sizeof magic];
	bool is = fd >= 0 && read(fd, start, sizeof start) == sizeof start;

	for (size_t i = 0; is && i < sizeof magic; i++)
		is = start[i] == magic[i];
	if (fd >= 0)
		(void)close(fd);
	return is;
}

IN_CHILD static void execute(const struct spawn *s, const char *program)
{
	(void)execve(program, s->argv, s->envp);
	if (errno != ENOEXEC)
		return;
	if (!is_foreign(program))
		execute_script(s, program);
	errno = ENOEXEC;
}

/* dir/name into s->candidate; an empty directory means the current one. */
IN_CHILD static bool candidate_make(struct spawn *s, const char *dir, size_t dir_n,
	const char *name)
{
	size_t n = 0;

	if (dir_n >= sizeof s->candidate - 2)
		return false;
	for (; n < dir_n; n++)
		s->candidate[n] = dir[n];
	if (n > 0)
		s->candidate[n++] = '/';
	for (; *name; name++) {
		if (n >= sizeof s->candidate - 1)
			return false;
		s->candidate[n++] = *name;
	}
	s->candidate[n] = '\0';
	return true;
}

/* Returns with errno set when nothing could be executed: EACCES outlives a later ENOENT. */
IN_CHILD static void execute_by_path(struct spawn *s, const char *name)
{
	const char *dir = s->path;
	bool denied = false;

	for (;;) {
		size_t n = 0;

		while (dir[n] && dir[n] != ':')
			n++;
		if (candidate_make(s, dir, n, name)) {
			execute(s, s->candidate);
			if (errno == EACCES)
				denied = true;
			else if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
				return;
		}
		if (!dir[n])
			break;
		dir += n + 1;
	}
	errno = denied ? EACCES : ENOENT;
}

IN_CHILD static bool has_slash(const char *name)
{
	for (; *name; name++)
		if (*name == '/')
			return true;
	return false;
}

IN_CHILD __attribute__((noreturn)) static void explain(const struct spawn *s)
{
	int code = errno;

	say("sh: 1: exec: ");
	say(s->argv[0]);
	if (code == ENOENT) {
		say(": not found\n");
		_exit(EXIT_NOT_FOUND);
	}
	if (code == E2BIG)
		say(": Argument list too long\n");
	else if (code == ENOMEM)
		say(": Cannot allocate memory\n");
	else if (code == EACCES || code == EPERM)
		say(": Permission denied\n");
	else if (code == ENOEXEC)
		say(": not a program for this processor\n");
	else
		say(": cannot execute\n");
	_exit(EXIT_CANNOT_EXECUTE);
}

IN_CHILD int spawn_child(void *arg)
{
	struct spawn *s = arg;

	/* A session of its own: no terminal, and signals meant for us do not reach it. */
	if (setsid() < 0)
		fail(s, "new session");
	for (int i = 0; i < 3; i++)
		if (dup2(s->fds[i], i) < 0)
			fail(s, "redirect");
	if (s->is_pty && ioctl(STDIN_FILENO, TIOCSCTTY, 0) < 0)
		fail(s, "set the controlling terminal");
	volunteer_for_oom(s);
	limit_files(s);
	take_ids(s);
	if (chdir(s->cwd) < 0)
		fail(s, "change directory");
	take_signals();
	if (has_slash(s->argv[0]))
		execute(s, s->argv[0]);
	else
		execute_by_path(s, s->argv[0]);
	explain(s);
}
