#include "server/keep.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum {
	FIRST_PAUSE_MS = 50,
	LAST_PAUSE_MS = 10000,
	GOOD_LIFE_MS = 60000, /* after which a crash is the first one again */
	SIGNALLED = 128,      /* the usual exit status of a program that died by a signal */
};

static const int passed_on[] = { SIGTERM, SIGINT, SIGHUP };

static sigset_t awaited(void)
{
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	for (size_t i = 0; i < ARRAY_SIZE(passed_on); i++)
		(void)sigaddset(&set, passed_on[i]);
	return set;
}

/* Its wait status; what the keeper is told meanwhile, the server is told. Whoever asked for an end
 * gets one: then it does not matter how the server came to it. */
static int wait_for(pid_t server, bool *asked)
{
	sigset_t set = awaited();
	int status, signo;

	for (;;) {
		if (waitpid(server, &status, WNOHANG) == server)
			return status;
		signo = sigwaitinfo(&set, NULL);
		if (signo < 0 || signo == SIGCHLD)
			continue;
		*asked |= signo != SIGHUP;
		(void)kill(server, signo);
	}
}

/* The first one that cannot start says why, and that is that. One that takes over from another may
 * come too early (the old warden still leaves, the disk is full): the next is luckier. */
static bool has_crashed(int status, bool is_first)
{
	return WIFSIGNALED(status) ||
	       (WIFEXITED(status) && (WEXITSTATUS(status) == KEEP_EXIT_AGAIN ||
					     (!is_first && WEXITSTATUS(status) != 0)));
}

/* Pauses grow while it dies young, so that a server that cannot live does not eat the machine. */
static void pause_before_next(int64_t lived_ms, int64_t *pause_ms)
{
	*pause_ms = lived_ms >= GOOD_LIFE_MS || *pause_ms == 0
			    ? FIRST_PAUSE_MS
			    : MIN(*pause_ms * 2, (int64_t)LAST_PAUSE_MS);
	(void)usleep((useconds_t)(*pause_ms * 1000));
}

static _Noreturn void end_as(int status)
{
	exit(WIFEXITED(status) ? WEXITSTATUS(status) : SIGNALLED + WTERMSIG(status));
}

pid_t keep_serving(void)
{
	int64_t pause_ms = 0;
	pid_t keeper = getpid();
	bool asked = false;
	sigset_t set = awaited(), old;

	(void)sigprocmask(SIG_BLOCK, &set, &old);
	for (;;) {
		int64_t from_ms = time_now_ms();
		pid_t server = fork();
		int status;

		if (server < 0) {
			log_error("server.fork", "err=%s", strerror(errno));
			exit(1);
		}
		if (server == 0) {
			(void)sigprocmask(SIG_SETMASK, &old, NULL);
			return keeper;
		}
		status = wait_for(server, &asked);
		if (asked || !has_crashed(status, pause_ms == 0))
			end_as(status);
		log_error("server.died", "pid=%d signal=%d status=%d: starting it again",
			(int)server, WIFSIGNALED(status) ? WTERMSIG(status) : 0,
			WIFEXITED(status) ? WEXITSTATUS(status) : 0);
		pause_before_next(time_now_ms() - from_ms, &pause_ms);
	}
}

int keep_follow(pid_t keeper)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return -errno;
	return getppid() == keeper ? 0 : -ESRCH;
}
