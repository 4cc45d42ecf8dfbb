#include "loop/loop-internal.h"

#include <signal.h>
#include <sys/signalfd.h>

int loop_new(struct loop **ret, struct err *e)
{
	CLEANUP(loop_freep) struct loop *loop = XNEW(struct loop);

	loop->signal_fd = -EBADF;
	list_init(&loop->tasks);
	loop->now_ms = time_now_ms();
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop->epoll_fd < 0)
		return err_sys(e, -errno, "epoll_create1");
	*ret = TAKE(loop);
	return 0;
}

struct loop *loop_free(struct loop *loop)
{
	if (!loop)
		return NULL;
	loop_pool_free(loop);
	loop_io_remove(&loop->signal_io);
	close_fdp(&loop->signal_fd);
	close_fdp(&loop->epoll_fd);
	free(loop->heap);
	free(loop);
	return NULL;
}

int64_t loop_now_ms(const struct loop *loop)
{
	return loop->now_ms;
}

uint64_t loop_turn(const struct loop *loop)
{
	return loop->turn;
}

void loop_stop(struct loop *loop)
{
	loop->stopping = true;
}

static void run_tasks(struct loop *loop)
{
	struct list now = LIST_INIT(now);

	/* Only what waited when the turn ended: a task that defers itself runs in the next turn. */
	if (!list_empty(&loop->tasks)) {
		now = loop->tasks;
		now.next->prev = now.prev->next = &now;
		list_init(&loop->tasks);
	}
	while (!list_empty(&now)) {
		struct loop_task *task = container_of(now.next, struct loop_task, node);

		list_remove(&task->node);
		task->loop = NULL;
		task->fn(task->arg);
	}
}

static int wait_ms(const struct loop *loop)
{
	int64_t next = loop_timers_next(loop);

	if (!list_empty(&loop->tasks))
		return 0;
	if (next < 0)
		return -1;
	return (int)MIN(MAX(next - time_now_ms(), 0), 60000);
}

int loop_run(struct loop *loop, struct err *e)
{
	loop->stopping = false;
	while (!loop->stopping) {
		int n = epoll_wait(loop->epoll_fd, loop->batch, LOOP_BATCH, wait_ms(loop));

		if (n < 0 && errno != EINTR)
			return err_sys(e, -errno, "epoll_wait");
		loop->now_ms = time_now_ms();
		loop->turn++;
		loop->batch_n = MAX(n, 0);
		for (loop->batch_at = 0; loop->batch_at < loop->batch_n; loop->batch_at++) {
			struct loop_io *io = loop->batch[loop->batch_at].data.ptr;

			if (io)
				io->fn(io->arg, loop->batch[loop->batch_at].events);
		}
		loop->batch_n = 0;
		loop_timers_run(loop);
		run_tasks(loop);
	}
	return 0;
}

int loop_finish_jobs(struct loop *loop, int64_t until_ms)
{
	int r;

	do {
		loop->now_ms = time_now_ms();
		run_tasks(loop);
		r = loop_pool_wait(loop, until_ms);
	} while (r > 0);
	return r;
}

int loop_io_add(struct loop *loop, struct loop_io *io, int fd, uint32_t events, loop_io_fn fn,
	void *arg, struct err *e)
{
	struct epoll_event ev = { .events = events, .data.ptr = io };

	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
		return err_sys(e, -errno, "watch descriptor %d", fd);
	*io = (struct loop_io){ loop, fn, arg, fd, events };
	return 0;
}

void loop_io_set(struct loop_io *io, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = io };

	if (!io->loop || io->events == events)
		return;
	io->events = events;
	if (epoll_ctl(io->loop->epoll_fd, EPOLL_CTL_MOD, io->fd, &ev) < 0)
		abort(); /* a descriptor closed while watched: our bug */
}

void loop_io_remove(struct loop_io *io)
{
	struct loop *loop = io->loop;

	if (!loop)
		return;
	(void)epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, io->fd, NULL);
	for (int i = loop->batch_at; i < loop->batch_n; i++)
		if (loop->batch[i].data.ptr == io)
			loop->batch[i].data.ptr = NULL;
	io->loop = NULL;
}

void loop_defer(struct loop *loop, struct loop_task *task, loop_fn fn, void *arg)
{
	if (task->loop)
		return;
	task->loop = loop;
	task->fn = fn;
	task->arg = arg;
	list_append(&loop->tasks, &task->node);
}

void loop_task_cancel(struct loop_task *task)
{
	if (!task->loop)
		return;
	list_remove(&task->node);
	task->loop = NULL;
}

static void on_signal(void *arg, uint32_t events)
{
	struct loop *loop = arg;
	struct signalfd_siginfo info;

	(void)events;
	while (read(loop->signal_fd, &info, sizeof info) == sizeof info)
		if (info.ssi_signo < LOOP_SIGNALS && loop->signals[info.ssi_signo].fn)
			loop->signals[info.ssi_signo].fn(loop->signals[info.ssi_signo].arg,
				(int)info.ssi_signo);
}

int loop_signal(struct loop *loop, int signo, loop_signal_fn fn, void *arg, struct err *e)
{
	sigset_t set;
	int fd;

	assert(signo > 0 && signo < LOOP_SIGNALS);
	loop->signals[signo].fn = fn;
	loop->signals[signo].arg = arg;
	(void)sigemptyset(&set);
	for (int i = 1; i < LOOP_SIGNALS; i++)
		if (loop->signals[i].fn)
			(void)sigaddset(&set, i);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return err_sys(e, -errno, "block signal %d", signo);
	fd = signalfd(MAX(loop->signal_fd, -1), &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return err_sys(e, -errno, "signalfd");
	if (loop->signal_fd >= 0)
		return 0;
	loop->signal_fd = fd;
	return loop_io_add(loop, &loop->signal_io, fd, EPOLLIN, on_signal, loop, e);
}
