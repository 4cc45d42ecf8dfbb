/* The sandboxes table. A row is written once when a sandbox is asked for and once when it ends; the
 * kernel knows the rest. */
#include "sandbox/sandbox-internal.h"

static const char *const end_names[] = {
	[SANDBOX_END_USER] = "user",
	[SANDBOX_END_TIMEOUT] = "timeout",
	[SANDBOX_END_AGENT] = "agent",
	[SANDBOX_END_INFRASTRUCTURE] = "infrastructure",
};

struct row_job {
	struct sandbox sb; /* metadata is in the text below */
	struct buf metadata, data;
	char runtime[16], actor[SANDBOX_TEAM_SIZE], why[256];
	enum sandbox_end by;
	done_fn done;
	void *arg;
};

static struct row_job *job_new(const char *id, const char *actor, done_fn done, void *arg)
{
	struct row_job *job = XNEW(struct row_job);

	(void)snprintf(job->sb.id, sizeof job->sb.id, "%s", id);
	(void)snprintf(job->actor, sizeof job->actor, "%s", actor);
	job->metadata = BUF_INIT(1 << 20);
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
	buf_done(&job->data);
	free(job);
}

static int insert(struct store_tx *tx, void *arg, struct err *e)
{
	const struct row_job *job = arg;
	const struct sandbox *sb = &job->sb;
	struct store_event event = { job->actor, "sandbox.created", sb->id, buf_str(&job->data) };
	int r = store_exec(tx,
		"INSERT INTO sandboxes (id, team_id, template_id, template_name, runtime, state, "
		"secure, "
		"cpu_count, memory_mb, disk_mb, timeout_s, metadata, options, started_us, end_us) "
		"VALUES ($1, $2, $3, $4, $5, 'running', $6, $7, $8, $9, $10, $11, '{}', $12, $13)",
		STORE_PARAMS(P_TEXT(sb->id), P_TEXT(sb->team_id), P_TEXT(sb->template_id),
			P_TEXT(sb->template_name), P_TEXT(job->runtime), P_INT(sb->secure),
			P_INT(sb->cpu_count), P_INT(sb->memory_mb), P_INT(sb->disk_mb),
			P_INT(sb->timeout_s), P_STR(buf_str(&job->metadata)), P_INT(sb->started_us),
			P_INT(sb->end_us)),
		e);

	return r < 0 ? r : store_add_event(tx, &event, e);
}

void rows_insert(struct store *store, const struct sandbox *sb, const char *runtime,
	const char *actor, done_fn done, void *arg)
{
	struct row_job *job = job_new(sb->id, actor, done, arg);
	struct jsonw w;

	job->sb = *sb;
	(void)snprintf(job->runtime, sizeof job->runtime, "%s", runtime);
	jsonw_init(&w, &job->metadata);
	jsonw_map(&w, NULL, &sb->metadata);
	job->sb.metadata = (struct json_map){ 0 }; /* borrowed from the book: not for the job */
	jsonw_init(&w, &job->data);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "template", sb->template_name);
	jsonw_strz(&w, "team", sb->team_id);
	jsonw_strz(&w, "runtime", runtime);
	jsonw_end_object(&w);
	store_run(store, insert, job_done, job);
}

static int set_end(struct store_tx *tx, void *arg, struct err *e)
{
	const struct row_job *job = arg;

	return store_exec(tx, "UPDATE sandboxes SET end_us = $1 WHERE id = $2",
		STORE_PARAMS(P_INT(job->sb.end_us), P_TEXT(job->sb.id)), e);
}

void rows_set_end(struct store *store, const char *id, int64_t end_us, done_fn done, void *arg)
{
	struct row_job *job = job_new(id, "", done, arg);

	job->sb.end_us = end_us;
	store_run(store, set_end, job_done, job);
}

static int ended(struct store_tx *tx, void *arg, struct err *e)
{
	const struct row_job *job = arg;
	struct store_event event = { job->actor, "sandbox.ended", job->sb.id, buf_str(&job->data) };
	int r = store_exec(tx,
		"UPDATE sandboxes SET state = 'ended', ended_us = $1, ended_by = $2, ended_why = "
		"$3 "
		"WHERE id = $4 AND state <> 'ended'",
		STORE_PARAMS(P_INT(time_wall_us()), P_TEXT(end_names[job->by]), P_TEXT(job->why),
			P_TEXT(job->sb.id)),
		e);

	return r <= 0 ? r : store_add_event(tx, &event, e);
}

void rows_ended(struct store *store, const char *id, enum sandbox_end by, const char *actor,
	const char *why, done_fn done, void *arg)
{
	struct row_job *job = job_new(id, actor, done, arg);
	struct jsonw w;

	job->by = by;
	(void)snprintf(job->why, sizeof job->why, "%s", why);
	jsonw_init(&w, &job->data);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "by", end_names[by]);
	jsonw_strz(&w, "why", job->why);
	jsonw_end_object(&w);
	store_run(store, ended, job_done, job);
}

/* Loading: the job collects plain rows, the loop turns them into objects. */
struct loaded {
	struct sandbox sb;
	char *metadata;
	struct list node;
};

struct load_job {
	struct sandbox_book *book;
	struct list rows;
	done_fn done;
	void *arg;
};

static void copy_column(const struct store_row *row, int column, char *to, size_t size)
{
	(void)snprintf(to, size, "%.*s", STR_ARG(store_text(row, column)));
}

static int load_row(void *arg, const struct store_row *row, struct err *e)
{
	struct load_job *job = arg;
	struct loaded *l = XNEW(struct loaded);
	struct sandbox *sb = &l->sb;

	(void)e;
	copy_column(row, 0, sb->id, sizeof sb->id);
	copy_column(row, 1, sb->team_id, sizeof sb->team_id);
	copy_column(row, 2, sb->template_id, sizeof sb->template_id);
	copy_column(row, 3, sb->template_name, sizeof sb->template_name);
	sb->secure = store_int(row, 4);
	sb->cpu_count = store_int(row, 5);
	sb->memory_mb = store_int(row, 6);
	sb->disk_mb = store_int(row, 7);
	sb->timeout_s = store_int(row, 8);
	l->metadata = xstrdup(store_text(row, 9).p ? store_text(row, 9).p : "{}");
	sb->started_us = store_int(row, 10);
	sb->end_us = store_int(row, 11);
	list_append(&job->rows, &l->node);
	return 0;
}

static int load(struct store_tx *tx, void *arg, struct err *e)
{
	return store_query(tx,
		"SELECT id, team_id, template_id, template_name, secure, cpu_count, memory_mb, "
		"disk_mb, "
		"timeout_s, metadata, started_us, end_us FROM sandboxes WHERE state = 'running'",
		NULL, 0, load_row, arg, e);
}

struct metadata_in {
	struct json_map map;
};

/* Metadata was checked when it came in and is stored as one object; a wrapper makes it a field. */
static void decode_metadata(struct live *live, const char *text)
{
	static const struct json_field fields[] = { JSON_FIELD(struct metadata_in, map, "m",
		JSON_MAP) };
	static const struct json_shape shape = JSON_SHAPE(struct metadata_in, fields);
	struct metadata_in in = { 0 };
	char *wrapped = arena_printf(live->arena, "{\"m\":%s}", text);

	if (wrapped && json_decode(live->arena, str_of(wrapped), &shape, &in, NULL) == 0)
		live->view.metadata = in.map;
}

static void load_done(void *arg, int r, const struct err *e)
{
	struct load_job *job = arg;

	LIST_EACH(&job->rows, node)
	{
		struct loaded *l = container_of(node, struct loaded, node);

		if (r >= 0) {
			struct live *live = live_new(job->book, l->sb.id);

			live->view = l->sb;
			live->view.state = SANDBOX_RUNNING;
			decode_metadata(live, l->metadata);
		}
		free(l->metadata);
		free(l);
	}
	job->done(job->arg, MIN(r, 0), e);
	free(job);
}

void rows_load(struct sandbox_book *book, done_fn done, void *arg)
{
	struct load_job *job = XNEW(struct load_job);

	job->book = book;
	list_init(&job->rows);
	job->done = done;
	job->arg = arg;
	store_run(book->config.store, load, load_done, job);
}
