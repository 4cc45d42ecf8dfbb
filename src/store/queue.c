/* Calls on their way from the loop to a connection and back.
 *
 * Everything here is the loop's. A connection is lent to one lane of jobs at a time, so nothing is
 * shared and nothing is locked. What writes goes to one connection, one after the other: readers of
 * the event log never see a number before the one below it. Teams have their turns, so that one
 * with much to write keeps no other waiting; within a team, and of what is no team's, it is the
 * order in which it came. A few are given to the lane ahead, so that its thread never waits for the
 * loop. What reads goes to whichever connection is free.
 *
 * When the database is away, calls wait here and not on threads: what was not begun goes back to
 * the front, one try is made now and then, and who has waited too long is told so. */
#include "store/store-internal.h"

enum {
	WRITE_LANE = 0,
	FIRST_READ_LANE = 4,
	AHEAD = 16,            /* writes given to the lane */
	AHEAD_OF_ONE = 4,      /* of one team, which others wait for */
	AHEAD_ALONE = 8,       /* of one team, when no other has any */
	WAIT_MS = 10000,       /* how long a call may wait for its turn */
	MAX_WAITING = 4096,    /* of each kind; more would only wait in vain */
	MAX_OF_ONE = 1024,     /* of them one team's */
	MAX_RECORDS = 1 << 16, /* these cannot be asked for again, so they may be many */
	AGAIN_MS = 100,        /* the first try of a database that is away; doubles ... */
	MAX_AGAIN_MS = 2000,   /* ... up to this */
	REST_MS = 1000,        /* of a reader that could not connect while others can */
	QUIET_MS = 250,        /* without a write, before the writer tidies */
};

enum call_kind {
	CALL_WRITE,
	CALL_RECORD,
	CALL_READ,
};

/* A team that has calls here, or in the lane: in turn while some wait. */
struct store_turn {
	char team_id[STORE_TEAM_SIZE]; /* empty: nobody in particular */
	struct list node;              /* in the queue's turns */
	struct list calls;
	size_t n, ahead; /* of them wait; are in the lane */
	size_t users;    /* all of its calls, until they end */
};

struct store_call {
	struct list node;
	struct list in_turn; /* of the team's */
	struct store_turn *turn;
	struct store *store;
	struct store_lane *lane; /* while it is there */
	enum call_kind kind;
	store_work_fn work;
	done_fn done;
	void *arg;
	uint64_t number; /* in the order they came */
	int64_t until_ms, asked_us;
	struct store_outcome outcome;
	struct loop_task task;
	struct err e;
};

static void dispatch(struct store *store);

static struct store_queue *queue_of(const struct store_call *call)
{
	return call->kind == CALL_READ ? &call->store->reads : &call->store->writes;
}

/* ---- whose turn it is ---- */

static struct store_turn *turn_of(struct store_queue *queue, const char *team_id)
{
	struct store_turn *turn = map_get(&queue->by_team, str_of(team_id));

	if (turn) {
		turn->users++;
		return turn;
	}
	turn = XNEW(struct store_turn);
	(void)snprintf(turn->team_id, sizeof turn->team_id, "%s", team_id);
	list_init(&turn->node);
	list_init(&turn->calls);
	turn->users = 1;
	(void)map_put(&queue->by_team, str_of(turn->team_id), turn);
	return turn;
}

static void turn_unref(struct store_queue *queue, struct store_turn *turn)
{
	if (--turn->users)
		return;
	(void)map_remove(&queue->by_team, str_of(turn->team_id));
	free(turn);
}

/* Among the team's, before what came later. */
static void turn_add(struct store_queue *queue, struct store_call *call)
{
	struct store_turn *turn = call->turn;
	struct list *place = turn->calls.prev;

	while (place != &turn->calls &&
		container_of(place, struct store_call, in_turn)->number > call->number)
		place = place->prev;
	list_append(place->next, &call->in_turn);
	if (turn->n++ == 0)
		list_append(&queue->turns, &turn->node);
}

/* Out of the queue altogether. */
static void take_out(struct store_queue *queue, struct store_call *call)
{
	struct store_turn *turn = call->turn;

	list_remove(&call->node);
	queue->n--;
	list_remove(&call->in_turn);
	if (--turn->n == 0)
		list_remove(&turn->node);
}

/* The oldest of whoever is next and has not enough in the lane. NULL: nobody. */
static struct store_call *next_call(struct store_queue *queue, size_t most)
{
	LIST_EACH(&queue->turns, node)
	{
		struct store_turn *turn = container_of(node, struct store_turn, node);

		if (turn->ahead >= most)
			continue;
		list_remove(node);
		list_append(&queue->turns, node);
		return container_of(turn->calls.next, struct store_call, in_turn);
	}
	return NULL;
}

static void free_when_idle(struct store *store)
{
	if (!store->is_closing || store->writer.busy || store->writes.n || store->reads.n)
		return;
	for (size_t i = 0; i < STORE_READERS; i++)
		if (store->readers[i].busy)
			return;
	store_destroy(store);
}

const int64_t store_bucket_us[STORE_BUCKETS] = { 100, 250, 500, 1000, 2500, 5000, 10000, 25000,
	50000, 100000, 500000, 2500000 };

static void count(struct store_call *call, int r)
{
	struct store_stats *stats = &call->store->stats;
	int64_t us = time_now_us() - call->asked_us;

	stats->waiting--;
	stats->done++;
	stats->failed += r < 0;
	stats->sum_us += us;
	for (size_t i = 0; i < STORE_BUCKETS; i++)
		if (us <= store_bucket_us[i]) {
			stats->buckets[i]++;
			return;
		}
}

void store_stats(const struct store *store, struct store_stats *ret)
{
	*ret = store->stats;
}

void store_on_events(struct store *store, loop_fn fn, void *arg)
{
	store->on_events = fn;
	store->events_arg = arg;
}

static void call_end(struct store_call *call, int r, const struct err *e)
{
	struct store *store = call->store;

	if (call->kind != CALL_READ)
		count(call, r);
	if (r >= 0)
		store_counts_take(store, &call->outcome.counts);
	store_counts_done(&call->outcome.counts);
	if (r >= 0 && call->outcome.has_events && store->on_events)
		store->on_events(store->events_arg);
	turn_unref(queue_of(call), call->turn);
	call->done(call->arg, r, e);
	free(call);
}

/* ---- waiting ---- */

static void arm_expiry(struct store *store, struct store_queue *queue)
{
	loop_timer_cancel(&queue->expiry);
	for (struct list *node = queue->calls.next; node != &queue->calls; node = node->next) {
		const struct store_call *call = container_of(node, struct store_call, node);

		if (call->kind == CALL_RECORD || store->is_closing)
			continue;
		loop_timer_set(&queue->expiry, call->until_ms); /* all wait equally long */
		return;
	}
}

static int too_late(const struct store *store, struct err *e)
{
	bool is_away = store->is_away || loop_timer_is_set(&store->rested);

	return err_set(e, -EAGAIN, "the database %s: try again in a moment",
		is_away ? "does not answer" : "has more to do than it can");
}

static void expire(struct store *store, struct store_queue *queue)
{
	struct list late = LIST_INIT(late);
	struct err e;

	LIST_EACH(&queue->calls, node)
	{
		struct store_call *call = container_of(node, struct store_call, node);

		if (call->kind == CALL_RECORD || call->until_ms > loop_now_ms(store->loop))
			continue;
		take_out(queue, call);
		list_append(&late, node);
	}
	arm_expiry(store, queue);
	LIST_EACH(&late, node)
	{
		int r = too_late(store, &e);

		call_end(container_of(node, struct store_call, node), r, &e);
	}
}

static void on_writes_expiry(void *arg)
{
	struct store *store = arg;

	expire(store, &store->writes);
}

static void on_reads_expiry(void *arg)
{
	struct store *store = arg;

	expire(store, &store->reads);
}

static void refuse(void *arg)
{
	struct store_call *call = arg;

	call_end(call, call->e.code, &call->e);
}

static bool is_too_much(const struct store_queue *queue, const struct store_call *call)
{
	if (call->kind == CALL_RECORD)
		return queue->n >= MAX_RECORDS;
	return queue->n >= MAX_WAITING || (call->turn->team_id[0] && call->turn->n >= MAX_OF_ONE);
}

static void enqueue(struct store *store, enum call_kind kind, const char *team_id,
	store_work_fn work, done_fn done, void *arg)
{
	struct store_call *call = XNEW(struct store_call);
	struct store_queue *queue;

	*call = (struct store_call){ .store = store,
		.number = ++store->n_calls,
		.kind = kind,
		.work = work,
		.done = done,
		.arg = arg,
		.until_ms = loop_now_ms(store->loop) + WAIT_MS,
		.asked_us = time_now_us() };
	list_init(&call->node);
	list_init(&call->in_turn);
	queue = queue_of(call);
	call->turn = turn_of(queue, team_id);
	store->stats.waiting += kind != CALL_READ;
	if (is_too_much(queue, call)) {
		(void)too_late(store, &call->e);
		loop_defer(store->loop, &call->task, refuse, call);
		return;
	}
	list_append(&queue->calls, &call->node);
	queue->n++;
	turn_add(queue, call);
	dispatch(store);
	/* It waits, as the newest; those before it may be records, which have all the time. */
	if (queue->n && kind != CALL_RECORD && !loop_timer_is_set(&queue->expiry))
		loop_timer_set(&queue->expiry, call->until_ms);
}

void store_run(struct store *store, store_work_fn work, done_fn done, void *arg)
{
	enqueue(store, CALL_WRITE, "", work, done, arg);
}

void store_run_for(struct store *store, const char *team_id, store_work_fn work, done_fn done,
	void *arg)
{
	enqueue(store, CALL_WRITE, team_id, work, done, arg);
}

void store_record(struct store *store, store_work_fn work, done_fn done, void *arg)
{
	enqueue(store, CALL_RECORD, "", work, done, arg);
}

void store_record_for(struct store *store, const char *team_id, store_work_fn work, done_fn done,
	void *arg)
{
	enqueue(store, CALL_RECORD, team_id, work, done, arg);
}

void store_read(struct store *store, store_work_fn work, done_fn done, void *arg)
{
	enqueue(store, CALL_READ, "", work, done, arg);
}

/* ---- away and back ---- */

static void tell_why(struct store *store, const struct err *why)
{
	store->why = *why;
	if (store->on_state)
		store->on_state(store->state_arg, why->code, why);
}

static void set_away(struct store *store, const struct err *why)
{
	if (!store->is_away) {
		store->is_away = true;
		store->again_after_ms = AGAIN_MS;
		tell_why(store, why);
	}
	if (store->is_closing || loop_timer_is_set(&store->again))
		return;
	loop_timer_set(&store->again, loop_now_ms(store->loop) + store->again_after_ms);
	store->again_after_ms = MIN(2 * store->again_after_ms, MAX_AGAIN_MS);
}

static void set_back(struct store *store)
{
	if (!store->is_away)
		return;
	store->is_away = false;
	loop_timer_cancel(&store->again);
	if (store->on_state)
		store->on_state(store->state_arg, 0, NULL);
}

/* ---- in a lane ---- */

static int run_call(void *arg, struct err *e)
{
	struct store_call *call = arg;

	call->outcome.is_late = call->kind != CALL_RECORD && time_now_ms() > call->until_ms;
	if (call->outcome.is_late)
		return -EAGAIN;
	return store_transact(call->lane->conn, call->work, call->arg, &call->outcome, e);
}

/* Where it was: before all that came later. */
static void put_back(struct store_call *call)
{
	struct store_queue *queue = queue_of(call);
	struct list *place = &queue->calls;

	while (place->next != &queue->calls &&
		container_of(place->next, struct store_call, node)->number < call->number)
		place = place->next;
	list_append(place->next, &call->node);
	queue->n++;
	turn_add(queue, call);
	arm_expiry(call->store, queue);
}

/* Whether it is to wait and be tried again. */
static bool may_wait(const struct store_call *call)
{
	return call->outcome.is_away && !call->store->is_closing &&
	       (!call->outcome.has_run || call->kind == CALL_RECORD);
}

/* Others may have their connections still, or get one: it alone rests. */
static void reader_is_away(struct store_lane *lane)
{
	struct store *store = lane->store;

	lane->rest_till_ms = loop_now_ms(store->loop) + REST_MS;
	loop_timer_set(&store->rested, lane->rest_till_ms);
}

static void on_rested(void *arg)
{
	dispatch(arg);
}

static void wait_again(struct store_call *call, const struct err *e)
{
	put_back(call);
	if (call->kind == CALL_READ)
		reader_is_away(call->lane);
	else
		set_away(call->store, e);
	dispatch(call->store);
}

/* ---- when nobody writes ---- */

static int run_tidy(void *arg, struct err *e)
{
	struct store_lane *lane = arg;

	(void)e;
	lane->conn->ops->tidy(lane->conn);
	return 0;
}

static void tidied(void *arg, int r, const struct err *e)
{
	struct store_lane *lane = arg;
	struct store *store = lane->store;

	(void)r;
	(void)e;
	lane->busy--;
	dispatch(store);
	free_when_idle(store);
}

static void on_quiet(void *arg)
{
	struct store *store = arg;

	if (store->is_away || store->unsettled)
		return; /* the next write sets it again */
	if (store->writer.busy || store->writes.n) {
		loop_timer_set(&store->quiet, loop_now_ms(store->loop) + QUIET_MS);
		return;
	}
	store->writer.busy++;
	loop_job(store->loop, store->writer.number, run_tidy, tidied, &store->writer);
}

static void call_done(void *arg, int r, const struct err *e)
{
	struct store_call *call = arg;
	struct store *store = call->store;

	call->lane->busy--;
	call->turn->ahead--;
	if (call->kind != CALL_READ && store->ops->tidy && !store->is_closing)
		loop_timer_set(&store->quiet, loop_now_ms(store->loop) + QUIET_MS);
	if (may_wait(call)) {
		wait_again(call, e);
		return;
	}
	if (r == STORE_UNSETTLED && !store->is_closing) {
		store->unsettled = call;
		set_away(store, e);
		return;
	}
	if (call->kind != CALL_READ && !call->outcome.is_away && !call->outcome.is_late)
		set_back(store);
	if (r == -EREMCHG && store->on_state)
		store->on_state(store->state_arg, r, e);
	dispatch(store);
	if (r == STORE_UNSETTLED || call->outcome.is_late)
		r = too_late(store, &call->e);
	call_end(call, r < 0 ? r : call->outcome.r, call->e.code ? &call->e : e);
	free_when_idle(store);
}

static void give(struct store_lane *lane, struct store_call *call)
{
	take_out(queue_of(call), call);
	call->turn->ahead++;
	lane->busy++;
	call->lane = lane;
	store_counts_done(&call->outcome.counts);
	call->outcome = (struct store_outcome){ 0 };
	loop_job(lane->store->loop, lane->number, run_call, call_done, call);
}

/* A lane that has done all it was given waits for the loop, which a busy machine may make long. */
static size_t most_ahead(const struct store *store)
{
	const struct list *turns = &store->writes.turns;

	if (store->is_closing) /* there is no later */
		return SIZE_MAX;
	return turns->next == turns->prev ? AHEAD_ALONE : AHEAD_OF_ONE;
}

static void dispatch(struct store *store)
{
	int64_t now_ms = loop_now_ms(store->loop);
	struct store_call *call;

	if (store->is_away && !store->is_closing)
		return;
	while ((store->writer.busy < AHEAD || store->is_closing) &&
		(call = next_call(&store->writes, most_ahead(store))))
		give(&store->writer, call);
	for (size_t i = 0; i < STORE_READERS && store->reads.n; i++)
		if (!store->readers[i].busy && store->readers[i].rest_till_ms <= now_ms)
			give(&store->readers[i], next_call(&store->reads, SIZE_MAX));
	while (store->is_closing && store->reads.n)
		give(&store->readers[store->reads.n % STORE_READERS],
			next_call(&store->reads, SIZE_MAX));
}

/* ---- the try ---- */

static int try_open(void *arg, struct err *e)
{
	struct store_lane *lane = arg;

	return lane->conn->ops->open(lane->conn, e);
}

static int try_settle(void *arg, struct err *e)
{
	struct store_lane *lane = arg;

	return lane->conn->ops->settle(lane->conn, e);
}

static void tried(void *arg, int r, const struct err *e)
{
	struct store_lane *lane = arg;
	struct store *store = lane->store;
	struct store_call *call;

	lane->busy--;
	if (r == -EAGAIN && !store->is_closing) {
		if (strcmp(e->msg, store->why.msg) != 0)
			tell_why(store, e);
		set_away(store, e);
		return;
	}
	call = TAKE(store->unsettled);
	for (size_t i = 0; i < STORE_READERS; i++)
		store->readers[i].rest_till_ms = 0;
	if (r == -EREMCHG && store->on_state)
		store->on_state(store->state_arg, r, e);
	else if (r != -EAGAIN)
		set_back(store); /* what will not mend itself is told to each call */
	if (call && r == -EPIPE && call->kind == CALL_RECORD && !store->is_closing)
		put_back(TAKE(call)); /* it was not done, and has to be: from its beginning */
	dispatch(store);
	if (call && r == -EAGAIN)
		(void)too_late(store, &call->e);
	if (call)
		call_end(call, r < 0 ? r : call->outcome.r, call->e.code ? &call->e : e);
	free_when_idle(store);
}

static void begin_try(struct store *store)
{
	store->writer.busy++;
	loop_job(store->loop, store->writer.number, store->unsettled ? try_settle : try_open, tried,
		&store->writer);
}

static void on_again(void *arg)
{
	struct store *store = arg;

	/* Those given ahead come back first: what they find is what this would. */
	if (store->writer.busy) {
		loop_timer_set(&store->again, loop_now_ms(store->loop) + AGAIN_MS);
		return;
	}
	begin_try(store);
}

/* ---- life ---- */

static void lane_init(struct store *store, struct store_lane *lane, int number)
{
	lane->store = store;
	lane->number = number;
}

void store_queue_init(struct store *store)
{
	static_assert(FIRST_READ_LANE + STORE_READERS <= LOOP_LANES, "each reader has a lane");
	lane_init(store, &store->writer, WRITE_LANE);
	for (int i = 0; i < STORE_READERS; i++)
		lane_init(store, &store->readers[i], FIRST_READ_LANE + i);
	list_init(&store->writes.calls);
	list_init(&store->reads.calls);
	list_init(&store->writes.turns);
	list_init(&store->reads.turns);
	loop_timer_init(&store->writes.expiry, store->loop, on_writes_expiry, store);
	loop_timer_init(&store->reads.expiry, store->loop, on_reads_expiry, store);
	loop_timer_init(&store->again, store->loop, on_again, store);
	loop_timer_init(&store->rested, store->loop, on_rested, store);
	loop_timer_init(&store->quiet, store->loop, on_quiet, store);
}

void store_queue_close(struct store *store)
{
	store->is_closing = true;
	loop_timer_cancel(&store->writes.expiry);
	loop_timer_cancel(&store->reads.expiry);
	loop_timer_cancel(&store->again);
	loop_timer_cancel(&store->rested);
	loop_timer_cancel(&store->quiet);
	if (store->unsettled) /* once more, before those that wait; one under way may do it first */
		begin_try(store);
	dispatch(store);
	free_when_idle(store);
}
