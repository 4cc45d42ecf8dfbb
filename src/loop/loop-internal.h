/* The loop's own parts, shared by its files. */
#pragma once

#include "loop/loop.h"

#include <pthread.h>

enum {
	LOOP_BATCH = 128,
	LOOP_ANY_THREADS = 4,
	LOOP_THREADS = LOOP_ANY_THREADS + LOOP_LANES, /* as many as are needed, up to these */
	LOOP_SIGNALS = 32,
};

struct job_pool;

struct loop {
	int epoll_fd;
	int64_t now_ms;
	uint64_t turn;
	bool stopping;

	struct epoll_event batch[LOOP_BATCH];
	int batch_n, batch_at; /* what is being handled, so that a removed io can be taken out */

	struct loop_timer **heap; /* 1-based */
	size_t heap_n, heap_cap;

	struct list tasks;

	int signal_fd;
	struct loop_io signal_io;
	struct {
		loop_signal_fn fn;
		void *arg;
	} signals[LOOP_SIGNALS];

	struct job_pool *pool; /* made with the first job */
};

int64_t loop_timers_next(const struct loop *loop); /* -1: none */
void loop_timers_run(struct loop *loop);
/* Until some that were under way have ended, and were told: 1. 0: none are. -ETIMEDOUT. */
int loop_pool_wait(struct loop *loop, int64_t until_ms);
void loop_pool_free(struct loop *loop);
