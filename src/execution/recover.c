/* After a restart: commands that ran are found again by their tags, and go on from the last of the
 * guest's events that was written down. What the masks held back then was written along. */
#include "execution/execution-internal.h"

enum {
	ROW_ARENA_BYTES = 4 << 20, /* a command of an older server may be larger than one of ours */
};

struct found { /* one row, on its way from the store */
	struct list node;
	struct arena *arena;
	struct execution ex;
	char team_id[SANDBOX_TEAM_SIZE], owner_agent[EXECUTION_NAME_SIZE], tag[TAG_SIZE];
	int64_t keep_bytes, guest_seq, told_seq, kept[2];
	bool is_cancelled, is_known_started;
	char *held, *secrets;
};

struct recovery {
	struct execution_book *book;
	struct list found;
	done_fn done;
	void *arg;
};

static void found_free(struct found *f)
{
	list_remove(&f->node);
	f->arena = arena_free(f->arena);
	free(f->held);
	free(f->secrets);
	free(f);
}

/* ---- in the store ---- */

static int load_row(void *arg, const struct store_row *row, struct err *e)
{
	struct recovery *r = arg;
	struct found *f = XNEW(struct found);
	char by[32];
	enum {
		TEAM = EXECUTION_N_COLUMNS,
		AGENT,
		TAG,
		KEEP,
		GUEST_SEQ,
		TOLD_SEQ,
		HELD,
		SECRETS
	};

	f->arena = arena_new(ROW_ARENA_BYTES);
	list_append(&r->found, &f->node);
	if (execution_read_row(row, &f->ex, f->arena) < 0)
		return err_set(e, -E2BIG, "a stored command is too large");
	store_copy_text(row, TEAM, f->team_id, sizeof f->team_id);
	store_copy_text(row, AGENT, f->owner_agent, sizeof f->owner_agent);
	store_copy_text(row, TAG, f->tag, sizeof f->tag);
	store_copy_text(row, 14, by, sizeof by);
	f->keep_bytes = store_int(row, KEEP);
	f->guest_seq = store_int(row, GUEST_SEQ);
	f->told_seq = store_int(row, TOLD_SEQ);
	f->is_cancelled = strcmp(by, "user") == 0;
	f->is_known_started = f->ex.state == EXECUTION_RUNNING;
	f->held = store_is_null(row, HELD) ? NULL : store_dup_text(row, HELD);
	f->secrets = store_is_null(row, SECRETS) ? NULL : store_dup_text(row, SECRETS);
	f->kept[0] = MIN(f->ex.stdout_bytes, f->keep_bytes);
	f->kept[1] = MIN(f->ex.stderr_bytes, f->keep_bytes);
	return 0;
}

static int load(struct store_tx *tx, void *arg, struct err *e)
{
	struct recovery *r = arg;
	int result = command_rules_load(tx, r->book, e);

	if (result >= 0)
		result = kept_load(tx, r->book, e);
	if (result < 0)
		return result;
	LIST_EACH(&r->found, node) /* it is tried again */
	found_free(container_of(node, struct found, node));
	return store_query(tx,
		"SELECT " EXECUTION_COLUMNS ", e.team_id, s.agent_id, e.tag, e.keep_bytes, "
		"e.guest_seq, e.told_seq, e.held_sealed, e.secrets_sealed "
		"FROM executions e JOIN sandboxes s ON s.id = e.sandbox_id "
		"WHERE e.ended_us IS NULL ORDER BY e.started_us",
		NULL, 0, load_row, r, e);
}

/* ---- on the loop ---- */

struct held_in {
	struct str out, err;
	struct json_int out_covered, err_covered;
};
static const struct json_field held_fields[] = {
	JSON_FIELD(struct held_in, out, "out", JSON_BYTES),
	JSON_FIELD(struct held_in, out_covered, "out_covered", JSON_INT, .min = 0,
		.max = MASK_MAX_NODES),
	JSON_FIELD(struct held_in, err, "err", JSON_BYTES),
	JSON_FIELD(struct held_in, err_covered, "err_covered", JSON_INT, .min = 0,
		.max = MASK_MAX_NODES),
};
static const struct json_shape held_shape = JSON_SHAPE(struct held_in, held_fields);

struct secrets_in {
	struct json_map values;
};
static const struct json_field secrets_fields[] = {
	JSON_FIELD(struct secrets_in, values, "values", JSON_MAP),
};
static const struct json_shape secrets_shape = JSON_SHAPE(struct secrets_in, secrets_fields);

static int restore_needles(struct command *c, const char *sealed, struct err *e)
{
	CLEANUP(arena_freep) struct arena *arena = arena_new((size_t)32 << 20);
	CLEANUP(buf_done) struct buf json = BUF_INIT((size_t)16 << 20);
	struct secrets_in in = { 0 };
	int r = buf_adds(&json, "{\"values\":");

	if (!sealed)
		return command_needles(c, &in.values, e);
	if (r == 0)
		r = unseal_text(c->book->key, str_of(sealed), &json);
	if (r == 0)
		r = buf_adds(&json, "}");
	if (r == 0)
		r = json_decode(arena, buf_str(&json), &secrets_shape, &in, NULL);
	if (json.p)
		explicit_bzero(json.p, json.cap);
	if (r < 0)
		return err_set(e, r, "its secrets do not open with this server's key");
	for (size_t i = 0; i < in.values.n; i++) /* numbered, as a name may come twice */
		in.values.v[i].key =
			str_from(in.values.v[i].key, (size_t)str_find(in.values.v[i].key, ' ') + 1);
	return command_needles(c, &in.values, e);
}

static int restore_held(struct command *c, const char *sealed, struct err *e)
{
	CLEANUP(arena_freep) struct arena *arena = arena_new((size_t)32 << 20);
	CLEANUP(buf_done) struct buf json = BUF_INIT((size_t)16 << 20);
	struct held_in in;
	int r;

	if (!sealed)
		return 0;
	r = unseal_text(c->book->key, str_of(sealed), &json);
	if (r == 0)
		r = json_decode(arena, buf_str(&json), &held_shape, &in, NULL);
	if (r == 0)
		r = mask_stream_restore(c->halves[0].mask, in.out, (size_t)in.out_covered.value);
	if (r == 0)
		r = mask_stream_restore(c->halves[1].mask, in.err, (size_t)in.err_covered.value);
	return r < 0 ? err_set(e, r, "what was held back of its output does not open") : 0;
}

static void take_up(struct execution_book *book, struct found *f)
{
	struct command *c = command_new(book);
	struct command_end end = { .by = EXECUTION_END_INFRASTRUCTURE };
	struct err e = { 0 };

	c->view = f->ex;
	(void)buf_add_str(&c->text, f->ex.command);
	(void)buf_add_str(&c->cwd, f->ex.cwd);
	c->view.command = buf_str(&c->text);
	c->view.cwd = buf_str(&c->cwd);
	memcpy(c->team_id, f->team_id, sizeof c->team_id);
	memcpy(c->owner_agent, f->owner_agent, sizeof c->owner_agent);
	memcpy(c->tag, f->tag, sizeof c->tag);
	c->keep_bytes = f->keep_bytes;
	c->guest_seq = f->guest_seq;
	c->last_seq = f->told_seq;
	c->is_cancelled = f->is_cancelled;
	c->is_told_started = f->is_known_started;
	c->is_row_written = c->is_asked = true;
	for (size_t i = 0; i < ARRAY_SIZE(c->halves); i++)
		c->halves[i].kept_bytes = f->kept[i];
	command_enter(c);
	if (restore_needles(c, f->secrets, &e) < 0 || restore_held(c, f->held, &e) < 0) {
		/* Not a byte of it may be shown that cannot be masked. */
		if (!c->halves[0].mask)
			(void)command_needles(c, &(struct json_map){ 0 }, NULL);
		end.why = e.msg;
		line_signal(c, "SIGNAL_SIGKILL", NULL, NULL);
		command_end(c, &end);
		return;
	}
	command_arm(c);
	line_follow(c);
}

static void loaded(void *arg, int r, const struct err *e)
{
	struct recovery *recovery = arg;
	size_t n = 0;

	LIST_EACH(&recovery->found, node)
	{
		struct found *f = container_of(node, struct found, node);

		if (r >= 0) {
			take_up(recovery->book, f);
			n++;
		}
		found_free(f);
	}
	if (n)
		log_info("execution.recovered", "commands=%zu", n);
	if (r < 0) {
		recovery->done(recovery->arg, r, e);
	} else {
		artifacts_sweep_start(recovery->book);
		runs_recover(recovery->book, recovery->done, recovery->arg);
	}
	free(recovery);
}

void execution_recover(struct execution_book *book, done_fn done, void *arg)
{
	struct recovery *r = XNEW(struct recovery);

	r->book = book;
	r->done = done;
	r->arg = arg;
	list_init(&r->found);
	flight_run(book, "", load, loaded, r);
}
