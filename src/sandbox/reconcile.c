/* At start the store says what should be and the kernel what is. Here they are made to agree, and
 * only then does the server answer. */
#include "sandbox/sandbox-internal.h"

struct reconcile {
	struct sandbox_book *book;
	struct join *join;
	int adopted, lost, strays;
	done_fn done;
	void *arg;
};

static void all_settled(void *arg, int r, const struct err *e)
{
	struct reconcile *rec = arg;

	if (r >= 0)
		log_info("reconciled", "adopted=%d lost=%d strays=%d", rec->adopted, rec->lost,
			rec->strays);
	rec->done(rec->arg, r, e);
	free(rec);
}

static void settled(void *arg, int r, const struct err *e)
{
	if (r < 0 && r != -ENOENT)
		log_warn("reconcile.left_over", "err=%s", log_quote(str_of(e->msg)));
	join_one(arg, 0,
		e); /* one that cannot be ended must not keep the others from being served */
}

static void seen(void *arg, const char *id)
{
	struct reconcile *rec = arg;
	struct live *live = live_find(rec->book, NULL, str_of(id));

	if (live) {
		live->is_alive = true;
		return;
	}
	rec->strays++; /* made for a request that was never answered, or ended in the row only */
	rec->join->waiting++;
	runtime_destroy(rec->book->config.runtime, id, settled, rec->join);
}

static void listed(void *arg, int r, const struct err *e)
{
	struct reconcile *rec = arg;
	struct live *live;
	size_t at = 0;

	while (r >= 0 && (live = map_next(&rec->book->by_id, &at))) {
		if (live->view.state != SANDBOX_RUNNING)
			continue;
		if (live->is_alive) {
			rec->adopted++;
			live_arm(live);
			continue;
		}
		rec->lost++;
		rec->join->waiting++;
		live_end(live, SANDBOX_END_INFRASTRUCTURE, "system",
			"it was gone when the server started (host restarted, or ended meanwhile)",
			settled, rec->join);
	}
	join_one(rec->join, r, e);
}

static void loaded(void *arg, int r, const struct err *e)
{
	struct reconcile *rec = arg;

	if (r < 0)
		join_one(rec->join, r, e);
	else
		runtime_list(rec->book->config.runtime, seen, listed, rec);
}

void sandbox_reconcile(struct sandbox_book *book, done_fn done, void *arg)
{
	struct reconcile *rec = XNEW(struct reconcile);

	rec->book = book;
	rec->done = done;
	rec->arg = arg;
	rec->join = join_new(1, all_settled, rec);
	rows_load(book, loaded, rec);
}
