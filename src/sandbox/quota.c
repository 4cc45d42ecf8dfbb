/* How many sandboxes a team may have, and how soon: counted from what the book holds, so that there
 * is nothing to fall out of step. Who is over it is refused, or waits in a queue if it said that it
 * would: first come, first served among the team's, whatever each of them asks for. Starts are
 * remembered for a minute, in memory alone: a server that starts anew begins to count anew. */
#include "observe/observe.h"
#include "sandbox/sandbox-internal.h"

enum {
	MINUTE_MS = 60 * 1000,
	MAX_WAITING = 1000,
	MAX_WAITING_TEAM = 100,
	LOOK_MS = 250,       /* how often the queue is looked at for the passing of time */
	TELL_MS = 10 * 1000, /* one event of a team in this time */
	LONGEST_RETRY_S = 30,
};

struct starts { /* of one team */
	char team_id[SANDBOX_TEAM_SIZE];
	int64_t *at_ms; /* a ring, the oldest at `first` */
	size_t first, n, cap;
	int64_t told_ms; /* when an event last said that it was refused */
};

struct waiter {
	struct list node;
	struct sandbox_book *book;
	const struct sandbox_spec *spec;
	struct source source;
	struct loop_timer timer;
	struct loop_task task;
	struct err e; /* what it is told when its time is up */
	sandbox_created_fn fn;
	void *arg;
};

/* ---- starts in the last minute ---- */

static struct starts *starts_of(struct sandbox_book *book, const char *team_id)
{
	struct starts *s = map_get(&book->starts, str_of(team_id));

	if (s)
		return s;
	s = XNEW(struct starts);
	s->told_ms = INT64_MIN / 2;
	(void)snprintf(s->team_id, sizeof s->team_id, "%s", team_id);
	(void)map_put(&book->starts, str_of(s->team_id), s);
	return s;
}

static void forget_old(struct starts *s, int64_t now_ms)
{
	while (s->n && s->at_ms[s->first] <= now_ms - MINUTE_MS) {
		s->first = (s->first + 1) % s->cap;
		s->n--;
	}
}

static void grow(struct starts *s)
{
	size_t cap = s->cap ? 2 * s->cap : 16;
	int64_t *more = XNEW_N(int64_t, cap);

	for (size_t i = 0; i < s->n; i++)
		more[i] = s->at_ms[(s->first + i) % s->cap];
	free(s->at_ms);
	s->at_ms = more;
	s->first = 0;
	s->cap = cap;
}

void quota_note_start(struct sandbox_book *book, const char *team_id)
{
	struct starts *s = starts_of(book, team_id);

	forget_old(s, time_now_ms());
	if (s->n == s->cap)
		grow(s);
	s->at_ms[(s->first + s->n++) % s->cap] = time_now_ms();
}

/* ---- what there is ---- */

void sandbox_use(const struct sandbox_book *book, const char *team_id, struct sandbox_use *ret)
{
	struct starts *s = map_get(&book->starts, str_of(team_id));
	const struct live *live;
	size_t at = 0;

	*ret = (struct sandbox_use){ 0 };
	while ((live = map_next(&book->by_id, &at))) {
		const struct sandbox *sb = &live->view;

		if (sb->state == SANDBOX_ENDING || strcmp(sb->team_id, team_id) != 0)
			continue;
		ret->running += sb->state != SANDBOX_PAUSED;
		ret->paused += sb->state == SANDBOX_PAUSED;
		/* One that is brought back from its files has them still, and memory again. */
		if (sb->state != SANDBOX_PAUSED || !sb->image[0])
			ret->memory_mb += sb->limits.v[LIMIT_MEMORY];
		ret->disk_mb += sb->limits.v[LIMIT_DISK];
	}
	if (s) {
		forget_old(s, time_now_ms());
		ret->starts = (int64_t)s->n;
	}
	for (struct list *node = book->waiting.next; node != &book->waiting; node = node->next)
		ret->waiting += strcmp(container_of(node, struct waiter, node)->spec->team_id,
					team_id) == 0;
}

int64_t sandbox_max(const struct sandbox_book *book, const char *team_id,
	enum limit_quota_kind kind)
{
	struct limit_quota quota = { 0 };

	if (book->config.quota)
		book->config.quota(book->config.quota_arg, team_id, &quota);
	if (kind == LIMIT_QUOTA_SANDBOXES)
		return MIN(quota.v[kind] ? quota.v[kind] : INT64_MAX,
			book->config.limits.max_running);
	return quota.v[kind];
}

static int over(struct err *e, enum limit_quota_kind kind, int64_t most, int64_t now, int64_t more)
{
	return err_set(e, -EDQUOT,
		"the team's quota is %" PRId64 "%s: it has %" PRId64 ", and this would be %" PRId64
		" more",
		most, limit_quota_unit(kind), now, more);
}

static void tell_refused(struct sandbox_book *book, const char *team_id, const struct err *e)
{
	struct starts *s = starts_of(book, team_id);
	struct observe_event event = { .actor = "system",
		.kind = "quota.refused",
		.subject = team_id,
		.team_id = team_id,
		.cause = e->msg };

	if (time_now_ms() - s->told_ms < TELL_MS)
		return;
	s->told_ms = time_now_ms();
	observe_event(book->config.events, &event);
}

static int check(const struct sandbox_book *book, const struct quota_ask *ask, struct err *e)
{
	int64_t running = sandbox_max(book, ask->team_id, LIMIT_QUOTA_SANDBOXES),
		starts = sandbox_max(book, ask->team_id, LIMIT_QUOTA_PER_MINUTE),
		memory_mb = sandbox_max(book, ask->team_id, LIMIT_QUOTA_MEMORY),
		disk_mb = sandbox_max(book, ask->team_id, LIMIT_QUOTA_DISK);
	struct sandbox_use use;

	sandbox_use(book, ask->team_id, &use);
	if (use.running >= running && running < book->config.limits.max_running)
		return over(e, LIMIT_QUOTA_SANDBOXES, running, use.running, 1);
	if (use.running >= running)
		return err_set(e, -EDQUOT,
			"you have reached the maximum number of concurrent E2B sandboxes (%" PRId64
			"): kill one, or start the server with a higher --max-sandboxes",
			running);
	if (starts && ask->is_new && use.starts >= starts)
		return over(e, LIMIT_QUOTA_PER_MINUTE, starts, use.starts, 1);
	if (memory_mb && use.memory_mb + ask->memory_mb > memory_mb)
		return over(e, LIMIT_QUOTA_MEMORY, memory_mb, use.memory_mb, ask->memory_mb);
	if (disk_mb && use.disk_mb + ask->disk_mb > disk_mb)
		return over(e, LIMIT_QUOTA_DISK, disk_mb, use.disk_mb, ask->disk_mb);
	return history_check(book, ask->team_id, e);
}

int quota_check(struct sandbox_book *book, const struct quota_ask *ask, struct err *e)
{
	int r = check(book, ask, e);

	if (r < 0)
		tell_refused(book, ask->team_id, e);
	return r;
}

/* When the next of the team's is sure to end, or the next start to be a minute ago. */
int64_t sandbox_retry_s(const struct sandbox_book *book, const char *team_id)
{
	const struct starts *s = map_get(&book->starts, str_of(team_id));
	int64_t most = sandbox_max(book, team_id, LIMIT_QUOTA_PER_MINUTE),
		least_ms = (int64_t)LONGEST_RETRY_S * 1000;
	const struct live *live;
	size_t at = 0;

	if (s && most && (int64_t)s->n >= most)
		return (s->at_ms[s->first] + MINUTE_MS - time_now_ms()) / 1000 + 1;
	while ((live = map_next(&book->by_id, &at)))
		if (live->view.state == SANDBOX_RUNNING && strcmp(live->view.team_id, team_id) == 0)
			least_ms = MIN(least_ms, (live->view.end_us - time_wall_us()) / 1000);
	return MAX(least_ms, 0) / 1000 + 1;
}

/* ---- the queue ---- */

static void waiter_end(struct waiter *w, const struct err *e)
{
	w->book->in_flight--;
	w->fn(w->arg, e->code, NULL, e);
	free(w);
}

static void told_later(void *arg)
{
	struct waiter *w = arg;

	waiter_end(w, &w->e);
}

static void leave(struct waiter *w)
{
	list_remove(&w->node);
	loop_timer_cancel(&w->timer);
	w->book->n_waiting--;
}

static void on_wait_over(void *arg)
{
	struct waiter *w = arg;

	leave(w);
	tell_refused(w->book, w->spec->team_id, &w->e);
	waiter_end(w, &w->e);
}

static bool team_waits(const struct sandbox_book *book, const char *team_id)
{
	struct sandbox_use use;

	if (list_empty(&book->waiting))
		return false;
	sandbox_use(book, team_id, &use);
	return use.waiting > 0;
}

static bool queue_is_full(const struct sandbox_book *book, const char *team_id)
{
	struct sandbox_use use;

	sandbox_use(book, team_id, &use);
	return book->n_waiting >= MAX_WAITING || use.waiting >= MAX_WAITING_TEAM;
}

/* The first of each team that fits goes; who stands behind one that does not, waits on. */
static void queue_look(void *arg)
{
	struct sandbox_book *book = arg;
	struct map held = { 0 };

	book->is_looking = false;
	LIST_EACH(&book->waiting, node)
	{
		struct waiter *w = container_of(node, struct waiter, node);
		struct quota_ask ask = { .team_id = w->spec->team_id, .is_new = true };

		if (map_get(&held, str_of(ask.team_id)))
			continue;
		/* What its name stood for when it came may be gone, or another by now. */
		if (source_find(book, w->spec, &w->source, &w->e) < 0) {
			leave(w);
			loop_defer(book->config.loop, &w->task, told_later, w);
			continue;
		}
		if (create_ask(w->spec, &w->source, &ask, &w->e) >= 0 &&
			check(book, &ask, &w->e) == -EDQUOT) {
			(void)map_put(&held, str_of(ask.team_id), w);
			continue;
		}
		leave(w);
		book->in_flight--;
		create_from(book, w->spec, &w->source, w->fn, w->arg);
		free(w);
	}
	map_done(&held);
	if (!list_empty(&book->waiting))
		loop_timer_set(&book->queue_timer, loop_now_ms(book->config.loop) + LOOK_MS);
}

void queue_kick(struct sandbox_book *book)
{
	if (list_empty(&book->waiting) || book->is_looking)
		return;
	book->is_looking = true;
	loop_defer(book->config.loop, &book->queue_task, queue_look, book);
}

static void on_queue_timer(void *arg)
{
	queue_kick(arg);
}

void queue_init(struct sandbox_book *book)
{
	list_init(&book->waiting);
	loop_timer_init(&book->queue_timer, book->config.loop, on_queue_timer, book);
}

void queue_done(struct sandbox_book *book)
{
	struct starts *s;
	size_t at = 0;

	loop_timer_cancel(&book->queue_timer);
	LIST_EACH(&book->waiting, node)
	{
		struct waiter *w = container_of(node, struct waiter, node);

		loop_timer_cancel(&w->timer);
		free(w);
	}
	while ((s = map_next(&book->starts, &at))) {
		free(s->at_ms);
		free(s);
	}
	map_done(&book->starts);
}

bool queue_takes(struct sandbox_book *book, const struct sandbox_spec *spec,
	const struct source *source, sandbox_created_fn fn, void *arg)
{
	struct quota_ask ask = { .team_id = spec->team_id, .is_new = true };
	bool is_held = team_waits(book, spec->team_id);
	struct err e = { 0 };
	struct waiter *w;

	if (create_ask(spec, source, &ask, &e) < 0)
		return false; /* it will be told what is wrong */
	if (is_held)
		(void)err_set(&e, -EDQUOT, "the team is at its quota, and others wait already");
	if (!is_held && check(book, &ask, &e) != -EDQUOT)
		return false;
	w = XNEW(struct waiter);
	*w = (struct waiter){ .book = book,
		.spec = spec,
		.source = *source,
		.e = e,
		.fn = fn,
		.arg = arg };
	list_init(&w->node);
	loop_timer_init(&w->timer, book->config.loop, on_wait_over, w);
	book->in_flight++;
	if (spec->wait_ms <= 0 || queue_is_full(book, spec->team_id)) {
		tell_refused(book, spec->team_id, &w->e);
		loop_defer(book->config.loop, &w->task, told_later, w);
		return true;
	}
	list_append(&book->waiting, &w->node);
	book->n_waiting++;
	loop_timer_set(&w->timer, loop_now_ms(book->config.loop) + spec->wait_ms);
	loop_timer_set(&book->queue_timer, loop_now_ms(book->config.loop) + LOOK_MS);
	return true;
}

void sandbox_stop_waiting(struct sandbox_book *book, const void *arg)
{
	creations_unwanted(book, arg);
	LIST_EACH(&book->waiting, node)
	{
		struct waiter *w = container_of(node, struct waiter, node);

		if (w->arg != arg)
			continue;
		leave(w);
		(void)err_set(&w->e, -ECANCELED, "nobody waits for it any more");
		loop_defer(book->config.loop, &w->task, told_later, w);
	}
	queue_kick(book);
}
