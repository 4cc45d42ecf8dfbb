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
}

pid_t spawn_run(struct spawner *s, struct spawn *spawn, struct err *e)
{
	sigset_t all, before;
	pid_t pid;
	int r;

	spawn->failed_step = NULL;
	/* A signal handler in the child would run in our memory. */
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, &before);
	pid = clone(spawn_child, (char *)s->stack + SPAWN_STACK_BYTES,
		CLONE_VM | CLONE_VFORK | SIGCHLD, spawn);
	r = pid < 0 ? -errno : 0;
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	if (r < 0)
		return err_sys(e, r, "fork");
	if (spawn->failed_step) /* the body is reaped like any orphan */
		return err_sys(e, -spawn->failed_errno, "%s", spawn->failed_step);
	return pid;
}
