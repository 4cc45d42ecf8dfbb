/* A sandbox's log is its part of the event log, and outlives it. */
#include "sandbox/sandbox-internal.h"

struct line {
	struct sandbox_log_line view;
	char *actor, *kind, *data, *cause;
	struct list node;
};

struct log_job {
	char team_id[SANDBOX_TEAM_SIZE], agent_id[SANDBOX_OWNER_SIZE], id[SANDBOX_ID_SIZE];
	struct sandbox_log_query query;
	char *search;
	int64_t left, skip;
	struct list lines;
	void (*fn)(void *arg, const struct sandbox_log_line *line);
	done_fn done;
	void *arg;
};

static bool is_wanted(const struct log_job *job, const struct store_row *row)
{
	struct str kind = store_text(row, 3), data = store_text(row, 4);

	return !job->search || strstr(kind.p ? kind.p : "", job->search) ||
	       strstr(data.p ? data.p : "", job->search);
}

/* -ECANCELED: there are enough. */
static int read_row(void *arg, const struct store_row *row, struct err *e)
{
	struct log_job *job = arg;
	struct line *line;

	(void)e;
	if (!is_wanted(job, row) || job->skip-- > 0)
		return 0;
	if (job->left-- == 0)
		return -ECANCELED;
	line = XNEW(struct line);
	line->view.seq = store_int(row, 0);
	line->view.at_us = store_int(row, 1);
	line->actor = store_dup_text(row, 2);
	line->kind = store_dup_text(row, 3);
	line->data = store_dup_text(row, 4);
	line->cause = store_dup_text(row, 5);
	line->view.actor = str_of(line->actor);
	line->view.kind = str_of(line->kind);
	line->view.data = str_of(line->data);
	line->view.cause = str_of(line->cause);
	list_append(&job->lines, &line->node);
	return 0;
}

static int note_known(void *arg, const struct store_row *row, struct err *e)
{
	(void)row;
	(void)e;
	*(bool *)arg = true;
	return 0;
}

/* How long its making and its removal took is for those who watch the server: to its owner they
 * are one with its being created and its end. */
#define NO_MEASURES "AND kind <> 'sandbox.started' AND kind <> 'sandbox.removed'"

static int read_log(struct store_tx *tx, void *arg, struct err *e)
{
	static const char oldest_first[] =
		"SELECT seq, at_us, actor, kind, data, cause FROM events "
		"WHERE subject = $1 AND at_us >= $2 AND at_us <= $3 " NO_MEASURES " ORDER BY seq";
	static const char newest_first[] =
		"SELECT seq, at_us, actor, kind, data, cause FROM events "
		"WHERE subject = $1 AND at_us >= $2 AND at_us <= $3 " NO_MEASURES
		" ORDER BY seq DESC";
	struct log_job *job = arg;
	bool is_known = false;
	int r = store_query(tx,
		"SELECT 1 FROM sandboxes WHERE id = $1 AND ($2 = '' OR team_id = $2) "
		"AND ($3 = '' OR agent_id = $3)",
		STORE_PARAMS(P_TEXT(job->id), P_TEXT(job->team_id), P_TEXT(job->agent_id)),
		note_known, &is_known, e);

	if (r >= 0 && !is_known)
		return err_set(e, -ENOENT,
			"Sandbox \"%s\" doesn't exist or you don't have access to it", job->id);
	if (r >= 0)
		r = store_query(tx, job->query.newest_first ? newest_first : oldest_first,
			STORE_PARAMS(P_TEXT(job->id), P_INT(job->query.from_us),
				P_INT(job->query.to_us)),
			read_row, job, e);
	return r == -ECANCELED ? 0 : r;
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
		free(line->cause);
		free(line);
	}
	job->done(job->arg, MIN(r, 0), e);
	free(job->search);
	free(job);
}

void sandbox_read_log(struct sandbox_book *book, const struct sandbox_owner *who, struct str id,
	const struct sandbox_log_query *query,
	void (*fn)(void *arg, const struct sandbox_log_line *line), done_fn done, void *arg)
{
	struct log_job *job = XNEW(struct log_job);

	assert(!who || who->team_id[0]); /* an empty one would be anybody's */
	(void)snprintf(job->team_id, sizeof job->team_id, "%s", who ? who->team_id : "");
	(void)snprintf(job->agent_id, sizeof job->agent_id, "%s",
		who && who->agent_id ? who->agent_id : "");
	(void)snprintf(job->id, sizeof job->id, "%.*s", STR_ARG(id));
	if (id.n >= sizeof job->id)
		job->id[0] = '\0'; /* no sandbox is called so, and none may match a part of it */
	job->query = *query;
	job->search = query->search.n ? xstrdup(query->search.p) : NULL;
	job->left = query->limit;
	job->skip = query->skip;
	list_init(&job->lines);
	job->fn = fn;
	job->done = done;
	job->arg = arg;
	store_read(book->config.store, read_log, log_read, job);
}
