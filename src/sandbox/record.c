/* Sandboxes as the table has them, the ended ones too. */
#include "sandbox/sandbox-internal.h"

enum {
	MAX_SCANNED = 10000, /* rows that one page may look at for its metadata */
	RECORD_BYTES = 16 << 20,
};

struct read_job {
	struct sandbox_book *book;
	struct arena *arena; /* texts of the records */
	char team_id[SANDBOX_TEAM_SIZE], owner_agent[SANDBOX_OWNER_SIZE], id[SANDBOX_ID_SIZE];
	struct sandbox_query query; /* its texts are in the arena */
	struct sandbox_record *v;
	size_t n, scanned;
	bool is_full; /* the arena had no room for a record's metadata */
	bool more;
	int64_t last_us; /* where the next page begins, as the next */
	char last_id[SANDBOX_ID_SIZE];
	sandbox_record_fn one;
	sandbox_records_fn many;
	void *arg;
};

static const char columns[] =
	"SELECT id, team_id, template_id, template_name, runtime, state, secure, cpu_count, "
	"memory_mb, disk_mb, timeout_s, metadata, started_us, end_us, base_template, "
	"run_started_us, paused_us, image, agent_id, task_id, traceparent, ended_us, ended_by, "
	"ended_why, "
	"(SELECT COUNT(*) FROM sandbox_runs r WHERE r.sandbox_id = sandboxes.id), "
	"CAST((SELECT COALESCE(SUM(CASE WHEN r.ended_us > r.started_us THEN (r.ended_us - "
	"r.started_us) / 1000 ELSE 0 END), 0) FROM sandbox_runs r WHERE r.sandbox_id = "
	"sandboxes.id) AS BIGINT), "
	"CAST((SELECT COALESCE(SUM(r.cpu_us), 0) FROM sandbox_runs r WHERE r.sandbox_id = "
	"sandboxes.id) AS BIGINT), "
	"CAST((SELECT COALESCE(SUM(r.egress_bytes), 0) FROM sandbox_runs r WHERE r.sandbox_id = "
	"sandboxes.id) AS BIGINT) FROM sandboxes ";

static struct read_job *job_new(struct sandbox_book *book, const struct sandbox_owner *who,
	void *arg)
{
	struct read_job *job = XNEW(struct read_job);

	assert(!who || who->team_id[0]); /* an empty one would be anybody's */
	job->book = book;
	job->arg = arg;
	job->arena = arena_new(RECORD_BYTES);
	(void)snprintf(job->team_id, sizeof job->team_id, "%s", who ? who->team_id : "");
	(void)snprintf(job->owner_agent, sizeof job->owner_agent, "%s",
		who && who->agent_id ? who->agent_id : "");
	return job;
}

static void job_free(struct read_job *job)
{
	job->arena = arena_free(job->arena);
	free(job->v);
	free(job);
}

struct metadata_in {
	struct json_map map;
};

/* Checked when it came in, and stored as one object; a wrapper makes it a field. */
static void read_metadata(struct read_job *job, struct str text, struct json_map *ret)
{
	static const struct json_field fields[] = { JSON_FIELD(struct metadata_in, map, "m",
		JSON_MAP) };
	static const struct json_shape shape = JSON_SHAPE(struct metadata_in, fields);
	CLEANUP(buf_done) struct buf wrapped = BUF_INIT(RECORD_BYTES);
	struct metadata_in in = { 0 };

	(void)buf_adds(&wrapped, "{\"m\":");
	(void)buf_add_str(&wrapped, text);
	(void)buf_adds(&wrapped, "}");
	if (wrapped.failed || json_decode(job->arena, buf_str(&wrapped), &shape, &in, NULL) < 0)
		job->is_full = true;
	*ret = in.map;
}

static void read_who(struct sandbox *sb, const struct store_row *row)
{
	store_copy_text(row, 0, sb->id, sizeof sb->id);
	store_copy_text(row, 1, sb->team_id, sizeof sb->team_id);
	store_copy_text(row, 18, sb->agent_id, sizeof sb->agent_id);
	store_copy_text(row, 19, sb->task_id, sizeof sb->task_id);
	store_copy_text(row, 20, sb->traceparent, sizeof sb->traceparent);
}

static void read_sandbox(struct read_job *job, struct sandbox *sb, const struct store_row *row)
{
	read_who(sb, row);
	store_copy_text(row, 2, sb->template_id, sizeof sb->template_id);
	store_copy_text(row, 3, sb->template_name, sizeof sb->template_name);
	store_copy_text(row, 4, sb->runtime, sizeof sb->runtime);
	sb->state = str_is(store_text(row, 5), "paused") ? SANDBOX_PAUSED : SANDBOX_RUNNING;
	sb->secure = store_int(row, 6);
	sb->limits.v[LIMIT_CPU] = store_int(row, 7);
	sb->limits.v[LIMIT_MEMORY] = store_int(row, 8);
	sb->limits.v[LIMIT_DISK] = store_int(row, 9);
	sb->timeout_s = store_int(row, 10);
	read_metadata(job, store_text(row, 11), &sb->metadata);
	sb->started_us = store_int(row, 12);
	sb->end_us = store_int(row, 13);
	store_copy_text(row, 14, sb->base_template, sizeof sb->base_template);
	sb->run_started_us = store_int(row, 15) ? store_int(row, 15) : sb->started_us;
	sb->paused_us = store_int(row, 16);
	store_copy_text(row, 17, sb->image, sizeof sb->image);
}

static void read_used(struct sandbox *sb, const struct store_row *row)
{
	struct observe_run run = { .ms = store_int(row, 25),
		.cpu_count = sb->limits.v[LIMIT_CPU],
		.memory_mib = sb->limits.v[LIMIT_MEMORY],
		.disk_mib = sb->limits.v[LIMIT_DISK],
		.cpu_us = store_int(row, 26),
		.egress_bytes = store_int(row, 27) };

	observe_add_run(&sb->used_before, &run);
	sb->used_before.runs = store_int(row, 24);
}

static void read_record(struct read_job *job, struct sandbox_record *rec,
	const struct store_row *row)
{
	read_sandbox(job, &rec->sb, row);
	read_used(&rec->sb, row);
	rec->is_ended = str_is(store_text(row, 5), "ended");
	rec->ended_us = store_int(row, 21);
	store_copy_text(row, 22, rec->ended_by, sizeof rec->ended_by);
	store_copy_text(row, 23, rec->ended_why, sizeof rec->ended_why);
}

/* ---- one ---- */

static int read_one_row(void *arg, const struct store_row *row, struct err *e)
{
	struct read_job *job = arg;

	(void)e;
	read_record(job, &job->v[0], row);
	job->n = 1;
	return 0;
}

static int read_one(struct store_tx *tx, void *arg, struct err *e)
{
	CLEANUP(buf_done) struct buf sql = BUF_INIT(4096);
	struct read_job *job = arg;
	int r;

	(void)buf_printf(&sql,
		"%sWHERE id = $1 AND ($2 = '' OR team_id = $2) AND "
		"($3 = '' OR agent_id = $3)",
		columns);
	r = store_query(tx, buf_str(&sql).p,
		STORE_PARAMS(P_TEXT(job->id), P_TEXT(job->team_id), P_TEXT(job->owner_agent)),
		read_one_row, job, e);
	if (r >= 0 && job->n == 0)
		return err_set(e, -ENOENT,
			"Sandbox \"%s\" doesn't exist or you don't have access to it", job->id);
	return r;
}

static void one_read(void *arg, int r, const struct err *e)
{
	struct read_job *job = arg;

	job->one(job->arg, MIN(r, 0), r < 0 ? NULL : &job->v[0], e);
	job_free(job);
}

void sandbox_look(struct sandbox_book *book, const struct sandbox_owner *who, struct str id,
	sandbox_record_fn fn, void *arg)
{
	struct read_job *job = job_new(book, who, arg);

	if (id.n < sizeof job->id) /* none that is longer may match a part of it */
		(void)snprintf(job->id, sizeof job->id, "%.*s", STR_ARG(id));
	job->v = XNEW_N(struct sandbox_record, 1);
	job->one = fn;
	store_read(book->config.store, read_one, one_read, job);
}

/* ---- many ---- */

static bool has_metadata(const struct json_map *have, const struct json_map *want)
{
	for (size_t i = 0; i < want->n; i++) {
		bool found = false;

		for (size_t k = 0; k < have->n && !found; k++)
			found = str_eq(have->v[k].key, want->v[i].key) &&
				str_eq(have->v[k].value, want->v[i].value);
		if (!found)
			return false;
	}
	return true;
}

bool sandbox_matches(const struct sandbox *sb, const struct sandbox_query *query)
{
	return (!query->agent_id.n || str_is(query->agent_id, sb->agent_id)) &&
	       (!query->task_id.n || str_is(query->task_id, sb->task_id)) &&
	       (!query->template_name.n || str_is(query->template_name, sb->template_name) ||
		       str_is(query->template_name, sb->template_id)) &&
	       has_metadata(&sb->metadata, &query->metadata);
}

/* -ECANCELED: that is enough. */
static int read_page_row(void *arg, const struct store_row *row, struct err *e)
{
	struct read_job *job = arg;
	struct sandbox_record *rec = &job->v[job->n];

	(void)e;
	if (job->n == job->query.limit || job->scanned == MAX_SCANNED) {
		job->more = true;
		return -ECANCELED;
	}
	job->scanned++;
	*rec = (struct sandbox_record){ 0 };
	read_record(job, rec, row);
	if (job->is_full && job->scanned > 1) { /* it begins the next page, where there is room */
		job->more = true;
		return -ECANCELED;
	}
	job->last_us = rec->sb.started_us;
	memcpy(job->last_id, rec->sb.id, sizeof job->last_id);
	job->n += sandbox_matches(&rec->sb, &job->query);
	return 0;
}

/* Only what an index finds is asked in SQL; the rest is looked at here. */
static int read_page(struct store_tx *tx, void *arg, struct err *e)
{
	CLEANUP(buf_done) struct buf sql = BUF_INIT(4096);
	struct read_job *job = arg;
	const struct sandbox_query *q = &job->query;
	bool looks_on = q->metadata.n || q->template_name.n;
	int r;

	(void)buf_printf(&sql,
		"%sWHERE ($1 = '' OR team_id = $1) AND ($2 = '' OR agent_id = $2) "
		"AND ($3 = '' OR agent_id = $3) AND ($4 = '' OR task_id = $4) "
		"AND (started_us < $5 OR (started_us = $5 AND id > $6)) "
		"AND state IN (%s, %s, %s) ORDER BY started_us DESC, id LIMIT %zu",
		columns, q->running ? "'running'" : "''", q->paused ? "'paused'" : "''",
		q->ended ? "'ended'" : "''", (looks_on ? (size_t)MAX_SCANNED : q->limit) + 1);
	r = store_query(tx, buf_str(&sql).p,
		STORE_PARAMS(P_TEXT(job->team_id), P_TEXT(job->owner_agent), P_STR(q->agent_id),
			P_STR(q->task_id), P_INT(q->before_us ? q->before_us : INT64_MAX),
			P_STR(q->before_id)),
		read_page_row, job, e);
	return r == -ECANCELED ? 0 : r;
}

static void page_read(void *arg, int r, const struct err *e)
{
	struct read_job *job = arg;
	struct sandbox_page page = { .v = job->v,
		.n = job->n,
		.more = job->more,
		.last_us = job->last_us,
		.last_id = job->last_id };

	job->many(job->arg, MIN(r, 0), &page, e);
	job_free(job);
}

static struct str keep(struct arena *arena, struct str s)
{
	char *copy = arena_dup(arena, s);

	return copy ? str_make(copy, s.n) : STR("");
}

void sandbox_list_records(struct sandbox_book *book, const struct sandbox_owner *who,
	const struct sandbox_query *query, sandbox_records_fn fn, void *arg)
{
	struct read_job *job = job_new(book, who, arg);
	struct sandbox_query *q = &job->query;

	*q = *query;
	q->agent_id = keep(job->arena, query->agent_id);
	q->task_id = keep(job->arena, query->task_id);
	q->template_name = keep(job->arena, query->template_name);
	q->before_id = keep(job->arena, query->before_id);
	q->metadata.v = arena_alloc(job->arena, query->metadata.n * sizeof *q->metadata.v);
	for (size_t i = 0; i < query->metadata.n; i++)
		q->metadata.v[i] = (struct json_pair){ keep(job->arena, query->metadata.v[i].key),
			keep(job->arena, query->metadata.v[i].value) };
	job->v = XNEW_N(struct sandbox_record, query->limit + 1);
	job->many = fn;
	store_read(book->config.store, read_page, page_read, job);
}
