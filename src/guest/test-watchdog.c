/* Children as spawn.c makes them: the parent hangs in clone until they exec or end. */
#include "guest/watchdog.h"

#include "test.h"

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

enum {
	CHILD_STACK = 64 << 10,
	SLOW_MS = 400,    /* many looks */
	PARKED_MS = 3000, /* longer than it stays awake */
	MANY = 20000,
};

struct rig {
	struct watchdog dog;
	char stack[CHILD_STACK] __attribute__((aligned(16)));
};

static void sleep_ms(int ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (int64_t)(ms % 1000) * 1000000 };

	(void)nanosleep(&t, NULL);
}

__attribute__((no_sanitize("address", "undefined"))) static int stops(void *arg)
{
	(void)arg;
	(void)kill((pid_t)syscall(SYS_getpid), SIGSTOP);
	_exit(0);
}

__attribute__((no_sanitize("address", "undefined"))) static int is_slow(void *arg)
{
	struct timespec t = { .tv_nsec = SLOW_MS * 1000000 };

	(void)arg;
	(void)syscall(SYS_nanosleep, &t, NULL);
	_exit(0);
}

__attribute__((no_sanitize("address", "undefined"))) static int ends(void *arg)
{
	(void)arg;
	_exit(0);
}

/* 1: killed. 0: not. The status is the child's. */
static int run(struct rig *rig, int (*child)(void *), int *ret_status)
{
	bool is_killed;
	pid_t pid;

	if (watchdog_begin(&rig->dog, NULL) < 0)
		return -1;
	pid = clone(child, rig->stack + CHILD_STACK,
		CLONE_VM | CLONE_VFORK | CLONE_PARENT_SETTID | SIGCHLD, NULL, &rig->dog.pid);
	is_killed = watchdog_end(&rig->dog);
	return pid > 0 && waitpid(pid, ret_status, 0) == pid ? is_killed : -1;
}

TEST(a_child_that_was_stopped_is_killed_and_the_next_runs)
{
	struct rig *rig = XNEW(struct rig);
	int status = 0;

	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(run(rig, stops, &status), 1);
		ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		ASSERT_EQ(run(rig, ends, &status), 0);
		ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	watchdog_done(&rig->dog);
	free(rig);
}

TEST(a_child_that_is_only_slow_is_left_alone)
{
	struct rig *rig = XNEW(struct rig);
	int status = 0;

	ASSERT_EQ(run(rig, is_slow, &status), 0);
	ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	watchdog_done(&rig->dog);
	free(rig);
}

TEST(a_parked_watchdog_wakes_for_the_next_child)
{
	struct rig *rig = XNEW(struct rig);
	int status = 0;

	ASSERT_EQ(run(rig, ends, &status), 0);
	sleep_ms(PARKED_MS);
	while (!__atomic_load_n(&rig->dog.is_parked, __ATOMIC_SEQ_CST))
		sleep_ms(10);
	ASSERT_EQ(run(rig, stops, &status), 1);
	sleep_ms(PARKED_MS);
	watchdog_done(&rig->dog); /* a parked one ends as well */
	free(rig);
}

TEST(children_that_hurry_are_never_killed)
{
	struct rig *rig = XNEW(struct rig);
	int status = 0, killed = 0;

	ASSERT_EQ(run(rig, stops, &status), 1); /* it looks often now */
	for (int i = 0; i < MANY; i++)
		killed += run(rig, ends, &status) != 0 || !WIFEXITED(status);
	ASSERT_EQ(killed, 0);
	watchdog_done(&rig->dog);
	free(rig);
}
