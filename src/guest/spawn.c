#include "guest/spawn.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

enum {
	SPAWN_STACK_BYTES = 64 << 10, /* the script fallback's argument vector is the most of it */
};

void spawner_init(struct spawner *s)
{
	s->stack = mmap(NULL, SPAWN_STACK_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (s->stack == MAP_FAILED)
		abort();
}

void spawner_done(struct spawner *s)
{
	if (s->stack)
		(void)munmap(s->stack, SPAWN_STACK_BYTES);
	s->stack = NULL;
	watchdog_done(&s->watchdog);
}

/* True: it was killed on its way. */
static bool clone_child(struct spawner *s, struct spawn *spawn, pid_t *ret)
{
	*ret = clone(spawn_child, (char *)s->stack + SPAWN_STACK_BYTES,
		CLONE_VM | CLONE_VFORK | CLONE_PARENT_SETTID | SIGCHLD, spawn, &s->watchdog.pid);
	if (*ret < 0)
		*ret = -errno;
	return watchdog_end(&s->watchdog);
}

pid_t spawn_run(struct spawner *s, struct spawn *spawn, struct err *e)
{
	bool is_killed = false;
	sigset_t all, before;
	pid_t pid = 0;
	int r;

	spawn->failed_step = NULL;
	/* A signal handler in the child would run in our memory. */
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, &before);
	r = watchdog_begin(&s->watchdog, e);
	if (r == 0)
		is_killed = clone_child(s, spawn, &pid);
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	if (r < 0)
		return r;
	if (pid < 0)
		return err_sys(e, pid, "fork");
	if (spawn->failed_step) /* the body is reaped like any orphan */
		return err_sys(e, -spawn->failed_errno, "%s", spawn->failed_step);
	if (is_killed) /* as well */
		return err_set(e, -EINTR,
			"another process stopped it before it began, or it could not begin in "
			"time: it was killed");
	return pid;
}
