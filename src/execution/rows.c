/* The executions and output tables. A job has its own copy of everything but the chunks, which
 * nobody changes and which stay where they are until it is done. */
#include "execution/execution-internal.h"

static const char *const state_names[] = {
	[EXECUTION_STARTING] = "starting",
	[EXECUTION_RUNNING] = "running",
	[EXECUTION_ENDED] = "ended",
};

static const char *const end_names[] = {
	[EXECUTION_END_PROCESS] = "process",
	[EXECUTION_END_USER] = "user",
	[EXECUTION_END_TIMEOUT] = "timeout",
	[EXECUTION_END_MEMORY] = "memory",
	[EXECUTION_END_SANDBOX] = "sandbox",
	[EXECUTION_END_INFRASTRUCTURE] = "infrastructure",
};

const char *execution_state_name(enum execution_state state)
{
	return state_names[state];
}

const char *execution_end_name(enum execution_end end)
{
	return end_names[end];
}

enum {
	EVENT_COMMAND_BYTES = 16 << 10,
};

struct row_job {
	struct execution ex; /* its texts are in the buffers */
	struct buf text, cwd, secrets, held, data;
	char team_id[SANDBOX_TEAM_SIZE], tag[TAG_SIZE], actor[ACTOR_SIZE];
	int64_t keep_bytes, guest_seq, told_seq, output_bytes;
	struct list *chunks;
	bool tells_started, is_end;
	struct command *command;
	done_fn done;
	void *arg;
};

static struct row_job *job_new(struct command *c, done_fn done, void *arg)
{
	struct row_job *job = XNEW(struct row_job);

	job->ex = c->view;
	job->text = BUF_INIT(COMMAND_MAX_BYTES);
	job->cwd = BUF_INIT(COMMAND_MAX_BYTES);
	job->secrets = BUF_INIT(c->secrets.max);
	job->held = BUF_INIT((size_t)4 * MASK_MAX_NODES);
	job->data = BUF_INIT((size_t)2 * COMMAND_MAX_BYTES);
	memcpy(job->team_id, c->team_id, sizeof job->team_id);
	memcpy(job->tag, c->tag, sizeof job->tag);
	job->keep_bytes = c->keep_bytes;
	job->guest_seq = c->guest_seq;
	job->told_seq = c->last_seq;
	job->command = c;
	job->done = done;
	job->arg = arg;
	return job;
}

static void job_done(void *arg, int r, const struct err *e)
{
	struct row_job *job = arg;

	if (r >= 0 && job->ex.n && !job->command->view.n)
		job->command->view.n = job->ex.n;
	job->done(job->arg, MIN(r, 0), e);
	buf_done(&job->text);
	buf_done(&job->cwd);
	buf_done(&job->secrets);
	buf_done(&job->held);
	buf_done(&job->data);
	free(job);
}

static struct store_param text_or_null(const char *text)
{
	return text[0] ? P_TEXT(text) : P_NULL;
}

static struct store_param buf_or_null(const struct buf *b)
{
	return b->n ? P_STR(buf_str(b)) : P_NULL;
}

/* ---- a new one ---- */

static int take_int(void *arg, const struct store_row *row, struct err *e)
{
	(void)e;
	*(int64_t *)arg = store_int(row, 0);
	return 0;
}

static int insert(struct store_tx *tx, void *arg, struct err *e)
{
	struct row_job *job = arg;
	const struct execution *ex = &job->ex;
	int64_t last = 0, bytes = KEPT_COMMAND_BYTES + (int64_t)(job->text.n + job->cwd.n);
	int r = store_query(tx, "SELECT COALESCE(MAX(n), 0) FROM executions WHERE sandbox_id = $1",
		STORE_PARAMS(P_TEXT(ex->sandbox_id)), take_int, &last, e);

	if (r < 0)
		return r;
	job->ex.n = last + 1;
	store_count(tx, job->team_id, STORE_USE_COMMANDS, bytes);
	return store_exec(tx,
		"INSERT INTO executions (sandbox_id, n, team_id, agent_id, task_id, actor, "
		"command, cwd, username, tag, state, started_us, deadline_us, traceparent, "
		"keep_bytes, secrets_sealed, bytes) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, "
		"$10, 'starting', $11, $12, $13, $14, $15, $16)",
		STORE_PARAMS(P_TEXT(ex->sandbox_id), P_INT(ex->n), P_TEXT(job->team_id),
			text_or_null(ex->agent_id), text_or_null(ex->task_id),
			P_STR(actor_id(ex->actor)), P_STR(buf_str(&job->text)),
			buf_or_null(&job->cwd), text_or_null(ex->user), P_TEXT(job->tag),
			P_INT(ex->started_us), P_INT(ex->deadline_us),
			text_or_null(ex->traceparent), P_INT(job->keep_bytes),
			buf_or_null(&job->secrets), P_INT(bytes)),
		e);
}

void command_row_insert(struct command *c, done_fn done, void *arg)
{
	struct row_job *job = job_new(c, done, arg);

	(void)buf_add_str(&job->text, buf_str(&c->text));
	(void)buf_add_str(&job->cwd, buf_str(&c->cwd));
	(void)buf_add_str(&job->secrets, buf_str(&c->secrets));
	flight_run(c->book, c->team_id, insert, job_done, job);
}

/* ---- what became of it ---- */

static int insert_chunks(struct store_tx *tx, struct row_job *job, struct err *e)
{
	int r = 0;

	job->output_bytes = 0; /* of an attempt that was undone */

	for (struct list *node = job->chunks->next; r >= 0 && node != job->chunks;
		node = node->next) {
		const struct chunk *chunk = container_of(node, struct chunk, node);
		size_t size = base64_size(chunk->n);
		cleanup_free char *text = NULL;

		if (!chunk->is_kept)
			continue;
		text = malloc(size + 1);
		if (!text)
			return err_set(e, -ENOMEM, "out of memory");
		base64_encode(chunk->bytes, chunk->n, text);
		job->output_bytes += kept_chunk_bytes(chunk->n);
		r = store_exec(tx,
			"INSERT INTO output (sandbox_id, n, seq, at_us, stream, data) "
			"VALUES ($1, $2, $3, $4, $5, $6)",
			STORE_PARAMS(P_TEXT(job->ex.sandbox_id), P_INT(job->ex.n),
				P_INT(chunk->seq), P_INT(chunk->at_us), P_INT(chunk->stream),
				P_STR(str_make(text, size))),
			e);
	}
	store_count(tx, job->team_id, STORE_USE_OUTPUT, job->output_bytes);
	return r;
}

static int add_event(struct store_tx *tx, const struct row_job *job, const char *kind,
	struct str data, struct err *e)
{
	const struct execution *ex = &job->ex;
	bool is_end = job->is_end && strcmp(kind, "execution.ended") == 0;
	struct store_event event = { ex->actor, kind, ex->sandbox_id, data };
	struct store_cause cause = { .at_us = is_end ? ex->ended_us : ex->started_us,
		.team_id = job->team_id,
		.agent_id = ex->agent_id,
		.task_id = ex->task_id,
		.text = is_end && ex->ended_why[0] ? ex->ended_why : NULL };

	return store_add_caused_event(tx, &event, &cause, e);
}

static void write_started(const struct row_job *job, struct buf *out)
{
	struct jsonw w;

	jsonw_init(&w, out);
	jsonw_object(&w, NULL);
	jsonw_int(&w, "execution", job->ex.n);
	jsonw_strz(&w, "tag", job->tag);
	if (job->text.n <= EVENT_COMMAND_BYTES)
		jsonw_raw(&w, "command", buf_str(&job->text));
	else /* its row has it; the log, which everybody reads, is no place for a megabyte */
		jsonw_int(&w, "command_bytes", (int64_t)job->text.n);
	if (job->ex.traceparent[0])
		jsonw_strz(&w, "traceparent", job->ex.traceparent);
	jsonw_end_object(&w);
}

static void write_ended(const struct row_job *job, struct buf *out)
{
	const struct execution *ex = &job->ex;
	struct jsonw w;

	jsonw_init(&w, out);
	jsonw_object(&w, NULL);
	jsonw_int(&w, "execution", ex->n);
	jsonw_int(&w, "started_us", ex->started_us);
	jsonw_int(&w, "duration_ms", (ex->ended_us - ex->started_us) / 1000);
	if (ex->has_exit_code)
		jsonw_int(&w, "exit_code", ex->exit_code);
	if (ex->signal[0])
		jsonw_strz(&w, "signal", ex->signal);
	jsonw_strz(&w, "ended_by", end_names[ex->ended_by]);
	jsonw_int(&w, "stdout_bytes", ex->stdout_bytes);
	jsonw_int(&w, "stderr_bytes", ex->stderr_bytes);
	if (ex->traceparent[0])
		jsonw_strz(&w, "traceparent", ex->traceparent);
	jsonw_end_object(&w);
}

/* Why the sandbox ended was written by its own room, before us. */
static int take_why(void *arg, const struct store_row *row, struct err *e)
{
	struct row_job *job = arg;
	struct err why = { 0 };

	(void)e;
	if (store_is_null(row, 0))
		return 0;
	/* An err is cut between two characters. */
	(void)err_set(&why, -EIO, "the sandbox ended by %.*s: %.*s", STR_ARG(store_text(row, 0)),
		STR_ARG(store_text(row, 1)));
	(void)snprintf(job->ex.ended_why, sizeof job->ex.ended_why, "%s", why.msg);
	return 0;
}

/* Both at once where there is no time between the two. */
static int save_end(struct store_tx *tx, struct row_job *job, struct err *e)
{
	struct execution *ex = &job->ex;
	int r = 0;

	if (ex->ended_by == EXECUTION_END_SANDBOX)
		r = store_query(tx, "SELECT ended_by, ended_why FROM sandboxes WHERE id = $1",
			STORE_PARAMS(P_TEXT(ex->sandbox_id)), take_why, job, e);
	return r < 0 ? r
		     : store_exec(tx,
			       "UPDATE executions SET state = 'ended', ended_us = $1, "
			       "exit_code = $2, signal = $3, ended_by = $4, ended_why = $5, "
			       "stdout_bytes = $6, stderr_bytes = $7, last_seq = $8, "
			       "truncated = $9, guest_seq = $10, held_sealed = NULL, "
			       "secrets_sealed = NULL, output_bytes = output_bytes + $13 "
			       "WHERE sandbox_id = $11 AND n = $12",
			       STORE_PARAMS(P_INT(ex->ended_us),
				       ex->has_exit_code ? P_INT(ex->exit_code) : P_NULL,
				       text_or_null(ex->signal), P_TEXT(end_names[ex->ended_by]),
				       text_or_null(ex->ended_why), P_INT(ex->stdout_bytes),
				       P_INT(ex->stderr_bytes), P_INT(ex->last_seq),
				       P_INT(ex->truncated), P_INT(job->guest_seq),
				       P_TEXT(ex->sandbox_id), P_INT(ex->n),
				       P_INT(job->output_bytes)),
			       e);
}

static int save_progress(struct store_tx *tx, const struct row_job *job, struct err *e)
{
	const struct execution *ex = &job->ex;

	return store_exec(tx,
		"UPDATE executions SET state = 'running', stdout_bytes = $1, "
		"stderr_bytes = $2, last_seq = $3, truncated = $4, guest_seq = $5, "
		"held_sealed = $6, output_bytes = output_bytes + $9, told_seq = $10 "
		"WHERE sandbox_id = $7 AND n = $8",
		STORE_PARAMS(P_INT(ex->stdout_bytes), P_INT(ex->stderr_bytes), P_INT(ex->last_seq),
			P_INT(ex->truncated), P_INT(job->guest_seq), buf_or_null(&job->held),
			P_TEXT(ex->sandbox_id), P_INT(ex->n), P_INT(job->output_bytes),
			P_INT(job->told_seq)),
		e);
}

static int save(struct store_tx *tx, void *arg, struct err *e)
{
	struct row_job *job = arg;
	CLEANUP(buf_done) struct buf data = BUF_INIT((size_t)2 * COMMAND_MAX_BYTES);
	int r = insert_chunks(tx, job, e);

	if (r >= 0)
		r = job->is_end ? save_end(tx, job, e) : save_progress(tx, job, e);
	if (r >= 0 && job->tells_started) {
		write_started(job, &data);
		r = add_event(tx, job, "execution.started", buf_str(&data), e);
	}
	if (r >= 0 && job->is_end) {
		buf_clear(&data);
		write_ended(job, &data);
		r = add_event(tx, job, "execution.ended", buf_str(&data), e);
	}
	return r;
}

/* What the masks hold back, for the next server: sealed, since it is the beginning of a secret. */
static void seal_held(const struct command *c, struct buf *out)
{
	CLEANUP(buf_done) struct buf json = BUF_INIT((size_t)4 * MASK_MAX_NODES);
	static const char *const names[2][2] = { { "out", "out_covered" },
		{ "err", "err_covered" } };
	struct jsonw w;

	if (!mask_stream_held(c->halves[0].mask).n && !mask_stream_held(c->halves[1].mask).n)
		return;
	jsonw_init(&w, &json);
	jsonw_object(&w, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(c->halves); i++) {
		jsonw_base64(&w, names[i][0], mask_stream_held(c->halves[i].mask));
		jsonw_int(&w, names[i][1], (int64_t)mask_stream_covered(c->halves[i].mask));
	}
	jsonw_end_object(&w);
	(void)seal_text(c->book->key, buf_str(&json), out);
	explicit_bzero(json.p, json.cap);
}

static void save_done(void *arg, int r, const struct err *e)
{
	struct row_job *job = arg;

	if (r >= 0 && job->is_end)
		memcpy(job->command->view.ended_why, job->ex.ended_why, sizeof job->ex.ended_why);
	job_done(job, r, e);
}

void command_row_save(struct command *c, done_fn done, void *arg)
{
	struct row_job *job = job_new(c, done, arg);

	job->chunks = &c->saving;
	job->tells_started = c->is_telling;
	job->is_end = c->is_ending;
	if (!c->is_ending)
		seal_held(c, &job->held);
	if (c->is_telling)
		(void)buf_add_str(&job->text, buf_str(&c->text));
	flight_record(c->book, c->team_id, save, save_done, job);
}

/* ---- it never began ---- */

static int remove_row(struct store_tx *tx, void *arg, struct err *e)
{
	const struct row_job *job = arg;

	return history_drop(tx, job->ex.sandbox_id, job->ex.n, e);
}

void command_row_remove(struct command *c, done_fn done, void *arg)
{
	flight_run(c->book, c->team_id, remove_row, job_done, job_new(c, done, arg));
}

/* Whoever finds it ended after a crash knows why. */
static int note_cancel(struct store_tx *tx, void *arg, struct err *e)
{
	const struct row_job *job = arg;

	return store_exec(tx,
		"UPDATE executions SET ended_by = 'user' WHERE sandbox_id = $1 AND n = $2 "
		"AND state <> 'ended'",
		STORE_PARAMS(P_TEXT(job->ex.sandbox_id), P_INT(job->ex.n)), e);
}

void command_row_cancel(struct command *c, done_fn done, void *arg)
{
	flight_run(c->book, c->team_id, note_cancel, job_done, job_new(c, done, arg));
}

/* ---- reading ---- */

static struct str keep_text(struct arena *arena, const struct store_row *row, int column)
{
	struct str text = store_text(row, column);
	char *copy = text.p ? arena_dup(arena, text) : NULL;

	return copy ? str_make(copy, text.n) : STR_NONE;
}

static int find_name(const char *const *names, size_t n, struct str name)
{
	for (size_t i = 0; i < n; i++)
		if (str_is(name, names[i]))
			return (int)i;
	return 0;
}

int execution_read_row(const struct store_row *row, struct execution *ret, struct arena *arena)
{
	*ret = (struct execution){ .n = store_int(row, 1),
		.command = keep_text(arena, row, 6),
		.cwd = keep_text(arena, row, 7),
		.started_us = store_int(row, 9),
		.deadline_us = store_int(row, 10),
		.ended_us = store_is_null(row, 11) ? 0 : store_int(row, 11),
		.has_exit_code = !store_is_null(row, 12),
		.exit_code = store_is_null(row, 12) ? 0 : store_int(row, 12),
		.stdout_bytes = store_int(row, 16),
		.stderr_bytes = store_int(row, 17),
		.last_seq = store_int(row, 18),
		.truncated = store_int(row, 19) != 0 };
	store_copy_text(row, 0, ret->sandbox_id, sizeof ret->sandbox_id);
	store_copy_text(row, 2, ret->agent_id, sizeof ret->agent_id);
	store_copy_text(row, 3, ret->task_id, sizeof ret->task_id);
	store_copy_text(row, 4, ret->actor, sizeof ret->actor);
	store_copy_text(row, 5, ret->user, sizeof ret->user);
	store_copy_text(row, 13, ret->signal, sizeof ret->signal);
	store_copy_text(row, 15, ret->ended_why, sizeof ret->ended_why);
	store_copy_text(row, 20, ret->traceparent, sizeof ret->traceparent);
	ret->state = (enum execution_state)find_name(state_names, ARRAY_SIZE(state_names),
		store_text(row, 8));
	ret->ended_by = (enum execution_end)find_name(end_names, ARRAY_SIZE(end_names),
		store_text(row, 14));
	return ret->command.p ? 0 : -ENOBUFS;
}
