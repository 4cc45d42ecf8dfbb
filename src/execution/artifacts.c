/* The artifacts table and its files: a row for each file of DATA/state/artifacts. A row is written
 * when its file is whole, and goes before its file does; what no row names is swept. */
#include "execution/execution-internal.h"

#include <dirent.h>
#include <sys/stat.h>

enum {
	SWEEP_FIRST_MS = 5000,
	SWEEP_MS = 60000,
	ORPHANS_MS = 3600 * 1000, /* each file costs a question */
	SWEEP_AT_ONCE = 200,
	SLACK_US = 600 * 1000 * 1000, /* by which the clock may have been put back */
	ARENA_BYTES = 16 << 20,
	ORPHAN_S = 24 * 3600, /* a file without a row may be one that is being written */
};

struct artifact_op {
	struct execution_book *book;
	char team_id[SANDBOX_TEAM_SIZE], agent_id[EXECUTION_NAME_SIZE], actor[ACTOR_SIZE];
	char sandbox_id[SANDBOX_ID_SIZE], task_id[EXECUTION_NAME_SIZE], id[UUID_SIZE];
	int64_t before_us;
	size_t limit;
	struct arena *arena;
	struct execution_artifact *v;
	size_t n;
	int fd;
	execution_artifacts_fn fn;
	execution_artifact_fn open_fn;
	done_fn done;
	void *arg;
};

static struct artifact_op *op_new(struct execution_book *book, const struct sandbox_owner *who,
	size_t limit, void *arg)
{
	struct artifact_op *op = XNEW(struct artifact_op);

	op->book = book;
	op->arg = arg;
	op->fd = -EBADF;
	op->limit = limit;
	op->arena = arena_new(ARENA_BYTES);
	op->v = arena_alloc(op->arena, (limit + 1) * sizeof *op->v);
	if (who) {
		(void)snprintf(op->team_id, sizeof op->team_id, "%s", who->team_id);
		(void)snprintf(op->agent_id, sizeof op->agent_id, "%s", or_empty(who->agent_id));
	}
	return op;
}

static void op_free(struct artifact_op *op)
{
	close_fdp(&op->fd);
	op->arena = arena_free(op->arena);
	free(op);
}

static void keep_id(char *to, size_t size, struct str id)
{
	if (id.n < size)
		(void)snprintf(to, size, "%.*s", STR_ARG(id));
	else
		(void)snprintf(to, size, "?"); /* nothing is called so */
}

static int add_row(void *arg, const struct store_row *row, struct err *e)
{
	struct artifact_op *op = arg;
	struct execution_artifact *a = &op->v[op->n];
	struct str path = store_text(row, 4);
	char *copy = arena_dup(op->arena, path);

	if (!op->v || !copy || op->n > op->limit)
		return err_set(e, -E2BIG, "the answer is too large: ask for less");
	op->n++;
	store_copy_text(row, 0, a->id, sizeof a->id);
	store_copy_text(row, 1, a->agent_id, sizeof a->agent_id);
	store_copy_text(row, 2, a->task_id, sizeof a->task_id);
	store_copy_text(row, 3, a->sandbox_id, sizeof a->sandbox_id);
	a->path = str_make(copy, path.n);
	a->bytes = store_int(row, 5);
	store_copy_text(row, 6, a->sha256, sizeof a->sha256);
	a->created_us = store_int(row, 7);
	a->expires_us = store_int(row, 8);
	return 0;
}

#define ARTIFACT_COLUMNS \
	"id, agent_id, task_id, sandbox_id, path, bytes, sha256, created_us, expires_us"

/* ---- a page ---- */

static int read_page(struct store_tx *tx, void *arg, struct err *e)
{
	struct artifact_op *op = arg;

	op->n = 0; /* a transaction may be tried again */
	return store_query(tx,
		"SELECT " ARTIFACT_COLUMNS " FROM artifacts WHERE ($1 = '' OR team_id = $1) "
		"AND ($2 = '' OR agent_id = $2) AND ($3 = '' OR sandbox_id = $3) "
		"AND ($4 = '' OR task_id = $4) AND expires_us > $5 "
		"AND (created_us < $6 OR (created_us = $6 AND id < $7)) "
		"ORDER BY created_us DESC, id DESC LIMIT $8",
		STORE_PARAMS(P_TEXT(op->team_id), P_TEXT(op->agent_id), P_TEXT(op->sandbox_id),
			P_TEXT(op->task_id), P_INT(time_wall_us()), P_INT(op->before_us),
			P_TEXT(op->id), P_INT((int64_t)op->limit + 1)),
		add_row, op, e);
}

static void page_read(void *arg, int r, const struct err *e)
{
	struct artifact_op *op = arg;

	op->fn(op->arg, MIN(r, 0), op->v, MIN(op->n, op->limit), op->n > op->limit, e);
	op_free(op);
}

void execution_list_artifacts(struct execution_book *book,
	const struct execution_artifact_query *query, execution_artifacts_fn fn, void *arg)
{
	struct artifact_op *op = op_new(book, query->who, query->limit, arg);

	op->fn = fn;
	op->before_us = query->before_us > 0 ? query->before_us : INT64_MAX;
	keep_id(op->id, sizeof op->id, query->before_id);
	keep_id(op->sandbox_id, sizeof op->sandbox_id, query->sandbox_id);
	keep_id(op->task_id, sizeof op->task_id, query->task_id);
	flight_read(book, read_page, page_read, op);
}

/* ---- one ---- */

static int read_one(struct store_tx *tx, void *arg, struct err *e)
{
	struct artifact_op *op = arg;
	int r;

	op->n = 0;
	r = store_query(tx,
		"SELECT " ARTIFACT_COLUMNS
		" FROM artifacts WHERE id = $1 AND ($2 = '' OR team_id = $2) "
		"AND ($3 = '' OR agent_id = $3) AND expires_us > $4",
		STORE_PARAMS(P_TEXT(op->id), P_TEXT(op->team_id), P_TEXT(op->agent_id),
			P_INT(time_wall_us())),
		add_row, op, e);

	return r >= 0 && op->n == 0
		       ? err_set(e, -ENOENT, "there is no artifact '%s', or no more", op->id)
		       : r;
}

static int open_one(struct store_tx *tx, void *arg, struct err *e)
{
	struct artifact_op *op = arg;
	int r = read_one(tx, op, e);

	if (r < 0)
		return r;
	close_fdp(&op->fd);
	op->fd = openat(op->book->config.artifacts_fd, op->id, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return op->fd < 0 ? err_sys(e, errno == ENOENT ? -ENOENT : -EIO, "open the artifact") : 0;
}

static void one_opened(void *arg, int r, const struct err *e)
{
	struct artifact_op *op = arg;

	op->open_fn(op->arg, r < 0 ? r : TAKE_FD(op->fd), r < 0 ? NULL : op->v, e);
	op_free(op);
}

void execution_open_artifact(struct execution_book *book, const struct sandbox_owner *who,
	struct str id, execution_artifact_fn fn, void *arg)
{
	struct artifact_op *op = op_new(book, who, 1, arg);

	op->open_fn = fn;
	keep_id(op->id, sizeof op->id, id);
	flight_read(book, open_one, one_opened, op);
}

static int delete_one(struct store_tx *tx, void *arg, struct err *e)
{
	struct artifact_op *op = arg;
	struct store_event event = { op->actor, "artifact.deleted", op->id, STR_NONE };
	struct store_cause cause = { 0 };
	int r = read_one(tx, op, e);

	if (r < 0)
		return r;
	cause = (struct store_cause){ .team_id = op->team_id,
		.agent_id = op->v[0].agent_id,
		.task_id = op->v[0].task_id };
	r = store_exec(tx, "DELETE FROM artifacts WHERE id = $1", STORE_PARAMS(P_TEXT(op->id)), e);
	return r < 0 ? r : store_add_caused_event(tx, &event, &cause, e);
}

static void one_deleted(void *arg, int r, const struct err *e)
{
	struct artifact_op *op = arg;

	if (r >= 0) {
		(void)unlinkat(op->book->config.artifacts_fd, op->id, 0);
		(void)kept_add(op->book, op->team_id, -op->v[0].bytes - KEPT_FILE_BYTES, NULL);
	}
	op->done(op->arg, MIN(r, 0), e);
	op_free(op);
}

void execution_delete_artifact(struct execution_book *book, const struct sandbox_owner *who,
	struct str id, const char *actor, done_fn done, void *arg)
{
	struct artifact_op *op = op_new(book, who, 1, arg);

	op->done = done;
	keep_id(op->id, sizeof op->id, id);
	(void)snprintf(op->actor, sizeof op->actor, "%s", actor);
	flight_run(book, op->team_id, delete_one, one_deleted, op);
}

/* ---- the sweep ---- */

struct sweep {
	struct execution_book *book;
	int64_t now_us;
	bool is_for_orphans; /* too */
	char ids[SWEEP_AT_ONCE][UUID_SIZE];
	struct {
		char team_id[SANDBOX_TEAM_SIZE];
		int64_t bytes;
	} of[SWEEP_AT_ONCE]; /* of those that had a row */
	size_t n, n_rows;
	int64_t from_us, before_us; /* whose output goes, by when they ended */
	int64_t history_us;         /* and who goes at all; 0: nobody */
	struct history_over over[KEPT_MAX_OVER];
	size_t n_over;
	bool has_more, has_old_output;
};

static int add_expired(void *arg, const struct store_row *row, struct err *e)
{
	struct sweep *s = arg;

	(void)e;
	if (s->n == SWEEP_AT_ONCE)
		return 0;
	store_copy_text(row, 0, s->ids[s->n], UUID_SIZE);
	store_copy_text(row, 1, s->of[s->n].team_id, SANDBOX_TEAM_SIZE);
	s->of[s->n++].bytes = store_int(row, 2);
	return 0;
}

static int note_known(void *arg, const struct store_row *row, struct err *e)
{
	(void)row;
	(void)e;
	*(bool *)arg = true;
	return 0;
}

/* Files that a crash left without a row. */
static int add_orphans(struct store_tx *tx, struct sweep *s, struct err *e)
{
	int fd = openat(s->book->config.artifacts_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	int r = 0;

	if (!dir) {
		close_fdp(&fd);
		return 0;
	}
	while (r >= 0 && s->n < SWEEP_AT_ONCE && (entry = readdir(dir))) {
		struct str name = str_of(entry->d_name);
		bool is_known = false;
		struct stat st;

		if (!str_is_uuid(name) ||
			fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
			s->now_us / 1000000 - st.st_mtime < ORPHAN_S)
			continue;
		r = store_query(tx, "SELECT 1 FROM artifacts WHERE id = $1",
			STORE_PARAMS(P_STR(name)), note_known, &is_known, e);
		if (r >= 0 && !is_known)
			(void)snprintf(s->ids[s->n++], UUID_SIZE, "%s", entry->d_name);
	}
	(void)closedir(dir);
	return r;
}

/* Of teams that have more than they may. */
static int make_room(struct store_tx *tx, struct sweep *s, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < s->n_over; i++) {
		r = history_make_room(tx, &s->over[i], e);
		s->has_more |= r > 0;
	}
	return r;
}

static int find_expired(struct store_tx *tx, void *arg, struct err *e)
{
	struct sweep *s = arg;
	int r;

	s->n = 0;
	s->has_more = false;
	r = store_query(tx,
		"SELECT id, team_id, bytes FROM artifacts WHERE expires_us <= $1 ORDER BY "
		"expires_us LIMIT $2",
		STORE_PARAMS(P_INT(s->now_us), P_INT(SWEEP_AT_ONCE)), add_expired, s, e);

	for (size_t i = 0; r >= 0 && i < s->n; i++)
		r = store_exec(tx, "DELETE FROM artifacts WHERE id = $1",
			STORE_PARAMS(P_TEXT(s->ids[i])), e);
	s->n_rows = s->n;
	if (r >= 0)
		r = history_trim_output(tx, s->from_us, s->before_us, e);
	s->has_old_output = s->has_more = r > 0;
	if (r >= 0 && s->history_us) {
		r = history_trim(tx, s->history_us, e);
		s->has_more |= r > 0;
	}
	if (r >= 0)
		r = make_room(tx, s, e);
	return r < 0 || !s->is_for_orphans ? r : add_orphans(tx, s, e);
}

static int unlink_all(void *arg, struct err *e)
{
	const struct sweep *s = arg;

	(void)e;
	for (size_t i = 0; i < s->n; i++)
		(void)unlinkat(s->book->config.artifacts_fd, s->ids[i], 0);
	return 0;
}

static int64_t pause_ms(const struct execution_book *book)
{
	int64_t history_ms = book->config.history_s * 1000;

	return history_ms ? MIN(SWEEP_MS, history_ms) : SWEEP_MS;
}

static void swept(void *arg, int r, const struct err *e)
{
	struct sweep *s = arg;
	struct execution_book *book = s->book;
	bool is_full = s->n == SWEEP_AT_ONCE || s->has_more;

	(void)r;
	(void)e;
	if (s->n)
		log_info("artifacts.swept", "files=%zu", s->n);
	for (size_t i = 0; i < s->n_rows; i++)
		(void)kept_add(book, s->of[i].team_id, -s->of[i].bytes - KEPT_FILE_BYTES, NULL);
	book->is_sweeping = false;
	flight_end(book);
	if (!book->is_stopping)
		loop_timer_set(&book->sweep, time_now_ms() + (is_full ? FLUSH_MS : pause_ms(book)));
	free(s);
}

static void expired_found(void *arg, int r, const struct err *e)
{
	struct sweep *s = arg;

	if (r < 0) {
		log_warn("artifacts.sweep_failed", "err=%s", log_quote(str_of(e->msg)));
		s->n = s->n_rows = 0;
		s->has_more = false;
	} else if (!s->has_old_output) {
		s->book->output_from_us = s->before_us - SLACK_US;
	}
	flight_begin(s->book);
	loop_job(s->book->config.loop, LOOP_ANY, unlink_all, swept, s);
}

static void on_sweep(void *arg)
{
	struct execution_book *book = arg;
	struct sweep *s;

	if (book->is_sweeping)
		return;
	s = XNEW(struct sweep);
	s->book = book;
	s->now_us = time_wall_us();
	s->from_us = book->output_from_us;
	s->before_us = s->now_us - book->config.output_s * 1000000;
	if (book->config.history_s)
		s->history_us = time_past_us(&book->past, book->config.history_s);
	s->n_over = kept_over(book, s->over);
	s->is_for_orphans = time_now_ms() >= book->orphans_at_ms;
	if (s->is_for_orphans)
		book->orphans_at_ms = time_now_ms() + ORPHANS_MS;
	book->is_sweeping = true;
	flight_run(book, "", find_expired, expired_found, s);
}

void artifacts_sweep_start(struct execution_book *book)
{
	loop_timer_init(&book->sweep, book->config.loop, on_sweep, book);
	loop_timer_set(&book->sweep, time_now_ms() + SWEEP_FIRST_MS);
}

void artifacts_sweep_soon(struct execution_book *book)
{
	if (!book->is_sweeping && !book->is_stopping)
		loop_timer_set(&book->sweep, time_now_ms());
}
