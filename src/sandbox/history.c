/* Sandboxes that ended long ago are forgotten: their rows go, those of their runs, and what others
 * keep about them. So do, before their time, the oldest of a team whose rows take more than its
 * ceiling: a new sandbox is not refused because of old ones. A few at a time, so that nobody waits
 * long behind it. */
#include "sandbox/sandbox-internal.h"

enum {
	LOOK_MS = 60000, /* or as long as they are kept, if that is shorter */
	AT_ONCE = 50,
	SLACK_SHARE = 8, /* of the ceiling: so much above it nothing new is begun ... */
	ROOM_SHARE = 16, /* ... and so much below it there is when some had to go */
};

struct past {
	struct sandbox_book *book;
	sandbox_forget_fn forget;
	int64_t before_us;
	char team_id[SANDBOX_TEAM_SIZE]; /* whose rows are too many; empty: by age, everybody's */
	int64_t too_much;                /* bytes */
	struct {
		char id[SANDBOX_ID_SIZE], team_id[SANDBOX_TEAM_SIZE];
		int64_t bytes;
	} v[AT_ONCE];
	size_t n, gone;
	bool has_more;
};

static int add_one(void *arg, const struct store_row *row, struct err *e)
{
	struct past *past = arg;

	(void)e;
	store_copy_text(row, 0, past->v[past->n].id, SANDBOX_ID_SIZE);
	store_copy_text(row, 1, past->v[past->n].team_id, SANDBOX_TEAM_SIZE);
	past->v[past->n++].bytes = store_int(row, 2);
	return 0;
}

static int find_some(struct store_tx *tx, struct past *past, struct err *e)
{
	if (!past->team_id[0])
		return store_query(tx,
			"SELECT id, team_id, bytes FROM sandboxes "
			"WHERE ended_us < $1 AND state = 'ended' ORDER BY ended_us LIMIT $2",
			STORE_PARAMS(P_INT(past->before_us), P_INT(AT_ONCE)), add_one, past, e);
	return store_query(tx,
		"SELECT id, team_id, bytes FROM sandboxes "
		"WHERE team_id = $1 AND ended_us IS NOT NULL ORDER BY ended_us LIMIT $2",
		STORE_PARAMS(P_TEXT(past->team_id), P_INT(AT_ONCE)), add_one, past, e);
}

/* 1: what others keep about it is too much for one time. */
static int forget_one(struct store_tx *tx, const struct past *past, size_t i, struct err *e)
{
	const char *id = past->v[i].id;
	int r = past->forget ? past->forget(tx, id, e) : 0;

	if (r == 0)
		r = store_exec(tx, "DELETE FROM sandbox_runs WHERE sandbox_id = $1",
			STORE_PARAMS(P_TEXT(id)), e);
	else
		return r;
	if (r >= 0)
		r = store_exec(tx, "DELETE FROM sandboxes WHERE id = $1", STORE_PARAMS(P_TEXT(id)),
			e);
	store_count(tx, past->v[i].team_id, STORE_USE_HISTORY, -past->v[i].bytes);
	return MIN(r, 0);
}

static int forget_some(struct store_tx *tx, void *arg, struct err *e)
{
	struct past *past = arg;
	int64_t left = past->too_much;
	int r;

	past->n = past->gone = 0; /* of an attempt that was undone */
	r = find_some(tx, past, e);
	past->has_more = past->n == AT_ONCE;
	for (size_t i = 0; r >= 0 && i < past->n && (!past->team_id[0] || left > 0); i++) {
		r = forget_one(tx, past, i, e);
		if (r > 0) {
			past->has_more = true;
			return 0;
		}
		past->gone += r == 0;
		left -= past->v[i].bytes;
	}
	return r;
}

static void tell_gone(struct sandbox_book *book)
{
	if (book->n_forgotten)
		log_info("history.forgotten", "sandboxes=%zu", book->n_forgotten);
	book->n_forgotten = 0;
}

static void look_at_teams(struct sandbox_book *book);

static void some_forgotten(void *arg, int r, const struct err *e)
{
	struct past *past = arg;
	struct sandbox_book *book = past->book;

	if (r < 0)
		log_warn("history.kept", "err=%s", log_quote(str_of(e->msg)));
	else
		book->n_forgotten += past->gone;
	book->is_forgetting = false;
	book->questions--;
	if (r >= 0 && past->team_id[0] && (past->gone || past->has_more)) {
		history_grown(book, past->team_id);
	} else if (!past->team_id[0] && (r < 0 || !past->has_more)) {
		book->forget_ms = time_now_ms() + MIN(LOOK_MS, book->config.care.history_s * 1000);
		tell_gone(book);
	}
	if (!past->team_id[0])
		look_at_teams(book);
	free(past);
}

static void forget(struct sandbox_book *book, int64_t before_us, const char *team_id,
	int64_t too_much)
{
	struct past *past = XNEW(struct past);

	past->book = book;
	past->forget = book->forget;
	past->before_us = before_us;
	past->too_much = too_much;
	(void)snprintf(past->team_id, sizeof past->team_id, "%s", team_id);
	book->is_forgetting = true;
	book->questions++;
	store_run(book->config.store, forget_some, some_forgotten, past);
}

/* ---- a team's ceiling ---- */

static int64_t ceiling_bytes(const struct sandbox_book *book, const char *team_id)
{
	return limit_team_ceiling(&book->config.teams, team_id, LIMIT_HISTORY) << 20;
}

void history_grown(struct sandbox_book *book, const char *team_id)
{
	int64_t most = ceiling_bytes(book, team_id);
	int64_t used = store_used(book->config.store, team_id, STORE_USE_HISTORY);

	if (used > most && !book->is_forgetting && !book->is_stopping)
		forget(book, 0, team_id, used - most + most / ROOM_SHARE);
	else if (used <= most)
		tell_gone(book);
}

int history_check(const struct sandbox_book *book, const char *team_id, struct err *e)
{
	int64_t most = ceiling_bytes(book, team_id);

	if (store_used(book->config.store, team_id, STORE_USE_HISTORY) <= most + most / SLACK_SHARE)
		return 0;
	return err_set(e, -EDQUOT,
		"the limit of your team, %" PRId64
		" MiB of rows of sandboxes (history_mb), is reached by those that live: end some, "
		"or give them less metadata and fewer variables",
		most >> 20);
}

struct turn {
	struct sandbox_book *book;
	size_t n; /* teams that are over their ceilings, so far */
};

/* Of all that are over, each has its turn: one whose rows cannot go keeps nobody waiting. */
static void look_at(void *arg, const char *team_id, int64_t bytes)
{
	struct turn *turn = arg;

	if (bytes > ceiling_bytes(turn->book, team_id) && turn->n++ == turn->book->forget_turn)
		history_grown(turn->book, team_id);
}

static void look_at_teams(struct sandbox_book *book)
{
	struct turn turn = { .book = book };

	store_each_used(book->config.store, STORE_USE_HISTORY, look_at, &turn);
	book->forget_turn = turn.n > book->forget_turn ? book->forget_turn + 1 : 0;
}

void history_step(struct sandbox_book *book)
{
	int64_t keep_s = book->config.care.history_s, before_us = 0;

	if (book->is_forgetting)
		return;
	if (keep_s && time_now_ms() >= book->forget_ms)
		before_us = time_past_us(&book->past, keep_s);
	if (before_us)
		forget(book, before_us, "", 0);
	else
		look_at_teams(book);
}

void sandbox_on_forget(struct sandbox_book *book, sandbox_forget_fn fn)
{
	book->forget = fn;
}
