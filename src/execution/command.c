/* A command that runs. What the guest sends is masked, numbered, told to followers at once and
 * written to the store in batches; each batch says how far in the guest's own numbering it goes, so
 * that the next server asks for the rest. What the masker holds back goes along, sealed. */
#include "execution/execution-internal.h"

enum {
	MASKED_MAX_BYTES = 4 << 20, /* of one event of the guest: 32 KiB, blown up by markers */
	DEADLINE_GRACE_MS = 3000,   /* the guest keeps the deadline; we look after it */
};

static_assert((int)EXECUTION_MIN_SECRET_BYTES == (int)MASK_MIN_BYTES,
	"what is let in can be masked");

/* ---- one command ---- */

static void on_flush(void *arg);
static void on_deadline(void *arg);

static void on_retry(void *arg)
{
	line_follow(arg);
}

struct command *command_new(struct execution_book *book)
{
	struct command *c = XNEW(struct command);

	c->n_refs = 1;
	c->book = book;
	c->dial_fd = -EBADF;
	c->text = BUF_INIT(COMMAND_MAX_BYTES);
	c->cwd = BUF_INIT(COMMAND_MAX_BYTES);
	c->message = BUF_INIT((size_t)16 << 20);
	c->secrets = BUF_INIT((size_t)16 << 20);
	c->keep_bytes = book->config.keep_bytes;
	c->needles = mask_needles_new();
	c->began_ms = time_now_ms();
	list_init(&c->node);
	list_init(&c->fresh);
	list_init(&c->saving);
	list_init(&c->followers);
	list_append(&book->starting, &c->node);
	loop_timer_init(&c->flush, book->config.loop, on_flush, c);
	loop_timer_init(&c->deadline, book->config.loop, on_deadline, c);
	loop_timer_init(&c->retry, book->config.loop, on_retry, c);
	return c;
}

struct command *command_ref(struct command *c)
{
	c->n_refs++;
	return c;
}

static void chunks_free(struct command *c, struct list *chunks)
{
	LIST_EACH(chunks, node)
	{
		struct chunk *chunk = container_of(node, struct chunk, node);

		if (chunk->is_kept)
			kept_pending(c->book, c->team_id, -kept_chunk_bytes(chunk->n));
		list_remove(node);
		free(chunk);
	}
}

static void wipe(struct buf *b)
{
	if (b->p)
		explicit_bzero(b->p, b->cap);
	buf_done(b);
}

/* Nothing comes any more; who still holds it, holds no secret. */
static void drop_masks(struct command *c)
{
	for (size_t i = 0; i < ARRAY_SIZE(c->halves); i++)
		c->halves[i].mask = mask_stream_free(c->halves[i].mask);
	c->needles = mask_needles_unref(c->needles);
}

static void command_free(void *arg)
{
	struct command *c = arg;

	loop_timer_cancel(&c->flush);
	loop_timer_cancel(&c->deadline);
	loop_timer_cancel(&c->retry);
	line_drop(c);
	close_fdp(&c->dial_fd);
	list_remove(&c->node);
	if (c->key[0] && map_get(&c->book->commands, str_of(c->key)) == c)
		(void)map_remove(&c->book->commands, str_of(c->key));
	chunks_free(c, &c->fresh);
	chunks_free(c, &c->saving);
	drop_masks(c);
	wipe(&c->message);
	buf_done(&c->secrets);
	buf_done(&c->text);
	buf_done(&c->cwd);
	free(c);
}

void command_unref(struct command *c)
{
	if (c && --c->n_refs == 0)
		command_free(c);
}

static void make_key(char *key, size_t size, struct str sandbox_id, int64_t n)
{
	(void)snprintf(key, size, "%.*s %" PRId64, STR_ARG(sandbox_id), n);
}

bool command_is_of(const struct command *c, const struct sandbox_owner *who)
{
	return !who || (strcmp(who->team_id, c->team_id) == 0 &&
			       (!who->agent_id || !who->agent_id[0] ||
				       strcmp(who->agent_id, c->owner_agent) == 0));
}

struct command *command_find(const struct execution_book *book, const struct execution_ref *ref)
{
	char key[SANDBOX_ID_SIZE + 24];
	struct command *c;

	if (ref->sandbox_id.n >= SANDBOX_ID_SIZE)
		return NULL;
	make_key(key, sizeof key, ref->sandbox_id, ref->n);
	c = map_get(&book->commands, str_of(key));
	return c && command_is_of(c, ref->who) ? c : NULL;
}

int command_needles(struct command *c, const struct json_map *secrets, struct err *e)
{
	for (size_t i = 0; i < secrets->n; i++) {
		int r = mask_needles_add(c->needles, secrets->v[i].key, secrets->v[i].value, e);

		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < ARRAY_SIZE(c->halves); i++)
		c->halves[i].mask = mask_stream_new(c->needles);
	return 0;
}

size_t command_mask_bytes(const struct command *c, const char *team_id)
{
	return strcmp(c->team_id, team_id) == 0 ? mask_needles_bytes(c->needles) : 0;
}

void command_enter(struct command *c)
{
	list_remove(&c->node);
	make_key(c->key, sizeof c->key, str_of(c->view.sandbox_id), c->view.n);
	(void)map_put(&c->book->commands, str_of(c->key), c);
	c->is_row_written = true;
}

/* ---- its deadline ---- */

void command_arm(struct command *c)
{
	int64_t left_ms = (c->view.deadline_us - time_wall_us()) / 1000;

	loop_timer_set(&c->deadline, time_now_ms() + MAX(left_ms, 0) + DEADLINE_GRACE_MS);
}

static bool is_paused(const struct command *c)
{
	const struct sandbox *sb =
		sandbox_find_tenant(c->book->config.sandboxes, c->view.sandbox_id);

	return sb && sb->state != SANDBOX_RUNNING && sb->state != SANDBOX_ENDING;
}

/* The guest should have killed it by now. We try as well, and then do not wait any longer. */
static void on_deadline(void *arg)
{
	struct command *c = arg;
	struct command_end end = { .by = EXECUTION_END_INFRASTRUCTURE,
		.why = "its time was up, and the sandbox could not be made to end it" };

	if (c->is_ending)
		return;
	if (!is_paused(c)) {
		if (c->deadline_step++ > 0) {
			command_end(c, &end);
			return;
		}
		c->is_timed_out = true;
		line_signal(c, "SIGNAL_SIGKILL", NULL, NULL);
	}
	loop_timer_set(&c->deadline, time_now_ms() + DEADLINE_GRACE_MS);
}

/* ---- output ---- */

static int64_t next_seq(struct command *c)
{
	c->last_seq = MAX(c->last_seq, c->view.last_seq) + 1;
	return c->last_seq;
}

static void add_chunk(struct command *c, enum execution_stream stream, struct str bytes,
	bool is_kept)
{
	struct chunk *chunk = xcalloc(1, sizeof *chunk + bytes.n);

	chunk->seq = next_seq(c);
	chunk->at_us = time_wall_us();
	chunk->stream = stream;
	chunk->is_kept = is_kept;
	chunk->n = bytes.n;
	memcpy(chunk->bytes, bytes.p, bytes.n);
	list_append(&c->fresh, &chunk->node);
	c->unsaved_bytes += bytes.n;
	if (!is_kept)
		return;
	c->view.last_seq = chunk->seq;
	kept_pending(c->book, c->team_id, kept_chunk_bytes(bytes.n));
}

/* What is past the ceiling, the command's or the team's, is counted, told to those who follow it
 * now, and let go. */
static void keep(struct command *c, enum execution_stream stream, struct str bytes)
{
	struct stream_half *half = &c->halves[stream - 1];
	int64_t room = MIN(c->keep_bytes - half->kept_bytes,
		(int64_t)kept_output_room(c->book, c->team_id));
	struct str rest = STR_NONE;

	if (stream == EXECUTION_STDOUT)
		c->view.stdout_bytes += (int64_t)bytes.n;
	else
		c->view.stderr_bytes += (int64_t)bytes.n;
	if ((int64_t)bytes.n > room) {
		c->view.truncated = true;
		rest = str_from(bytes, (size_t)room);
		bytes.n = (size_t)room;
	}
	half->kept_bytes += (int64_t)bytes.n;
	if (bytes.n)
		add_chunk(c, stream, bytes, true);
	/* It has a number in any case: the next server must come to the same ones. Who is still to
	 * be told that it began may want to follow it from its beginning. */
	if (rest.n && (c->started || !list_empty(&c->followers)))
		add_chunk(c, stream, rest, false);
	else if (rest.n)
		(void)next_seq(c);
}

void command_output(struct command *c, enum execution_stream stream, struct str bytes)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(MASKED_MAX_BYTES);

	/* Events that leave nothing behind cost as well, until they are written down. */
	c->unsaved_bytes += CHUNK_COST;
	if (mask_stream_feed(c->halves[stream - 1].mask, bytes, &out) < 0) {
		c->view.truncated = true;
		return;
	}
	keep(c, stream, buf_str(&out));
	command_save_soon(c);
	followers_wake(c);
}

/* ---- writing it down ---- */

static void save(struct command *c);

static void tell_over(struct command *c)
{
	c->is_over = true;
	c->view.state = EXECUTION_ENDED;
	drop_masks(c);
	(void)map_remove(&c->book->commands, str_of(c->key));
	followers_end(c);
	if (c->started) { /* it ended before anybody was told that it began */
		execution_fn fn = TAKE(c->started);

		fn(c->started_arg, 0, &c->view, NULL);
	}
	log_info("execution.ended",
		"sandbox_id=%s n=%" PRId64 " by=%s exit=%" PRId64 " ms=%" PRId64,
		c->view.sandbox_id, c->view.n, execution_end_name(c->view.ended_by),
		c->view.has_exit_code ? c->view.exit_code : -1,
		(c->view.ended_us - c->view.started_us) / 1000);
	if (c->view.stdout_bytes + c->view.stderr_bytes > FORGET_BYTES)
		line_forget(c);
	assert(c->n_refs > 1); /* the book's, and of who tells us */
	command_unref(c);
}

/* The store is away or full: what we have stays in memory and the guest waits. */
static void save_failed(struct command *c, const struct err *e)
{
	log_error("execution.save_failed", "sandbox_id=%s n=%" PRId64 " err=%s", c->view.sandbox_id,
		c->view.n, log_quote(str_of(e->msg)));
	LIST_EACH(&c->fresh, node)
	{
		list_remove(node);
		list_append(&c->saving, node);
	}
	while (!list_empty(&c->saving)) {
		struct list *node = c->saving.next;

		list_remove(node);
		list_append(&c->fresh, node);
	}
	c->must_tell_started |= c->is_telling;
	loop_timer_set(&c->flush, time_now_ms() + 10 * (int64_t)FLUSH_MS);
}

static void saved(void *arg, int r, const struct err *e)
{
	struct command *c = arg;

	c->is_saving = false;
	if (r < 0) {
		save_failed(c, e);
		command_unref(c);
		return;
	}
	followers_catch_up(c); /* what is not kept goes now */
	chunks_free(c, &c->saving);
	c->is_told_started |= c->is_telling;
	kept_grown(c->book, c->team_id);
	CRASH_POINT("execution.saved");
	if (c->is_ending && c->view.ended_us && list_empty(&c->fresh)) {
		tell_over(c);
	} else if (c->is_ending) {
		save(c);
	} else {
		c->unsaved_bytes = 0;
		LIST_EACH(&c->fresh, fresh)
		c->unsaved_bytes += container_of(fresh, struct chunk, node)->n + CHUNK_COST;
		if (c->unsaved_bytes < UNSAVED_LOW_BYTES)
			line_resume(c);
		if (!list_empty(&c->fresh))
			command_save_soon(c);
	}
	command_unref(c);
}

static void save(struct command *c)
{
	if (c->is_saving || c->is_over || !c->is_row_written)
		return;
	loop_timer_cancel(&c->flush);
	c->is_saving = true;
	LIST_EACH(&c->fresh, node)
	{
		list_remove(node);
		list_append(&c->saving, node);
	}
	c->is_telling = c->must_tell_started;
	c->must_tell_started = false;
	if (c->is_ending && !c->view.ended_us)
		c->view.ended_us = MAX(time_wall_us(), c->view.started_us);
	command_row_save(c, saved, command_ref(c));
}

static void on_flush(void *arg)
{
	save(arg);
}

void command_save_soon(struct command *c)
{
	if (c->book->is_stopping || c->is_saving || c->is_ending || !c->is_row_written)
		return;
	if (c->unsaved_bytes >= FLUSH_BYTES)
		save(c);
	else if (!loop_timer_is_set(&c->flush))
		loop_timer_set(&c->flush, time_now_ms() + FLUSH_MS);
}

/* ---- beginning and end ---- */

/* Both are needed, in whatever order they come: that it runs, and its number. */
static void tell_started(struct command *c)
{
	if (c->started && c->is_row_written && c->view.state == EXECUTION_RUNNING) {
		execution_fn fn = TAKE(c->started);

		fn(c->started_arg, 0, &c->view, NULL);
	}
}

void command_begun(struct command *c)
{
	c->view.state = EXECUTION_RUNNING;
	/* After a broken line it begins once more, maybe while that is being written. */
	if (!c->is_told_started && !c->is_telling) {
		c->must_tell_started = true;
		command_save_soon(c);
	}
	tell_started(c);
}

static void removed(void *arg, int r, const struct err *e)
{
	struct command *c = arg;

	if (r < 0)
		log_error("execution.remove_failed", "sandbox_id=%s n=%" PRId64 " err=%s",
			c->view.sandbox_id, c->view.n, log_quote(str_of(e->msg)));
	command_unref(c);
}

/* It runs on; the next server goes on from what was written. */
void command_hang_up(struct command *c)
{
	line_drop(c);
	loop_timer_cancel(&c->flush);
	loop_timer_cancel(&c->deadline);
	loop_timer_cancel(&c->retry);
}

void command_fail_start(struct command *c, const struct err *e)
{
	if (c->started) {
		execution_fn fn = TAKE(c->started);

		fn(c->started_arg, e->code, NULL, e);
	}
	c->is_ending = c->is_over = true;
	line_drop(c);
	list_remove(&c->node);
	if (c->key[0])
		(void)map_remove(&c->book->commands, str_of(c->key));
	if (c->is_row_written)
		command_row_remove(c, removed, command_ref(c));
	command_unref(c); /* the book's */
}

void command_recorded(struct command *c, int r, const struct err *e)
{
	if (r < 0) {
		if (c->is_asked && !c->is_over)
			line_signal(c, "SIGNAL_SIGKILL", NULL, NULL);
		if (!c->is_over)
			command_fail_start(c, e);
	} else if (c->is_over) { /* it could not be started */
		command_row_remove(c, removed, command_ref(c));
	} else {
		command_enter(c);
		command_arm(c);
		tell_started(c);
		if (c->is_ending)
			save(c);
		else if (c->must_tell_started)
			command_save_soon(c);
	}
}

static const struct {
	int signo;
	const char *name;
} signal_names[] = {
	{ 1, "SIGHUP" },
	{ 2, "SIGINT" },
	{ 3, "SIGQUIT" },
	{ 4, "SIGILL" },
	{ 5, "SIGTRAP" },
	{ 6, "SIGABRT" },
	{ 7, "SIGBUS" },
	{ 8, "SIGFPE" },
	{ 9, "SIGKILL" },
	{ 10, "SIGUSR1" },
	{ 11, "SIGSEGV" },
	{ 12, "SIGUSR2" },
	{ 13, "SIGPIPE" },
	{ 14, "SIGALRM" },
	{ 15, "SIGTERM" },
	{ 24, "SIGXCPU" },
	{ 25, "SIGXFSZ" },
	{ 31, "SIGSYS" },
};

const char *signal_name(int signo)
{
	for (size_t i = 0; i < ARRAY_SIZE(signal_names); i++)
		if (signal_names[i].signo == signo)
			return signal_names[i].name;
	return NULL;
}

static void end_streams(struct command *c)
{
	for (size_t i = 0; i < ARRAY_SIZE(c->halves); i++) {
		CLEANUP(buf_done) struct buf rest = BUF_INIT(MASKED_MAX_BYTES);

		(void)mask_stream_end(c->halves[i].mask, &rest);
		keep(c, (enum execution_stream)(i + 1), buf_str(&rest));
	}
}

void command_end(struct command *c, const struct command_end *end)
{
	const char *name = signal_name(end->signo);

	if (c->is_ending)
		return;
	line_drop(c);
	loop_timer_cancel(&c->deadline);
	loop_timer_cancel(&c->retry);
	end_streams(c);
	c->is_ending = true;
	c->view.ended_by = end->by;
	c->view.has_exit_code = end->has_exit_code;
	c->view.exit_code = end->exit_code;
	if (name)
		(void)snprintf(c->view.signal, sizeof c->view.signal, "%s", name);
	else if (end->signo)
		(void)snprintf(c->view.signal, sizeof c->view.signal, "SIG%d", end->signo);
	(void)snprintf(c->view.ended_why, sizeof c->view.ended_why, "%s", or_empty(end->why));
	followers_wake(c);
	CRASH_POINT("execution.end");
	save(c);
}
