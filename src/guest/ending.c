#include "guest/ending.h"

#include <signal.h>
#include <sys/wait.h>

static const char *const signal_words[] = {
	[SIGHUP] = "hangup",
	[SIGINT] = "interrupt",
	[SIGQUIT] = "quit",
	[SIGILL] = "illegal instruction",
	[SIGTRAP] = "trace/breakpoint trap",
	[SIGABRT] = "aborted",
	[SIGBUS] = "bus error",
	[SIGFPE] = "floating point exception",
	[SIGKILL] = "killed",
	[SIGUSR1] = "user defined signal 1",
	[SIGSEGV] = "segmentation fault",
	[SIGUSR2] = "user defined signal 2",
	[SIGPIPE] = "broken pipe",
	[SIGALRM] = "alarm clock",
	[SIGTERM] = "terminated",
	[SIGSTKFLT] = "stack fault",
	[SIGCHLD] = "child exited",
	[SIGCONT] = "continued",
	[SIGSTOP] = "stopped (signal)",
	[SIGTSTP] = "stopped",
	[SIGTTIN] = "stopped (tty input)",
	[SIGTTOU] = "stopped (tty output)",
	[SIGURG] = "urgent I/O condition",
	[SIGXCPU] = "CPU time limit exceeded",
	[SIGXFSZ] = "file size limit exceeded",
	[SIGVTALRM] = "virtual timer expired",
	[SIGPROF] = "profiling timer expired",
	[SIGWINCH] = "window changed",
	[SIGIO] = "I/O possible",
	[SIGPWR] = "power failure",
	[SIGSYS] = "bad system call",
};

static void describe_signal(int wait_status, struct ending *ret)
{
	int signo = WTERMSIG(wait_status);
	const char *core = WCOREDUMP(wait_status) ? " (core dumped)" : "";

	ret->exit_code = -1;
	ret->exited = false;
	ret->signo = signo;
	if ((size_t)signo < ARRAY_SIZE(signal_words) && signal_words[signo])
		(void)snprintf(ret->status, sizeof ret->status, "signal: %s%s", signal_words[signo],
			core);
	else
		(void)snprintf(ret->status, sizeof ret->status, "signal: signal %d%s", signo, core);
}

void ending_from_status(int wait_status, struct ending *ret)
{
	if (WIFSIGNALED(wait_status)) {
		describe_signal(wait_status, ret);
	} else {
		ret->exit_code = WEXITSTATUS(wait_status);
		ret->exited = true;
		ret->signo = 0;
		(void)snprintf(ret->status, sizeof ret->status, "exit status %d", ret->exit_code);
	}
	ret->cause[0] = '\0';
	ret->tells_more = false;
	ret->fault = NULL;
	ret->error = ret->exit_code == 0 ? NULL : ret->status;
}

bool ending_is_kill(int wait_status)
{
	return WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) == SIGKILL
					: WEXITSTATUS(wait_status) == 128 + SIGKILL;
}

bool ending_is_foreign(int wait_status)
{
	return WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) == SIGSYS
					: WEXITSTATUS(wait_status) == 128 + SIGSYS;
}

void ending_blame_foreign(struct ending *ending)
{
	(void)snprintf(ending->cause, sizeof ending->cause,
		"bad system call (SIGSYS): 32-bit programs do not run in sandboxes");
	ending->error = ending->cause;
}

void ending_blame_memory(struct ending *ending, int64_t memory_mb)
{
	if (memory_mb)
		(void)snprintf(ending->cause, sizeof ending->cause,
			"out of memory: the sandbox's limit of %" PRId64 " MiB was reached",
			memory_mb);
	else
		(void)snprintf(ending->cause, sizeof ending->cause,
			"out of memory: the sandbox's limit was reached");
	ending->error = ending->cause;
}
