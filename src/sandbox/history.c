/* Sandboxes that ended long ago are forgotten: their rows go, those of their runs, and what others
 * keep about them. A few at a time, so that nobody waits long behind it. */
#include "sandbox/sandbox-internal.h"

enum {
	LOOK_MS = 60000, /* or as long as they are kept, if that is shorter */
	AT_ONCE = 50,
};

struct past {
	struct sandbox_book *book;
	sandbox_forget_fn forget;
	int64_t before_us;
	char ids[AT_ONCE][SANDBOX_ID_SIZE];
	size_t n, gone;
	bool has_more;
};

static int add_id(void *arg, const struct store_row *row, struct err *e)
{
	struct past *past = arg;

	(void)e;
	store_copy_text(row, 0, past->ids[past->n++], SANDBOX_ID_SIZE);
	return 0;
}

/* 1: what others keep about it is too much for one time. */
static int forget_one(struct store_tx *tx, const struct past *past, const char *id, struct err *e)
{
	int r = past->forget ? past->forget(tx, id, e) : 0;

	if (r == 0)
		r = store_exec(tx, "DELETE FROM sandbox_runs WHERE sandbox_id = $1",
			STORE_PARAMS(P_TEXT(id)), e);
	else
		return r;
	if (r >= 0)
		r = store_exec(tx, "DELETE FROM sandboxes WHERE id = $1", STORE_PARAMS(P_TEXT(id)),
			e);
	return MIN(r, 0);
}

static int forget_some(struct store_tx *tx, void *arg, struct err *e)
{
	struct past *past = arg;
	int r;

	past->n = past->gone = 0; /* of an attempt that was undone */
	r = store_query(tx,
		"SELECT id FROM sandboxes WHERE ended_us < $1 AND state = 'ended' "
		"ORDER BY ended_us LIMIT $2",
		STORE_PARAMS(P_INT(past->before_us), P_INT(AT_ONCE)), add_id, past, e);
	past->has_more = past->n == AT_ONCE;
	for (size_t i = 0; r >= 0 && i < past->n; i++) {
		r = forget_one(tx, past, past->ids[i], e);
		if (r > 0) {
			past->has_more = true;
			return 0;
		}
		past->gone += r == 0;
	}
	return r;
}

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
	if (r < 0 || !past->has_more) {
		book->forget_ms = time_now_ms() + MIN(LOOK_MS, book->config.care.history_s * 1000);
		if (book->n_forgotten)
			log_info("history.forgotten", "sandboxes=%zu", book->n_forgotten);
		book->n_forgotten = 0;
	}
	free(past);
}

void history_step(struct sandbox_book *book)
{
	int64_t keep_s = book->config.care.history_s, before_us;
	struct past *past;

	if (!keep_s || book->is_forgetting || time_now_ms() < book->forget_ms)
		return;
	before_us = time_past_us(&book->past, keep_s);
	if (!before_us)
		return;
	past = XNEW(struct past);
	past->book = book;
	past->forget = book->forget;
	past->before_us = before_us;
	book->is_forgetting = true;
	book->questions++;
	store_run(book->config.store, forget_some, some_forgotten, past);
}

void sandbox_on_forget(struct sandbox_book *book, sandbox_forget_fn fn)
{
	book->forget = fn;
}
