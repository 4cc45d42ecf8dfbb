/* The requests table: what was asked for with an Idempotency-Key and leaves nothing that would say
 * so. A row is there before anything is done, so that a server that dies at any moment leaves one;
 * the next server reads them all, and does none of it again. */
#include "api/api-internal.h"

enum {
	ANSWER_BYTES = 1 << 20, /* sealed: more than is kept of any */
};

struct row_job {
	struct once_row row;
	uint8_t key[SHA256_SIZE];
	struct buf answer;
	int64_t before_us;
	done_fn done; /* NULL: nobody waits */
	void *arg;
};

static struct row_job *job_new(const char *name)
{
	struct row_job *job = XNEW(struct row_job);

	(void)snprintf(job->row.name, sizeof job->row.name, "%s", name);
	job->answer = BUF_INIT(ANSWER_BYTES);
	return job;
}

static void job_done(void *arg, int r, const struct err *e)
{
	struct row_job *job = arg;

	if (job->done)
		job->done(job->arg, MIN(r, 0), e);
	else if (r < 0) /* the key is then refused after a restart, until its time is up */
		log_warn("once.row_failed", "err=%s", log_quote(str_of(e->msg)));
	buf_done(&job->answer);
	explicit_bzero(job->key, sizeof job->key);
	free(job);
}

static int insert(struct store_tx *tx, void *arg, struct err *e)
{
	const struct row_job *job = arg;
	char body[2 * SHA256_SIZE + 1];
	int r = store_exec(tx, "DELETE FROM requests WHERE asked_us < $1",
		STORE_PARAMS(P_INT(job->before_us)), e);

	if (r < 0)
		return r;
	hex_encode(job->row.body, sizeof job->row.body, body);
	return store_exec(tx,
		"INSERT INTO requests (name, body, team_id, asked_us, status) "
		"VALUES ($1, $2, $3, $4, 0) ON CONFLICT (name) DO UPDATE SET "
		"body = EXCLUDED.body, asked_us = EXCLUDED.asked_us, status = 0, answer = NULL",
		STORE_PARAMS(P_TEXT(job->row.name), P_TEXT(body), P_TEXT(job->row.team_id),
			P_INT(job->row.asked_us)),
		e);
}

void once_row_insert(struct store *store, const struct once_row *row, int64_t forget_before_us,
	done_fn done, void *arg)
{
	struct row_job *job = job_new(row->name);

	job->row = *row;
	job->before_us = forget_before_us;
	job->done = done;
	job->arg = arg;
	store_run_for(store, row->team_id, insert, job_done, job);
}

static int add_answer(struct store_tx *tx, void *arg, struct err *e)
{
	const struct row_job *job = arg;
	CLEANUP(buf_done) struct buf sealed = BUF_INIT(ANSWER_BYTES);
	int r = seal_text(job->key, buf_str(&job->answer), &sealed); /* it may hold tokens */

	if (r < 0)
		return err_set(e, r, "seal an answer");
	return store_exec(tx, "UPDATE requests SET status = $1, answer = $2 WHERE name = $3",
		STORE_PARAMS(P_INT(job->row.status), P_STR(buf_str(&sealed)),
			P_TEXT(job->row.name)),
		e);
}

void once_row_answer(struct store *store, const uint8_t key[SHA256_SIZE], const char *name,
	int status, struct str answer)
{
	struct row_job *job = job_new(name);

	memcpy(job->key, key, sizeof job->key);
	job->row.status = status;
	(void)buf_add_str(&job->answer, answer);
	store_record(store, add_answer, job_done, job);
}

static int remove_row(struct store_tx *tx, void *arg, struct err *e)
{
	const struct row_job *job = arg;

	return store_exec(tx, "DELETE FROM requests WHERE name = $1",
		STORE_PARAMS(P_TEXT(job->row.name)), e);
}

void once_row_remove(struct store *store, const char *name)
{
	store_record(store, remove_row, job_done, job_new(name));
}

/* ---- at start ---- */

struct load {
	const uint8_t *key;
	int64_t from_us;
	once_row_fn fn;
	void *arg;
};

static int load_row(void *arg, const struct store_row *from, struct err *e)
{
	const struct load *load = arg;
	CLEANUP(buf_done) struct buf answer = BUF_INIT(ANSWER_BYTES);
	struct once_row row = { 0 };

	(void)e;
	store_copy_text(from, 0, row.name, sizeof row.name);
	store_copy_text(from, 2, row.team_id, sizeof row.team_id);
	row.asked_us = store_int(from, 3);
	row.status = (int)store_int(from, 4);
	if (hex_decode(store_text(from, 1), row.body, sizeof row.body) < 0 ||
		(row.status > ONCE_UNTOLD &&
			unseal_text(load->key, store_text(from, 5), &answer) < 0))
		row.status = 0; /* with another seed: all that is known is that it was begun */
	load->fn(load->arg, &row, buf_str(&answer));
	return 0;
}

static int load_all(struct store_tx *tx, void *arg, struct err *e)
{
	struct load *load = arg;
	int r = store_exec(tx, "DELETE FROM requests WHERE asked_us < $1",
		STORE_PARAMS(P_INT(load->from_us)), e);

	return r < 0 ? r
		     : store_query(tx,
			       "SELECT name, body, team_id, asked_us, status, answer "
			       "FROM requests ORDER BY asked_us, name",
			       NULL, 0, load_row, load, e);
}

int once_rows_load(struct store *store, const uint8_t key[SHA256_SIZE], int64_t from_us,
	once_row_fn fn, void *arg, struct err *e)
{
	struct load load = { key, from_us, fn, arg };
	int r = store_run_now(store, load_all, &load, e);

	return r < 0 ? err_wrap(e, r, "read remembered requests") : 0;
}
