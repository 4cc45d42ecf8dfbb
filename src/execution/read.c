/* What is known of commands: of those that run from memory, of the others from the store. */
#include "execution/execution-internal.h"

enum {
	READ_ARENA_BYTES = 64 << 20,
	CHUNKS_MAX_BYTES = 4 << 20, /* of one answer */
};

struct read_op {
	struct execution_book *book;
	char team_id[SANDBOX_TEAM_SIZE], agent_id[EXECUTION_NAME_SIZE];
	char sandbox_id[SANDBOX_ID_SIZE];
	int64_t n, from;
	size_t limit, bytes;
	struct arena *arena;
	struct command *command; /* it runs: its view is the answer */
	struct loop_task task;
	struct execution *v;
	size_t n_v;
	struct execution_chunk *chunks;
	size_t n_chunks;
	bool is_known;
	execution_fn fn;
	execution_page_fn page_fn;
	execution_chunks_fn chunks_fn;
	void *arg;
};

static struct read_op *op_new(struct execution_book *book, const struct execution_ref *ref,
	void *arg)
{
	struct read_op *op = XNEW(struct read_op);

	op->book = book;
	op->arena = arena_new(READ_ARENA_BYTES);
	op->n = ref->n;
	op->arg = arg;
	if (ref->who) {
		(void)snprintf(op->team_id, sizeof op->team_id, "%s", ref->who->team_id);
		(void)snprintf(op->agent_id, sizeof op->agent_id, "%s",
			or_empty(ref->who->agent_id));
	}
	if (ref->sandbox_id.n < sizeof op->sandbox_id)
		(void)snprintf(op->sandbox_id, sizeof op->sandbox_id, "%.*s",
			STR_ARG(ref->sandbox_id));
	return op;
}

static void op_free(struct read_op *op)
{
	command_unref(op->command);
	op->arena = arena_free(op->arena);
	free(op);
}

static int not_found(const struct read_op *op, struct err *e)
{
	return err_set(e, -ENOENT, "sandbox '%s' has no execution %" PRId64, op->sandbox_id, op->n);
}

/* ---- one ---- */

static int add_row(void *arg, const struct store_row *row, struct err *e)
{
	struct read_op *op = arg;

	return execution_read_row(row, &op->v[op->n_v++], op->arena) < 0
		       ? err_set(e, -E2BIG, "the answer is too large: ask for less")
		       : 0;
}

static int read_one(struct store_tx *tx, struct read_op *op, struct err *e)
{
	int r;

	op->n_v = 0; /* a transaction may be tried again */
	op->v = arena_alloc(op->arena, sizeof *op->v);
	r = store_query(tx,
		"SELECT " EXECUTION_COLUMNS
		" FROM executions e JOIN sandboxes s ON s.id = e.sandbox_id "
		"WHERE e.sandbox_id = $1 AND e.n = $2 AND ($3 = '' OR s.team_id = $3) "
		"AND ($4 = '' OR s.agent_id = $4)",
		STORE_PARAMS(P_TEXT(op->sandbox_id), P_INT(op->n), P_TEXT(op->team_id),
			P_TEXT(op->agent_id)),
		add_row, op, e);
	return r >= 0 && op->n_v == 0 ? not_found(op, e) : r;
}

static int read_one_work(struct store_tx *tx, void *arg, struct err *e)
{
	return read_one(tx, arg, e);
}

static void one_read(void *arg, int r, const struct err *e)
{
	struct read_op *op = arg;

	op->fn(op->arg, MIN(r, 0), r < 0 ? NULL : op->v, e);
	op_free(op);
}

static void tell_running(void *arg)
{
	struct read_op *op = arg;

	op->fn(op->arg, 0, &op->command->view, NULL);
	op_free(op);
}

void execution_get(struct execution_book *book, const struct execution_ref *ref, execution_fn fn,
	void *arg)
{
	struct read_op *op = op_new(book, ref, arg);
	struct command *c = command_find(book, ref);

	op->fn = fn;
	if (c) {
		op->command = command_ref(c);
		loop_defer(book->config.loop, &op->task, tell_running, op);
	} else {
		flight_read(book, read_one_work, one_read, op);
	}
}

/* ---- a page ---- */

static int note_known(void *arg, const struct store_row *row, struct err *e)
{
	(void)row;
	(void)e;
	*(bool *)arg = true;
	return 0;
}

static int read_page(struct store_tx *tx, void *arg, struct err *e)
{
	struct read_op *op = arg;
	int r = store_query(tx,
		"SELECT 1 FROM sandboxes WHERE id = $1 AND ($2 = '' OR team_id = $2) "
		"AND ($3 = '' OR agent_id = $3)",
		STORE_PARAMS(P_TEXT(op->sandbox_id), P_TEXT(op->team_id), P_TEXT(op->agent_id)),
		note_known, &op->is_known, e);

	if (r >= 0 && !op->is_known)
		return err_set(e, -ENOENT, "there is no sandbox '%s'", op->sandbox_id);
	op->n_v = 0;
	op->v = arena_alloc(op->arena, (op->limit + 1) * sizeof *op->v);
	if (!op->v)
		return err_set(e, -E2BIG, "the answer is too large: ask for less");
	return r < 0 ? r
		     : store_query(tx,
			       "SELECT " EXECUTION_COLUMNS " FROM executions e "
			       "WHERE e.sandbox_id = $1 AND e.n < $2 ORDER BY e.n DESC LIMIT $3",
			       STORE_PARAMS(P_TEXT(op->sandbox_id), P_INT(op->from),
				       P_INT((int64_t)op->limit + 1)),
			       add_row, op, e);
}

/* Rows lag a moment behind those that run. */
static void freshen(struct read_op *op)
{
	for (size_t i = 0; i < op->n_v; i++) {
		struct execution_ref ref = { NULL, str_of(op->v[i].sandbox_id), op->v[i].n };
		const struct command *c = command_find(op->book, &ref);
		struct str command = op->v[i].command, cwd = op->v[i].cwd;

		if (!c)
			continue;
		op->v[i] = c->view;
		op->v[i].command = command;
		op->v[i].cwd = cwd;
	}
}

static void page_read(void *arg, int r, const struct err *e)
{
	struct read_op *op = arg;

	if (r >= 0)
		freshen(op);
	op->page_fn(op->arg, MIN(r, 0), op->v, MIN(op->n_v, op->limit), op->n_v > op->limit, e);
	op_free(op);
}

void execution_list(struct execution_book *book, const struct execution_ref *ref, int64_t before,
	size_t limit, execution_page_fn fn, void *arg)
{
	struct read_op *op = op_new(book, ref, arg);

	op->from = before > 0 ? before : INT64_MAX;
	op->limit = limit;
	op->page_fn = fn;
	flight_read(book, read_page, page_read, op);
}

/* ---- output ---- */

static int add_chunk(void *arg, const struct store_row *row, struct err *e)
{
	CLEANUP(buf_done) struct buf bytes = BUF_INIT(CHUNKS_MAX_BYTES);
	struct read_op *op = arg;
	char *copy;

	if (op->bytes > CHUNKS_MAX_BYTES)
		return 0; /* enough for one answer: the next begins here */
	if (base64_decode(store_text(row, 3), &bytes) < 0)
		return err_set(e, -EBADMSG, "stored output is damaged");
	copy = arena_dup(op->arena, buf_str(&bytes));
	if (!copy)
		return err_set(e, -E2BIG, "the answer is too large: ask for less");
	op->chunks[op->n_chunks++] = (struct execution_chunk){ .seq = store_int(row, 0),
		.at_us = store_int(row, 1),
		.stream = (enum execution_stream)store_int(row, 2),
		.bytes = { copy, bytes.n } };
	op->bytes += bytes.n + CHUNK_COST;
	return 0;
}

static int read_chunks(struct store_tx *tx, void *arg, struct err *e)
{
	struct read_op *op = arg;
	int r = read_one(tx, op, e);

	if (r < 0)
		return r;
	op->n_chunks = op->bytes = 0;
	op->chunks = arena_alloc(op->arena, op->limit * sizeof *op->chunks);
	if (!op->chunks)
		return err_set(e, -E2BIG, "the answer is too large: ask for less");
	return store_query(tx,
		"SELECT seq, at_us, stream, data FROM output "
		"WHERE sandbox_id = $1 AND n = $2 AND seq >= $3 ORDER BY seq LIMIT $4",
		STORE_PARAMS(P_TEXT(op->sandbox_id), P_INT(op->n), P_INT(op->from),
			P_INT((int64_t)op->limit)),
		add_chunk, op, e);
}

static void chunks_read(void *arg, int r, const struct err *e)
{
	struct read_op *op = arg;

	op->chunks_fn(op->arg, MIN(r, 0), r < 0 ? NULL : op->v, op->chunks, op->n_chunks, e);
	op_free(op);
}

void execution_logs(struct execution_book *book, const struct execution_ref *ref, int64_t from,
	size_t limit, execution_chunks_fn fn, void *arg)
{
	struct read_op *op = op_new(book, ref, arg);

	op->from = MAX(from, 1);
	op->limit = limit;
	op->chunks_fn = fn;
	flight_read(book, read_chunks, chunks_read, op);
}
