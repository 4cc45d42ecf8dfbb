/* The old end of the event log. It is taken off from its beginning only, so what is left has no
 * holes; an event whose time is wrong holds up those behind it until its own is over. The newest
 * one stays whatever its age: the next number comes from it. */
#include "observe/observe-internal.h"

enum {
	FIRST_MS = 1000,
	LOOK_MS = 60000, /* or as long as they are kept, if that is shorter */
	AGAIN_MS = 100,  /* when more is left: others write between */
	AT_ONCE = 500,
};

struct trim {
	struct loop *loop;
	struct store *store;
	struct loop_timer timer;
	int64_t keep_s;
	struct time_past past;
	trim_fn fn;
	void *arg;
	bool is_at_work, is_gone;
	int64_t total; /* since one look found nothing more */
	/* The job's: */
	int64_t before_us, last, n;
};

/* -ECANCELED: it is young enough. */
static int look_at(void *arg, const struct store_row *row, struct err *e)
{
	struct trim *trim = arg;

	(void)e;
	if (store_int(row, 1) >= trim->before_us)
		return -ECANCELED;
	trim->last = store_int(row, 0);
	trim->n++;
	return 0;
}

static int take_off(struct store_tx *tx, void *arg, struct err *e)
{
	struct trim *trim = arg;
	int r;

	trim->last = trim->n = 0;
	r = store_query(tx,
		"SELECT seq, at_us FROM events WHERE seq < (SELECT MAX(seq) FROM events) "
		"ORDER BY seq LIMIT $1",
		STORE_PARAMS(P_INT(AT_ONCE)), look_at, trim, e);
	if (r < 0 && r != -ECANCELED)
		return r;
	return trim->n ? store_exec(tx, "DELETE FROM events WHERE seq <= $1",
				 STORE_PARAMS(P_INT(trim->last)), e)
		       : 0;
}

static void look_later(struct trim *trim, int64_t ms)
{
	loop_timer_set(&trim->timer, loop_now_ms(trim->loop) + ms);
}

static void taken_off(void *arg, int r, const struct err *e)
{
	struct trim *trim = arg;
	bool has_more = r >= 0 && trim->n == AT_ONCE;

	trim->is_at_work = false;
	if (trim->is_gone) {
		free(trim);
		return;
	}
	if (r < 0)
		log_warn("history.kept", "err=%s", log_quote(str_of(e->msg)));
	else if (trim->n)
		trim->fn(trim->arg, trim->last + 1);
	trim->total += r < 0 ? 0 : trim->n;
	if (!has_more && trim->total) {
		log_info("history.forgotten", "events=%" PRId64, trim->total);
		trim->total = 0;
	}
	look_later(trim, has_more ? AGAIN_MS : MIN(LOOK_MS, trim->keep_s * 1000));
}

static void on_time(void *arg)
{
	struct trim *trim = arg;

	trim->before_us = time_past_us(&trim->past, trim->keep_s);
	if (!trim->before_us) {
		look_later(trim, FIRST_MS);
		return;
	}
	trim->is_at_work = true;
	store_run(trim->store, take_off, taken_off, trim);
}

struct trim *trim_new(struct loop *loop, struct store *store, int64_t keep_s, trim_fn fn, void *arg)
{
	struct trim *trim = XNEW(struct trim);

	trim->loop = loop;
	trim->store = store;
	trim->keep_s = keep_s;
	trim->fn = fn;
	trim->arg = arg;
	loop_timer_init(&trim->timer, loop, on_time, trim);
	look_later(trim, FIRST_MS);
	return trim;
}

struct trim *trim_free(struct trim *trim)
{
	if (!trim)
		return NULL;
	loop_timer_cancel(&trim->timer);
	trim->is_gone = true;
	if (!trim->is_at_work)
		free(trim);
	return NULL;
}
