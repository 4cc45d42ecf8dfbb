/* What is forgotten does not stay: sandboxes that are older than they may become, and those that
 * nobody has used for as long as their owner said. */
#include "sandbox/health.h"
#include "sandbox/sandbox-internal.h"

enum {
	STRAYS_MS = 60000,
};

struct sweep {
	struct op op;
	enum sandbox_end by;
	char why[192];
};

static void sweep_run(struct op *op, struct live *live)
{
	struct sweep *s = container_of(op, struct sweep, op);

	if (live)
		live_end(live, s->by, "system", s->why, NULL, NULL);
	op->book->in_flight--;
	free(s);
}

void sweep_end(struct live *live, enum sandbox_end by, const char *why)
{
	struct sweep *s = XNEW(struct sweep);

	s->by = by;
	(void)snprintf(s->why, sizeof s->why, "%s", why);
	live->is_swept = true;
	live->book->in_flight++;
	op_start(&s->op, live->book, NULL, str_of(live->view.id), sweep_run);
}

/* ---- age ---- */

int64_t live_latest_us(const struct live *live)
{
	int64_t wall_us = book_wall_us(live->book), ran_us, aged_us;
	int64_t max_age_s = live->view.options.max_age_s;
	int64_t latest_us = wall_us + live->book->config.limits.max_timeout_s * 1000000;

	/* By the clock that nobody sets. */
	ran_us = live->view.run.clock_us ? time_now_us() - live->view.run.clock_us : 0;
	latest_us -= MAX(ran_us, 0);
	aged_us = (time_now_ms() - live->born_ms) * 1000;
	if (max_age_s)
		latest_us = MIN(latest_us, wall_us + max_age_s * 1000000 - aged_us);
	return latest_us;
}

int sweep_check_age(const struct sandbox_book *book, const struct sandbox_options *options,
	struct err *e)
{
	int64_t most = book->config.care.max_age_s, asked = options->max_age_s;

	if (asked == SANDBOX_AGE_USUAL || asked == SANDBOX_AGE_NONE || !most || asked <= most)
		return 0;
	return err_set(e, -ERANGE, "max_age must be from 1 to %" PRId64 " seconds", most);
}

/* What was promised by a longer time-out is kept. */
int64_t sweep_age(const struct sandbox_book *book, int64_t asked_s, int64_t timeout_s)
{
	int64_t age_s = asked_s == SANDBOX_AGE_USUAL ? book->config.care.max_age_s : asked_s;

	return age_s ? MAX(age_s, timeout_s) : 0;
}

static bool is_too_old(const struct live *live, int64_t now_ms)
{
	int64_t max_age_s = live->view.options.max_age_s;

	return max_age_s && now_ms - live->born_ms > max_age_s * 1000;
}

/* ---- use ---- */

void live_used(struct live *live)
{
	live->idle.used_ms = loop_now_ms(live->book->config.loop);
}

static bool is_busy(const struct live *live)
{
	const struct sandbox_book *book = live->book;

	return live->connections > 0 || live->saving ||
	       (book->busy && book->busy(book->busy_arg, live->view.id));
}

static void end_idle(struct live *live, int64_t idle_s)
{
	enum sandbox_timeout how = live->view.options.on_timeout;
	struct sandbox_pause pause = { .keep_memory = how == SANDBOX_TIMEOUT_PAUSE,
		.or_files = true };
	char why[96];

	(void)snprintf(why, sizeof why,
		"it was idle for %" PRId64 " s, and may be so for %" PRId64 " s", idle_s,
		live->view.options.idle_timeout_s);
	pause.cause = why;
	log_info("sandbox.idle", "%s why=%s", live_name(&live->view), log_quote(str_of(why)));
	live_used(live); /* not again until the pause is over, or has failed */
	if (how == SANDBOX_TIMEOUT_KILL)
		sweep_end(live, SANDBOX_END_TIMEOUT, why);
	else
		sandbox_pause(live->book, NULL, str_of(live->view.id), &pause, NULL, NULL);
}

static void look(struct live *live, int64_t now_ms)
{
	int64_t limit_s = live->view.options.idle_timeout_s, idle_ms;
	char why[96];

	if (live->is_swept || !live_is_settled(live))
		return;
	if (is_too_old(live, now_ms)) {
		(void)snprintf(why, sizeof why, "it was older than its max_age of %" PRId64 " s",
			live->view.options.max_age_s);
		sweep_end(live, SANDBOX_END_TIMEOUT, why);
		return;
	}
	if (!limit_s || live->view.state != SANDBOX_RUNNING)
		return;
	idle_ms = idle_look(&live->idle, now_ms, is_busy(live), live->view.run.egress_bytes);
	if (idle_ms >= limit_s * 1000)
		end_idle(live, idle_ms / 1000);
}

/* ---- what the kernel has and the book has not ---- */

struct stray_look {
	struct sandbox_book *book;
	struct runtime *runtime;
};

/* One that could not be removed when it ended. */
static void stray_seen(void *arg, const char *id, bool is_frozen)
{
	const struct stray_look *l = arg;

	(void)is_frozen;
	if (map_get(&l->book->by_id, str_of(id)))
		return;
	log_warn("sandbox.stray", "sandbox_id=%s", id);
	runtime_destroy(l->runtime, id, done_nothing, NULL);
}

static void strays_listed(void *arg, int r, const struct err *e)
{
	struct stray_look *l = arg;

	if (r < 0)
		log_debug("sandbox.strays", "err=%s", log_quote(str_of(e->msg)));
	l->book->questions--;
	free(l);
}

static void look_for_strays(struct sandbox_book *book, int64_t now_ms)
{
	const struct runtime_set *set = &book->config.runtimes;

	if (now_ms - book->strays_ms < STRAYS_MS)
		return;
	book->strays_ms = now_ms;
	for (size_t i = 0; i < set->n; i++) {
		struct stray_look *l = XNEW(struct stray_look);

		*l = (struct stray_look){ book, set->v[i] };
		book->questions++;
		runtime_list(set->v[i], stray_seen, strays_listed, l);
	}
}

void sweep_step(struct sandbox_book *book)
{
	int64_t now_ms = loop_now_ms(book->config.loop);
	struct live *live;
	size_t at = 0;

	while ((live = map_next(&book->by_id, &at)))
		look(live, now_ms);
	health_sweep(book);
	look_for_strays(book, now_ms);
}

void sandbox_touch(struct sandbox_book *book, const char *id)
{
	struct live *live = map_get(&book->by_id, str_of(id));

	if (live)
		live_used(live);
}

void sandbox_on_busy(struct sandbox_book *book, sandbox_busy_fn fn, void *arg)
{
	book->busy = fn;
	book->busy_arg = arg;
}
