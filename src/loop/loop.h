/* loop - the one thread that owns all objects.
 * Owns:   epoll, timers, signals as events, listening sockets, deferred work, the job pool.
 * Uses:   base.
 * Never:  knows what flows through the descriptors it watches.
 *
 * Callbacks run on the loop and do not block. Blocking work is a job: it owns its inputs, shares
 * nothing, and its result comes back on the loop. Nodes (io, timer, task) are embedded in their
 * owner, so arming one never allocates and never fails for memory. */
#pragma once

#include "base/base.h"

#include <sys/epoll.h>

struct loop;
struct sockaddr_storage;

int loop_new(struct loop **ret, struct err *e);
/* Every io, timer and task must be gone by now; jobs still running are waited for. */
struct loop *loop_free(struct loop *loop);
DEFINE_CLEANUP(struct loop, loop_free)
int loop_run(struct loop *loop, struct err *e); /* until loop_stop */
void loop_stop(struct loop *loop);
/* After loop_run: waits for all jobs, tells whoever asked for them, and runs what they defer.
 * -ETIMEDOUT: some are still under way. */
int loop_finish_jobs(struct loop *loop, int64_t until_ms);
/* Monotonic ms, read once a turn: cheap, and the same for all callbacks of the turn. */
int64_t loop_now_ms(const struct loop *loop);
/* Which turn this is, so that somebody can have his share of each. */
uint64_t loop_turn(const struct loop *loop);

/* Readiness of a descriptor (level-triggered). The fd stays the caller's. EPOLLERR and EPOLLHUP are
 * always reported. Removing is allowed at any time, also from a callback of the same batch: an io
 * that was removed is not called again. */
typedef void (*loop_io_fn)(void *arg, uint32_t events);
struct loop_io {
	struct loop *loop; /* NULL: not added */
	loop_io_fn fn;
	void *arg;
	int fd;
	uint32_t events;
};
int loop_io_add(struct loop *loop, struct loop_io *io, int fd, uint32_t events, loop_io_fn fn,
	void *arg, struct err *e);
void loop_io_set(struct loop_io *io, uint32_t events); /* no system call when nothing changes */
void loop_io_remove(struct loop_io *io);               /* fine if never added */

/* One-shot timers. `at_ms` is absolute, on loop_now_ms's clock. */
typedef void (*loop_fn)(void *arg);
struct loop_timer {
	struct loop *loop;
	loop_fn fn;
	void *arg;
	int64_t at_ms;
	size_t place; /* in the heap, 1-based; 0: not set */
};
void loop_timer_init(struct loop_timer *timer, struct loop *loop, loop_fn fn, void *arg);
void loop_timer_set(struct loop_timer *timer, int64_t at_ms); /* again moves it */
void loop_timer_cancel(struct loop_timer *timer);             /* fine if not set or zeroed */
static inline bool loop_timer_is_set(const struct loop_timer *timer)
{
	return timer->place != 0;
}

/* A listening socket: each connection is given to fn, which owns the descriptor (non-blocking, and
 * on TCP without delay and with keep-alive). Takes a few a turn, and rests a moment when
 * descriptors or memory have run out. fn may close the listener, but its memory must outlive the
 * callback. */
typedef void (*loop_accept_fn)(void *arg, int fd, const struct sockaddr_storage *peer);
struct loop_listener {
	struct loop_io io;
	struct loop_timer pause;
	loop_accept_fn fn;
	/* Descriptors have run out: may free one and say so. NULL, or false: it rests a moment. */
	bool (*make_room)(void *arg);
	void *arg;
	int fd; /* -EBADF: closed */
};
/* Takes a listening stream socket of any family, also when it fails. */
int loop_listener_take(struct loop *loop, struct loop_listener *listener, int fd, loop_accept_fn fn,
	void *arg, struct err *e);
void loop_listener_close(struct loop_listener *listener); /* fine if it is closed */

/* Runs at the end of this turn, in order; tasks deferred meanwhile run in the next turn. Deferring
 * one that is already waiting changes nothing. This is how a done_fn avoids being called from
 * inside the call that asked, and how objects are freed after the batch that may still name them.
 */
struct loop_task {
	struct list node;
	struct loop *loop; /* NULL: not waiting */
	loop_fn fn;
	void *arg;
};
void loop_defer(struct loop *loop, struct loop_task *task, loop_fn fn, void *arg);
void loop_task_cancel(struct loop_task *task);

/* Signals as ordinary callbacks. They are blocked in this process from here on; children must
 * unblock (posix_spawn attributes, or sigprocmask between fork and exec). */
typedef void (*loop_signal_fn)(void *arg, int signo);
int loop_signal(struct loop *loop, int signo, loop_signal_fn fn, void *arg, struct err *e);

/* Runs work(arg, e) on a pool thread, then done(arg, r, e) on the loop. Jobs of one `lane` (0 to
 * LOOP_LANES-1) run one after the other in the order given; LOOP_ANY runs wherever a thread is
 * free, and no lane waits for it. */
enum {
	LOOP_LANES = 8, /* 0 and 4 to 7: the store's; 1 and 2: volumes' */
	LOOP_ANY = -1,
};
typedef int (*loop_work_fn)(void *arg, struct err *e);
void loop_job(struct loop *loop, int lane, loop_work_fn work, done_fn done, void *arg);
/* As LOOP_ANY, for work that waits for what somebody may keep busy: of one owner's no more than
 * half of what runs at once, however many wait. "": nobody's in particular. */
enum {
	LOOP_OWNER_SIZE = 40,
};
void loop_job_for(struct loop *loop, const char *owner, loop_work_fn work, done_fn done, void *arg);
