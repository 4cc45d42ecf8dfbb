/* The job pool: the only place with threads and locks. Each lane is a queue of its own whose head
 * runs on at most one thread at a time; results return over an eventfd. */
#include "loop/loop-internal.h"

#include <signal.h>
#include <sys/eventfd.h>

struct job {
	struct list node;
	int lane;
	loop_work_fn work;
	done_fn done;
	void *arg;
	int r;
	struct err e;
};

struct job_pool {
	struct loop *loop;
	pthread_t threads[LOOP_THREADS];
	int n_threads;
	int event_fd;
	struct loop_io io;

	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct list queue;    /* waiting, oldest first */
	struct list finished; /* for the loop */
	bool lane_busy[LOOP_LANES];
	bool stopping;
	int idle;
};

/* Oldest job whose lane is free; called with the lock held. */
static struct job *next_job(struct job_pool *pool)
{
	LIST_EACH(&pool->queue, node)
	{
		struct job *job = container_of(node, struct job, node);

		if (job->lane == LOOP_ANY || !pool->lane_busy[job->lane]) {
			list_remove(&job->node);
			if (job->lane != LOOP_ANY)
				pool->lane_busy[job->lane] = true;
			return job;
		}
	}
	return NULL;
}

static void run_job(struct job_pool *pool, struct job *job)
{
	uint64_t one = 1;

	(void)pthread_mutex_unlock(&pool->lock);
	job->r = job->work(job->arg, &job->e);
	(void)pthread_mutex_lock(&pool->lock);
	if (job->lane != LOOP_ANY) {
		pool->lane_busy[job->lane] = false;
		(void)pthread_cond_signal(&pool->wake); /* the lane's next may wait for us */
	}
	list_append(&pool->finished, &job->node);
	(void)!write(pool->event_fd, &one, sizeof one);
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
	list_init(&pool->queue);
	list_init(&pool->finished);
	(void)pthread_mutex_init(&pool->lock, NULL);
	(void)pthread_cond_init(&pool->wake, NULL);
	pool->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (pool->event_fd < 0 ||
		loop_io_add(loop, &pool->io, pool->event_fd, EPOLLIN, on_finished, pool, &e) < 0)
		abort();
	return pool;
}

/* A thread more, up to the limit; signals are the loop's business, so it blocks them all. */
static void pool_grow(struct job_pool *pool)
{
	sigset_t all, old;

	if (pool->n_threads == LOOP_THREADS)
		return;
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	if (pthread_create(&pool->threads[pool->n_threads], NULL, thread_main, pool) == 0)
		pool->n_threads++;
	else if (pool->n_threads == 0)
		abort();
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void loop_job(struct loop *loop, int lane, loop_work_fn work, done_fn done, void *arg)
{
	struct job *job = XNEW(struct job);
	struct job_pool *pool;

	assert(lane >= LOOP_ANY && lane < LOOP_LANES);
	if (!loop->pool)
		loop->pool = pool_new(loop);
	pool = loop->pool;
	*job = (struct job){ .lane = lane, .work = work, .done = done, .arg = arg };
	(void)pthread_mutex_lock(&pool->lock);
	list_append(&pool->queue, &job->node);
	if (pool->idle == 0)
		pool_grow(pool);
	(void)pthread_cond_signal(&pool->wake);
	(void)pthread_mutex_unlock(&pool->lock);
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
