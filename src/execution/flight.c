/* What is under way for the book: it may be freed only when nothing is. */
#include "execution/execution-internal.h"

enum {
	SETTLE_MS = 3000,
};

struct flight {
	struct execution_book *book;
	store_work_fn work;
	done_fn done;
	void *arg;
};

void flight_begin(struct execution_book *book)
{
	book->in_flight++;
}

static void tell_settled(void *arg)
{
	struct execution_book *book = arg;
	done_fn done = TAKE(book->settled);
	struct err e = { 0 };
	int r = 0;

	loop_timer_cancel(&book->patience);
	loop_task_cancel(&book->settling);
	if (book->in_flight)
		r = err_set(&e, -ETIMEDOUT, "%zu things are under way with commands",
			book->in_flight);
	if (done)
		done(book->settled_arg, r, &e);
}

void flight_end(struct execution_book *book)
{
	assert(book->in_flight > 0);
	if (--book->in_flight == 0 && book->settled)
		loop_defer(book->config.loop, &book->settling, tell_settled, book);
}

void execution_settle(struct execution_book *book, done_fn done, void *arg)
{
	book->settled = done;
	book->settled_arg = arg;
	loop_timer_init(&book->patience, book->config.loop, tell_settled, book);
	if (book->in_flight)
		loop_timer_set(&book->patience, time_now_ms() + SETTLE_MS);
	else
		loop_defer(book->config.loop, &book->settling, tell_settled, book);
}

static int fly(struct store_tx *tx, void *arg, struct err *e)
{
	const struct flight *f = arg;

	return f->work(tx, f->arg, e);
}

static void landed(void *arg, int r, const struct err *e)
{
	struct flight *f = arg;

	f->done(f->arg, r, e);
	flight_end(f->book);
	free(f);
}

static struct flight *take_off(struct execution_book *book, store_work_fn work, done_fn done,
	void *arg)
{
	struct flight *f = XNEW(struct flight);

	flight_begin(book);
	*f = (struct flight){ book, work, done, arg };
	return f;
}

void flight_run(struct execution_book *book, const char *team_id, store_work_fn work, done_fn done,
	void *arg)
{
	store_run_for(book->config.store, team_id, fly, landed, take_off(book, work, done, arg));
}

void flight_record(struct execution_book *book, const char *team_id, store_work_fn work,
	done_fn done, void *arg)
{
	store_record_for(book->config.store, team_id, fly, landed, take_off(book, work, done, arg));
}

void flight_read(struct execution_book *book, store_work_fn work, done_fn done, void *arg)
{
	store_read(book->config.store, fly, landed, take_off(book, work, done, arg));
}
