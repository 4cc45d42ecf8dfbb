/* The job pool: the only place with threads and locks. Each lane is a queue of its own whose head
 * runs on at most one thread at a time, and so is what belongs to no lane, on a few. There are
 * threads for all of them together: no queue waits for another. Results return over an eventfd. */
#include "base/fault.h"
#include "loop/loop-internal.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>

struct job {
	struct list node;
	int lane;
	char owner[LOOP_OWNER_SIZE]; /* empty: nobody */
	loop_work_fn work;
	done_fn done;
	void *arg;
	int r;
	struct err e;
};

struct job_queue {
	struct list jobs; /* waiting, oldest first */
	int n;
	int busy, most; /* threads that run one of it */
};

struct job_pool {
	struct loop *loop;
	pthread_t threads[LOOP_THREADS];
	int n_threads;
	int event_fd;
	struct loop_io io;

	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct job_queue queues[LOOP_LANES + 1]; /* the last: of no lane */
	struct list running;                     /* of those that have an owner */
	struct list finished;                    /* for the loop */
	bool stopping;
	int idle;
};

static struct job_queue *queue_of(struct job_pool *pool, int lane)
{
	return &pool->queues[lane == LOOP_ANY ? LOOP_LANES : lane];
}

/* What a job waits for may be held up by its owner for as long as he likes, a file that he writes
 * to for one: others must not wait with him. */
static bool has_its_part(const struct job_pool *pool, const struct job *job)
{
	int n = 0;

	if (!job->owner[0])
		return false;
	LIST_EACH(&pool->running, node)
	n += strcmp(container_of(node, struct job, node)->owner, job->owner) == 0;
	return n >= LOOP_ANY_THREADS / 2;
}

static struct job *first_of(const struct job_pool *pool, const struct job_queue *q)
{
	LIST_EACH(&q->jobs, node)
	{
		struct job *job = container_of(node, struct job, node);

		if (!has_its_part(pool, job))
			return job;
	}
	return NULL;
}

/* The oldest of a queue that may run now; called with the lock held, as the next. */
static struct job *next_job(struct job_pool *pool)
{
	for (int i = 0; i <= LOOP_LANES; i++) {
		struct job_queue *q = &pool->queues[i];
		struct job *job = q->busy < q->most ? first_of(pool, q) : NULL;

		if (!job)
			continue;
		list_remove(&job->node);
		if (job->owner[0])
			list_append(&pool->running, &job->node);
		q->n--;
		q->busy++;
		return job;
	}
	return NULL;
}

static int count_ready(const struct job_pool *pool)
{
	int n = 0;

	for (int i = 0; i <= LOOP_LANES; i++)
		n += MIN(pool->queues[i].n, pool->queues[i].most - pool->queues[i].busy);
	return n;
}

static void run_job(struct job_pool *pool, struct job *job)
{
	uint64_t one = 1;

	(void)pthread_mutex_unlock(&pool->lock);
	if (job->owner[0] && fault_value(FAULT_JOB_MS) > 0)
		(void)usleep((useconds_t)fault_value(FAULT_JOB_MS) * 1000);
	job->r = job->work(job->arg, &job->e);
	(void)pthread_mutex_lock(&pool->lock);
	queue_of(pool, job->lane)->busy--;
	list_remove(&job->node);
	if (count_ready(pool) > 1) /* this thread takes one of them */
		(void)pthread_cond_signal(&pool->wake);
	if (list_empty(&pool->finished))
		(void)!write(pool->event_fd, &one, sizeof one);
	list_append(&pool->finished, &job->node);
}

static void *thread_main(void *arg)
{
	struct job_pool *pool = arg;

	(void)pthread_mutex_lock(&pool->lock);
	for (;;) {
		struct job *job = next_job(pool);

		if (job) {
			run_job(pool, job);
			continue;
		}
		if (pool->stopping)
			break;
		pool->idle++;
		(void)pthread_cond_wait(&pool->wake, &pool->lock);
		pool->idle--;
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return NULL;
}

static void deliver(struct job_pool *pool)
{
	struct list done = LIST_INIT(done);

	(void)pthread_mutex_lock(&pool->lock);
	while (!list_empty(&pool->finished)) {
		struct list *node = pool->finished.next;

		list_remove(node);
		list_append(&done, node);
	}
	(void)pthread_mutex_unlock(&pool->lock);
	LIST_EACH(&done, node)
	{
		struct job *job = container_of(node, struct job, node);

		job->done(job->arg, job->r, &job->e);
		free(job);
	}
}

static void on_finished(void *arg, uint32_t events)
{
	struct job_pool *pool = arg;
	uint64_t count;

	(void)events;
	(void)!read(pool->event_fd, &count, sizeof count);
	deliver(pool);
}

static struct job_pool *pool_new(struct loop *loop)
{
	struct job_pool *pool = XNEW(struct job_pool);
	struct err e;

	pool->loop = loop;
	list_init(&pool->running);
	list_init(&pool->finished);
	for (int i = 0; i <= LOOP_LANES; i++) {
		list_init(&pool->queues[i].jobs);
		pool->queues[i].most = i < LOOP_LANES ? 1 : LOOP_ANY_THREADS;
	}
	(void)pthread_mutex_init(&pool->lock, NULL);
	(void)pthread_cond_init(&pool->wake, NULL);
	pool->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (pool->event_fd < 0 ||
		loop_io_add(loop, &pool->io, pool->event_fd, EPOLLIN, on_finished, pool, &e) < 0)
		abort();
	return pool;
}

/* A thread more, up to the limit, if the host has one to give; signals are the loop's business, so
 * it blocks them all. */
static void pool_grow(struct job_pool *pool)
{
	sigset_t all, old;

	if (pool->n_threads == LOOP_THREADS)
		return;
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	if (pthread_create(&pool->threads[pool->n_threads], NULL, thread_main, pool) == 0)
		pool->n_threads++;
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void give(struct loop *loop, struct job *job)
{
	struct job_pool *pool;
	int n_ready;

	assert(job->lane >= LOOP_ANY && job->lane < LOOP_LANES);
	if (!loop->pool)
		loop->pool = pool_new(loop);
	pool = loop->pool;
	list_init(&job->node);
	(void)pthread_mutex_lock(&pool->lock);
	list_append(&queue_of(pool, job->lane)->jobs, &job->node);
	queue_of(pool, job->lane)->n++;
	n_ready = count_ready(pool);
	if (pool->idle < n_ready)
		pool_grow(pool);
	/* Where none may run now, the thread that is at work takes the next as well: to wake
	 * another for it costs more than many a job. */
	if (n_ready > 0)
		(void)pthread_cond_signal(&pool->wake);
	/* No more processes may be made here: then the loop does it itself, for once. */
	if (pool->n_threads == 0)
		run_job(pool, next_job(pool));
	(void)pthread_mutex_unlock(&pool->lock);
}

void loop_job(struct loop *loop, int lane, loop_work_fn work, done_fn done, void *arg)
{
	struct job *job = XNEW(struct job);

	*job = (struct job){ .lane = lane, .work = work, .done = done, .arg = arg };
	give(loop, job);
}

void loop_job_for(struct loop *loop, const char *owner, loop_work_fn work, done_fn done, void *arg)
{
	struct job *job = XNEW(struct job);

	assert(strlen(owner) < sizeof job->owner);
	*job = (struct job){ .lane = LOOP_ANY, .work = work, .done = done, .arg = arg };
	(void)snprintf(job->owner, sizeof job->owner, "%s", owner);
	give(loop, job);
}

static bool is_busy(struct job_pool *pool)
{
	bool is_any;

	(void)pthread_mutex_lock(&pool->lock);
	is_any = !list_empty(&pool->finished);
	for (int i = 0; i <= LOOP_LANES; i++)
		is_any |= pool->queues[i].n > 0 || pool->queues[i].busy > 0;
	(void)pthread_mutex_unlock(&pool->lock);
	return is_any;
}

int loop_pool_wait(struct loop *loop, int64_t until_ms)
{
	int64_t left_ms = MAX(until_ms - time_now_ms(), 0);
	struct pollfd one = { .events = POLLIN };

	if (!loop->pool || !is_busy(loop->pool))
		return 0;
	one.fd = loop->pool->event_fd;
	if (left_ms == 0)
		return -ETIMEDOUT;
	if (poll(&one, 1, (int)MIN(left_ms, 60000)) > 0)
		on_finished(loop->pool, POLLIN);
	return 1;
}

void loop_pool_free(struct loop *loop)
{
	struct job_pool *pool = loop->pool;

	if (!pool)
		return;
	(void)pthread_mutex_lock(&pool->lock);
	pool->stopping = true;
	(void)pthread_cond_broadcast(&pool->wake);
	(void)pthread_mutex_unlock(&pool->lock);
	for (int i = 0; i < pool->n_threads; i++)
		(void)pthread_join(pool->threads[i], NULL);
	deliver(pool); /* whoever waits hears of it, also at the end */
	loop_io_remove(&pool->io);
	(void)close(pool->event_fd);
	(void)pthread_mutex_destroy(&pool->lock);
	(void)pthread_cond_destroy(&pool->wake);
	free(pool);
	loop->pool = NULL;
}
