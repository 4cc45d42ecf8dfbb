/* A command in a sandbox of its own. Each step leads to the next or, when it fails, to the end,
 * where the sandbox is ended whatever happened; the run's row says that it is still to be done
 * until it is done, so that the next server finishes what this one could not. A client that leaves
 * only ends the sandbox early: the steps then fail one after the other. */
#include "execution/collect.h"

enum {
	MAX_ARTIFACTS = 100,
	TOTAL_TIMES = 4, /* so many times the largest artifact, all together */
	ARENA_BYTES = 8 << 20,
	MISSING_BYTES = 4 << 10,
};

struct execution_run {
	struct list node;
	struct execution_book *book;
	struct arena *arena;
	char team_id[SANDBOX_TEAM_SIZE], actor[ACTOR_SIZE], user[EXECUTION_NAME_SIZE];
	char agent_id[EXECUTION_NAME_SIZE], task_id[EXECUTION_NAME_SIZE];
	struct execution_run_result result;
	struct execution_result outcome;
	struct execution view;
	struct buf command, cwd, out, err, missing;
	struct execution_wait *wait;
	struct execution_follower *follower;
	struct json_strs asked; /* paths and patterns */
	struct str paths[MAX_ARTIFACTS];
	size_t n_paths, at;
	struct execution_artifact artifacts[MAX_ARTIFACTS];
	int64_t collected_bytes;
	size_t limit_bytes;
	bool is_left;
	struct err e; /* why it failed; code 0: it did not */
	const struct execution_run_ops *ops;
	void *arg;
};

static void run_free(struct execution_run *run)
{
	flight_end(run->book);
	list_remove(&run->node);
	buf_done(&run->command);
	buf_done(&run->cwd);
	buf_done(&run->out);
	buf_done(&run->err);
	buf_done(&run->missing);
	run->arena = arena_free(run->arena);
	free(run);
}

/* ---- rows ---- */

struct run_job {
	char id[UUID_SIZE], team_id[SANDBOX_TEAM_SIZE], actor[ACTOR_SIZE];
	char agent_id[EXECUTION_NAME_SIZE], task_id[EXECUTION_NAME_SIZE];
	char sandbox_id[SANDBOX_ID_SIZE], why[252];
	const struct execution_artifact *artifacts; /* the run's, which waits */
	size_t n_artifacts;
	done_fn done;
	void *arg;
};

static struct run_job *run_job_new(const struct execution_run *run, done_fn done, void *arg)
{
	struct run_job *job = XNEW(struct run_job);

	memcpy(job->id, run->result.id, sizeof job->id);
	memcpy(job->team_id, run->team_id, sizeof job->team_id);
	memcpy(job->actor, run->actor, sizeof job->actor);
	memcpy(job->agent_id, run->agent_id, sizeof job->agent_id);
	memcpy(job->task_id, run->task_id, sizeof job->task_id);
	memcpy(job->sandbox_id, run->result.sandbox_id, sizeof job->sandbox_id);
	if (run->e.code < 0)
		(void)snprintf(job->why, sizeof job->why, "%s", run->e.msg);
	else if (run->is_left)
		(void)snprintf(job->why, sizeof job->why, "its client left");
	job->done = done;
	job->arg = arg;
	return job;
}

static void run_job_done(void *arg, int r, const struct err *e)
{
	struct run_job *job = arg;

	if (job->done)
		job->done(job->arg, MIN(r, 0), e);
	else if (r < 0)
		log_error("run.row_failed", "run=%s err=%s", job->id, log_quote(str_of(e->msg)));
	free(job);
}

static struct store_param text_or_null(const char *text)
{
	return text && text[0] ? P_TEXT(text) : P_NULL;
}

static int add_event(struct store_tx *tx, const struct run_job *job, const char *kind,
	struct err *e)
{
	char data[128];
	struct store_event event = { job->actor, kind, job->sandbox_id, STR_NONE };
	struct store_cause cause = { .team_id = job->team_id,
		.agent_id = job->agent_id,
		.task_id = job->task_id,
		.text = job->why[0] ? job->why : NULL };

	(void)snprintf(data, sizeof data, "{\"run\":\"%s\",\"artifacts\":%zu}", job->id,
		job->n_artifacts);
	event.data = str_of(data);
	return store_add_caused_event(tx, &event, &cause, e);
}

static int insert_run(struct store_tx *tx, void *arg, struct err *e)
{
	const struct run_job *job = arg;
	int r = store_exec(tx,
		"INSERT INTO runs (id, team_id, agent_id, task_id, actor, sandbox_id, started_us) "
		"VALUES ($1, $2, $3, $4, $5, $6, $7)",
		STORE_PARAMS(P_TEXT(job->id), P_TEXT(job->team_id), text_or_null(job->agent_id),
			text_or_null(job->task_id), P_STR(actor_id(job->actor)),
			P_TEXT(job->sandbox_id), P_INT(time_wall_us())),
		e);

	store_count(tx, job->team_id, STORE_USE_COMMANDS, KEPT_RUN_BYTES);
	return r < 0 ? r : add_event(tx, job, "run.started", e);
}

static int end_run(struct store_tx *tx, void *arg, struct err *e)
{
	const struct run_job *job = arg;
	int r = store_exec(tx,
		"UPDATE runs SET ended_us = $1, ended_why = $2 WHERE id = $3 AND ended_us IS NULL",
		STORE_PARAMS(P_INT(time_wall_us()), text_or_null(job->why), P_TEXT(job->id)), e);

	return r <= 0 ? r : add_event(tx, job, "run.ended", e);
}

static int insert_artifacts(struct store_tx *tx, void *arg, struct err *e)
{
	const struct run_job *job = arg;
	int r = 0;

	assert(job->artifacts);
	for (size_t i = 0; r >= 0 && i < job->n_artifacts; i++) {
		const struct execution_artifact *a = &job->artifacts[i];

		r = store_exec(tx,
			"INSERT INTO artifacts (id, team_id, agent_id, task_id, sandbox_id, path, "
			"bytes, sha256, created_us, expires_us) "
			"VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
			STORE_PARAMS(P_TEXT(a->id), P_TEXT(job->team_id), text_or_null(a->agent_id),
				text_or_null(a->task_id), P_TEXT(a->sandbox_id), P_STR(a->path),
				P_INT(a->bytes), P_TEXT(a->sha256), P_INT(a->created_us),
				P_INT(a->expires_us)),
			e);
	}
	return r;
}

/* ---- the end ---- */

static void row_ended(void *arg, int r, const struct err *e)
{
	struct execution_run *run = arg;

	if (r < 0)
		log_error("run.row_failed", "run=%s err=%s", run->result.id,
			log_quote(str_of(e->msg)));
	CRASH_POINT("run.ended");
	if (!run->is_left)
		run->ops->end(run->arg, run->e.code, run->e.code < 0 ? NULL : &run->result,
			&run->e);
	run_free(run);
}

static void destroyed(void *arg, int r, const struct err *e)
{
	struct execution_run *run = arg;
	struct run_job *job;

	if (r < 0 && r != -ENOENT)
		log_error("run.destroy_failed", "run=%s sandbox=%s err=%s", run->result.id,
			run->result.sandbox_id, log_quote(str_of(e->msg)));
	job = run_job_new(run, row_ended, run);
	job->n_artifacts = run->result.n_artifacts;
	flight_record(run->book, run->team_id, end_run, run_job_done, job);
}

static void destroy(struct execution_run *run)
{
	CRASH_POINT("run.destroy");
	sandbox_kill(run->book->config.sandboxes, NULL, str_of(run->result.sandbox_id), run->actor,
		destroyed, run);
}

/* ---- what it made ---- */

static void note_missing(struct execution_run *run, struct str path, const char *why)
{
	(void)buf_printf(&run->missing, "%s%.*s: %s", run->missing.n ? "; " : "",
		(int)MIN(path.n, (size_t)200), path.p, why);
}

static void artifacts_written(void *arg, int r, const struct err *e)
{
	struct execution_run *run = arg;

	if (r < 0) {
		run->e = *e;
		for (size_t i = 0; i < run->result.n_artifacts; i++)
			collect_undo(run->book, run->team_id, run->artifacts[i].id,
				run->artifacts[i].bytes + KEPT_FILE_BYTES);
		run->result.n_artifacts = 0;
	}
	run->result.artifacts = run->artifacts;
	run->result.artifacts_missing = run->missing.n ? run->missing.p : NULL;
	destroy(run);
}

static void artifacts_synced(void *arg, int r, const struct err *e)
{
	struct execution_run *run = arg;
	struct run_job *job;

	CRASH_POINT("run.synced");
	if (r < 0) {
		artifacts_written(run, r, e);
		return;
	}
	job = run_job_new(run, artifacts_written, run);
	job->artifacts = run->artifacts;
	job->n_artifacts = run->result.n_artifacts;
	flight_run(run->book, run->team_id, insert_artifacts, run_job_done, job);
}

static int sync_names(void *arg, struct err *e)
{
	const struct execution_run *run = arg;

	return collect_sync_names(run->book, e);
}

/* Their files were written out one by one; a row promises that they stay, whatever happens. */
static void write_artifacts(struct execution_run *run)
{
	if (run->result.n_artifacts)
		loop_job(run->book->config.loop, LOOP_ANY, sync_names, artifacts_synced, run);
	else
		artifacts_written(run, 0, NULL);
}

static void collect_next(struct execution_run *run);

static void collected(void *arg, int r, const struct collected *file, const struct err *e)
{
	struct execution_run *run = arg;
	struct execution_artifact *a = &run->artifacts[run->result.n_artifacts];
	struct str path = run->paths[run->at++];

	if (r < 0) {
		note_missing(run, path, e->msg);
	} else {
		*a = (struct execution_artifact){ .path = path,
			.bytes = file->bytes,
			.created_us = time_wall_us() };
		a->expires_us = a->created_us + run->book->config.retention_s * 1000000;
		memcpy(a->id, file->id, sizeof a->id);
		memcpy(a->sha256, file->sha256, sizeof a->sha256);
		memcpy(a->sandbox_id, run->result.sandbox_id, sizeof a->sandbox_id);
		memcpy(a->agent_id, run->agent_id, sizeof a->agent_id);
		memcpy(a->task_id, run->task_id, sizeof a->task_id);
		run->collected_bytes += file->bytes;
		run->result.n_artifacts++;
	}
	collect_next(run);
}

static void collect_next(struct execution_run *run)
{
	int64_t one = run->book->config.artifact_bytes;
	int64_t left = TOTAL_TIMES * one - run->collected_bytes;

	if (run->at == run->n_paths || run->is_left)
		write_artifacts(run);
	else
		collect_file(run->book,
			&(struct collect_from){ run->team_id, run->result.sandbox_id, run->user },
			run->paths[run->at], MIN(one, left), collected, run);
}

static void add_path(void *arg, struct str path)
{
	struct execution_run *run = arg;
	char *copy = arena_dup(run->arena, path);

	if (run->n_paths == MAX_ARTIFACTS || !copy)
		note_missing(run, path, "there are more files than one run may leave");
	else
		run->paths[run->n_paths++] = str_make(copy, path.n);
}

static void list_next(struct execution_run *run);

static void listed(void *arg, int r, const struct err *e)
{
	struct execution_run *run = arg;

	if (r < 0)
		note_missing(run, run->asked.v[run->at], e->msg);
	run->at++;
	list_next(run);
}

/* Patterns become paths; then each path a file. */
static void list_next(struct execution_run *run)
{
	while (run->at < run->asked.n && !run->is_left) {
		struct str asked = run->asked.v[run->at];

		if (collect_is_pattern(asked)) {
			collect_list(run->book,
				&(struct collect_from){ run->team_id, run->result.sandbox_id,
					run->user },
				asked, add_path, listed, run);
			return;
		}
		add_path(run, asked);
		run->at++;
	}
	run->at = 0;
	collect_next(run);
}

/* ---- the command ---- */

static void keep_view(struct execution_run *run, const struct execution *ex)
{
	run->view = *ex;
	(void)buf_add_str(&run->command, ex->command);
	(void)buf_add_str(&run->cwd, ex->cwd);
	run->view.command = buf_str(&run->command);
	run->view.cwd = buf_str(&run->cwd);
	run->outcome.execution = &run->view;
	run->result.result = &run->outcome;
}

static void command_over(struct execution_run *run, int r, const struct err *e)
{
	if (r < 0) {
		run->e = *e;
		destroy(run);
	} else if (run->view.ended_by == EXECUTION_END_SANDBOX) {
		for (size_t i = 0; i < run->asked.n; i++)
			note_missing(run, run->asked.v[i], "the sandbox had ended");
		artifacts_written(run, 0, NULL);
	} else {
		list_next(run);
	}
}

static void waited(void *arg, int r, const struct execution_result *result, const struct err *e)
{
	struct execution_run *run = arg;

	run->wait = NULL;
	if (r >= 0) {
		(void)buf_add_str(&run->out, result->out);
		(void)buf_add_str(&run->err, result->err);
		run->outcome = *result;
		run->outcome.out = buf_str(&run->out);
		run->outcome.err = buf_str(&run->err);
		keep_view(run, result->execution);
	}
	command_over(run, r, e);
}

static bool on_chunk(void *arg, const struct execution_chunk *chunk)
{
	struct execution_run *run = arg;

	return run->is_left || run->ops->chunk(run->arg, chunk);
}

static void followed(void *arg, int r, const struct execution *ex, const struct err *e)
{
	struct execution_run *run = arg;

	run->follower = NULL;
	if (r >= 0)
		keep_view(run, ex);
	command_over(run, r, e);
}

static const struct execution_follow_ops follow_ops = { on_chunk, followed };

static void started(void *arg, int r, const struct execution *ex, const struct err *e)
{
	struct execution_run *run = arg;
	struct execution_ref ref = { NULL, str_of(run->result.sandbox_id), 0 };

	if (r < 0) {
		command_over(run, r, e);
		return;
	}
	ref.n = ex->n;
	if (run->ops->started && !run->is_left)
		run->ops->started(run->arg, ex);
	if (run->ops->chunk)
		run->follower = execution_follow(run->book, &ref, 1, &follow_ops, run);
	else
		run->wait = execution_wait(run->book, &ref, run->limit_bytes, waited, run);
}

void execution_run_resume(struct execution_run *run)
{
	if (run->follower)
		execution_follow_resume(run->follower);
}

static void killed(void *arg, int r, const struct err *e)
{
	(void)arg; /* the run's own end looks after it again */
	(void)r;
	(void)e;
}

void execution_run_leave(struct execution_run *run)
{
	run->is_left = true;
	execution_run_resume(run);
	sandbox_kill(run->book->config.sandboxes, NULL, str_of(run->result.sandbox_id), run->actor,
		killed, NULL);
}

struct execution_run *execution_run(struct execution_book *book,
	const struct execution_run_spec *spec, const struct execution_run_ops *ops, void *arg)
{
	struct execution_run *run = XNEW(struct execution_run);
	const struct sandbox *sb = sandbox_find_any(book->config.sandboxes, spec->command.who,
		spec->command.sandbox_id);

	run->book = book;
	run->ops = ops;
	run->arg = arg;
	run->arena = arena_new(ARENA_BYTES);
	run->limit_bytes = spec->limit_bytes;
	run->command = run->cwd = BUF_INIT(COMMAND_MAX_BYTES);
	run->out = run->err = BUF_INIT(spec->limit_bytes);
	run->missing = BUF_INIT(MISSING_BYTES);
	list_append(&book->runs, &run->node);
	flight_begin(book);
	(void)snprintf(run->result.id, sizeof run->result.id, "%s", spec->id);
	(void)snprintf(run->result.sandbox_id, sizeof run->result.sandbox_id, "%.*s",
		STR_ARG(spec->command.sandbox_id));
	(void)snprintf(run->actor, sizeof run->actor, "%s", spec->command.actor);
	(void)snprintf(run->user, sizeof run->user, "%.*s", STR_ARG(spec->command.user));
	if (sb) {
		(void)snprintf(run->team_id, sizeof run->team_id, "%s", sb->team_id);
		(void)snprintf(run->agent_id, sizeof run->agent_id, "%s", sb->agent_id);
		(void)snprintf(run->task_id, sizeof run->task_id, "%s", sb->task_id);
		flight_run(book, run->team_id, insert_run, run_job_done,
			run_job_new(run, NULL, NULL));
	}
	run->asked.v = arena_alloc(run->arena, (spec->artifacts.n + 1) * sizeof(struct str));
	for (size_t i = 0; run->asked.v && i < spec->artifacts.n; i++) {
		char *copy = arena_dup(run->arena, spec->artifacts.v[i]);

		if (copy)
			run->asked.v[run->asked.n++] = str_make(copy, spec->artifacts.v[i].n);
	}
	execution_start(book, &spec->command, started, run);
	return run;
}

/* What is left to do the next server does. */
void runs_hang_up(struct execution_book *book)
{
	struct err e = { 0 };

	(void)err_set(&e, -EAGAIN, "the server is being stopped: the sandbox will be ended");
	LIST_EACH(&book->runs, node)
	{
		struct execution_run *run = container_of(node, struct execution_run, node);

		if (run->is_left)
			continue;
		run->is_left = true;
		run->ops->end(run->arg, e.code, NULL, &e);
	}
}

void runs_done(struct execution_book *book)
{
	LIST_EACH(&book->runs, node)
	{
		struct execution_run *run = container_of(node, struct execution_run, node);

		if (run->wait)
			execution_wait_stop(run->wait);
		run_free(run);
	}
}

/* ---- after a restart ---- */

struct half_done {
	struct list node;
	struct execution_book *book;
	struct execution_run run; /* only its names */
};

struct run_recovery {
	struct execution_book *book;
	struct list found;
	done_fn done;
	void *arg;
};

static int load_run(void *arg, const struct store_row *row, struct err *e)
{
	struct run_recovery *recovery = arg;
	struct half_done *h = XNEW(struct half_done);
	struct execution_run *run = &h->run;

	(void)e;
	h->book = recovery->book;
	store_copy_text(row, 0, run->result.id, sizeof run->result.id);
	store_copy_text(row, 1, run->team_id, sizeof run->team_id);
	store_copy_text(row, 2, run->agent_id, sizeof run->agent_id);
	store_copy_text(row, 3, run->task_id, sizeof run->task_id);
	store_copy_text(row, 4, run->actor, sizeof run->actor);
	store_copy_text(row, 5, run->result.sandbox_id, sizeof run->result.sandbox_id);
	list_append(&recovery->found, &h->node);
	return 0;
}

static int load_runs(struct store_tx *tx, void *arg, struct err *e)
{
	struct run_recovery *recovery = arg;

	LIST_EACH(&recovery->found, node) /* it is tried again */
	{
		list_remove(node);
		free(container_of(node, struct half_done, node));
	}
	return store_query(tx,
		"SELECT id, team_id, agent_id, task_id, actor, sandbox_id FROM runs "
		"WHERE ended_us IS NULL",
		NULL, 0, load_run, arg, e);
}

static void half_ended(void *arg, int r, const struct err *e)
{
	struct half_done *h = arg;

	if (r < 0 && r != -ENOENT)
		(void)err_set(&h->run.e, -EIO, "the server stopped half-way, and then: %s", e->msg);
	else
		(void)err_set(&h->run.e, -EIO,
			"the server stopped half-way; its sandbox was ended");
	log_info("run.finished", "run=%s sandbox=%s", h->run.result.id, h->run.result.sandbox_id);
	flight_record(h->book, h->run.team_id, end_run, run_job_done,
		run_job_new(&h->run, NULL, NULL));
	free(h);
}

struct orphans {
	struct execution_book *book;
	struct list found;
};

struct orphan {
	struct list node;
	char id[SANDBOX_ID_SIZE];
};

static void note_orphan(void *arg, const struct sandbox *sb)
{
	struct orphans *orphans = arg;
	struct orphan *orphan;

	for (size_t i = 0; i < sb->metadata.n; i++)
		if (str_is(sb->metadata.v[i].key, EXECUTION_RUN_KEY)) {
			orphan = XNEW(struct orphan);
			memcpy(orphan->id, sb->id, sizeof orphan->id);
			list_append(&orphans->found, &orphan->node);
			return;
		}
}

/* No run goes on over a restart: what was made for one is ended, whether its row was written yet or
 * not. */
static void end_orphans(struct execution_book *book)
{
	struct orphans orphans = { .book = book };

	list_init(&orphans.found);
	sandbox_each(book->config.sandboxes, NULL, note_orphan, &orphans);
	LIST_EACH(&orphans.found, node)
	{
		struct orphan *orphan = container_of(node, struct orphan, node);

		sandbox_kill(book->config.sandboxes, NULL, str_of(orphan->id), "system", killed,
			NULL);
		free(orphan);
	}
}

static void runs_loaded(void *arg, int r, const struct err *e)
{
	struct run_recovery *recovery = arg;

	LIST_EACH(&recovery->found, node)
	{
		struct half_done *h = container_of(node, struct half_done, node);

		list_remove(node);
		if (r >= 0)
			sandbox_kill(h->book->config.sandboxes, NULL,
				str_of(h->run.result.sandbox_id), "system", half_ended, h);
		else
			free(h);
	}
	if (r >= 0)
		end_orphans(recovery->book);
	recovery->done(recovery->arg, MIN(r, 0), e);
	free(recovery);
}

void runs_recover(struct execution_book *book, done_fn done, void *arg)
{
	struct run_recovery *recovery = XNEW(struct run_recovery);

	recovery->book = book;
	recovery->done = done;
	recovery->arg = arg;
	list_init(&recovery->found);
	flight_run(book, "", load_runs, runs_loaded, recovery);
}
