/* watchdog - kills a child that does not reach its exec.
 * While a child of spawn.c has not executed, the kernel keeps the loop in the middle of clone
 * (vfork's contract). The child is an ordinary process inside: root inside, or its own user, may
 * send it SIGSTOP, and the guest would hang for as long. A thread looks every 50 ms whether the
 * same child is still on its way. One that two looks find stopped is killed after 100 to 150 ms;
 * one that is only slow (a busy machine, a slow disk) after 10 s. Then clone returns, and starting
 * that command has failed.
 *
 * It has to be a thread of PID 1: the kernel ignores signals from inside for all its threads,
 * SIGSTOP and SIGKILL as well. Any other process inside could be stopped like the child.
 *
 * It is the one user of atomics outside src/loop and the log. A job of the loop cannot do this,
 * because a job can wait behind others that a sandbox's file holds up, and its lock would cost two
 * context switches for each command. The two sides share one word (the child's number and its
 * phase) and the child's pid. The killer claims the word before it kills, and the loop reaps
 * nobody before it has taken the word back: so the pid is always that child's. */
#pragma once

#include "base/base.h"

#include <pthread.h>

struct watchdog { /* zeroed: new */
	uint32_t word;
	pid_t pid; /* written by the kernel, before the child runs (CLONE_PARENT_SETTID) */
	uint32_t is_parked, is_stopping;
	pthread_t thread; /* made for the first child: an unused sandbox has none */
	bool is_made;
};

void watchdog_done(struct watchdog *w);
/* Before clone. Signals are blocked: the thread inherits that. */
int watchdog_begin(struct watchdog *w, struct err *e);
/* After clone, also when it failed. True: the child was killed. */
bool watchdog_end(struct watchdog *w);
