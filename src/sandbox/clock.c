/* The wall clock, which somebody may set. Deadlines are shown and stored by it, and waited for by
 * the monotonic one: a sandbox keeps the time it had left, whatever the host's clock does. */
#include "sandbox/sandbox-internal.h"

enum {
	JUMP_US = 1000 * 1000, /* less is drift, or a clock that is being brought back slowly */
};

struct shift {
	char team_id[SANDBOX_TEAM_SIZE];
	int64_t by_us;
};

static int shift_rows(struct store_tx *tx, void *arg, struct err *e)
{
	const struct shift *shift = arg;

	return store_exec(tx,
		"UPDATE sandboxes SET end_us = end_us + $1 WHERE state = 'running' AND team_id = "
		"$2",
		STORE_PARAMS(P_INT(shift->by_us), P_TEXT(shift->team_id)), e);
}

static void shifted(void *arg, int r, const struct err *e)
{
	if (r < 0)
		log_warn("clock.unwritten", "err=%s", log_quote(str_of(e->msg)));
	free(arg);
}

static void tell(struct sandbox_book *book, int64_t by_us)
{
	CLEANUP(buf_done) struct buf data = BUF_INIT(256);
	char cause[160];
	struct jsonw w;

	(void)snprintf(cause, sizeof cause,
		"the host's clock was set %s by %" PRId64
		" ms; sandboxes keep the time that they had left",
		by_us > 0 ? "forward" : "back", (by_us > 0 ? by_us : -by_us) / 1000);
	jsonw_init(&w, &data);
	jsonw_object(&w, NULL);
	jsonw_int(&w, "by_ms", by_us / 1000);
	jsonw_strz(&w, "origin", "infrastructure");
	jsonw_end_object(&w);
	log_warn("clock.set", "by_ms=%" PRId64 " sandboxes=%zu", by_us / 1000, book->by_id.n);
	observe_event(book->config.events, &(struct observe_event){ .actor = "system",
						   .kind = "server.clock_set",
						   .subject = "server",
						   .cause = cause,
						   .data = buf_str(&data) });
}

/* What a team asked of the store before is older, and is moved along with the rest. */
static void shift_team(struct sandbox_book *book, const char *team_id, int64_t by_us)
{
	struct shift *shift = XNEW(struct shift);

	(void)snprintf(shift->team_id, sizeof shift->team_id, "%s", team_id);
	shift->by_us = by_us;
	store_record_for(book->config.store, shift->team_id, shift_rows, shifted, shift);
}

static void jump(struct sandbox_book *book, int64_t by_us)
{
	struct map teams = { 0 };
	struct live *live;
	size_t at = 0;

	while ((live = map_next(&book->by_id, &at))) {
		struct str team = str_of(live->view.team_id);

		if (live->view.state != SANDBOX_PAUSED && live->view.state != SANDBOX_ENDING)
			live->view.end_us += by_us;
		if (!map_get(&teams, team)) {
			(void)map_put(&teams, team, live);
			shift_team(book, live->view.team_id, by_us);
		}
	}
	map_done(&teams);
	tell(book, by_us);
}

int64_t book_wall_us(struct sandbox_book *book)
{
	int64_t wall_us = time_wall_us(), offset_us = wall_us - time_now_us();
	int64_t ahead_us = offset_us - book->wall_offset_us;
	bool is_first = book->wall_offset_us == 0;

	book->wall_offset_us = offset_us;
	if (!is_first && (ahead_us >= JUMP_US || ahead_us <= -JUMP_US))
		jump(book, ahead_us);
	return wall_us;
}
