/* Health. Every guest is asked each few seconds for what it has to say of its limits (metrics.c);
 * whether it answers is its health, and costs no question more. Its word may fail to come for
 * reasons that are not its own: while it is changed nothing counts, and when this program itself
 * was kept waiting, or most guests fall silent at once, it is the host. */
#include "sandbox/health.h"
#include "sandbox/sandbox-internal.h"

enum {
	LATE_MS = 1000,      /* the loop was kept waiting so long: the host is short of time */
	LATE_FOR_MS = 15000, /* and what is missed until then does not count */
	HOST_LEAST = 4,      /* so many, and more than half of all, silent: the host's doing */
};

bool vital_note(struct vital *v, int64_t now_ms, enum vital_word word)
{
	enum sandbox_health before = v->health;

	if (word == VITAL_HEARD) {
		v->misses = 0;
		v->heard_ms = now_ms;
		v->health = SANDBOX_HEALTHY;
	} else if (++v->misses >= VITAL_MISSES) {
		v->health = word == VITAL_REFUSED ? SANDBOX_DEAD : SANDBOX_UNRESPONSIVE;
	}
	if (v->health == before)
		return false;
	v->changed_ms = now_ms;
	return true;
}

int64_t idle_look(struct idle *idle, int64_t now_ms, bool is_busy, int64_t egress_bytes)
{
	if (is_busy || egress_bytes - idle->egress_bytes > IDLE_NOISE_BYTES)
		idle->used_ms = now_ms;
	idle->egress_bytes = egress_bytes;
	return now_ms - idle->used_ms;
}

const char *sandbox_health_name(enum sandbox_health health)
{
	static const char *const names[] = {
		[SANDBOX_HEALTH_UNKNOWN] = "unknown",
		[SANDBOX_HEALTHY] = "healthy",
		[SANDBOX_UNRESPONSIVE] = "unresponsive",
		[SANDBOX_DEAD] = "dead",
	};

	return names[health];
}

/* ---- telling ---- */

static void tell(struct live *live, const char *kind, const char *cause)
{
	CLEANUP(buf_done) struct buf data = BUF_INIT(1024);
	const struct sandbox *sb = &live->view;
	struct jsonw w;

	jsonw_init(&w, &data);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "health", sandbox_health_name(sb->health));
	jsonw_strz(&w, "origin", "infrastructure");
	jsonw_strz(&w, "cause", cause);
	jsonw_int(&w, "misses", live->vital.misses);
	jsonw_end_object(&w);
	observe_event(live->book->config.events, &(struct observe_event){ .actor = "system",
							 .kind = kind,
							 .subject = sb->id,
							 .team_id = sb->team_id,
							 .agent_id = sb->agent_id,
							 .task_id = sb->task_id,
							 .cause = cause,
							 .data = buf_str(&data) });
}

static void explain(struct live *live, const struct err *e)
{
	struct sandbox *sb = &live->view;
	int64_t silent_s =
		live->vital.heard_ms ? (live->vital.changed_ms - live->vital.heard_ms) / 1000 : 0;
	char heard[64] = "never since the server started";

	if (live->vital.heard_ms)
		(void)snprintf(heard, sizeof heard, "%" PRId64 " s ago", silent_s);
	if (sb->health == SANDBOX_DEAD)
		(void)snprintf(sb->health_why, sizeof sb->health_why,
			"nobody listens in it any more (%.80s); it was last heard %s",
			e ? e->msg : "", heard);
	else if (sb->health == SANDBOX_UNRESPONSIVE)
		(void)snprintf(sb->health_why, sizeof sb->health_why,
			"its guest did not answer %d times in a row (%.60s); it was last heard %s",
			live->vital.misses, e ? e->msg : "", heard);
	else
		sb->health_why[0] = '\0';
}

void health_note(struct live *live, enum vital_word word, const struct err *e)
{
	struct sandbox_book *book = live->book;
	int64_t now_ms = loop_now_ms(book->config.loop);
	enum sandbox_health before = live->vital.health;

	if (live->view.state != SANDBOX_RUNNING || live->saving || live->is_held ||
		(word != VITAL_HEARD && now_ms < book->late_until_ms))
		return;
	if (!vital_note(&live->vital, now_ms, word))
		return;
	live->view.health = live->vital.health;
	live->view.health_us = time_wall_us();
	explain(live, e);
	if (word != VITAL_HEARD) {
		log_warn("sandbox.unhealthy", "%s health=%s err=%s", live_name(&live->view),
			sandbox_health_name(live->view.health),
			log_quote(str_of(live->view.health_why)));
		tell(live, "sandbox.unhealthy", live->view.health_why);
	} else if (before == SANDBOX_UNRESPONSIVE || before == SANDBOX_DEAD) {
		log_info("sandbox.recovered", "%s", live_name(&live->view));
		tell(live, "sandbox.recovered", "its guest answers again");
	}
}

void health_reset(struct live *live)
{
	live->vital = (struct vital){ .changed_ms = loop_now_ms(live->book->config.loop) };
	live->view.health = SANDBOX_HEALTH_UNKNOWN;
	live->view.health_us = 0;
	live->view.health_why[0] = '\0';
}

/* ---- what follows ---- */

void health_tick(struct sandbox_book *book, int64_t planned_ms)
{
	int64_t now_ms = time_now_ms();

	if (now_ms - planned_ms > LATE_MS)
		book->late_until_ms = now_ms + LATE_FOR_MS;
}

static bool host_is_to_blame(const struct sandbox_book *book)
{
	const struct live *live;
	size_t at = 0, running = 0, silent = 0;

	if (loop_now_ms(book->config.loop) < book->late_until_ms)
		return true;
	while ((live = map_next(&book->by_id, &at)))
		if (live->view.state == SANDBOX_RUNNING) {
			running++;
			silent += live->view.health == SANDBOX_UNRESPONSIVE;
		}
	return silent >= HOST_LEAST && silent * 2 > running;
}

static bool is_lost(const struct live *live, int64_t now_ms)
{
	const struct sandbox_care *care = &live->book->config.care;

	if (live->view.state != SANDBOX_RUNNING || live->saving || live->is_swept)
		return false;
	if (live->view.health == SANDBOX_DEAD)
		return true;
	return live->view.health == SANDBOX_UNRESPONSIVE && !care->keep_unresponsive &&
	       now_ms - live->vital.changed_ms >= care->unresponsive_s * 1000;
}

/* Nothing can be done with it any more: its row says why, and nothing of it stays. */
void health_sweep(struct sandbox_book *book)
{
	int64_t now_ms = loop_now_ms(book->config.loop);
	bool is_host = host_is_to_blame(book);
	struct live *live;
	size_t at = 0;

	while ((live = map_next(&book->by_id, &at))) {
		if (!is_lost(live, now_ms))
			continue;
		if (live->view.health == SANDBOX_UNRESPONSIVE && is_host)
			continue;
		sweep_end(live, SANDBOX_END_INFRASTRUCTURE, live->view.health_why);
	}
}
