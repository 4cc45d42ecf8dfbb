#include "loop/loop.h"

#include "test.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

struct trace {
	struct loop *loop;
	struct loop_timer timers[4];
	struct loop_task task;
	struct loop_io io[2];
	int fds[4];
	int order[16], n;
};

static void note(struct trace *t, int what)
{
	if (t->n < 16)
		t->order[t->n++] = what;
}

static void fire0(void *arg)
{
	note(arg, 0);
}

static void fire1(void *arg)
{
	note(arg, 1);
}

static void fire_stop(void *arg)
{
	struct trace *t = arg;

	note(t, 9);
	loop_stop(t->loop);
}

TEST(timers_fire_in_order_and_cancelled_ones_do_not)
{
	CLEANUP(loop_freep) struct loop *loop = NULL;
	struct trace t = { 0 };
	struct err e;
	int64_t now;

	ASSERT_EQ(loop_new(&loop, &e), 0);
	t.loop = loop;
	now = loop_now_ms(loop);
	loop_timer_init(&t.timers[0], loop, fire0, &t);
	loop_timer_init(&t.timers[1], loop, fire1, &t);
	loop_timer_init(&t.timers[2], loop, fire0, &t);
	loop_timer_init(&t.timers[3], loop, fire_stop, &t);
	loop_timer_set(&t.timers[3], now + 30);
	loop_timer_set(&t.timers[2], now + 5);
	loop_timer_set(&t.timers[0], now + 20);
	loop_timer_set(&t.timers[1], now + 25);
	loop_timer_set(&t.timers[1], now + 10);
	loop_timer_cancel(&t.timers[2]);
	ASSERT_EQ(loop_run(loop, &e), 0);
	ASSERT_EQ(t.n, 3);
	ASSERT(t.order[0] == 1 && t.order[1] == 0 && t.order[2] == 9);
}

TEST(many_timers_keep_their_order)
{
	enum {
		N = 500
	};
	CLEANUP(loop_freep) struct loop *loop = NULL;
	static struct loop_timer timers[N];
	struct trace t = { 0 };
	struct err e;

	ASSERT_EQ(loop_new(&loop, &e), 0);
	t.loop = loop;
	for (int i = 0; i < N; i++) {
		loop_timer_init(&timers[i], loop, fire0, &t);
		loop_timer_set(&timers[i], loop_now_ms(loop) + (i * 7919) % N);
	}
	for (int i = 0; i < N; i++)
		if (i % 100)
			loop_timer_cancel(&timers[(i * 31) % N]);
	for (int i = 0; i < N; i++)
		loop_timer_cancel(&timers[i]);
	loop_timer_init(&t.timers[0], loop, fire_stop, &t);
	loop_timer_set(&t.timers[0], loop_now_ms(loop));
	ASSERT_EQ(loop_run(loop, &e), 0);
	ASSERT_EQ(t.n, 1);
}

static void on_both(void *arg, uint32_t events)
{
	struct trace *t = arg;

	(void)events;
	note(t, 5);
	loop_io_remove(&t->io[0]);
	loop_io_remove(&t->io[1]);
	loop_stop(t->loop);
}

TEST(an_io_removed_in_the_same_batch_is_not_called)
{
	CLEANUP(loop_freep) struct loop *loop = NULL;
	struct trace t = { 0 };
	struct err e;

	ASSERT_EQ(loop_new(&loop, &e), 0);
	t.loop = loop;
	ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, t.fds), 0);
	ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, t.fds + 2), 0);
	ASSERT_EQ(write(t.fds[1], "x", 1), 1);
	ASSERT_EQ(write(t.fds[3], "x", 1), 1);
	ASSERT_EQ(loop_io_add(loop, &t.io[0], t.fds[0], EPOLLIN, on_both, &t, &e), 0);
	ASSERT_EQ(loop_io_add(loop, &t.io[1], t.fds[2], EPOLLIN, on_both, &t, &e), 0);
	ASSERT_EQ(loop_run(loop, &e), 0);
	ASSERT_EQ(t.n, 1);
	for (int i = 0; i < 4; i++)
		(void)close(t.fds[i]);
}

static void again(void *arg)
{
	struct trace *t = arg;

	note(t, 3);
	if (t->n < 3)
		loop_defer(t->loop, &t->task, again, t);
	else
		loop_stop(t->loop);
}

TEST(a_task_may_defer_itself)
{
	CLEANUP(loop_freep) struct loop *loop = NULL;
	struct trace t = { 0 };
	struct err e;

	ASSERT_EQ(loop_new(&loop, &e), 0);
	t.loop = loop;
	loop_defer(loop, &t.task, again, &t);
	loop_defer(loop, &t.task, again, &t);
	ASSERT_EQ(loop_run(loop, &e), 0);
	ASSERT_EQ(t.n, 3);
}

struct count {
	struct loop *loop;
	int next, done;
	bool in_order;
};

static int work_in_lane(void *arg, struct err *e)
{
	struct count *c = arg;

	c->next++; /* one lane, one thread at a time: no lock needed, and TSan would say otherwise
		    */
	return c->next == 20 ? err_set(e, -EIO, "the last one fails") : c->next;
}

static void work_done(void *arg, int r, const struct err *e)
{
	struct count *c = arg;

	c->done++;
	if (c->done < 20)
		c->in_order = c->in_order && r == c->done;
	else
		c->in_order = c->in_order && r == -EIO && strcmp(e->msg, "the last one fails") == 0;
	if (c->done == 20)
		loop_stop(c->loop);
}

TEST(jobs_of_one_lane_run_in_order)
{
	CLEANUP(loop_freep) struct loop *loop = NULL;
	struct count c = { .in_order = true };
	struct err e;

	ASSERT_EQ(loop_new(&loop, &e), 0);
	c.loop = loop;
	for (int i = 0; i < 20; i++)
		loop_job(loop, 1, work_in_lane, work_done, &c);
	ASSERT_EQ(loop_run(loop, &e), 0);
	ASSERT_EQ(c.done, 20);
	ASSERT(c.in_order);
}

enum {
	CROWD = 24
};

/* Long jobs wait at a pipe until the short one has run. */
struct crowd {
	struct loop *loop;
	int pipe[2], waiting;
};

static int work_long(void *arg, struct err *e)
{
	struct crowd *c = arg;
	char byte;

	(void)e;
	return (int)read(c->pipe[0], &byte, 1);
}

static void long_done(void *arg, int r, const struct err *e)
{
	struct crowd *c = arg;

	(void)r;
	(void)e;
	if (--c->waiting == 0)
		loop_stop(c->loop);
}

static int work_short(void *arg, struct err *e)
{
	struct crowd *c = arg;

	(void)e;
	for (int i = 0; i < CROWD; i++)
		if (write(c->pipe[1], "x", 1) != 1)
			return -EIO;
	return 0;
}

static void short_done(void *arg, int r, const struct err *e)
{
	(void)arg;
	(void)r;
	(void)e;
}

TEST(a_lane_does_not_wait_for_long_jobs_of_others)
{
	CLEANUP(loop_freep) struct loop *loop = NULL;
	struct crowd c = { .waiting = CROWD };
	struct err e;

	ASSERT_EQ(loop_new(&loop, &e), 0);
	c.loop = loop;
	ASSERT_EQ(pipe(c.pipe), 0);
	for (int i = 0; i < CROWD; i++)
		loop_job(loop, i % 2 ? 1 : LOOP_ANY, work_long, long_done, &c);
	loop_job(loop, 0, work_short, short_done, &c);
	ASSERT_EQ(loop_run(loop, &e), 0);
	ASSERT_EQ(c.waiting, 0);
	(void)close(c.pipe[0]);
	(void)close(c.pipe[1]);
}

static void write_later(void *arg)
{
	struct crowd *c = arg;

	if (write(c->pipe[1], "x", 1) != 1)
		loop_stop(c->loop);
}

TEST(jobs_and_what_they_defer_are_finished_after_the_loop)
{
	CLEANUP(loop_freep) struct loop *loop = NULL;
	struct crowd c = { .waiting = 1 };
	struct loop_task task = { 0 };
	struct err e;

	ASSERT_EQ(loop_new(&loop, &e), 0);
	ASSERT_EQ(loop_finish_jobs(loop, time_now_ms()), 0); /* none yet */
	c.loop = loop;
	ASSERT_EQ(pipe(c.pipe), 0);
	loop_job_for(loop, "slow", work_long, long_done, &c);
	ASSERT_EQ(loop_finish_jobs(loop, time_now_ms() + 20), -ETIMEDOUT);
	ASSERT_EQ(c.waiting, 1);
	loop_defer(loop, &task, write_later, &c);
	ASSERT_EQ(loop_finish_jobs(loop, time_now_ms() + 60000), 0);
	ASSERT_EQ(c.waiting, 0);
	(void)close(c.pipe[0]);
	(void)close(c.pipe[1]);
}

TEST(who_waits_for_a_long_time_leaves_others_theirs)
{
	CLEANUP(loop_freep) struct loop *loop = NULL;
	struct crowd c = { .waiting = CROWD };
	struct err e;

	ASSERT_EQ(loop_new(&loop, &e), 0);
	c.loop = loop;
	ASSERT_EQ(pipe(c.pipe), 0);
	for (int i = 0; i < CROWD; i++)
		loop_job_for(loop, "slow", work_long, long_done, &c);
	loop_job_for(loop, "quick", work_short, short_done, &c);
	ASSERT_EQ(loop_run(loop, &e), 0);
	ASSERT_EQ(c.waiting, 0);
	(void)close(c.pipe[0]);
	(void)close(c.pipe[1]);
}

static void on_usr1(void *arg, int signo)
{
	struct trace *t = arg;

	note(t, signo);
	loop_stop(t->loop);
}

TEST(signals_arrive_as_callbacks)
{
	CLEANUP(loop_freep) struct loop *loop = NULL;
	struct trace t = { 0 };
	struct err e;

	ASSERT_EQ(loop_new(&loop, &e), 0);
	t.loop = loop;
	ASSERT_EQ(loop_signal(loop, SIGUSR2, on_usr1, &t, &e), 0);
	ASSERT_EQ(loop_signal(loop, SIGUSR1, on_usr1, &t, &e), 0);
	ASSERT_EQ(kill(getpid(), SIGUSR1), 0);
	ASSERT_EQ(loop_run(loop, &e), 0);
	ASSERT_EQ(t.order[0], SIGUSR1);
}

/* ---- listeners ---- */

enum {
	CALLERS = 3,
	MAX_SPARE = 256,
};

struct door {
	struct loop *loop;
	struct loop_listener listener;
	struct loop_timer timer;
	int accepted, stop_at;
	int spare[MAX_SPARE], n_spare; /* all the descriptors there are */
	int64_t freed_ms, accepted_ms;
};

static void on_caller(void *arg, int fd, const struct sockaddr_storage *peer)
{
	struct door *d = arg;

	d->accepted += peer->ss_family == AF_INET && (fcntl(fd, F_GETFL) & O_NONBLOCK) &&
		       (fcntl(fd, F_GETFD) & FD_CLOEXEC);
	d->accepted_ms = time_now_ms();
	(void)close(fd);
	if (d->accepted == d->stop_at) {
		loop_listener_close(&d->listener);
		loop_stop(d->loop);
	}
}

static int listen_somewhere(struct sockaddr_in *ret)
{
	socklen_t size = sizeof *ret;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*ret = (struct sockaddr_in){ .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	if (bind(fd, (void *)ret, size) < 0 || listen(fd, 16) < 0 ||
		getsockname(fd, (void *)ret, &size) < 0)
		abort();
	return fd;
}

TEST(a_listener_gives_connections_until_it_is_closed_in_the_callback)
{
	CLEANUP(loop_freep) struct loop *loop = NULL;
	struct door d = { .stop_at = CALLERS - 1 };
	int callers[CALLERS];
	struct sockaddr_in at;
	struct err e;

	ASSERT_EQ(loop_new(&loop, &e), 0);
	d.loop = loop;
	ASSERT_EQ(loop_listener_take(loop, &d.listener, listen_somewhere(&at), on_caller, &d, &e),
		0);
	for (int i = 0; i < CALLERS; i++) {
		callers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		ASSERT_EQ(connect(callers[i], (void *)&at, sizeof at), 0);
	}
	ASSERT_EQ(loop_run(loop, &e), 0);
	ASSERT_EQ(d.accepted, CALLERS - 1);
	ASSERT_EQ(d.listener.fd, -EBADF);
	loop_listener_close(&d.listener);
	ASSERT_EQ(loop_listener_take(loop, &d.listener, -EBADF, on_caller, &d, &e), -EBADF);
	for (int i = 0; i < CALLERS; i++)
		(void)close(callers[i]);
}

static void free_spares(void *arg)
{
	struct door *d = arg;

	while (d->n_spare > 0)
		(void)close(d->spare[--d->n_spare]);
	d->freed_ms = time_now_ms();
}

TEST(a_listener_without_descriptors_rests_and_goes_on)
{
	CLEANUP(loop_freep) struct loop *loop = NULL;
	cleanup_close int caller = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct door d = { .stop_at = 1 };
	struct rlimit before, few;
	struct sockaddr_in at;
	clock_t spent;
	struct err e;
	int r;

	ASSERT_EQ(loop_new(&loop, &e), 0);
	d.loop = loop;
	ASSERT_EQ(loop_listener_take(loop, &d.listener, listen_somewhere(&at), on_caller, &d, &e),
		0);
	(void)getrlimit(RLIMIT_NOFILE, &before);
	few = (struct rlimit){ 64, before.rlim_max };
	(void)setrlimit(RLIMIT_NOFILE, &few);
	while (d.n_spare < MAX_SPARE && (d.spare[d.n_spare] = dup(caller)) >= 0)
		d.n_spare++;
	r = connect(caller, (void *)&at, sizeof at);
	loop_timer_init(&d.timer, loop, free_spares, &d);
	loop_timer_set(&d.timer, loop_now_ms(loop) + 350);
	spent = clock();
	if (r == 0)
		r = loop_run(loop, &e);
	spent = clock() - spent;
	(void)setrlimit(RLIMIT_NOFILE, &before);
	ASSERT_EQ(r, 0);
	ASSERT_EQ(d.accepted, 1);
	ASSERT(d.accepted_ms >= d.freed_ms);
	ASSERT(spent <
		CLOCKS_PER_SEC / 10); /* of a third of a second: it rested, it did not spin */
}
