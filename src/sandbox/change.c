/* Pausing and resuming. One change at a time with a sandbox: who comes meanwhile waits in its list
 * and looks again afterwards, by id, since it may be gone by then. Who waited for the very change
 * it asked for finds it made, and that is its answer: of five who pause at once, all have paused
 * it.
 *
 * The order of the steps is what a crash may leave behind: memory is frozen before the row says
 * paused and thawed before it says running, so reconciling only has to make the kernel follow the
 * row. A disk is saved before the row names the image, and the image goes only after the row has
 * stopped naming it; an image that no row names is removed at the next start. */
#include "sandbox/activity.h"

enum {
	/* Who asks for a change that was made this recently asked together with whoever made it: it
	 * takes less time here than requests that were sent at once may lie apart. A pause must be
	 * told from a second one by the same client, which is known by having been answered. */
	PAUSED_TOGETHER_MS = 100,
	RESUMED_TOGETHER_MS = 1000,
};

/* ---- operations that wait their turn ---- */

static void op_try(void *arg)
{
	struct op *op = arg;
	struct sandbox_owner who = { op->team_id, op->agent_id };
	struct live *live = live_find(op->book, op->team_id[0] ? &who : NULL, str_of(op->id));

	if (live && !live_is_settled(live)) {
		op->waited_for = live->view.state;
		list_append(&live->waiters, &op->node);
	} else {
		op->run(op, live);
	}
}

void op_start(struct op *op, struct sandbox_book *book, const struct sandbox_owner *who,
	struct str id, void (*run)(struct op *op, struct live *live))
{
	assert(!who || who->team_id[0]); /* an empty one would be anybody's */
	op->book = book;
	op->run = run;
	op->waited_for = SANDBOX_RUNNING;
	list_init(&op->node);
	(void)snprintf(op->team_id, sizeof op->team_id, "%s", who ? who->team_id : "");
	(void)snprintf(op->agent_id, sizeof op->agent_id, "%s",
		who && who->agent_id ? who->agent_id : "");
	(void)snprintf(op->id, sizeof op->id, "%.*s", STR_ARG(id));
	if (id.n >= sizeof op->id)
		op->id[0] = '\0'; /* no sandbox is called so, and none may match a part of it */
	loop_defer(book->config.loop, &op->task, op_try, op);
}

int op_not_found(const struct op *op, struct err *e)
{
	return err_set(e, -ENOENT, "Sandbox \"%s\" doesn't exist or you don't have access to it",
		op->id);
}

bool live_is_settled(const struct live *live)
{
	return live->saving == 0 &&
	       (live->view.state == SANDBOX_RUNNING || live->view.state == SANDBOX_PAUSED);
}

static void wake_waiters(struct live *live)
{
	LIST_EACH(&live->waiters, node)
	{
		struct op *op = container_of(node, struct op, node);

		list_remove(&op->node);
		loop_defer(op->book->config.loop, &op->task, op_try, op);
	}
}

void live_settle(struct live *live, enum sandbox_state state)
{
	if (state == SANDBOX_PAUSED)
		live->late_pauses = 0;
	live->view.state = state;
	if (state == SANDBOX_RUNNING)
		live_arm(live);
	else
		queue_kick(live->book);
	wake_waiters(live);
}

/* ---- pause ---- */

struct pause {
	struct op op;
	struct live *live;
	bool keep_memory, or_files;
	int64_t began_us;
	uint64_t asker; /* 0: nobody who could ask again */
	char actor[ACTOR_SIZE], cause[128];
	char image[SANDBOX_ID_SIZE];
	struct err e;
	done_fn done;
	void *arg;
};

static void pause_end(struct pause *p, int r, const struct err *e)
{
	if (p->done)
		p->done(p->arg, r, e);
	p->op.book->in_flight--;
	free(p);
}

/* It runs on as before; the one who asked hears why. A sandbox that is no more is ended instead. */
static void pause_undone(void *arg, int r, const struct err *e)
{
	struct pause *p = arg;

	(void)e;
	if (r == -ENOENT)
		live_end(p->live, SANDBOX_END_INFRASTRUCTURE, "system",
			"it was gone when it was to be paused", NULL, NULL);
	else
		live_settle(p->live, SANDBOX_RUNNING);
	pause_end(p, p->e.code, &p->e);
}

static void pause_failed(struct pause *p, const struct err *e)
{
	p->e = *e;
	log_error("sandbox.pause_failed", "%s err=%s", live_name(&p->live->view),
		log_quote(str_of(e->msg)));
	runtime_resume(p->live->runtime, p->live->view.id, pause_undone, p);
}

/* Whoever was told that it is paused and asks again did not ask together with anybody. */
static void tell_paused(struct pause *p, struct live *live)
{
	live->told[live->n_told++ % ARRAY_SIZE(live->told)] = p->asker;
	pause_end(p, 0, NULL);
}

static bool was_told(const struct pause *p, const struct live *live)
{
	for (size_t i = 0; i < ARRAY_SIZE(live->told); i++)
		if (live->told[i] == p->asker)
			return true;
	return false;
}

static void pause_complete(void *arg, int r, const struct err *e)
{
	struct pause *p = arg;

	(void)r;
	(void)e;
	log_info("sandbox.paused", "%s memory=%d us=%" PRId64, live_name(&p->live->view),
		p->keep_memory, time_now_us() - p->began_us);
	CRASH_POINT("pause.complete");
	p->live->paused_ms = time_now_ms();
	live_settle(p->live, SANDBOX_PAUSED);
	tell_paused(p, p->live);
}

static void pause_recorded(void *arg, int r, const struct err *e)
{
	struct pause *p = arg;

	CRASH_POINT("pause.recorded");
	if (r < 0) {
		p->live->view.image[0] = '\0';
		p->live->view.run.ended_us = 0;
		if (p->image[0])
			runtime_discard(book_images(p->op.book), p->image, done_nothing, NULL);
		pause_failed(p, e);
		return;
	}
	run_end(&p->live->view);
	if (p->keep_memory) {
		pause_complete(p, 0, NULL);
	} else {
		runtime_destroy(p->live->runtime, p->live->view.id, pause_complete, p);
	}
}

static void pause_counted(struct live *live, void *arg)
{
	struct pause *p = arg;
	struct sandbox *sb = &live->view;

	sb->run.ended_us = run_end_us(sb);
	sb->paused_us = time_wall_us();
	(void)snprintf(sb->image, sizeof sb->image, "%s", p->image);
	rows_paused(p->op.book->config.store, sb, p->actor, p->cause, pause_recorded, p);
}

/* It stands still: what it has used until now is all of this run. */
static void pause_record(struct pause *p)
{
	live_count(p->live, pause_counted, p);
}

static void pause_saved(void *arg, int r, const struct err *e)
{
	struct pause *p = arg;

	CRASH_POINT("pause.saved");
	if (r < 0)
		pause_failed(p, e);
	else
		pause_record(p);
}

static void pause_frozen(void *arg, int r, const struct err *e)
{
	struct pause *p = arg;

	CRASH_POINT("pause.frozen");
	if (r < 0) {
		pause_failed(p, e);
	} else if (p->keep_memory) {
		pause_record(p);
	} else {
		make_image_name(p->image, 'p');
		runtime_save(p->live->runtime, p->live->view.id, p->image, pause_saved, p);
	}
}

/* It was asked for together with somebody else's pause, which was of the same kind. */
static bool pause_was_joined(const struct pause *p, const struct live *live)
{
	bool memory_kept = !live->view.image[0];

	if (p->keep_memory != memory_kept)
		return false;
	return p->op.waited_for == SANDBOX_PAUSING ||
	       (live->paused_ms && time_now_ms() - live->paused_ms < PAUSED_TOGETHER_MS &&
		       p->asker && !was_told(p, live));
}

/* Memory that is kept costs the host as much as if it ran, and counts in no other quota. One whose
 * time is up is not let run on for that: its files are kept. */
static int pause_check_memory(struct pause *p, const struct live *live, struct err *e)
{
	const struct sandbox_book *book = p->op.book;
	int64_t most = book->config.limits.max_running, n = 0;
	const struct live *other;
	size_t at = 0;

	if (!p->keep_memory)
		return 0;
	while ((other = map_next(&book->by_id, &at)))
		n += sandbox_is_paused(&other->view) && !other->view.image[0] &&
		     strcmp(other->view.team_id, live->view.team_id) == 0;
	if (n < most)
		return 0;
	if (p->or_files) {
		p->keep_memory = false;
		return 0;
	}
	return err_set(e, -EDQUOT,
		"%" PRId64 " sandboxes are paused with their memory, and more may not be: pause "
		"with memory false, resume or kill one, or start the server with a higher "
		"--max-sandboxes",
		n);
}

static void pause_heard(struct live *live, void *arg)
{
	runtime_pause(live->runtime, live->view.id, pause_frozen, arg);
}

static void pause_run(struct op *op, struct live *live)
{
	struct pause *p = container_of(op, struct pause, op);
	struct err e = { 0 };

	if (!live) {
		(void)op_not_found(op, &e);
		pause_end(p, e.code, &e);
		return;
	}
	if (live->view.state == SANDBOX_PAUSED && pause_was_joined(p, live)) {
		tell_paused(p, live);
		return;
	}
	if (live->view.state == SANDBOX_PAUSED) {
		(void)err_set(&e, -EEXIST, "Error pausing sandbox - sandbox '%s' is already paused",
			live->view.id);
		pause_end(p, e.code, &e);
		return;
	}
	if (pause_check_memory(p, live, &e) < 0) {
		pause_end(p, e.code, &e);
		return;
	}
	p->live = live;
	p->began_us = time_now_us();
	memset(live->told, 0, sizeof live->told);
	live->view.state = SANDBOX_PAUSING;
	live->view.change_clock_us = p->began_us;
	loop_timer_cancel(&live->timer);
	/* A guest whose memory stays keeps what it has to tell, for as long as it is not ended. */
	activity_last(live, p->keep_memory ? live->activity.is_fresh : live->activity.is_used,
		pause_heard, p);
}

/* FNV-1a: askers only have to be told apart. */
static uint64_t name_asker(struct str asker)
{
	uint64_t hash = 14695981039346656037u;

	for (size_t i = 0; i < asker.n; i++)
		hash = (hash ^ (uint8_t)asker.p[i]) * 1099511628211u;
	return asker.n ? hash | 1 : 0;
}

void sandbox_pause(struct sandbox_book *book, const struct sandbox_owner *who, struct str id,
	const struct sandbox_pause *how, done_fn done, void *arg)
{
	struct pause *p = XNEW(struct pause);

	p->keep_memory = how->keep_memory;
	p->or_files = how->or_files;
	p->asker = name_asker(how->asker);
	(void)snprintf(p->actor, sizeof p->actor, "%s", how->actor ? how->actor : "system");
	(void)snprintf(p->cause, sizeof p->cause, "%s", how->cause ? how->cause : "");
	p->done = done;
	p->arg = arg;
	book->in_flight++;
	op_start(&p->op, book, who, id, pause_run);
}

/* ---- resume ---- */

struct resume {
	struct op op;
	struct live *live;
	struct sandbox_resume how;
	char actor[ACTOR_SIZE];
	int64_t began_us;
	char image[SANDBOX_ID_SIZE]; /* booted from: to be removed afterwards */
	bool was_joined;             /* it runs, because somebody else resumed it meanwhile */
	bool was_made;               /* this one brought it back */
	sandbox_resumed_fn fn;
	void *arg;
};

static void resume_end(struct resume *p, int r, const struct err *e)
{
	p->fn(p->arg, r, p->was_made || p->was_joined, r < 0 ? NULL : &p->live->view, e);
	p->op.book->in_flight--;
	free(p);
}

static void resume_failed(struct resume *p, int r, const struct err *e)
{
	struct err mine = *e;

	log_error("sandbox.resume_failed", "%s err=%s", live_name(&p->live->view),
		log_quote(str_of(e->msg)));
	/* Its memory is gone only if the runtime says so; its disk image is still there. */
	if (r == -ENOENT && !p->live->view.image[0])
		live_end(p->live, SANDBOX_END_INFRASTRUCTURE, "system",
			"it was gone when it was to be resumed", NULL, NULL);
	else
		live_settle(p->live, SANDBOX_PAUSED);
	resume_end(p, r, &mine);
}

static void resume_recorded(void *arg, int r, const struct err *e)
{
	struct resume *p = arg;
	struct live *live = p->live;

	CRASH_POINT("resume.recorded");
	if (r < 0)
		log_error("sandbox.row_failed", "sandbox_id=%s err=%s", p->live->view.id,
			log_quote(str_of(e->msg)));
	if (p->image[0] && r >= 0) /* else the row names it still, and the next start boots it */
		runtime_discard(book_images(p->op.book), p->image, done_nothing, NULL);
	log_info("sandbox.resumed", "%s us=%" PRId64, live_name(&p->live->view),
		time_now_us() - p->began_us);
	p->live->resumed_ms = time_now_ms();
	live_settle(live, SANDBOX_RUNNING);
	p->was_made = true;
	resume_end(p, 0, NULL);
	if (live->has_exited)
		live_end(live, SANDBOX_END_AGENT, "system", "its first process ended", NULL, NULL);
}

/* Asked for anew when it was resumed: whether it is paused, not ended, when its time is up. */
static void set_auto_pause(struct sandbox *sb, struct json_bool wanted)
{
	enum sandbox_timeout *how = &sb->options.on_timeout;

	if (wanted.is_set && !wanted.value)
		*how = SANDBOX_TIMEOUT_KILL;
	else if (wanted.is_set && *how == SANDBOX_TIMEOUT_KILL)
		*how = SANDBOX_TIMEOUT_PAUSE;
}

static void resume_running(void *arg, int r, const struct err *e)
{
	struct resume *p = arg;
	struct sandbox *sb = &p->live->view;

	CRASH_POINT("resume.running");
	if (r < 0) {
		resume_failed(p, r, e);
		return;
	}
	sb->run_started_us = book_wall_us(p->op.book);
	run_begin(sb, p->live->was_booted);
	sb->end_us = sb->run_started_us +
		     MIN(p->how.timeout_s, p->op.book->config.limits.max_timeout_s) * 1000000;
	sb->end_us = MIN(sb->end_us, live_latest_us(p->live));
	health_reset(p->live);
	live_used(p->live);
	sb->paused_us = 0;
	set_auto_pause(sb, p->how.auto_pause);
	sb->image[0] = '\0';
	rows_resumed(p->op.book->config.store, sb, p->actor, resume_recorded, p);
}

static void resume_ask(void *arg, done_fn done, void *done_arg)
{
	struct resume *p = arg;

	if (p->live->was_booted)
		live_boot(p->live, p->image, done, done_arg);
	else
		runtime_resume(p->live->runtime, p->live->view.id, done, done_arg);
}

static void resume_attempt_failed(void *arg, int n, int64_t again_ms, const struct err *e)
{
	const struct resume *p = arg;
	const struct attempt what = { "resume", n, again_ms };

	attempt_failed(p->live, &what, e);
}

static void resume_try(struct resume *p)
{
	const struct runtime_tries tries = { .ask = resume_ask,
		.failed = resume_attempt_failed,
		.done = resume_running,
		.arg = p,
		.deadline_ms = time_now_ms() + TRY_MS };

	runtime_try(p->live->runtime, &tries);
}

static void resume_boot(struct resume *p)
{
	(void)snprintf(p->image, sizeof p->image, "%s", p->live->view.image);
	resume_try(p);
}

/* A fresh boot is wanted of one whose memory was kept: its disk is saved, then it is as if it had
 * been paused to disk. */
static void cold_destroyed(void *arg, int r, const struct err *e)
{
	struct resume *p = arg;

	CRASH_POINT("resume.destroyed");
	if (r < 0)
		resume_failed(p, r, e);
	else
		resume_boot(p);
}

static void cold_recorded(void *arg, int r, const struct err *e)
{
	struct resume *p = arg;

	if (r < 0) {
		p->live->view.image[0] = '\0'; /* its memory is still what there is */
		runtime_discard(book_images(p->op.book), p->image, done_nothing, NULL);
		resume_failed(p, r, e);
		return;
	}
	runtime_destroy(p->live->runtime, p->live->view.id, cold_destroyed, p);
}

static void cold_saved(void *arg, int r, const struct err *e)
{
	struct resume *p = arg;

	CRASH_POINT("resume.saved");
	if (r < 0) {
		resume_failed(p, r, e);
		return;
	}
	(void)snprintf(p->live->view.image, sizeof p->live->view.image, "%s", p->image);
	rows_paused(p->op.book->config.store, &p->live->view, p->actor, "", cold_recorded, p);
}

static void connect_recorded(void *arg, int r, const struct err *e)
{
	struct resume *p = arg;

	p->live = live_find(p->op.book, NULL,
		str_of(p->op.id)); /* a write is long enough to be killed */
	if (r >= 0 && !p->live) {
		struct err gone = { 0 };

		r = op_not_found(&p->op, &gone);
		resume_end(p, r, &gone);
		return;
	}
	resume_end(p, r, e);
}

/* A running one: its end is moved later, never earlier. */
static void connect_running(struct resume *p)
{
	struct sandbox *sb = &p->live->view;
	int64_t latest_us = live_latest_us(p->live);
	int64_t end_us = MIN(book_wall_us(p->op.book) + p->how.timeout_s * 1000000, latest_us);

	if (end_us <= sb->end_us) {
		resume_end(p, 0, NULL);
		return;
	}
	sb->end_us = end_us;
	live_arm(p->live);
	rows_set_end(p->op.book->config.store, sb, end_us, connect_recorded, p);
}

static bool was_just_resumed(const struct live *live)
{
	return live->resumed_ms && time_now_ms() - live->resumed_ms < RESUMED_TOGETHER_MS;
}

/* Its disk counts already, and so does memory that was kept. */
static int check_room(struct sandbox_book *book, const struct live *live, struct err *e)
{
	struct quota_ask ask = { .team_id = live->view.team_id,
		.memory_mb = live->view.image[0] ? live->view.limits.v[LIMIT_MEMORY] : 0 };

	return quota_check(book, &ask, e);
}

/* -EEXIST, -EBUSY: it runs, and not as was asked for. -EDQUOT: one too many would run. */
static int resume_check(const struct resume *p, const struct live *live, struct err *e)
{
	const char *id = live->view.id;

	if (live->view.state != SANDBOX_RUNNING)
		return check_room(p->op.book, live, e);
	if (p->op.waited_for == SANDBOX_RESUMING && p->how.cold && !live->was_booted)
		return err_set(e, -EBUSY,
			"Sandbox \"%s\" was just being resumed with its memory kept", id);
	if (!p->was_joined && p->how.only_paused)
		return err_set(e, -EEXIST, "Sandbox %s is already running", id);
	return 0;
}

static void resume_paused(struct resume *p)
{
	struct runtime *runtime = p->live->runtime;
	struct sandbox *sb = &p->live->view;

	sb->state = SANDBOX_RESUMING;
	sb->change_clock_us = p->began_us;
	p->live->was_booted = sb->image[0] || p->how.cold;
	if (sb->image[0]) {
		resume_boot(p);
	} else if (p->how.cold) {
		make_image_name(p->image, 'p');
		runtime_save(runtime, sb->id, p->image, cold_saved, p);
	} else {
		resume_try(p);
	}
}

static void resume_run(struct op *op, struct live *live)
{
	struct resume *p = container_of(op, struct resume, op);
	struct err e = { 0 };

	p->live = live;
	p->began_us = time_now_us();
	p->was_joined = op->waited_for == SANDBOX_RESUMING ||
			(live && p->how.only_paused && was_just_resumed(live));
	if (!live)
		(void)op_not_found(op, &e);
	else
		(void)resume_check(p, live, &e);
	if (!live || e.code < 0)
		resume_end(p, e.code, &e);
	else if (live->view.state == SANDBOX_RUNNING)
		connect_running(p);
	else
		resume_paused(p);
}

void sandbox_connect(struct sandbox_book *book, const struct sandbox_owner *who, struct str id,
	const struct sandbox_resume *how, sandbox_resumed_fn fn, void *arg)
{
	struct resume *p = XNEW(struct resume);

	p->how = *how;
	(void)snprintf(p->actor, sizeof p->actor, "%s", how->actor ? how->actor : "system");
	p->fn = fn;
	p->arg = arg;
	book->in_flight++;
	op_start(&p->op, book, who, id, resume_run);
}
