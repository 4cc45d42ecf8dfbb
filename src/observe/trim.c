/* The old end of the event log. By age it is taken off from its beginning only, so what is left has
 * no holes; an event whose time is wrong holds up those behind it until its own is over. Of a team
 * that has more events than its ceiling the oldest go before their time: its readers hear of that,
 * and how far it went is stored (cursors, "forgotten:TEAM"). The newest one stays whatever its age:
 * the next number comes from it. */
#include "observe/observe-internal.h"

enum {
	TICK_MS = 1000,
	LOOK_MS = 60000, /* by age; or as long as they are kept, if that is shorter */
	AGAIN_MS = 100,  /* when more is left: others write between */
	AT_ONCE = 500,
	AT_ONCE_TEAM = 5000, /* of one team's, which are taken off by one statement */
	ROOM_SHARE = 16,     /* of a ceiling: so much below it there is when some had to go */
};

#define TRIM_CURSOR "forgotten:" /* and the team: how far its events were taken off */

struct trim {
	struct loop *loop;
	struct store *store;
	struct loop_timer timer;
	int64_t keep_s;           /* 0: for ever */
	struct limit_teams teams; /* find NULL: no ceilings */
	struct time_past past;
	int64_t look_ms;    /* when it is looked by age again */
	int64_t oldest;     /* that is left of all */
	struct map oldests; /* of struct oldest, by team: of whose own more were taken off */
	bool is_at_work, is_gone;
	int64_t total; /* since one look found nothing more */
	/* The job's: */
	char team_id[OBSERVE_TEAM_SIZE]; /* whose; empty: everybody's, by age */
	int64_t too_much;                /* bytes of the team's */
	int64_t before_us, last, n, bytes;
};

struct oldest {
	char team_id[OBSERVE_TEAM_SIZE];
	int64_t seq;
};

/* ---- by age ---- */

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

static int count_off(void *arg, const struct store_row *row, struct err *e)
{
	char team_id[OBSERVE_TEAM_SIZE];

	(void)e;
	store_copy_text(row, 0, team_id, sizeof team_id);
	store_count(arg, team_id, STORE_USE_EVENTS, -store_int(row, 1));
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
	if ((r < 0 && r != -ECANCELED) || !trim->n)
		return r == -ECANCELED ? 0 : r;
	r = store_query(tx,
		"SELECT team_id, CAST(SUM(bytes) AS BIGINT) FROM events "
		"WHERE seq <= $1 AND team_id IS NOT NULL GROUP BY team_id",
		STORE_PARAMS(P_INT(trim->last)), count_off, tx, e);
	return r < 0 ? r
		     : store_exec(tx, "DELETE FROM events WHERE seq <= $1",
			       STORE_PARAMS(P_INT(trim->last)), e);
}

/* ---- by a team's ceiling ---- */

static int add_off(void *arg, const struct store_row *row, struct err *e)
{
	struct trim *trim = arg;

	(void)e;
	if (trim->bytes >= trim->too_much)
		return -ECANCELED;
	trim->last = store_int(row, 0);
	trim->bytes += store_int(row, 1);
	trim->n++;
	return 0;
}

static int take_off_team(struct store_tx *tx, void *arg, struct err *e)
{
	struct trim *trim = arg;
	char name[OBSERVE_TEAM_SIZE + 16];
	int r;

	trim->last = trim->n = trim->bytes = 0;
	r = store_query(tx,
		"SELECT seq, bytes FROM events WHERE team_id = $1 AND "
		"seq < (SELECT MAX(seq) FROM events) ORDER BY seq LIMIT $2",
		STORE_PARAMS(P_TEXT(trim->team_id), P_INT(AT_ONCE_TEAM)), add_off, trim, e);
	if ((r < 0 && r != -ECANCELED) || !trim->n)
		return r == -ECANCELED ? 0 : r;
	store_count(tx, trim->team_id, STORE_USE_EVENTS, -trim->bytes);
	(void)snprintf(name, sizeof name, TRIM_CURSOR "%s", trim->team_id);
	r = store_exec(tx,
		"INSERT INTO cursors (name, seq) VALUES ($1, $2) "
		"ON CONFLICT (name) DO UPDATE SET seq = EXCLUDED.seq",
		STORE_PARAMS(P_TEXT(name), P_INT(trim->last)), e);
	return r < 0 ? r
		     : store_exec(tx, "DELETE FROM events WHERE team_id = $1 AND seq <= $2",
			       STORE_PARAMS(P_TEXT(trim->team_id), P_INT(trim->last)), e);
}

/* ---- what is left ---- */

static void set_oldest(struct trim *trim, struct str team_id, int64_t seq)
{
	struct oldest *oldest = map_get(&trim->oldests, team_id);

	if (!team_id.n) {
		trim->oldest = seq;
		return;
	}
	if (!oldest) {
		oldest = XNEW(struct oldest);
		(void)snprintf(oldest->team_id, sizeof oldest->team_id, "%.*s", STR_ARG(team_id));
		(void)map_put(&trim->oldests, str_of(oldest->team_id), oldest);
	}
	oldest->seq = seq;
}

int64_t trim_oldest(const struct trim *trim, struct str team_id)
{
	const struct oldest *own = team_id.n ? map_get(&trim->oldests, team_id) : NULL;

	return own ? MAX(own->seq, trim->oldest) : trim->oldest;
}

static int load_oldest(void *arg, const struct store_row *row, struct err *e)
{
	(void)e;
	set_oldest(arg, str_from(store_text(row, 0), strlen(TRIM_CURSOR)), store_int(row, 1) + 1);
	return 0;
}

static int load_oldests(struct store_tx *tx, void *arg, struct err *e)
{
	return store_query(tx, "SELECT name, seq FROM cursors WHERE name LIKE '" TRIM_CURSOR "%'",
		NULL, 0, load_oldest, arg, e);
}

/* ---- on the loop ---- */

static void destroy(struct trim *trim)
{
	struct oldest *oldest;
	size_t at = 0;

	while ((oldest = map_next(&trim->oldests, &at)))
		free(oldest);
	map_done(&trim->oldests);
	free(trim);
}

static void look_later(struct trim *trim, int64_t ms)
{
	loop_timer_set(&trim->timer, loop_now_ms(trim->loop) + ms);
}

static void taken_off(void *arg, int r, const struct err *e)
{
	struct trim *trim = arg;
	bool is_by_age = !trim->team_id[0];
	bool has_more = r >= 0 && (is_by_age ? trim->n == AT_ONCE : trim->n > 0);

	trim->is_at_work = false;
	if (trim->is_gone) {
		destroy(trim);
		return;
	}
	if (r < 0)
		log_warn("history.kept", "err=%s", log_quote(str_of(e->msg)));
	else if (trim->n)
		set_oldest(trim, str_of(trim->team_id), trim->last + 1);
	trim->total += r < 0 ? 0 : trim->n;
	if (!has_more && trim->total) {
		log_info("history.forgotten", "events=%" PRId64, trim->total);
		trim->total = 0;
	}
	if (is_by_age && !has_more)
		trim->look_ms = loop_now_ms(trim->loop) + MIN(LOOK_MS, trim->keep_s * 1000);
	look_later(trim, has_more ? AGAIN_MS : TICK_MS);
}

static void find_over(void *arg, const char *team_id, int64_t bytes)
{
	struct trim *trim = arg;
	int64_t most = limit_team_ceiling(&trim->teams, team_id, LIMIT_EVENTS) << 20;

	if (bytes <= most || trim->team_id[0])
		return;
	(void)snprintf(trim->team_id, sizeof trim->team_id, "%s", team_id);
	trim->too_much = bytes - most + most / ROOM_SHARE;
}

static void on_time(void *arg)
{
	struct trim *trim = arg;

	trim->team_id[0] = '\0';
	if (trim->teams.find)
		store_each_used(trim->store, STORE_USE_EVENTS, find_over, trim);
	if (trim->team_id[0]) {
		trim->is_at_work = true;
		store_run(trim->store, take_off_team, taken_off, trim);
		return;
	}
	trim->before_us = trim->keep_s && loop_now_ms(trim->loop) >= trim->look_ms
				  ? time_past_us(&trim->past, trim->keep_s)
				  : 0;
	if (!trim->before_us) {
		look_later(trim, TICK_MS);
		return;
	}
	trim->is_at_work = true;
	store_run(trim->store, take_off, taken_off, trim);
}

int trim_new(struct loop *loop, struct store *store, struct trim **ret, struct err *e)
{
	struct trim *trim = XNEW(struct trim);
	int r = read_number(store, "SELECT COALESCE(MIN(seq), 0) FROM events", &trim->oldest, e);

	trim->loop = loop;
	trim->store = store;
	loop_timer_init(&trim->timer, loop, on_time, trim);
	if (r >= 0)
		r = store_run_now(store, load_oldests, trim, e);
	if (r < 0)
		(void)trim_free(trim);
	else
		*ret = trim;
	return MIN(r, 0);
}

void trim_start(struct trim *trim, int64_t keep_s, const struct limit_teams *teams)
{
	trim->keep_s = keep_s;
	if (teams)
		trim->teams = *teams;
	look_later(trim, TICK_MS);
}

struct trim *trim_free(struct trim *trim)
{
	if (!trim)
		return NULL;
	loop_timer_cancel(&trim->timer);
	trim->is_gone = true;
	if (!trim->is_at_work)
		destroy(trim);
	return NULL;
}
