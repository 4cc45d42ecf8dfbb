/* What is done in sandboxes through their own API, whatever door it came by. Each guest numbers it
 * and keeps it until it is told that it was written. It says the newest number whenever it is asked
 * for its counters (metrics.c); where there is something new it is asked for that, masked, and
 * written in one transaction with the number it went up to. So a crash neither loses nor doubles
 * anything: the next server asks from the number in the row. Before a sandbox stops, it is asked
 * once more, for a moment at most. Nothing of this is on the way of a command or of bytes. */
#include "sandbox/activity.h"

#include "http/http.h"
#include "observe/observe.h"
#include "sandbox/activity-read.h"

enum {
	ASK_MS = 4000,
	LAST_MS = 250,    /* the last time: whoever ends it waits */
	MOST_ASKING = 64, /* at once */
	MOST_PAGES = 8,   /* in a row */
	ARENA_BYTES = 8 << 20,
	/* What one sandbox may make us write: as much as an agent does that works without a pause,
	 * and not what fills a disk. */
	BURST = 1200,
	MINUTE_RATE = 120,
	MINUTE_MS = 60000,
	MASKS_MAX_BYTES = 32 << 10, /* of secrets; looking for more would keep the loop busy */
};

/* ---- writing ---- */

struct event {
	struct list node;
	enum activity_kind kind;
	bool is_loss; /* and kind means nothing */
	int64_t at_us;
	char actor[ACTOR_SIZE];
	size_t n;
	char data[];
};

struct batch {                     /* the job's, until it is written; but for the first two */
	struct list node;          /* in book->activity_batches */
	struct sandbox_book *book; /* NULL: gone meanwhile */
	char id[SANDBOX_ID_SIZE], team_id[SANDBOX_TEAM_SIZE], agent_id[SANDBOX_OWNER_SIZE],
		task_id[SANDBOX_OWNER_SIZE], epoch[ACTIVITY_EPOCH_SIZE];
	int64_t after, seq; /* what is new in it: behind the first, up to the second */
	int64_t born;       /* of the guest, as in struct activity_state */
	struct list events;
};

static void batch_free(struct batch *batch)
{
	list_remove(&batch->node);
	LIST_EACH(&batch->events, node)
	{
		list_remove(node);
		free(container_of(node, struct event, node));
	}
	free(batch);
}

static void add_event(struct batch *batch, const struct event *like, struct str data)
{
	struct event *event = xcalloc(1, sizeof *event + data.n);

	*event = *like;
	event->n = data.n;
	memcpy(event->data, data.p, data.n);
	list_append(&batch->events, &event->node);
}

static int write_event(struct store_tx *tx, const struct batch *batch, const struct event *event,
	struct err *e)
{
	const struct store_event row = { event->actor,
		event->is_loss ? "activity.lost" : activity_name(event->kind), batch->id,
		str_make(event->data, event->n) };
	const struct store_cause cause = { .at_us = event->at_us,
		.team_id = batch->team_id,
		.agent_id = batch->agent_id,
		.task_id = batch->task_id,
		.text = event->is_loss ? "more was done than is written of one sandbox" : NULL };

	return store_add_caused_event(tx, &row, &cause, e);
}

/* Only behind what it goes on from: where that could not be written, neither is this, and both are
 * asked for again. */
static int write_batch(struct store_tx *tx, void *arg, struct err *e)
{
	const struct batch *batch = arg;
	int r = store_exec(tx,
		"UPDATE sandboxes SET guest_epoch = $1, guest_seq = $2 WHERE id = $3 AND "
		"((guest_epoch = $1 AND guest_seq = $4) OR "
		"($4 = 0 AND (guest_epoch IS NULL OR guest_epoch <> $1)))",
		STORE_PARAMS(P_TEXT(batch->epoch), P_INT(batch->seq), P_TEXT(batch->id),
			P_INT(batch->after)),
		e);

	if (r == 0)
		r = err_set(e, -ESTALE, "what was before it is not written");
	for (struct list *node = batch->events.next; r >= 0 && node != &batch->events;
		node = node->next)
		r = write_event(tx, batch, container_of(node, struct event, node), e);
	return r;
}

/* What could not be written the guest has still, and is asked for again. */
static void batch_written(void *arg, int r, const struct err *e)
{
	struct batch *batch = arg;
	struct live *live = batch->book ? map_get(&batch->book->by_id, str_of(batch->id)) : NULL;

	if (r < 0)
		log_warn("activity.not_written", "sandbox_id=%s err=%s", batch->id,
			log_quote(str_of(e->msg)));
	if (live && live->activity.born == batch->born) {
		live->activity.n_writing--;
		if (r >= 0)
			live->activity.written = batch->seq;
		else
			live->activity.seen = live->activity.written;
	}
	CRASH_POINT("activity.written");
	batch_free(batch);
}

/* ---- what a guest said ---- */

/* True: one more may be written. They come back evenly. */
static bool take_token(struct live *live)
{
	struct activity_state *a = &live->activity;
	int64_t now_ms = loop_now_ms(live->book->config.loop);
	int64_t gained = (now_ms - a->filled_ms) * MINUTE_RATE / MINUTE_MS;

	if (!a->filled_ms) {
		a->tokens = BURST;
		a->filled_ms = now_ms;
	} else if (gained > 0) {
		a->tokens = MIN(a->tokens + gained, (int64_t)BURST);
		a->filled_ms = now_ms;
	}
	if (a->tokens == 0)
		return false;
	a->tokens--;
	return true;
}

struct own_in {
	struct json_map secrets;
};

static int add_secrets(const struct live *live, struct arena *arena, struct mask_needles *needles)
{
	static const struct json_field fields[] = { JSON_FIELD(struct own_in, secrets, "secrets",
		JSON_MAP) };
	static const struct json_shape shape = JSON_SHAPE(struct own_in, fields);
	CLEANUP(buf_done) struct buf json = BUF_INIT(256 << 10);
	struct own_in in = { 0 };
	size_t bytes = 0;
	int r;

	if (!live->view.options.secrets.n)
		return 0;
	(void)buf_printf(&json, "{\"secrets\":%.*s}", STR_ARG(live->view.options.secrets));
	r = json_decode(arena, buf_str(&json), &shape, &in, NULL);
	for (size_t i = 0; r >= 0 && i < in.secrets.n; i++) {
		struct str value = sandbox_env(live->book, live->view.id, in.secrets.v[i].key);

		bytes += value.n;
		if (bytes > MASKS_MAX_BYTES)
			return -E2BIG;
		if (value.n >= MASK_MIN_BYTES)
			r = mask_needles_add(needles, in.secrets.v[i].value, value, NULL);
	}
	return r;
}

/* The secrets that it was given, and what opens itself. NULL: they are too much to look for. */
static struct mask_needles *make_needles(const struct live *live, struct arena *arena)
{
	CLEANUP(mask_needles_unrefp) struct mask_needles *needles = mask_needles_new();
	char token[SANDBOX_TOKEN_SIZE];
	int r;

	sandbox_token(live->book, live->view.id, token);
	r = mask_needles_add(needles, STR("access-token"), str_of(token), NULL);
	sandbox_traffic_token(live->book, live->view.id, token);
	if (r >= 0)
		r = mask_needles_add(needles, STR("traffic-token"), str_of(token), NULL);
	explicit_bzero(token, sizeof token);
	if (r >= 0)
		r = add_secrets(live, arena, needles);
	return r < 0 ? NULL : TAKE(needles);
}

static struct batch *batch_new(const struct live *live)
{
	const struct sandbox *sb = &live->view;
	struct batch *batch = XNEW(struct batch);

	batch->book = live->book;
	list_append(&live->book->activity_batches, &batch->node);
	batch->born = live->activity.born;
	batch->after = live->activity.seen;
	list_init(&batch->events);
	memcpy(batch->id, sb->id, sizeof batch->id);
	memcpy(batch->team_id, sb->team_id, sizeof batch->team_id);
	memcpy(batch->agent_id, sb->agent_id, sizeof batch->agent_id);
	memcpy(batch->task_id, sb->task_id, sizeof batch->task_id);
	return batch;
}

/* Its clock is its own word: nothing happened before what came before it, or later than now. */
static int64_t believe(struct live *live, int64_t at_us)
{
	struct activity_state *a = &live->activity;

	a->last_us = MAX(a->last_us, live->view.started_us);
	a->last_us = MIN(MAX(a->last_us, at_us), MAX(a->last_us, time_wall_us()));
	return a->last_us;
}

static void add_record(struct batch *batch, struct live *live, const struct activity_record *r,
	struct mask_needles *needles)
{
	CLEANUP(buf_done) struct buf data = BUF_INIT(ACTIVITY_DATA_BYTES);
	struct event event = { .kind = r->kind, .at_us = believe(live, r->at_us) };

	activity_write(r, needles, &data);
	if (data.failed) {
		live->activity.dropped++;
		return;
	}
	if (r->source.n)
		(void)snprintf(event.actor, sizeof event.actor, "client %.*s", STR_ARG(r->source));
	else
		(void)snprintf(event.actor, sizeof event.actor, "system");
	add_event(batch, &event, buf_str(&data));
}

/* One mark for all that is missing. */
static void add_loss(struct batch *batch, struct live *live)
{
	struct event event = { .is_loss = true,
		.actor = "system",
		.at_us = believe(live, time_wall_us()) };
	char data[48];

	if (!live->activity.dropped || !take_token(live))
		return;
	(void)snprintf(data, sizeof data, "{\"n\":%" PRId64 "}", live->activity.dropped);
	live->activity.dropped = 0;
	add_event(batch, &event, str_of(data));
}

static void note_missing(struct live *live, int64_t n)
{
	live->activity.dropped += MIN(MAX(n, 0), (int64_t)INT32_MAX);
}

static void add_records(struct batch *batch, struct live *live, struct arena *arena,
	const struct activity_page *page)
{
	struct sandbox_book *book = live->book;
	enum limit_activity wanted = sandbox_activity(book, live->view.team_id);
	CLEANUP(mask_needles_unrefp) struct mask_needles *needles = NULL;
	bool has_needles = false;

	for (size_t i = 0; i < page->n; i++) {
		const struct activity_record *r = &page->v[i];

		if (r->seq <= live->activity.seen)
			continue;
		note_missing(live, r->seq - live->activity.seen - 1);
		live->activity.seen = r->seq;
		if (wanted == LIMIT_ACTIVITY_NONE ||
			(wanted == LIMIT_ACTIVITY_PROCESSES && activity_is_file(r->kind)))
			continue;
		if (!take_token(live)) {
			note_missing(live, 1);
			continue;
		}
		if (!has_needles)
			needles = make_needles(live, arena);
		has_needles = true;
		add_record(batch, live, r, needles);
	}
	if (!page->more) {
		note_missing(live, page->last - live->activity.seen);
		live->activity.seen = MAX(live->activity.seen, page->last);
	}
	if (wanted == LIMIT_ACTIVITY_NONE)
		live->activity.dropped = 0;
	add_loss(batch, live);
}

static void write_down(struct batch *batch, struct live *live)
{
	batch->seq = live->activity.seen;
	memcpy(batch->epoch, live->activity.epoch, sizeof batch->epoch);
	live->activity.n_writing++;
	CRASH_POINT("activity.heard");
	store_record_for(live->book->config.store, batch->team_id, write_batch, batch_written,
		batch);
}

/* True: there is more behind it. */
static bool take_page(struct live *live, struct arena *arena, const struct activity_page *page)
{
	struct activity_state *a = &live->activity;
	struct batch *batch;
	bool is_new;

	if (strcmp(a->epoch, page->epoch) != 0) { /* another guest, which counts from 1 */
		activity_reborn(live);
		a->is_used = true;
		memcpy(a->epoch, page->epoch, sizeof a->epoch);
	}
	a->is_known = true;
	batch = batch_new(live);
	add_records(batch, live, arena, page);
	is_new = a->seen > batch->after;
	if (is_new)
		write_down(batch, live);
	else
		batch_free(batch);
	return page->more && is_new;
}

/* What it says cannot be read: that it is missing is told, and it may let it go. */
static void skip_page(struct live *live)
{
	struct batch *batch = batch_new(live);

	note_missing(live, live->activity.hinted - live->activity.seen);
	live->activity.seen = MAX(live->activity.seen, live->activity.hinted);
	add_loss(batch, live);
	write_down(batch, live);
}

/* ---- asking ---- */

struct activity_question {
	struct list node; /* in book->activity_asked */
	struct sandbox_book *book;
	char id[SANDBOX_ID_SIZE];
	struct http_call *call; /* NULL: the guest is being dialled */
	bool is_late;           /* nobody waits for it any more */
	int pages;
	struct loop_timer patience;
	live_fn then; /* NULL: nobody waits for it */
	void *arg;
};

static void ask(struct activity_question *q);

static void question_end(struct activity_question *q)
{
	struct live *live = map_get(&q->book->by_id, str_of(q->id));
	live_fn then = q->then;
	void *arg = q->arg;

	list_remove(&q->node);
	loop_timer_cancel(&q->patience);
	q->book->activity_asking--;
	if (live && live->activity.question == q)
		live->activity.question = NULL;
	free(q);
	if (then && live)
		then(live, arg);
}

static void answered(void *arg, int r, int status, struct str body, const struct err *e)
{
	struct activity_question *q = arg;
	struct live *live = q->is_late ? NULL : map_get(&q->book->by_id, str_of(q->id));
	CLEANUP(arena_freep) struct arena *arena = NULL;
	struct activity_page page;
	struct err why = { 0 };
	bool is_more = false;

	(void)e;
	q->call = NULL;
	if (!live || r < 0 || status != 200) {
		question_end(q);
		return;
	}
	arena = arena_new(ARENA_BYTES);
	if (activity_read(arena, body, &page, &why) < 0) {
		log_warn("activity.unreadable", "sandbox_id=%s err=%s", q->id,
			log_quote(str_of(why.msg)));
		skip_page(live);
	} else {
		is_more = take_page(live, arena, &page);
	}
	if (is_more && ++q->pages < MOST_PAGES)
		ask(q);
	else
		question_end(q);
}

static void dialled(void *arg, int fd, const struct err *e)
{
	struct activity_question *q = arg;
	struct live *live = map_get(&q->book->by_id, str_of(q->id));
	char token[SANDBOX_TOKEN_SIZE], headers[128], target[128];
	struct http_request request = { .method = "GET",
		.target = target,
		.host = "localhost",
		.headers = headers,
		.max_bytes = ACTIVITY_ANSWER_BYTES,
		.timeout_ms = ASK_MS };

	if (fd < 0 || q->is_late || q->book->is_stopping || !live) {
		if (fd >= 0)
			(void)close(fd);
		answered(q, fd < 0 ? fd : -ECANCELED, 0, STR_NONE, e);
		return;
	}
	live->activity.is_fresh = false;
	sandbox_token(q->book, q->id, token);
	(void)snprintf(headers, sizeof headers, "X-Access-Token: %s\r\n", token);
	/* Behind what is being written it is told again, and left out by its number. */
	(void)snprintf(target, sizeof target, "/activity?epoch=%s&after=%" PRId64,
		live->activity.epoch, live->activity.written);
	q->call = http_request(q->book->config.loop, fd, &request, answered, q);
	explicit_bzero(token, sizeof token);
	explicit_bzero(headers, sizeof headers);
}

static void ask(struct activity_question *q)
{
	const struct live *live = map_get(&q->book->by_id, str_of(q->id));

	runtime_dial(live->runtime, q->id, RUNTIME_GUEST_PORT, dialled, q);
}

/* Whoever waits goes on; the question ends by itself. */
static void on_impatience(void *arg)
{
	struct activity_question *q = arg;
	struct live *live = map_get(&q->book->by_id, str_of(q->id));
	live_fn then = TAKE(q->then);
	void *then_arg = q->arg;

	q->is_late = true;
	if (live && live->activity.question == q)
		live->activity.question = NULL;
	if (q->call) {
		http_request_cancel(q->call);
		question_end(q);
	}
	if (then && live)
		then(live, then_arg);
}

static struct activity_question *question_new(struct live *live)
{
	struct activity_question *q = XNEW(struct activity_question);

	q->book = live->book;
	memcpy(q->id, live->view.id, sizeof q->id);
	loop_timer_init(&q->patience, live->book->config.loop, on_impatience, q);
	list_append(&live->book->activity_asked, &q->node);
	live->book->activity_asking++;
	live->activity.question = q;
	return q;
}

void activity_hint(struct live *live, int64_t last)
{
	live->activity.hinted = MAX(last, 0);
	if (last <= (live->activity.is_known ? live->activity.seen : 0))
		return;
	/* One at a time, and none while the store is behind. */
	if (live->activity.question || live->activity.n_writing ||
		live->book->activity_asking >= MOST_ASKING || live->book->is_stopping)
		return;
	ask(question_new(live));
}

void activity_last(struct live *live, bool is_wanted, live_fn then, void *arg)
{
	struct activity_question *q = live->activity.question;

	if (q) { /* its answer may be without the newest; what was told already is known by number
		  */
		q->is_late = true;
		live->activity.question = NULL;
		if (q->call) {
			http_request_cancel(q->call);
			question_end(q);
		}
	}
	if (!is_wanted || live->is_held || live->book->is_stopping ||
		live->vital.health == SANDBOX_DEAD || live->vital.health == SANDBOX_UNRESPONSIVE) {
		then(live, arg);
		return;
	}
	q = question_new(live);
	q->then = then;
	q->arg = arg;
	loop_timer_set(&q->patience, loop_now_ms(live->book->config.loop) + LAST_MS);
	ask(q);
}

void activity_reborn(struct live *live)
{
	struct activity_state *a = &live->activity;

	a->born++; /* what is being written was another's */
	a->epoch[0] = '\0';
	a->seen = a->written = a->hinted = 0;
	a->n_writing = 0;
	a->is_used = a->is_fresh = a->is_known = false;
}

void activity_used(struct live *live)
{
	live->activity.is_used = live->activity.is_fresh = true;
}

void activity_take(struct live *live, const char *epoch, int64_t seq)
{
	struct activity_state *a = &live->activity;

	(void)snprintf(a->epoch, sizeof a->epoch, "%s", epoch);
	a->seen = a->written = seq;
	a->is_used = a->is_fresh = true; /* perhaps: the server before knew */
}

void activity_done(struct sandbox_book *book)
{
	LIST_EACH(&book->activity_batches, node)
	{
		list_remove(node);
		container_of(node, struct batch, node)->book = NULL;
	}
}

void activity_stop(struct sandbox_book *book)
{
	LIST_EACH(&book->activity_asked, node)
	{
		struct activity_question *q = container_of(node, struct activity_question, node);

		if (!q->then && q->call) {
			http_request_cancel(q->call);
			question_end(q);
		}
	}
}

enum limit_activity sandbox_activity(const struct sandbox_book *book, const char *team_id)
{
	return book->config.activity ? book->config.activity(book->config.activity_arg, team_id)
				     : LIMIT_ACTIVITY_ALL;
}
