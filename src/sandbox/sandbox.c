#include "sandbox/sandbox-internal.h"

struct sandbox_book *sandbox_book_free(struct sandbox_book *book)
{
	struct live *live;
	size_t at = 0;

	if (!book)
		return NULL;
	while ((live = map_next(&book->by_id, &at))) {
		loop_timer_cancel(&live->timer);
		live->arena = arena_free(live->arena);
		free(live);
	}
	map_done(&book->by_id);
	free(book);
	return NULL;
}

static void on_exited(void *arg, const char *id, const struct err *why);

struct sandbox_book *sandbox_book_new(const struct sandbox_book_config *config)
{
	struct sandbox_book *book = XNEW(struct sandbox_book);

	book->config = *config;
	runtime_on_exited(config->runtime, on_exited, book);
	return book;
}

int sandbox_ready(const struct sandbox_book *book, struct err *e)
{
	return runtime_ready(book->config.runtime, e);
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

/* ---- one live sandbox ---- */

static void on_timeout(void *arg);

struct live *live_new(struct sandbox_book *book, const char *id)
{
	struct live *live = XNEW(struct live);

	live->book = book;
	live->arena = arena_new(1 << 20);
	loop_timer_init(&live->timer, book->config.loop, on_timeout, live);
	(void)snprintf(live->view.id, sizeof live->view.id, "%s", id);
	(void)map_put(&book->by_id, str_of(live->view.id), live);
	return live;
}

void live_forget(struct live *live)
{
	loop_timer_cancel(&live->timer);
	(void)map_remove(&live->book->by_id, str_of(live->view.id));
	live->arena = arena_free(live->arena);
	free(live);
}

struct live *live_find(const struct sandbox_book *book, const char *team_id, struct str id)
{
	struct live *live = map_get(&book->by_id, id);

	if (!live || live->view.state != SANDBOX_RUNNING)
		return NULL;
	return !team_id || strcmp(live->view.team_id, team_id) == 0 ? live : NULL;
}

/* Deadlines are kept by the wall clock, as clients see them, and waited for by the monotonic one.
 */
void live_arm(struct live *live)
{
	int64_t left_ms = (live->view.end_us - time_wall_us()) / 1000;

	loop_timer_set(&live->timer, time_now_ms() + MAX(left_ms, 0));
}

struct ending {
	struct live *live;
	int64_t began_us;
	char why[256];
	done_fn done;
	void *arg;
};

static void ended(void *arg, int r, const struct err *e)
{
	struct ending *ending = arg;
	int ms = (int)((time_now_us() - ending->began_us) / 1000);

	if (r < 0)
		log_error("sandbox.end_failed", "sandbox=%s ms=%d err=%s", ending->live->view.id,
			ms, log_quote(str_of(e->msg)));
	else
		log_info("sandbox.ended", "sandbox=%s ms=%d why=%s", ending->live->view.id, ms,
			log_quote(str_of(ending->why)));
	ending->live->book->in_flight--;
	live_forget(
		ending->live); /* what could not be removed now, the next start's reconcile does */
	if (ending->done)
		ending->done(ending->arg, r, e);
	free(ending);
}

static void destroyed(void *arg, int r, const struct err *e)
{
	join_one(arg, r == -ENOENT ? 0 : r, e); /* gone is gone, whoever was first */
}

void live_end(struct live *live, enum sandbox_end by, const char *actor, const char *why,
	done_fn done, void *arg)
{
	struct sandbox_book *book = live->book;
	struct ending *ending = XNEW(struct ending);
	struct join *join = join_new(2, ended, ending);

	*ending = (struct ending){ .live = live,
		.began_us = time_now_us(),
		.done = done,
		.arg = arg };
	(void)snprintf(ending->why, sizeof ending->why, "%s", why);
	live->view.state = SANDBOX_ENDING;
	loop_timer_cancel(&live->timer);
	book->in_flight++;
	rows_ended(book->config.store, live->view.id, by, actor, why, join_one, join);
	runtime_destroy(book->config.runtime, live->view.id, destroyed, join);
}

static void on_timeout(void *arg)
{
	struct live *live = arg;

	/* Another look at the wall clock: it may have been set back since the timer was. */
	if (live->view.end_us - time_wall_us() > 1000)
		live_arm(live);
	else
		live_end(live, SANDBOX_END_TIMEOUT, "timeout", "its time was up", NULL, NULL);
}

static void on_exited(void *arg, const char *id, const struct err *why)
{
	struct sandbox_book *book = arg;
	struct live *live = live_find(book, NULL, str_of(id));

	if (live)
		live_end(live, SANDBOX_END_AGENT, "system",
			why->msg[0] ? why->msg : "its first process ended", NULL, NULL);
}

/* ---- doors ---- */

const struct sandbox *sandbox_find(const struct sandbox_book *book, const char *team_id,
	struct str id)
{
	const struct live *live = live_find(book, team_id, id);

	return live ? &live->view : NULL;
}

void sandbox_each(const struct sandbox_book *book, const char *team_id,
	void (*fn)(void *arg, const struct sandbox *sb), void *arg)
{
	const struct live *live;
	size_t at = 0;

	while ((live = map_next(&book->by_id, &at)))
		if (live->view.state == SANDBOX_RUNNING && strcmp(live->view.team_id, team_id) == 0)
			fn(arg, &live->view);
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

static void fail_later(struct sandbox_book *book, const struct err *e, done_fn done, void *arg)
{
	struct later *later = XNEW(struct later);

	later->e = *e;
	later->done = done;
	later->arg = arg;
	loop_defer(book->config.loop, &later->task, tell, later);
}

static void not_found(struct sandbox_book *book, struct str id, done_fn done, void *arg)
{
	struct err e;

	(void)err_set(&e, -ENOENT, "Sandbox \"%.*s\" doesn't exist or you don't have access to it",
		STR_ARG(id));
	fail_later(book, &e, done, arg);
}

void sandbox_kill(struct sandbox_book *book, const char *team_id, struct str id, const char *actor,
	done_fn done, void *arg)
{
	struct live *live = live_find(book, team_id, id);

	if (!live)
		not_found(book, id, done, arg);
	else
		live_end(live, SANDBOX_END_USER, actor, "killed through the API", done, arg);
}

void sandbox_set_timeout(struct sandbox_book *book, const char *team_id, struct str id,
	int64_t timeout_s, done_fn done, void *arg)
{
	struct live *live = live_find(book, team_id, id);
	int64_t latest_us, now_us = time_wall_us();

	if (!live) {
		not_found(book, id, done, arg);
		return;
	}
	latest_us = live->view.started_us + book->config.limits.max_timeout_s * 1000000;
	timeout_s = MIN(MAX(timeout_s, 0), book->config.limits.max_timeout_s);
	live->view.end_us = MIN(now_us + timeout_s * 1000000, latest_us);
	live_arm(live);
	rows_set_end(book->config.store, live->view.id, live->view.end_us, done, arg);
}

void sandbox_kill_all(struct sandbox_book *book, done_fn done, void *arg)
{
	struct join *join = join_new(1, done, arg);
	struct err none = { 0 };
	struct live *live;
	size_t at = 0;

	while ((live = map_next(&book->by_id, &at))) {
		if (live->view.state != SANDBOX_RUNNING)
			continue;
		join->waiting++;
		live_end(live, SANDBOX_END_USER, "system",
			"the server was stopped with --stop-sandboxes", join_one, join);
	}
	if (join->waiting > 1)
		join_one(join, 0, &none);
	else
		fail_later(book, &none, join_one, join);
}

void sandbox_dial(struct sandbox_book *book, const struct sandbox *sb, int port, runtime_dial_fn fn,
	void *arg)
{
	runtime_dial(book->config.runtime, sb->id, port, fn, arg);
}

void sandbox_token(const struct sandbox_book *book, const char *id, char token[SANDBOX_TOKEN_SIZE])
{
	uint8_t mac[SHA256_SIZE];

	hmac_sha256(book->config.seed, str_of(id), mac);
	hex_encode(mac, sizeof mac, token);
}
