#include "runtime/retry.h"
#include "runtime/runtime-internal.h"

/* The request's own faults, and what will be the same a moment later: a program that the host
 * lacks, a disk that is full, a warden that is gone for good. */
static const struct {
	int code;
	enum runtime_fault fault;
} faults[] = {
	{ -EINVAL, RUNTIME_FAULT_REQUEST }, { -ENOENT, RUNTIME_FAULT_REQUEST },
	{ -EEXIST, RUNTIME_FAULT_REQUEST }, { -ERANGE, RUNTIME_FAULT_REQUEST },
	{ -E2BIG, RUNTIME_FAULT_REQUEST }, { -EDQUOT, RUNTIME_FAULT_REQUEST },
	{ -ESTALE, RUNTIME_FAULT_REQUEST }, { -ENOTDIR, RUNTIME_FAULT_REQUEST },
	{ -EOPNOTSUPP, RUNTIME_FAULT_REQUEST }, { -ECANCELED, RUNTIME_FAULT_REQUEST },
	{ -ENOSPC, RUNTIME_FAULT_LASTING }, { -EPIPE, RUNTIME_FAULT_LASTING },
	{ -EHOSTDOWN, RUNTIME_FAULT_LASTING }, /* the breaker's own word */
};

enum runtime_fault runtime_fault_of(int r)
{
	for (size_t i = 0; i < ARRAY_SIZE(faults); i++)
		if (r == faults[i].code)
			return faults[i].fault;
	return r < 0 ? RUNTIME_FAULT_PASSING : RUNTIME_FAULT_NONE;
}

int64_t retry_delay_ms(int attempt, int64_t first_ms, uint64_t random)
{
	int64_t step = first_ms;

	for (int i = 1; i < attempt && step < RETRY_MOST_MS; i++)
		step *= RETRY_FACTOR;
	step = MIN(step, RETRY_MOST_MS);
	return MIN(step * 3 / 4 + (int64_t)(random % (uint64_t)(step / 2 + 1)), RETRY_MOST_MS);
}

/* ---- one thing, tried until it is done ---- */

struct tries {
	struct list node; /* while it waits for the next */
	struct runtime *rt;
	struct runtime_tries config;
	int attempt;
	struct loop_timer timer;
	struct loop_task task;
	struct err e;
};

static void try_once(void *arg);

static void tries_end(struct tries *t, int r)
{
	list_remove(&t->node);
	loop_timer_cancel(&t->timer);
	t->config.done(t->config.arg, r, &t->e);
	free(t);
}

/* When the next one is, from now; negative: there is none. */
static int64_t next_ms(const struct tries *t, int r)
{
	uint64_t random;
	int64_t ms;

	if (runtime_fault_of(r) != RUNTIME_FAULT_PASSING || t->attempt >= RETRY_ATTEMPTS ||
		t->rt->is_stopping)
		return -1;
	random_bytes(&random, sizeof random);
	ms = retry_delay_ms(t->attempt, t->config.first_ms ? t->config.first_ms : RETRY_FIRST_MS,
		random);
	if (t->config.deadline_ms && loop_now_ms(t->rt->loop) + ms >= t->config.deadline_ms)
		return -1;
	return ms;
}

static void tried(void *arg, int r, const struct err *e)
{
	struct tries *t = arg;
	int64_t ms;

	if (r < 0)
		t->e = *e;
	ms = r < 0 ? next_ms(t, r) : -1;
	if (r < 0 && t->config.failed)
		t->config.failed(t->config.arg, t->attempt, ms, &t->e);
	if (ms < 0) {
		tries_end(t, r);
		return;
	}
	if (!t->rt->tries.next)
		list_init(&t->rt->tries);
	list_append(&t->rt->tries, &t->node);
	loop_timer_set(&t->timer, loop_now_ms(t->rt->loop) + ms);
}

static void try_once(void *arg)
{
	struct tries *t = arg;

	list_remove(&t->node);
	t->attempt++;
	t->config.ask(t->config.arg, tried, t);
}

void runtime_try(struct runtime *rt, const struct runtime_tries *tries)
{
	struct tries *t = XNEW(struct tries);

	t->rt = rt;
	t->config = *tries;
	list_init(&t->node);
	loop_timer_init(&t->timer, rt->loop, try_once, t);
	try_once(t);
}

static void tell_last(void *arg)
{
	struct tries *t = arg;

	tries_end(t, t->e.code);
}

void runtime_stop_trying(const struct runtime_set *set)
{
	for (size_t i = 0; i < set->n; i++) {
		struct runtime *rt = set->v[i];

		rt->is_stopping = true;
		if (!rt->tries.next)
			continue;
		LIST_EACH(&rt->tries, node)
		{
			struct tries *t = container_of(node, struct tries, node);

			list_remove(&t->node);
			loop_timer_cancel(&t->timer);
			loop_defer(rt->loop, &t->task, tell_last, t);
		}
	}
}
