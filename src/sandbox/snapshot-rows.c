/* The snapshots table: one row names one saved image. */
#include "sandbox/sandbox-internal.h"

struct snap_job {
	struct sandbox_snapshot snap;
	char replaced[SANDBOX_ID_SIZE], actor[ACTOR_SIZE];
	char data[2 * TEMPLATE_NAME_SIZE + 16]; /* of the event: how long it took, or the name */
	done_fn done;
	void *arg;
};

static void job_done(void *arg, int r, const struct err *e)
{
	struct snap_job *job = arg;

	job->done(job->arg, MIN(r, 0), e);
	free(job);
}

static int remove_row(struct store_tx *tx, const char *image, struct err *e)
{
	return store_exec(tx, "DELETE FROM snapshots WHERE image = $1", STORE_PARAMS(P_TEXT(image)),
		e);
}

static int insert(struct store_tx *tx, void *arg, struct err *e)
{
	const struct snap_job *job = arg;
	const struct sandbox_snapshot *s = &job->snap;
	struct store_event event = { job->actor, "snapshot.created", s->sandbox_id,
		str_of(job->data) };
	struct store_cause cause = { .team_id = s->team_id, .agent_id = s->agent_id };
	int r = 0;

	if (job->replaced[0])
		r = remove_row(tx, job->replaced, e);
	if (r >= 0)
		r = store_exec(tx,
			"INSERT INTO snapshots (image, team_id, template_id, alias, tag, "
			"base_template, sandbox_id, "
			"cpu_count, memory_mb, disk_mb, created_us, runtime, agent_id, size_mb, "
			"named_by, is_nested) "
			"VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, "
			"$15, $16)",
			STORE_PARAMS(P_TEXT(s->image), P_TEXT(s->team_id), P_TEXT(s->template_id),
				P_STR(s->alias[0] ? str_of(s->alias) : STR_NONE), P_TEXT(s->tag),
				P_TEXT(s->base_template), P_TEXT(s->sandbox_id),
				P_INT(s->cpu_count), P_INT(s->memory_mb), P_INT(s->disk_mb),
				P_INT(s->created_us), P_TEXT(s->runtime),
				P_STR(s->agent_id[0] ? str_of(s->agent_id) : STR_NONE),
				P_INT(s->size_mb),
				P_STR(s->named_by[0] ? str_of(s->named_by) : STR_NONE),
				P_INT(s->is_nested)),
			e);
	return r < 0 ? r : store_add_caused_event(tx, &event, &cause, e);
}

void snap_rows_insert(struct store *store, const struct sandbox_snapshot *snap,
	const struct snap_change *change, done_fn done, void *arg)
{
	struct snap_job *job = XNEW(struct snap_job);

	job->snap = *snap;
	(void)snprintf(job->replaced, sizeof job->replaced, "%s", change->replaced);
	(void)snprintf(job->actor, sizeof job->actor, "%s", change->actor);
	(void)snprintf(job->data, sizeof job->data, "{\"us\":%" PRId64 "}",
		time_now_us() - change->began_us);
	job->done = done;
	job->arg = arg;
	store_run_for(store, snap->team_id, insert, job_done, job);
}

static int rename_row(struct store_tx *tx, void *arg, struct err *e)
{
	const struct snap_job *job = arg;
	const struct sandbox_snapshot *s = &job->snap;
	struct store_event event = { job->actor, "snapshot.named", s->sandbox_id,
		str_of(job->data) };
	struct store_cause cause = { .team_id = s->team_id, .agent_id = s->agent_id };
	int r = store_exec(tx,
		"UPDATE snapshots SET template_id = $1, alias = $2, tag = $3, named_by = $4 "
		"WHERE image = $5",
		STORE_PARAMS(P_TEXT(s->template_id), P_TEXT(s->alias), P_TEXT(s->tag),
			P_STR(s->named_by[0] ? str_of(s->named_by) : STR_NONE), P_TEXT(s->image)),
		e);

	return r < 0 ? r : store_add_caused_event(tx, &event, &cause, e);
}

void snap_rows_name(struct store *store, const struct sandbox_snapshot *snap, const char *actor,
	done_fn done, void *arg)
{
	struct snap_job *job = XNEW(struct snap_job);

	job->snap = *snap;
	(void)snprintf(job->actor, sizeof job->actor, "%s", actor);
	(void)snprintf(job->data, sizeof job->data, "{\"name\":\"%s:%s\"}", snap->alias,
		snap->tag); /* of letters, digits, '-', '_' and '.' */
	job->done = done;
	job->arg = arg;
	store_run_for(store, snap->team_id, rename_row, job_done, job);
}

static int delete_row(struct store_tx *tx, void *arg, struct err *e)
{
	const struct snap_job *job = arg;
	struct store_event event = { job->actor, "snapshot.deleted", job->snap.image, STR_NONE };
	struct store_cause cause = { .team_id = job->snap.team_id, .agent_id = job->snap.agent_id };
	int r = remove_row(tx, job->snap.image, e);

	return r < 0 ? r : store_add_caused_event(tx, &event, &cause, e);
}

void snap_rows_delete(struct store *store, const struct sandbox_snapshot *snap, const char *actor,
	done_fn done, void *arg)
{
	struct snap_job *job = XNEW(struct snap_job);

	job->snap = *snap;
	(void)snprintf(job->actor, sizeof job->actor, "%s", actor);
	job->done = done;
	job->arg = arg;
	store_run_for(store, snap->team_id, delete_row, job_done, job);
}

static int load_row(void *arg, const struct store_row *row, struct err *e)
{
	struct snap *snap = XNEW(struct snap);
	struct sandbox_snapshot *s = &snap->view;

	(void)e;
	store_copy_text(row, 0, s->image, sizeof s->image);
	store_copy_text(row, 1, s->team_id, sizeof s->team_id);
	store_copy_text(row, 2, s->template_id, sizeof s->template_id);
	store_copy_text(row, 3, s->alias, sizeof s->alias);
	store_copy_text(row, 4, s->tag, sizeof s->tag);
	store_copy_text(row, 5, s->base_template, sizeof s->base_template);
	store_copy_text(row, 6, s->sandbox_id, sizeof s->sandbox_id);
	s->cpu_count = store_int(row, 7);
	s->memory_mb = store_int(row, 8);
	s->disk_mb = store_int(row, 9);
	s->created_us = store_int(row, 10);
	store_copy_text(row, 11, s->runtime, sizeof s->runtime);
	store_copy_text(row, 12, s->agent_id, sizeof s->agent_id);
	s->size_mb = store_int(row, 13);
	store_copy_text(row, 14, s->named_by, sizeof s->named_by);
	s->is_nested = store_int(row, 15) != 0;
	list_append(arg, &snap->node);
	return 0;
}

int snap_load(struct store_tx *tx, struct list *snaps, struct err *e)
{
	return store_query(tx,
		"SELECT image, team_id, template_id, alias, tag, base_template, sandbox_id, "
		"cpu_count, "
		"memory_mb, disk_mb, created_us, runtime, agent_id, size_mb, named_by, "
		"is_nested FROM "
		"snapshots ORDER "
		"BY created_us DESC, "
		"image",
		NULL, 0, load_row, snaps, e);
}

void snap_list_free(struct list *snaps)
{
	LIST_EACH(snaps, node)
	free(container_of(node, struct snap, node));
	list_init(snaps);
}
