/* The secrets tables. Everything here runs in a job and touches only its op. */
#include "secret/secret-internal.h"

static int count_row(void *arg, const struct store_row *row, struct err *e)
{
	(void)e;
	*(int64_t *)arg = store_int(row, 0);
	return 0;
}

static int check_count(struct store_tx *tx, const struct secret_op *op, struct err *e)
{
	int64_t n = 0;
	int r = store_query(tx, "SELECT COUNT(*) FROM secrets WHERE team_id = $1",
		STORE_PARAMS(P_TEXT(op->team_id)), count_row, &n, e);

	if (r >= 0 && n >= op->most)
		r = err_set(e, -EDQUOT,
			"the limit of your team, %" PRId64
			" secrets, is reached: remove some first",
			op->most);
	return r;
}

static int insert_version(struct store_tx *tx, struct secret_op *op, struct err *e)
{
	int r = op_seal(op, e);

	if (r < 0)
		return r;
	return store_exec(tx,
		"INSERT INTO secret_versions (secret_id, version, box, created_us) "
		"VALUES ($1, $2, $3, $4)",
		STORE_PARAMS(P_TEXT(op->secret.id), P_INT(op->secret.version),
			P_STR(buf_str(&op->box)), P_INT(op->secret.updated_us)),
		e);
}

static int add_event(struct store_tx *tx, const struct secret_op *op, const char *kind,
	struct err *e)
{
	CLEANUP(buf_done) struct buf data = BUF_INIT(1024);
	struct store_event event = { .actor = op->actor, .kind = kind, .subject = op->secret.id };
	struct store_cause cause = { .team_id = op->team_id };
	struct jsonw w;

	jsonw_init(&w, &data);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "name", op->secret.name);
	jsonw_int(&w, "version", op->secret.version);
	jsonw_end_object(&w);
	event.data = buf_str(&data);
	return store_add_caused_event(tx, &event, &cause, e);
}

int rows_create(struct store_tx *tx, void *arg, struct err *e)
{
	struct secret_op *op = arg;
	struct secret *s = &op->secret;
	int r = check_count(tx, op, e);

	if (r < 0)
		return r;
	(void)snprintf(s->name, sizeof s->name, "%s", op->which);
	memcpy(s->id, "sec_", 4);
	uuid_make(s->id + 4);
	s->version = 1;
	s->created_us = s->updated_us = time_wall_us();
	r = store_exec(tx,
		"INSERT INTO secrets (id, team_id, name, version, metadata, created_us, "
		"updated_us) VALUES ($1, $2, $3, 1, $4, $5, $5)",
		STORE_PARAMS(P_TEXT(s->id), P_TEXT(op->team_id), P_TEXT(s->name),
			P_STR(buf_str(&op->metadata)), P_INT(s->created_us)),
		e);
	if (r == -EEXIST)
		return err_set(e, -EEXIST, "a secret named '%s' exists already", s->name);
	if (r >= 0)
		r = insert_version(tx, op, e);
	return r < 0 ? r : add_event(tx, op, "secret.created", e);
}

static int read_secret(void *arg, const struct store_row *row, struct err *e)
{
	struct secret_op *op = arg;
	struct secret *s = &op->secret;

	(void)e;
	store_copy_text(row, 0, s->id, sizeof s->id);
	store_copy_text(row, 1, s->name, sizeof s->name);
	s->version = store_int(row, 2);
	s->created_us = store_int(row, 4);
	s->updated_us = store_int(row, 5);
	if (!op->has_metadata) {
		buf_clear(&op->metadata);
		(void)buf_add_str(&op->metadata, store_text(row, 3));
	}
	return 0;
}

int rows_get(struct store_tx *tx, void *arg, struct err *e)
{
	struct secret_op *op = arg;
	int r = store_query(tx,
		"SELECT id, name, version, metadata, created_us, updated_us FROM secrets "
		"WHERE team_id = $1 AND (id = $2 OR name = $2)",
		STORE_PARAMS(P_TEXT(op->team_id), P_TEXT(op->which)), read_secret, op, e);

	if (r >= 0 && !op->secret.id[0])
		r = err_set(e, -ENOENT, "secret '%s' not found", op->which);
	return r;
}

int rows_update(struct store_tx *tx, void *arg, struct err *e)
{
	struct secret_op *op = arg;
	struct secret *s = &op->secret;
	int r = rows_get(tx, op, e);

	if (r < 0)
		return r;
	s->version++;
	s->updated_us = time_wall_us();
	r = store_exec(tx,
		"UPDATE secrets SET version = $1, metadata = $2, updated_us = $3 WHERE id = $4",
		STORE_PARAMS(P_INT(s->version), P_STR(buf_str(&op->metadata)), P_INT(s->updated_us),
			P_TEXT(s->id)),
		e);
	if (r >= 0)
		r = insert_version(tx, op, e);
	if (r >= 0) /* nobody can ask for those before: a value that was replaced is gone */
		r = store_exec(tx,
			"DELETE FROM secret_versions WHERE secret_id = $1 AND version < $2",
			STORE_PARAMS(P_TEXT(s->id), P_INT(s->version)), e);
	return r < 0 ? r : add_event(tx, op, "secret.updated", e);
}

int rows_remove(struct store_tx *tx, void *arg, struct err *e)
{
	struct secret_op *op = arg;
	int r = rows_get(tx, op, e);

	if (r >= 0)
		r = store_exec(tx, "DELETE FROM secret_versions WHERE secret_id = $1",
			STORE_PARAMS(P_TEXT(op->secret.id)), e);
	if (r >= 0)
		r = store_exec(tx, "DELETE FROM secrets WHERE id = $1",
			STORE_PARAMS(P_TEXT(op->secret.id)), e);
	return r < 0 ? r : add_event(tx, op, "secret.removed", e);
}

static int read_box(void *arg, const struct store_row *row, struct err *e)
{
	struct secret_op *op = arg;

	(void)e;
	return buf_add_str(&op->box, store_text(row, 0));
}

int rows_open(struct store_tx *tx, void *arg, struct err *e)
{
	struct secret_op *op = arg;
	int r = rows_get(tx, op, e);

	if (r >= 0)
		r = store_query(tx,
			"SELECT box FROM secret_versions WHERE secret_id = $1 AND version = $2",
			STORE_PARAMS(P_TEXT(op->secret.id), P_INT(op->secret.version)), read_box,
			op, e);
	return r < 0 ? r : op_open(op, e);
}
