/* A sandbox's log is its part of the event log. */
#include "sandbox/sandbox-internal.h"

struct line {
	struct sandbox_log_line view;
	char *actor, *kind, *data;
	struct list node;
};

struct log_job {
	char id[SANDBOX_ID_SIZE];
	int64_t from_us, limit;
	struct list lines;
	void (*fn)(void *arg, const struct sandbox_log_line *line);
	done_fn done;
	void *arg;
};

static char *dup_column(const struct store_row *row, int column)
{
	struct str text = store_text(row, column);

	return xstrdup(text.p ? text.p : "");
}

static int read_row(void *arg, const struct store_row *row, struct err *e)
{
	struct log_job *job = arg;
	struct line *line = XNEW(struct line);

	(void)e;
	line->view.seq = store_int(row, 0);
	line->view.at_us = store_int(row, 1);
	line->actor = dup_column(row, 2);
	line->kind = dup_column(row, 3);
	line->data = dup_column(row, 4);
	line->view.actor = str_of(line->actor);
	line->view.kind = str_of(line->kind);
	line->view.data = str_of(line->data);
	list_append(&job->lines, &line->node);
	return 0;
}

static int read_log(struct store_tx *tx, void *arg, struct err *e)
{
	struct log_job *job = arg;

	return store_query(tx,
		"SELECT seq, at_us, actor, kind, data FROM events WHERE subject = $1 AND at_us >= "
		"$2 "
		"ORDER BY seq LIMIT $3",
		STORE_PARAMS(P_TEXT(job->id), P_INT(job->from_us), P_INT(job->limit)), read_row,
		job, e);
}

static void log_read(void *arg, int r, const struct err *e)
{
	struct log_job *job = arg;

	LIST_EACH(&job->lines, node)
	{
		struct line *line = container_of(node, struct line, node);

		if (r >= 0)
			job->fn(job->arg, &line->view);
		free(line->actor);
		free(line->kind);
		free(line->data);
		free(line);
	}
	job->done(job->arg, r, e);
	free(job);
}

void sandbox_read_log(struct sandbox_book *book, const char *id, int64_t from_us, int64_t limit,
	void (*fn)(void *arg, const struct sandbox_log_line *line), done_fn done, void *arg)
{
	struct log_job *job = XNEW(struct log_job);

	(void)snprintf(job->id, sizeof job->id, "%s", id);
	job->from_us = from_us;
	job->limit = limit;
	list_init(&job->lines);
	job->fn = fn;
	job->done = done;
	job->arg = arg;
	store_run(book->config.store, read_log, log_read, job);
}
