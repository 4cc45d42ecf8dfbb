/* Followers. One that keeps up gets chunks from memory, before they are written; one that does not
 * is never buffered for: it reads pages of the store, as it drains, until it has caught up. Neither
 * holds the command back. */
#include "execution/execution-internal.h"

enum {
	PAGE_CHUNKS = 64,
};

struct execution_follower {
	struct list node; /* in command->followers, or in book->followers */
	struct execution_book *book;
	struct command *command; /* NULL: it does not run, or is not known to */
	char team_id[SANDBOX_TEAM_SIZE], agent_id[EXECUTION_NAME_SIZE];
	bool has_owner;
	char sandbox_id[SANDBOX_ID_SIZE];
	int64_t n, next;
	int64_t boundary; /* what was before it when the page was asked for is in the store, or was
			     not kept */
	const struct execution_follow_ops *ops;
	void *arg;
	struct loop_task task;
	bool is_blocked, is_reading, is_stopped, is_lost;
};

static struct sandbox_owner owner_of(const struct execution_follower *f)
{
	return (struct sandbox_owner){ f->team_id, f->agent_id };
}

static void pump(void *arg);
static void look_again(struct execution_follower *f);

static void wake(struct execution_follower *f)
{
	if (!f->is_stopped)
		loop_defer(f->book->config.loop, &f->task, pump, f);
}

static void follower_free(void *arg)
{
	struct execution_follower *f = arg;

	list_remove(&f->node);
	loop_task_cancel(&f->task);
	free(f);
}

/* It may be in the middle of a callback, or its page on its way: freed when neither is true. */
void execution_follow_stop(struct execution_follower *f)
{
	f->is_stopped = true;
	list_remove(&f->node);
	loop_task_cancel(&f->task);
	if (!f->is_reading)
		loop_defer(f->book->config.loop, &f->task, follower_free, f);
}

static void finish(struct execution_follower *f, int r, const struct execution *ex,
	const struct err *e)
{
	const struct execution_follow_ops *ops = f->ops;
	void *arg = f->arg;

	execution_follow_stop(f);
	ops->end(arg, r, ex, e);
}

void execution_follow_resume(struct execution_follower *f)
{
	f->is_blocked = false;
	wake(f);
}

static bool give(struct execution_follower *f, const struct execution_chunk *chunk)
{
	f->next = chunk->seq + 1;
	if (!f->ops->chunk(f->arg, chunk))
		f->is_blocked = true;
	return !f->is_blocked && !f->is_stopped;
}

/* ---- from the store ---- */

static int64_t first_in_memory(const struct command *c)
{
	const struct list *first = !list_empty(&c->saving)  ? c->saving.next
				   : !list_empty(&c->fresh) ? c->fresh.next
							    : NULL;

	return first ? ((const struct chunk *)first)->seq : MAX(c->last_seq, c->view.last_seq) + 1;
}

static void page_read(void *arg, int r, const struct execution *ex, const struct execution_chunk *v,
	size_t n, const struct err *e)
{
	struct execution_follower *f = arg;

	f->is_reading = false;
	if (f->is_stopped) {
		follower_free(f);
		return;
	}
	if (r < 0) {
		finish(f, r, NULL, e);
		return;
	}
	for (size_t i = 0; i < n; i++)
		if (!give(f, &v[i]))
			break;
	if (f->is_stopped)
		return;
	if (n == 0 && f->command)
		f->next = MAX(f->next, f->boundary);
	if (!f->is_blocked && !f->command && ex->state == EXECUTION_ENDED && f->next > ex->last_seq)
		finish(f, 0, ex, NULL);
	else if (!f->is_blocked && n == 0 && !f->command)
		look_again(f);
	else if (!f->is_blocked)
		wake(f);
}

static void read_page(struct execution_follower *f)
{
	struct sandbox_owner who = owner_of(f);
	struct execution_ref ref = { f->has_owner ? &who : NULL, str_of(f->sandbox_id), f->n };

	f->is_reading = true;
	f->boundary = f->command ? first_in_memory(f->command) : 0;
	execution_logs(f->book, &ref, f->next, PAGE_CHUNKS, page_read, f);
}

/* ---- from memory ---- */

static bool give_list(struct execution_follower *f, const struct list *chunks)
{
	for (const struct list *node = chunks->next; node != chunks; node = node->next) {
		const struct chunk *chunk = (const struct chunk *)node; /* its first member */
		struct execution_chunk told = { chunk->seq, chunk->at_us, chunk->stream,
			{ chunk->bytes, chunk->n } };

		if (chunk->seq >= f->next && !give(f, &told))
			return false;
	}
	return true;
}

/* The row does not say that it has ended: then it runs, or did a moment ago. */
static void look_again(struct execution_follower *f)
{
	struct execution_ref ref = { NULL, str_of(f->sandbox_id), f->n };
	struct command *c = command_find(f->book, &ref);
	struct err e = { 0 };

	if (c) {
		f->command = c;
		list_remove(&f->node);
		list_append(&c->followers, &f->node);
		wake(f);
	} else if (f->is_lost) {
		finish(f, err_set(&e, -EAGAIN, "nobody follows it just now"), NULL, &e);
	} else {
		f->is_lost = true; /* its end was written after we read */
		wake(f);
	}
}

static void pump(void *arg)
{
	struct execution_follower *f = arg;
	struct command *c = f->command;

	if (f->is_stopped || f->is_blocked || f->is_reading)
		return;
	if (c && f->next >= first_in_memory(c)) {
		(void)command_ref(c);
		if (give_list(f, &c->saving))
			(void)give_list(f, &c->fresh);
		command_unref(c);
	} else {
		read_page(f);
	}
}

void followers_wake(struct command *c)
{
	LIST_EACH(&c->followers, node)
	wake(container_of(node, struct execution_follower, node));
}

void followers_catch_up(struct command *c)
{
	LIST_EACH(&c->followers, node)
	pump(container_of(node, struct execution_follower, node));
}

/* Whoever has had everything is told now; the others find the end in the store. */
void followers_end(struct command *c)
{
	while (!list_empty(&c->followers)) {
		struct execution_follower *f =
			container_of(c->followers.next, struct execution_follower, node);

		f->command = NULL;
		list_remove(&f->node);
		list_append(&c->book->followers, &f->node);
		if (f->next > c->view.last_seq && !f->is_blocked && !f->is_reading)
			finish(f, 0, &c->view, NULL);
		else
			wake(f);
	}
}

static void hang_up(struct list *followers)
{
	struct err e = { 0 };

	(void)err_set(&e, -EAGAIN, "the server is being stopped: ask again in a moment");
	while (!list_empty(followers))
		finish(container_of(followers->next, struct execution_follower, node), e.code, NULL,
			&e);
}

void followers_hang_up(struct execution_book *book)
{
	struct command *c;
	size_t at = 0;

	while ((c = map_next(&book->commands, &at)))
		hang_up(&c->followers);
	hang_up(&book->followers);
}

void followers_done(struct execution_book *book)
{
	struct command *c;
	size_t at = 0;

	while ((c = map_next(&book->commands, &at)))
		LIST_EACH(&c->followers, node)
	follower_free(container_of(node, struct execution_follower, node));
	LIST_EACH(&book->followers, gone)
	follower_free(container_of(gone, struct execution_follower, node));
}

struct execution_follower *execution_follow(struct execution_book *book,
	const struct execution_ref *ref, int64_t from, const struct execution_follow_ops *ops,
	void *arg)
{
	struct execution_follower *f = XNEW(struct execution_follower);
	struct command *c = command_find(book, ref);

	f->book = book;
	f->command = c;
	f->ops = ops;
	f->arg = arg;
	f->n = ref->n;
	f->next = MAX(from, 1);
	f->has_owner = ref->who;
	if (ref->who) {
		(void)snprintf(f->team_id, sizeof f->team_id, "%s", ref->who->team_id);
		(void)snprintf(f->agent_id, sizeof f->agent_id, "%s", or_empty(ref->who->agent_id));
	}
	if (ref->sandbox_id.n < sizeof f->sandbox_id)
		(void)snprintf(f->sandbox_id, sizeof f->sandbox_id, "%.*s",
			STR_ARG(ref->sandbox_id));
	list_init(&f->node);
	list_append(c ? &c->followers : &book->followers, &f->node);
	wake(f);
	return f;
}

/* ---- waiting for all of it ---- */

struct execution_wait {
	struct execution_follower *follower;
	struct buf out, err;
	bool out_cut, err_cut;
	execution_result_fn fn;
	void *arg;
};

static void wait_free(struct execution_wait *wait)
{
	buf_done(&wait->out);
	buf_done(&wait->err);
	free(wait);
}

static bool collect(void *arg, const struct execution_chunk *chunk)
{
	struct execution_wait *wait = arg;
	bool is_out = chunk->stream == EXECUTION_STDOUT;
	struct buf *to = is_out ? &wait->out : &wait->err;
	bool *is_cut = is_out ? &wait->out_cut : &wait->err_cut;
	size_t room = to->max - to->n;

	*is_cut |= chunk->bytes.n > room;
	(void)buf_add(to, chunk->bytes.p, MIN(chunk->bytes.n, room));
	return true;
}

static void collected(void *arg, int r, const struct execution *ex, const struct err *e)
{
	struct execution_wait *wait = arg;
	struct execution_result result = { ex, buf_str(&wait->out), buf_str(&wait->err),
		wait->out_cut, wait->err_cut };

	wait->fn(wait->arg, r, r < 0 ? NULL : &result, e);
	wait_free(wait);
}

static const struct execution_follow_ops wait_ops = { collect, collected };

struct execution_wait *execution_wait(struct execution_book *book, const struct execution_ref *ref,
	size_t limit_bytes, execution_result_fn fn, void *arg)
{
	struct execution_wait *wait = XNEW(struct execution_wait);

	wait->out = wait->err = BUF_INIT(limit_bytes);
	wait->fn = fn;
	wait->arg = arg;
	wait->follower = execution_follow(book, ref, 1, &wait_ops, wait);
	return wait;
}

void execution_wait_stop(struct execution_wait *wait)
{
	execution_follow_stop(wait->follower);
	wait_free(wait);
}
