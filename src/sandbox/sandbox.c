#include "sandbox/activity.h"
#include "sandbox/visits.h"

enum {
	LATE_PAUSE_MS = 5000, /* how much longer each failed pause makes the wait for the next */
	LATE_PAUSES_MOST = 12,
	END_RETRY_MS = 100,
	END_ROOM_US = 10 * 1000 * 1000,
};

static void on_exited(void *arg, const char *id, const struct err *why);
static void on_timeout(void *arg);

enum {
	/* As many creations are asked of an engine at a time, and of one team: for that alone it is
	 * as fast as without a bound. A normal one takes milliseconds, one of another engine up to
	 * half a second. */
	GATE_MOST = 16,
	GATE_MOST_TEAM = 8,
	GATE_PLACE_MS = 1000,
};

struct sandbox_book *sandbox_book_new(const struct sandbox_book_config *config)
{
	struct sandbox_book *book = XNEW(struct sandbox_book);

	book->config = *config;
	list_init(&book->snaps);
	list_init(&book->taking);
	list_init(&book->creations);
	list_init(&book->asked);
	list_init(&book->activity_asked);
	list_init(&book->activity_batches);
	queue_init(book);
	for (size_t i = 0; i < config->runtimes.n; i++) {
		gate_init(&book->gates[i], config->loop, GATE_MOST, GATE_MOST_TEAM, GATE_PLACE_MS);
		runtime_on_exited(config->runtimes.v[i], on_exited, book);
		runtime_on_crossed(config->runtimes.v[i], on_crossed, book);
		runtime_on_held(config->runtimes.v[i], on_held, book);
		runtime_on_breaker(config->runtimes.v[i], on_breaker, book);
	}
	return book;
}

static void live_free(struct live *live)
{
	loop_timer_cancel(&live->timer);
	samples_free(live);
	visits_free(live);
	buf_done(&live->network);
	live->arena = arena_free(live->arena);
	free(live);
}

struct sandbox_book *sandbox_book_free(struct sandbox_book *book)
{
	struct live *live;
	size_t at = 0;

	if (!book)
		return NULL;
	activity_done(book);
	while ((live = map_next(&book->by_id, &at)))
		live_free(live);
	map_done(&book->by_id);
	loop_timer_cancel(&book->sampler);
	queue_done(book);
	for (size_t i = 0; i < book->config.runtimes.n; i++)
		gate_done(&book->gates[i]);
	snap_list_free(&book->snaps);
	explicit_bzero(book->config.seed, sizeof book->config.seed);
	free(book);
	return NULL;
}

int sandbox_ready(const struct sandbox_book *book, struct err *e)
{
	return runtime_ready(book->config.runtimes.v[0], e);
}

size_t sandbox_count(const struct sandbox_book *book)
{
	return book->by_id.n;
}

/* ---- joining answers ---- */

struct join *join_new(int waiting, done_fn done, void *arg)
{
	struct join *join = XNEW(struct join);

	*join = (struct join){ .waiting = waiting, .done = done, .arg = arg };
	return join;
}

void join_one(void *arg, int r, const struct err *e)
{
	struct join *join = arg;

	if (r < 0 && join->r >= 0) {
		join->r = r;
		join->e = *e;
	}
	if (--join->waiting > 0)
		return;
	join->done(join->arg, join->r, &join->e);
	free(join);
}

void done_nothing(void *arg, int r, const struct err *e)
{
	(void)arg;
	if (r < 0 && r != -ENOENT && r != -ECANCELED)
		log_warn("left_over", "err=%s", log_quote(str_of(e->msg)));
}

/* ---- one live sandbox ---- */

struct live *live_new(struct sandbox_book *book, const char *id)
{
	struct live *live = XNEW(struct live);

	live->book = book;
	live->arena = arena_new(4 << 20);
	list_init(&live->waiters);
	live->born_ms = time_now_ms();
	live->phase = book->n_phases++;
	live_used(live);
	loop_timer_init(&live->timer, book->config.loop, on_timeout, live);
	(void)snprintf(live->view.id, sizeof live->view.id, "%s", id);
	(void)map_put(&book->by_id, str_of(live->view.id), live);
	(void)live_use(live, STR_NONE, NULL);
	return live;
}

int live_use(struct live *live, struct str name, struct err *e)
{
	struct err mine = { 0 }, *why = e ? e : &mine;
	struct runtime *runtime = runtime_find(&live->book->config.runtimes, name, why);

	if (!runtime)
		return why->code;
	live->runtime = runtime;
	(void)snprintf(live->view.runtime, sizeof live->view.runtime, "%s", runtime_name(runtime));
	return 0;
}

void live_forget(struct live *live)
{
	(void)map_remove(&live->book->by_id, str_of(live->view.id));
	live_settle(live, SANDBOX_ENDING); /* who waited for it finds it gone */
	live_free(live);
}

struct live *live_find(const struct sandbox_book *book, const struct sandbox_owner *who,
	struct str id)
{
	struct live *live = map_get(&book->by_id, id);

	if (!live || live->view.state == SANDBOX_STARTING || live->view.state == SANDBOX_ENDING)
		return NULL;
	return owner_has(who, &live->view) ? live : NULL;
}

const char *live_name(const struct sandbox *sb)
{
	static _Thread_local char text[2 * SANDBOX_OWNER_SIZE + 64];

	(void)snprintf(text, sizeof text, "sandbox_id=%s%s%s%s%s", sb->id,
		sb->agent_id[0] ? " agent_id=" : "", sb->agent_id,
		sb->task_id[0] ? " task_id=" : "", sb->task_id);
	return text;
}

struct str live_keep_str(struct live *live, struct str s)
{
	char *copy = arena_dup(live->arena, s);

	return copy ? (struct str){ copy, s.n } : STR_NONE;
}

int live_keep_map(struct live *live, const struct json_map *from, struct json_map *to,
	struct err *e)
{
	struct json_map kept = { .n = from->n, .is_set = from->is_set };

	kept.v = arena_alloc(live->arena, from->n * sizeof *kept.v);
	for (size_t i = 0; kept.v && i < from->n; i++) {
		kept.v[i].key = live_keep_str(live, from->v[i].key);
		kept.v[i].value = live_keep_str(live, from->v[i].value);
		if (!kept.v[i].key.p || !kept.v[i].value.p)
			kept.v = NULL;
	}
	if (!kept.v)
		return err_set(e, -E2BIG, "metadata and environment are larger than 4 MiB");
	*to = kept;
	return 0;
}

/* Deadlines are kept by the wall clock, as clients see them, and waited for by the monotonic one.
 */
void live_arm(struct live *live)
{
	int64_t left_ms = (live->view.end_us - book_wall_us(live->book)) / 1000;
	/* What could not be paused when its time was up is tried again, and not at once. */
	int64_t least_ms = MIN(live->late_pauses, LATE_PAUSES_MOST) * LATE_PAUSE_MS;

	loop_timer_set(&live->timer, time_now_ms() + MAX(left_ms, least_ms));
}

struct ending {
	struct live *live;
	int64_t began_us;
	char why[256], actor[ACTOR_SIZE];
	enum sandbox_end by;
	struct join *join;
	done_fn done;
	void *arg;
};

/* Nothing of it is left; and how long that took. */
static void tell_removed(const struct ending *ending)
{
	const struct sandbox *sb = &ending->live->view;
	CLEANUP(buf_done) struct buf data = BUF_INIT(512);
	struct jsonw w;

	jsonw_init(&w, &data);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "runtime", sb->runtime);
	jsonw_int(&w, "us", time_now_us() - ending->began_us);
	jsonw_end_object(&w);
	observe_event(ending->live->book->config.events, &(struct observe_event){ .actor = "system",
								 .kind = "sandbox.removed",
								 .subject = sb->id,
								 .team_id = sb->team_id,
								 .agent_id = sb->agent_id,
								 .task_id = sb->task_id,
								 .data = buf_str(&data) });
}

static void ended(void *arg, int r, const struct err *e)
{
	struct ending *ending = arg;
	int ms = (int)((time_now_us() - ending->began_us) / 1000);

	CRASH_POINT("kill.done");
	if (r < 0)
		log_error("sandbox.end_failed", "%s ms=%d err=%s", live_name(&ending->live->view),
			ms, log_quote(str_of(e->msg)));
	else
		log_info("sandbox.ended", "%s ms=%d by=%s origin=%s why=%s",
			live_name(&ending->live->view), ms, end_name(ending->by),
			sandbox_origin(end_name(ending->by)), log_quote(str_of(ending->why)));
	if (r >= 0)
		tell_removed(ending);
	history_grown(ending->live->book, ending->live->view.team_id); /* its row may go now */
	ending->live->book->in_flight--;
	live_forget(
		ending->live); /* what could not be removed now, the next start's reconcile does */
	if (ending->done)
		ending->done(ending->arg, r, e);
	free(ending);
}

static void removed(void *arg, int r, const struct err *e)
{
	CRASH_POINT("kill.removed");
	join_one(arg, r == -ENOENT ? 0 : r, e); /* gone is gone, whoever was first */
}

static void end_written(void *arg, int r, const struct err *e);

static void write_end(void *arg)
{
	struct ending *ending = arg;

	rows_ended(ending->live->book->config.store, &ending->live->view, ending->by, ending->actor,
		ending->why, end_written, ending);
}

/* A full disk keeps nobody from ending what fills it: the end gives room back, soon. */
static void end_written(void *arg, int r, const struct err *e)
{
	struct ending *ending = arg;
	struct live *live = ending->live;

	if (r == -ENOSPC && time_now_us() - ending->began_us < END_ROOM_US) {
		loop_timer_init(&live->timer, live->book->config.loop, write_end, ending);
		loop_timer_set(&live->timer, time_now_ms() + END_RETRY_MS);
		return;
	}
	join_one(ending->join, r, e);
}

static void end_counted(struct live *live, void *arg)
{
	(void)live;
	write_end(arg);
}

/* The question goes before the order to destroy it, and is answered before. */
static void end_heard(struct live *live, void *arg)
{
	struct ending *ending = arg;
	struct sandbox_book *book = live->book;

	if (live->view.run.clock_us && !live->view.run.ended_us)
		live_count(live, end_counted, ending);
	else
		end_counted(live, ending);
	if (live->view.image[0])
		runtime_discard(book_images(book), live->view.image, removed, ending->join);
	else
		runtime_destroy(live->runtime, live->view.id, removed, ending->join);
}

void live_end(struct live *live, enum sandbox_end by, const char *actor, const char *why,
	done_fn done, void *arg)
{
	struct sandbox_book *book = live->book;
	struct ending *ending = XNEW(struct ending);
	struct join *join = join_new(2, ended, ending);
	/* Of one that has gone by itself nobody is left to ask. */
	bool has_more = live->view.state == SANDBOX_RUNNING && live->activity.is_used &&
			by != SANDBOX_END_AGENT && by != SANDBOX_END_MEMORY;

	*ending = (struct ending){ .live = live,
		.began_us = time_now_us(),
		.by = by,
		.join = join,
		.done = done,
		.arg = arg };
	(void)snprintf(ending->why, sizeof ending->why, "%s", why);
	(void)snprintf(ending->actor, sizeof ending->actor, "%s", actor);
	live->view.state = SANDBOX_ENDING;
	queue_kick(book);
	crossings_last(live);
	visits_last(live);
	loop_timer_cancel(&live->timer);
	book->in_flight++;
	CRASH_POINT("kill.asked");
	activity_last(live, has_more, end_heard, ending);
}

static void on_timeout(void *arg)
{
	struct live *live = arg;
	enum sandbox_timeout how = live->view.options.on_timeout;
	struct sandbox_pause pause = { .keep_memory = how == SANDBOX_TIMEOUT_PAUSE,
		.or_files = true,
		.cause = "its time was up" };

	if (live->view.state != SANDBOX_RUNNING)
		return;
	/* Another look at the wall clock: it may have been set since the timer was. */
	if (live->view.end_us - book_wall_us(live->book) > 1000) {
		live_arm(live);
		return;
	}
	live->late_pauses += how != SANDBOX_TIMEOUT_KILL;
	if (how != SANDBOX_TIMEOUT_KILL)
		sandbox_pause(live->book, NULL, str_of(live->view.id), &pause, NULL, NULL);
	else if (live->saving)
		loop_timer_set(&live->timer,
			time_now_ms() + 10); /* the copy is a matter of milliseconds */
	else
		live_end(live, SANDBOX_END_TIMEOUT, "timeout", "its time was up", NULL, NULL);
}

void live_saved(struct live *live, int r)
{
	live->saving--;
	if (live->saving == 0 && (live->has_exited || r == -ENOENT))
		live_end(live, SANDBOX_END_AGENT, "system", "its first process ended", NULL, NULL);
	else
		live_settle(live, live->view.state);
}

/* Nothing inside can kill a guest: it was its memory limit, or somebody outside. */
static enum sandbox_end end_of(const struct err *why)
{
	if (why->code == -ENOMEM)
		return SANDBOX_END_MEMORY;
	if (why->code == -ENOSPC) /* it was ended for room */
		return SANDBOX_END_INFRASTRUCTURE;
	return why->code == -EOWNERDEAD ? SANDBOX_END_INFRASTRUCTURE : SANDBOX_END_AGENT;
}

static void on_exited(void *arg, const char *id, const struct err *why)
{
	struct sandbox_book *book = arg;
	struct live *live = map_get(&book->by_id, str_of(id));

	/* During a change the one who makes it finds out, or else is told when it is made. */
	if (live && (live->saving || live->view.state == SANDBOX_STARTING ||
			    live->view.state == SANDBOX_RESUMING))
		live->has_exited = true;
	else if (live && (live->view.state == SANDBOX_RUNNING ||
				 (live->view.state == SANDBOX_PAUSED && !live->view.image[0])))
		live_end(live, end_of(why), "system",
			why->msg[0] ? why->msg : "its first process ended", NULL, NULL);
}

/* ---- doors ---- */

const struct sandbox *sandbox_find_tenant(const struct sandbox_book *book, const char *id)
{
	const struct live *live = map_get(&book->by_id, str_of(id));

	return live ? &live->view : NULL;
}

struct str sandbox_env(const struct sandbox_book *book, const char *id, struct str name)
{
	const struct live *live = map_get(&book->by_id, str_of(id));

	for (size_t i = 0; live && i < live->env.n; i++)
		if (str_eq(live->env.v[i].key, name))
			return live->env.v[i].value;
	return STR_NONE;
}

struct str sandbox_env_name(const struct sandbox_book *book, const char *id,
	bool (*is)(struct str name))
{
	const struct live *live = map_get(&book->by_id, str_of(id));

	for (size_t i = 0; live && i < live->env.n; i++)
		if (is(live->env.v[i].key))
			return live->env.v[i].key;
	return STR_NONE;
}

const struct sandbox *sandbox_find_request(const struct sandbox_book *book,
	const struct sandbox_owner *who, struct str request)
{
	const struct live *live;
	size_t at = 0;

	while ((live = map_next(&book->by_id, &at)))
		if (live->view.options.request.n &&
			str_has_prefix(live->view.options.request, request) &&
			live_find(book, who, str_of(live->view.id)))
			return &live->view;
	return NULL;
}

const struct sandbox *sandbox_find(const struct sandbox_book *book, const struct sandbox_owner *who,
	struct str id)
{
	const struct live *live = live_find(book, who, id);

	return live && live->view.state == SANDBOX_RUNNING ? &live->view : NULL;
}

const struct sandbox *sandbox_find_any(const struct sandbox_book *book,
	const struct sandbox_owner *who, struct str id)
{
	const struct live *live = live_find(book, who, id);

	return live ? &live->view : NULL;
}

void sandbox_each(const struct sandbox_book *book, const struct sandbox_owner *who,
	void (*fn)(void *arg, const struct sandbox *sb), void *arg)
{
	const struct live *live;
	size_t at = 0;

	while ((live = map_next(&book->by_id, &at)))
		if (live->view.state != SANDBOX_STARTING && live->view.state != SANDBOX_ENDING &&
			owner_has(who, &live->view))
			fn(arg, &live->view);
}

struct kill {
	struct op op;
	char actor[ACTOR_SIZE];
	const char *why; /* a literal */
	done_fn done;
	void *arg;
};

static void kill_run(struct op *op, struct live *live)
{
	struct kill *k = container_of(op, struct kill, op);
	struct err e = { 0 };

	if (live) {
		live_end(live, SANDBOX_END_USER, k->actor, k->why, k->done, k->arg);
	} else {
		(void)op_not_found(op, &e);
		k->done(k->arg, e.code, &e);
	}
	free(k);
}

static struct kill *kill_new(const char *actor, const char *why, done_fn done, void *arg)
{
	struct kill *k = XNEW(struct kill);

	(void)snprintf(k->actor, sizeof k->actor, "%s", actor);
	k->why = why;
	k->done = done;
	k->arg = arg;
	return k;
}

void sandbox_kill(struct sandbox_book *book, const struct sandbox_owner *who, struct str id,
	const char *actor, done_fn done, void *arg)
{
	struct kill *k = kill_new(actor, "killed through the API", done, arg);

	op_start(&k->op, book, who, id, kill_run);
}

/* A failure found at once is still told on a later turn, as every done_fn is. */
struct later {
	struct loop_task task;
	struct err e;
	done_fn done;
	void *arg;
};

static void tell(void *arg)
{
	struct later *later = arg;

	later->done(later->arg, later->e.code, &later->e);
	free(later);
}

void tell_later(struct sandbox_book *book, const struct err *e, done_fn done, void *arg)
{
	struct later *later = XNEW(struct later);

	later->e = *e;
	later->done = done;
	later->arg = arg;
	loop_defer(book->config.loop, &later->task, tell, later);
}

/* The running sandbox, or why it cannot be had. */
static struct live *find_running(struct sandbox_book *book, const struct sandbox_owner *who,
	struct str id, struct err *e)
{
	struct live *live = live_find(book, who, id);

	if (!live || live->view.state == SANDBOX_PAUSED)
		(void)err_set(e, -ENOENT,
			"Sandbox \"%.*s\" doesn't exist or you don't have access to it",
			STR_ARG(id));
	else if (live->view.state != SANDBOX_RUNNING)
		(void)err_set(e, -EBUSY, "Sandbox \"%.*s\" is being paused or resumed: try again",
			STR_ARG(id));
	else
		return live;
	return NULL;
}

void sandbox_set_timeout(struct sandbox_book *book, const struct sandbox_owner *who, struct str id,
	int64_t timeout_s, done_fn done, void *arg)
{
	int64_t now_us = book_wall_us(book);
	struct err e = { 0 };
	struct live *live = find_running(book, who, id, &e);

	if (!live) {
		tell_later(book, &e, done, arg);
		return;
	}
	timeout_s = MIN(MAX(timeout_s, 0), book->config.limits.max_timeout_s);
	live->view.end_us = now_us + timeout_s * 1000000;
	live->view.end_us = MIN(live->view.end_us, live_latest_us(live));
	live->late_pauses = 0;
	live_arm(live);
	rows_set_end(book->config.store, &live->view, live->view.end_us, done, arg);
}

int64_t sandbox_latest_us(struct sandbox_book *book, struct str id)
{
	const struct live *live = live_find(book, NULL, id);

	return live && live->view.state == SANDBOX_RUNNING ? live_latest_us(live) : 0;
}

void sandbox_kill_all(struct sandbox_book *book, done_fn done, void *arg)
{
	struct join *join = join_new(1, done, arg);
	struct err none = { 0 };
	struct live *live;
	struct kill *k;
	size_t at = 0;

	while ((live = map_next(&book->by_id, &at))) {
		if (!live_find(book, NULL, str_of(live->view.id)))
			continue;
		join->waiting++;
		k = kill_new("system", "the server was stopped with --stop-sandboxes", join_one,
			join);
		op_start(&k->op, book, NULL, str_of(live->view.id), kill_run);
	}
	tell_later(book, &none, join_one, join);
}

void sandbox_note_denied(struct sandbox_book *book, const char *id, uint64_t packets)
{
	struct live *live = map_get(&book->by_id, str_of(id));

	if (live)
		live->view.denied_packets = packets;
}

/* ---- standing still before the end ---- */

enum {
	SETTLE_LOOK_MS = 10,
	SETTLE_MOST_MS = 5000,
};

struct settle {
	struct loop_timer timer;
	struct sandbox_book *book;
	int64_t deadline_ms;
	done_fn done;
	void *arg;
};

static void settle_look(void *arg)
{
	struct settle *settle = arg;
	struct loop *loop = settle->book->config.loop;
	struct err e = { 0 };
	const struct live *live;
	size_t at = 0, moving = 0;

	while ((live = map_next(&settle->book->by_id, &at)))
		moving += !live_is_settled(live);
	moving += settle->book->questions + settle->book->asking + settle->book->samples_saving +
		  settle->book->activity_asking;
	if (moving && loop_now_ms(loop) < settle->deadline_ms) {
		loop_timer_set(&settle->timer, loop_now_ms(loop) + SETTLE_LOOK_MS);
		return;
	}
	if (moving)
		(void)err_set(&e, -ETIMEDOUT, "%zu sandboxes were still being changed", moving);
	settle->done(settle->arg, e.code, &e);
	free(settle);
}

void sandbox_settle(struct sandbox_book *book, done_fn done, void *arg)
{
	struct settle *settle = XNEW(struct settle);

	metrics_stop(book);
	settle->book = book;
	settle->deadline_ms = loop_now_ms(book->config.loop) + SETTLE_MOST_MS;
	settle->done = done;
	settle->arg = arg;
	loop_timer_init(&settle->timer, book->config.loop, settle_look, settle);
	loop_timer_set(&settle->timer, loop_now_ms(book->config.loop));
}

void sandbox_dial(struct sandbox_book *book, const struct sandbox *sb, int port, runtime_dial_fn fn,
	void *arg)
{
	struct live *live = map_get(&book->by_id, str_of(sb->id));

	assert(live);
	live_used(live);
	if (port == RUNTIME_GUEST_PORT)
		activity_used(live);
	runtime_dial(live->runtime, sb->id, port, fn, arg);
}

static void derive_token(const struct sandbox_book *book, const char *kind, const char *id,
	char token[SANDBOX_TOKEN_SIZE])
{
	uint8_t mac[SHA256_SIZE];
	char text[64];
	int n = snprintf(text, sizeof text, "%s%s", kind, id);

	hmac_sha256(book->config.seed, str_make(text, (size_t)n), mac);
	hex_encode(mac, sizeof mac, token);
}

void sandbox_token(const struct sandbox_book *book, const char *id, char token[SANDBOX_TOKEN_SIZE])
{
	derive_token(book, "", id, token);
}

void sandbox_traffic_token(const struct sandbox_book *book, const char *id,
	char token[SANDBOX_TOKEN_SIZE])
{
	derive_token(book, "sandbox-traffic-", id, token);
}
