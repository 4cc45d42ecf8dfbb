/* Events that are no part of a change: they wait in memory for the transaction before them, and all
 * that have come meanwhile go with the next. Where the database has no room they wait for that, as
 * many as there may be; of more, the log itself says how many are missing. */
#include "observe/observe.h"

enum {
	MAX_HELD = 10000, /* the store is far behind then, or gone, or full */
	MAX_HELD_BYTES = 32 << 20,
	MAX_BATCH = 500, /* so that a little room is of use already */
	RETRY_MS = 1000, /* when there was none */
};

struct row {
	struct list node;
	int64_t at_us;
	size_t bytes;
	char *actor, *kind, *subject, *data;
	char *team_id, *agent_id, *task_id, *cause; /* each may be NULL */
};

struct batch {                   /* the job's, while it is written */
	struct observe_log *log; /* NULL: gone meanwhile */
	struct list rows;
	size_t n, n_lost; /* this many are missing before them */
};

struct observe_log {
	struct store *store;
	struct list waiting;
	size_t n_held, held_bytes; /* waiting, and being written */
	size_t n_lost;             /* that the log does not say yet */
	size_t n_alone;            /* so many of the next are written one by one */
	bool is_short;             /* of room, and people were told */
	struct batch *batch;       /* being written; NULL: none */
	struct loop_timer retry;
};

static void row_free(struct row *row)
{
	list_remove(&row->node);
	free(row->actor);
	free(row->kind);
	free(row->team_id);
	free(row->agent_id);
	free(row->task_id);
	free(row->subject);
	free(row->cause);
	free(row->data);
	free(row);
}

static void rows_free(struct list *rows)
{
	LIST_EACH(rows, node)
	row_free(container_of(node, struct row, node));
}

static void start_batch(void *arg);

struct observe_log *observe_log_new(struct loop *loop, struct store *store)
{
	struct observe_log *log = XNEW(struct observe_log);

	log->store = store;
	list_init(&log->waiting);
	loop_timer_init(&log->retry, loop, start_batch, log);
	return log;
}

/* In the place of those that are missing. */
static int write_lost(struct store_tx *tx, size_t n, struct err *e)
{
	char data[48];
	struct store_event event = { "system", "events.lost", "server", STR_NONE };
	struct store_cause cause = {
		.text = "more happened than can be kept while the database took nothing"
	};

	(void)snprintf(data, sizeof data, "{\"n\":%zu}", n);
	event.data = str_of(data);
	return store_add_caused_event(tx, &event, &cause, e);
}

static int write_rows(struct store_tx *tx, void *arg, struct err *e)
{
	const struct batch *batch = arg;
	int r = batch->n_lost ? write_lost(tx, batch->n_lost, e) : 0;

	for (struct list *node = batch->rows.next; r >= 0 && node != &batch->rows;
		node = node->next) {
		const struct row *row = container_of(node, struct row, node);
		struct store_event event = { row->actor, row->kind, row->subject,
			str_of(row->data) };
		struct store_cause cause = { .at_us = row->at_us,
			.team_id = row->team_id,
			.agent_id = row->agent_id,
			.task_id = row->task_id,
			.text = row->cause };

		r = store_add_caused_event(tx, &event, &cause, e);
	}
	return r;
}

static struct batch *take_waiting(struct observe_log *log, size_t most)
{
	struct batch *batch = XNEW(struct batch);

	batch->log = log;
	list_init(&batch->rows);
	while (!list_empty(&log->waiting) && batch->n < most) {
		struct list *node = log->waiting.next;

		list_remove(node);
		list_append(&batch->rows, node);
		batch->n++;
	}
	batch->n_lost = log->n_lost;
	log->n_lost = 0;
	return batch;
}

/* Before all that have come since. */
static void put_back(struct observe_log *log, struct batch *batch)
{
	struct list *first = log->waiting.next;

	LIST_EACH(&batch->rows, node)
	{
		list_remove(node);
		list_append(first, node);
	}
	log->n_lost += batch->n_lost;
}

static void let_go(struct observe_log *log, struct batch *batch)
{
	LIST_EACH(&batch->rows, node)
	log->held_bytes -= container_of(node, struct row, node)->bytes;
	log->n_held -= batch->n;
	log->n_alone -= MIN(log->n_alone, batch->n);
}

static void log_lost(size_t n, const struct err *e)
{
	log_error("events.lost", "n=%zu err=%s", n, log_quote(str_of(e->msg)));
}

/* No room, or too much is waiting for the database: that passes. Whatever else it has against them
 * is one row's doing; the others go without it. */
static void keep(struct observe_log *log, struct batch *batch, int r, const struct err *e)
{
	if (r == -ENOSPC || r == -EAGAIN) {
		if (!log->is_short)
			log_error("events.kept", "n=%zu err=%s", log->n_held,
				log_quote(str_of(e->msg)));
		log->is_short = true;
		put_back(log, batch);
		loop_timer_set(&log->retry, time_now_ms() + RETRY_MS);
	} else if (batch->n > 1) {
		put_back(log, batch);
		log->n_alone = batch->n;
	} else {
		log_lost(batch->n, e);
		log->n_lost += batch->n_lost + batch->n;
		let_go(log, batch);
		if (batch->n == 0)
			loop_timer_set(&log->retry, time_now_ms() + RETRY_MS);
	}
}

static void written(void *arg, int r, const struct err *e)
{
	struct batch *batch = arg;
	struct observe_log *log = batch->log;

	if (log) {
		log->batch = NULL;
		if (r < 0) {
			keep(log, batch, r, e);
		} else {
			let_go(log, batch);
			if (log->is_short)
				log_info("events.written", "n=%zu left=%zu lost=%zu", batch->n,
					log->n_held, batch->n_lost);
			log->is_short = false;
		}
	} else if (r < 0) {
		log_lost(batch->n + batch->n_lost, e);
	}
	rows_free(&batch->rows);
	free(batch);
	if (log && (log->n_held || log->n_lost) && !loop_timer_is_set(&log->retry))
		start_batch(log);
}

static void start_batch(void *arg)
{
	struct observe_log *log = arg;

	log->batch = take_waiting(log, log->n_alone ? 1 : MAX_BATCH);
	store_record(log->store, write_rows, written, log->batch);
}

struct observe_log *observe_log_free(struct observe_log *log)
{
	struct batch *rest;

	if (!log)
		return NULL;
	loop_timer_cancel(&log->retry);
	if (log->batch)
		log->batch->log = NULL;
	rest = take_waiting(log, SIZE_MAX);
	rest->log = NULL;
	/* Behind whatever is under way: the connection is not this thread's now. */
	if (list_empty(&rest->rows) && !rest->n_lost)
		free(rest);
	else
		store_record(log->store, write_rows, written, rest);
	free(log);
	return NULL;
}

static char *dup_or_null(const char *text)
{
	return text ? xstrdup(text) : NULL;
}

static size_t length(const char *text)
{
	return text ? strlen(text) : 0;
}

static size_t row_bytes(const struct observe_event *event)
{
	return sizeof(struct row) + length(event->actor) + length(event->kind) +
	       length(event->subject) + length(event->team_id) + length(event->agent_id) +
	       length(event->task_id) + length(event->cause) + event->data.n;
}

void observe_event(struct observe_log *log, const struct observe_event *event)
{
	size_t bytes = row_bytes(event);
	struct row *row;

	if (log->n_held >= MAX_HELD || log->held_bytes + bytes > MAX_HELD_BYTES) {
		if (log->n_lost++ == 0) /* and how many, once the store takes some again */
			log_error("events.lost", "err=\"more events than can be written\"");
		return;
	}
	row = XNEW(struct row);
	row->at_us = time_wall_us();
	row->bytes = bytes;
	row->actor = xstrdup(event->actor);
	row->kind = xstrdup(event->kind);
	row->subject = xstrdup(event->subject);
	row->team_id = dup_or_null(event->team_id);
	row->agent_id = dup_or_null(event->agent_id);
	row->task_id = dup_or_null(event->task_id);
	row->cause = dup_or_null(event->cause);
	row->data =
		strndup(event->data.n ? event->data.p : "{}", event->data.n ? event->data.n : 2);
	list_append(&log->waiting, &row->node);
	log->n_held++;
	log->held_bytes += bytes;
	if (!log->batch && !loop_timer_is_set(&log->retry))
		start_batch(log);
}
