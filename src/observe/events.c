/* Events that are no part of a change: they wait in memory for the transaction before them, and all
 * that have come meanwhile go with the next. */
#include "observe/observe.h"

enum {
	MAX_WAITING = 10000, /* the store is far behind then, or gone */
};

struct row {
	struct list node;
	int64_t at_us;
	char *actor, *kind, *subject, *data;
	char *team_id, *agent_id, *task_id, *cause; /* each may be NULL */
};

struct batch {                   /* the job's, while it is written */
	struct observe_log *log; /* NULL: gone meanwhile */
	struct list rows;
};

struct observe_log {
	struct store *store;
	struct list waiting;
	size_t n_waiting, n_lost;
	struct batch *batch; /* being written; NULL: none */
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

struct observe_log *observe_log_new(struct store *store)
{
	struct observe_log *log = XNEW(struct observe_log);

	log->store = store;
	list_init(&log->waiting);
	return log;
}

static int write_rows(struct store_tx *tx, void *arg, struct err *e)
{
	const struct batch *batch = arg;
	int r = 0;

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

static struct batch *take_waiting(struct observe_log *log)
{
	struct batch *batch = XNEW(struct batch);

	batch->log = log;
	list_init(&batch->rows);
	while (!list_empty(&log->waiting)) {
		struct list *node = log->waiting.next;

		list_remove(node);
		list_append(&batch->rows, node);
	}
	log->n_waiting = 0;
	return batch;
}

static void start_batch(struct observe_log *log);

static void written(void *arg, int r, const struct err *e)
{
	struct batch *batch = arg;
	struct observe_log *log = batch->log;

	if (r < 0)
		log_error("events.lost", "err=%s", log_quote(str_of(e->msg)));
	rows_free(&batch->rows);
	free(batch);
	if (!log)
		return;
	log->batch = NULL;
	if (log->n_lost)
		log_error("events.lost", "n=%zu err=\"more events than can be written\"",
			log->n_lost);
	log->n_lost = 0;
	if (!list_empty(&log->waiting))
		start_batch(log);
}

static void start_batch(struct observe_log *log)
{
	log->batch = take_waiting(log);
	store_record(log->store, write_rows, written, log->batch);
}

struct observe_log *observe_log_free(struct observe_log *log)
{
	struct batch *rest;

	if (!log)
		return NULL;
	if (log->batch)
		log->batch->log = NULL;
	rest = take_waiting(log);
	rest->log = NULL;
	/* Behind whatever is under way: the connection is not this thread's now. */
	if (list_empty(&rest->rows))
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

void observe_event(struct observe_log *log, const struct observe_event *event)
{
	struct row *row;

	if (log->n_waiting >= MAX_WAITING) {
		if (log->n_lost++ == 0) /* and how many, once the store takes some again */
			log_error("events.lost", "err=\"more events than can be written\"");
		return;
	}
	row = XNEW(struct row);
	row->at_us = time_wall_us();
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
	log->n_waiting++;
	if (!log->batch)
		start_batch(log);
}
