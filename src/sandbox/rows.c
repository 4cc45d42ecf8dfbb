/* The sandboxes table. A row is written when a sandbox is asked for, when it is paused or resumed,
 * and when it ends; the kernel knows the rest. */
#include "sandbox/activity.h"

static const char *const end_names[] = {
	[SANDBOX_END_USER] = "user",
	[SANDBOX_END_TIMEOUT] = "timeout",
	[SANDBOX_END_AGENT] = "agent",
	[SANDBOX_END_MEMORY] = "memory",
	[SANDBOX_END_INFRASTRUCTURE] = "infrastructure",
};

const char *end_name(enum sandbox_end by)
{
	return end_names[by];
}

enum {
	OPTIONS_DATA_BYTES = 1 << 20, /* of the event that tells of a policy */
};

struct row_job {
	struct sandbox sb; /* its texts are in the buffers below */
	struct buf metadata, options, env, data;
	char runtime[16], actor[ACTOR_SIZE], why[256];
	const char *kind; /* of its event, where that differs; a constant */
	enum sandbox_end by;
	int64_t run_end_us; /* of the run that this closes */
	done_fn done;
	void *arg;
};

static struct row_job *job_new(const struct sandbox *sb, const char *actor, done_fn done, void *arg)
{
	struct row_job *job = XNEW(struct row_job);

	job->sb = *sb;
	job->run_end_us = run_end_us(sb);
	job->sb.metadata = (struct json_map){ 0 }; /* borrowed from the book: not for the job */
	job->sb.options = (struct sandbox_options){ 0 };
	(void)snprintf(job->actor, sizeof job->actor, "%s", actor);
	job->metadata = BUF_INIT(8 << 20);
	job->options = BUF_INIT(1 << 20);
	job->env = BUF_INIT(8 << 20);
	job->data = BUF_INIT(64 << 10);
	job->done = done;
	job->arg = arg;
	return job;
}

static void job_done(void *arg, int r, const struct err *e)
{
	struct row_job *job = arg;

	job->done(job->arg, MIN(r, 0), e);
	buf_done(&job->metadata);
	buf_done(&job->options);
	buf_done(&job->env);
	buf_done(&job->data);
	free(job);
}

/* One event of this sandbox, with whose it is. */
static int tell(struct store_tx *tx, const struct row_job *job, const char *kind, struct err *e)
{
	const struct sandbox *sb = &job->sb;
	struct store_event event = { job->actor, kind, sb->id,
		job->data.n ? buf_str(&job->data) : STR_NONE };
	struct store_cause cause = { .team_id = sb->team_id,
		.agent_id = sb->agent_id,
		.task_id = sb->task_id,
		.text = job->why };

	return store_add_caused_event(tx, &event, &cause, e);
}

static struct store_param text_or_null(const char *text)
{
	return text[0] ? P_TEXT(text) : P_NULL;
}

/* As JSON a text may be six times as long: half of it must not be taken for the whole. */
static int check_whole(const struct row_job *job, struct err *e)
{
	return job->metadata.failed || job->options.failed || job->env.failed || job->data.failed
		       ? err_set(e, -E2BIG, "metadata, options or environment are too large")
		       : 0;
}

/* ---- what a row counts ---- */

enum {
	ROW_BYTES = 1024, /* without its long texts, with its first run */
	RUN_BYTES = 256,  /* each one more */
};

struct weight { /* of what goes when it ends */
	int64_t options, env;
	bool is_there;
};

static int take_weight(void *arg, const struct store_row *row, struct err *e)
{
	struct weight *w = arg;

	(void)e;
	*w = (struct weight){ (int64_t)store_text(row, 0).n, (int64_t)store_text(row, 1).n, true };
	return 0;
}

static int weigh(struct store_tx *tx, const char *id, struct weight *ret, struct err *e)
{
	*ret = (struct weight){ 0 };
	return store_query(tx,
		"SELECT options, env_sealed FROM sandboxes WHERE id = $1 AND state <> 'ended'",
		STORE_PARAMS(P_TEXT(id)), take_weight, ret, e);
}

static int insert(struct store_tx *tx, void *arg, struct err *e)
{
	const struct row_job *job = arg;
	const struct sandbox *sb = &job->sb;
	int64_t bytes = ROW_BYTES + (int64_t)(job->metadata.n + job->options.n + job->env.n);
	int r = check_whole(job, e);

	if (r < 0)
		return r;
	r = store_exec(tx,
		"INSERT INTO sandboxes (id, team_id, template_id, template_name, runtime, state, "
		"secure, "
		"cpu_count, memory_mb, disk_mb, timeout_s, metadata, options, started_us, end_us, "
		"base_template, run_started_us, env_sealed, agent_id, task_id, traceparent, bytes) "
		"VALUES ($1, $2, $3, $4, $5, 'running', $6, $7, $8, $9, $10, $11, $12, $13, $14, "
		"$15, $13, $16, $17, $18, $19, $20)",
		STORE_PARAMS(P_TEXT(sb->id), P_TEXT(sb->team_id), P_TEXT(sb->template_id),
			P_TEXT(sb->template_name), P_TEXT(job->runtime), P_INT(sb->secure),
			P_INT(sb->limits.v[LIMIT_CPU]), P_INT(sb->limits.v[LIMIT_MEMORY]),
			P_INT(sb->limits.v[LIMIT_DISK]), P_INT(sb->timeout_s),
			P_STR(buf_str(&job->metadata)), P_STR(buf_str(&job->options)),
			P_INT(sb->started_us), P_INT(sb->end_us), P_TEXT(sb->base_template),
			P_STR(buf_str(&job->env)), text_or_null(sb->agent_id),
			text_or_null(sb->task_id), text_or_null(sb->traceparent), P_INT(bytes)),
		e);
	store_count(tx, sb->team_id, STORE_USE_HISTORY, bytes);
	if (r >= 0)
		r = run_row_open(tx, sb, e);
	return r < 0 ? r : tell(tx, job, "sandbox.created", e);
}

void rows_insert(struct store *store, const struct live *live, const char *actor, done_fn done,
	void *arg)
{
	const struct sandbox *sb = &live->view;
	const char *runtime = sb->runtime;
	struct row_job *job = job_new(sb, actor, done, arg);
	struct jsonw w;

	(void)snprintf(job->runtime, sizeof job->runtime, "%s", runtime);
	jsonw_init(&w, &job->metadata);
	jsonw_map(&w, NULL, &sb->metadata);
	options_write(sb, &job->options);
	if (live->env.n)
		env_seal(live, &job->env);
	jsonw_init(&w, &job->data);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "template", sb->template_name);
	jsonw_strz(&w, "base_template", sb->base_template);
	jsonw_strz(&w, "team", sb->team_id);
	jsonw_strz(&w, "runtime", runtime);
	jsonw_end_object(&w);
	store_run_for(store, sb->team_id, insert, job_done, job);
}

static int set_end(struct store_tx *tx, void *arg, struct err *e)
{
	const struct row_job *job = arg;

	return store_exec(tx, "UPDATE sandboxes SET end_us = $1 WHERE id = $2",
		STORE_PARAMS(P_INT(job->sb.end_us), P_TEXT(job->sb.id)), e);
}

void rows_set_end(struct store *store, const struct sandbox *sb, int64_t end_us, done_fn done,
	void *arg)
{
	struct sandbox changed = { .end_us = end_us };

	memcpy(changed.id, sb->id, sizeof changed.id);
	store_run_for(store, sb->team_id, set_end, job_done, job_new(&changed, "", done, arg));
}

static int set_paused(struct store_tx *tx, void *arg, struct err *e)
{
	const struct row_job *job = arg;
	int r = store_exec(tx,
		"UPDATE sandboxes SET state = 'paused', paused_us = $1, image = $2 "
		"WHERE id = $3 AND state <> 'ended'",
		STORE_PARAMS(P_INT(job->sb.paused_us),
			P_STR(job->sb.image[0] ? str_of(job->sb.image) : STR_NONE),
			P_TEXT(job->sb.id)),
		e);

	if (r >= 0)
		r = run_row_close(tx, &job->sb, job->run_end_us, e);
	return r < 0 ? r : tell(tx, job, "sandbox.paused", e);
}

/* How long the change took until now, for those who read the log. */
static void describe_change(struct row_job *job, bool is_pause)
{
	struct jsonw w;

	jsonw_init(&w, &job->data);
	jsonw_object(&w, NULL);
	if (is_pause)
		jsonw_bool(&w, "memory", !job->sb.image[0]);
	if (job->sb.change_clock_us)
		jsonw_int(&w, "us", time_now_us() - job->sb.change_clock_us);
	jsonw_end_object(&w);
}

void rows_paused(struct store *store, const struct sandbox *sb, const char *actor, const char *why,
	done_fn done, void *arg)
{
	struct row_job *job = job_new(sb, actor, done, arg);

	(void)snprintf(job->why, sizeof job->why, "%s", why);
	describe_change(job, true);
	store_run_for(store, sb->team_id, set_paused, job_done, job);
}

static int set_resumed(struct store_tx *tx, void *arg, struct err *e)
{
	const struct row_job *job = arg;
	struct weight old;
	int64_t more = 0;
	int r = weigh(tx, job->sb.id, &old, e);

	if (r >= 0 && old.is_there) {
		more = (int64_t)job->options.n - old.options + RUN_BYTES;
		r = store_exec(tx,
			"UPDATE sandboxes SET state = 'running', paused_us = NULL, image = NULL, "
			"run_started_us = $1, end_us = $2, options = $3, bytes = bytes + $5 "
			"WHERE id = $4",
			STORE_PARAMS(P_INT(job->sb.run_started_us), P_INT(job->sb.end_us),
				P_STR(buf_str(&job->options)), P_TEXT(job->sb.id), P_INT(more)),
			e);
		store_count(tx, job->sb.team_id, STORE_USE_HISTORY, more);
	}
	if (r > 0)
		r = run_row_open(tx, &job->sb, e);
	return r < 0 ? r : tell(tx, job, "sandbox.resumed", e);
}

void rows_resumed(struct store *store, const struct sandbox *sb, const char *actor, done_fn done,
	void *arg)
{
	struct row_job *job = job_new(sb, actor, done, arg);

	options_write(sb, &job->options);
	describe_change(job, false);
	/* It runs already. */
	store_record_for(store, sb->team_id, set_resumed, job_done, job);
}

static int set_options(struct store_tx *tx, void *arg, struct err *e)
{
	const struct row_job *job = arg;
	struct weight old;
	int64_t more;
	int r = check_whole(job, e);

	if (r >= 0)
		r = weigh(tx, job->sb.id, &old, e);
	if (r < 0 || !old.is_there)
		return r;
	more = (int64_t)job->options.n - old.options;
	store_count(tx, job->sb.team_id, STORE_USE_HISTORY, more);
	r = store_exec(tx, "UPDATE sandboxes SET options = $1, bytes = bytes + $3 WHERE id = $2",
		STORE_PARAMS(P_STR(buf_str(&job->options)), P_TEXT(job->sb.id), P_INT(more)), e);
	return r < 0 ? r : tell(tx, job, job->kind, e);
}

void rows_set_options(struct store *store, const struct sandbox *sb,
	const struct options_change *change, done_fn done, void *arg)
{
	struct row_job *job = job_new(sb, change->actor, done, arg);

	job->kind = change->kind;
	options_write(sb, &job->options);
	job->data.max = OPTIONS_DATA_BYTES;
	(void)buf_add_str(&job->data, change->data);
	store_run_for(store, sb->team_id, set_options, job_done, job);
}

/* What only one that lives needs goes with its end: what it may reach, its environment. */
static int ended(struct store_tx *tx, void *arg, struct err *e)
{
	static const struct str nothing = { "{}", 2 };
	const struct row_job *job = arg;
	struct weight old;
	int64_t less;
	int r = weigh(tx, job->sb.id, &old, e);

	if (r < 0 || !old.is_there)
		return r;
	less = old.options + old.env - (int64_t)nothing.n;
	store_count(tx, job->sb.team_id, STORE_USE_HISTORY, -less);
	r = store_exec(tx,
		"UPDATE sandboxes SET state = 'ended', ended_us = $1, ended_by = $2, ended_why = "
		"$3, env_sealed = NULL, options = $5, bytes = bytes - $6 WHERE id = $4",
		STORE_PARAMS(P_INT(time_wall_us()), P_TEXT(end_names[job->by]), P_TEXT(job->why),
			P_TEXT(job->sb.id), P_STR(nothing), P_INT(less)),
		e);
	if (r <= 0)
		return r;
	r = run_row_close(tx, &job->sb, job->run_end_us, e);
	return r < 0 ? r : tell(tx, job, "sandbox.ended", e);
}

void rows_ended(struct store *store, const struct sandbox *sb, enum sandbox_end by,
	const char *actor, const char *why, done_fn done, void *arg)
{
	struct row_job *job = job_new(sb, actor, done, arg);
	struct jsonw w;

	job->by = by;
	(void)snprintf(job->why, sizeof job->why, "%s", why);
	jsonw_init(&w, &job->data);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "by", end_names[by]);
	jsonw_strz(&w, "origin", sandbox_origin(end_names[by]));
	jsonw_strz(&w, "why", job->why);
	jsonw_end_object(&w);
	/* It is being removed meanwhile. */
	store_record_for(store, sb->team_id, ended, job_done, job);
}

/* ---- loading: the job collects plain rows, the loop turns them into objects ---- */

struct loaded {
	struct sandbox sb;
	char *metadata, *options, *env;
	int64_t lines; /* of its log */
	char epoch[ACTIVITY_EPOCH_SIZE];
	int64_t seq; /* of its guest's records: so far they are written */
	struct list node;
};

struct load_job {
	struct sandbox_book *book;
	struct list rows, snaps;
	done_fn done;
	void *arg;
};

static int load_row(void *arg, const struct store_row *row, struct err *e)
{
	struct load_job *job = arg;
	struct loaded *l = XNEW(struct loaded);
	struct sandbox *sb = &l->sb;

	(void)e;
	store_copy_text(row, 0, sb->id, sizeof sb->id);
	store_copy_text(row, 1, sb->team_id, sizeof sb->team_id);
	store_copy_text(row, 2, sb->template_id, sizeof sb->template_id);
	store_copy_text(row, 3, sb->template_name, sizeof sb->template_name);
	sb->secure = store_int(row, 4);
	sb->limits.v[LIMIT_CPU] = store_int(row, 5);
	sb->limits.v[LIMIT_MEMORY] = store_int(row, 6);
	sb->limits.v[LIMIT_DISK] = store_int(row, 7);
	sb->timeout_s = store_int(row, 8);
	l->metadata = store_dup_text(row, 9);
	sb->started_us = store_int(row, 10);
	sb->end_us = store_int(row, 11);
	l->options = store_dup_text(row, 12);
	store_copy_text(row, 13, sb->base_template, sizeof sb->base_template);
	sb->run_started_us = store_int(row, 14) ? store_int(row, 14) : sb->started_us;
	sb->paused_us = store_int(row, 15);
	store_copy_text(row, 16, sb->image, sizeof sb->image);
	l->env = store_dup_text(row, 17);
	sb->state = str_is(store_text(row, 18), "paused") ? SANDBOX_PAUSED : SANDBOX_RUNNING;
	store_copy_text(row, 19, sb->runtime, sizeof sb->runtime);
	l->lines = store_int(row, 20);
	store_copy_text(row, 21, sb->agent_id, sizeof sb->agent_id);
	store_copy_text(row, 22, sb->task_id, sizeof sb->task_id);
	store_copy_text(row, 23, sb->traceparent, sizeof sb->traceparent);
	store_copy_text(row, 24, l->epoch, sizeof l->epoch);
	l->seq = store_int(row, 25);
	list_append(&job->rows, &l->node);
	return 0;
}

static void take_run(void *arg, const char *id, const struct sandbox_run *run, int64_t started_us)
{
	struct loaded *l = map_get(arg, str_of(id));

	if (l)
		run_take(&l->sb, run, started_us);
}

static int load_runs(struct store_tx *tx, struct load_job *job, struct err *e)
{
	CLEANUP(map_done) struct map by_id = { 0 };

	LIST_EACH(&job->rows, node)
	{
		struct loaded *l = container_of(node, struct loaded, node);

		(void)map_put(&by_id, str_of(l->sb.id), l);
	}
	return run_rows_load(tx, take_run, &by_id, e);
}

static int load(struct store_tx *tx, void *arg, struct err *e)
{
	struct load_job *job = arg;
	int r = store_query(tx,
		"SELECT id, team_id, template_id, template_name, secure, cpu_count, memory_mb, "
		"disk_mb, "
		"timeout_s, metadata, started_us, end_us, options, base_template, run_started_us, "
		"paused_us, "
		"image, env_sealed, state, runtime, "
		"(SELECT COUNT(*) FROM events WHERE subject = sandboxes.id AND "
		"kind LIKE 'sandbox.%'), "
		"agent_id, task_id, traceparent, guest_epoch, guest_seq "
		"FROM sandboxes WHERE state <> 'ended'",
		NULL, 0, load_row, arg, e);

	if (r >= 0)
		r = load_runs(tx, job, e);
	return r < 0 ? r : snap_load(tx, &job->snaps, e);
}

struct metadata_in {
	struct json_map map;
};

/* Metadata was checked when it came in and is stored as one object; a wrapper makes it a field. */
static int decode_metadata(struct live *live, const char *text)
{
	static const struct json_field fields[] = { JSON_FIELD(struct metadata_in, map, "m",
		JSON_MAP) };
	static const struct json_shape shape = JSON_SHAPE(struct metadata_in, fields);
	CLEANUP(buf_done) struct buf wrapped = BUF_INIT(16 << 20);
	struct metadata_in in = { 0 };
	int r;

	(void)buf_adds(&wrapped, "{\"m\":");
	(void)buf_adds(&wrapped, text);
	(void)buf_adds(&wrapped, "}");
	r = wrapped.failed ? -ENOBUFS
			   : json_decode(live->arena, buf_str(&wrapped), &shape, &in, NULL);
	live->view.metadata = in.map;
	return r;
}

static void revive(struct sandbox_book *book, const struct loaded *l)
{
	struct live *live = live_new(book, l->sb.id);
	bool damaged;

	live->view = l->sb;
	live->born_ms -= MAX(time_wall_us() - l->sb.started_us, 0) / 1000;
	live->log.lines = l->lines;
	activity_take(live, l->epoch, l->seq);
	/* What it may reach comes first. Where that cannot be read it is nothing, and nobody from
	 * outside reaches it. */
	damaged = options_read(live, str_of(l->options)) < 0;
	if (damaged) {
		live->view.options = (struct sandbox_options){ .is_private = true,
			.internet = { .is_set = true, .value = false } };
		limit_set_default(&live->view.limits);
	}
	damaged |= live_use(live, str_of(l->sb.runtime), NULL) < 0;
	damaged |= env_unseal(live, str_of(l->env)) < 0;
	damaged |= decode_metadata(live, l->metadata) < 0;
	if (damaged)
		log_warn("sandbox.row_damaged", "sandbox_id=%s", live->view.id);
}

static void load_done(void *arg, int r, const struct err *e)
{
	struct load_job *job = arg;

	LIST_EACH(&job->rows, node)
	{
		struct loaded *l = container_of(node, struct loaded, node);

		if (r >= 0)
			revive(job->book, l);
		free(l->metadata);
		free(l->options);
		free(l->env);
		free(l);
	}
	while (!list_empty(&job->snaps)) {
		struct list *node = job->snaps.next;

		list_remove(node);
		list_append(&job->book->snaps, node);
	}
	job->done(job->arg, MIN(r, 0), e);
	free(job);
}

void rows_load(struct sandbox_book *book, done_fn done, void *arg)
{
	struct load_job *job = XNEW(struct load_job);

	job->book = book;
	list_init(&job->rows);
	list_init(&job->snaps);
	job->done = done;
	job->arg = arg;
	store_run(book->config.store, load, load_done, job);
}
