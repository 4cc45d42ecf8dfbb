/* Usage: a row for each span in which a sandbox ran (sandbox_runs). It is opened and closed in the
 * transaction that says the same of the sandbox. How long it was is measured by the monotonic
 * clock, so setting the host's clock changes no bill; what it has used is the kernel's word, asked
 * every few seconds and a last time before it is frozen or destroyed. What runs is marked as seen
 * each minute: of one that was gone when the server started, that is as long as it counts. */
#include "sandbox/sandbox-internal.h"

enum {
	WRITE_MS = 60000,
	CHUNK = 64, /* rows of one transaction: nobody waits long behind it */
};

static struct observe_run run_of(const struct sandbox *sb, int64_t us)
{
	return (struct observe_run){ .ms = MAX(us, 0) / 1000,
		.cpu_count = sb->limits.v[LIMIT_CPU],
		.memory_mib = sb->limits.v[LIMIT_MEMORY],
		.disk_mib = sb->limits.v[LIMIT_DISK],
		.cpu_us = sb->run.cpu_us,
		.egress_bytes = sb->run.egress_bytes };
}

void run_begin(struct sandbox *sb, bool is_boot)
{
	struct sandbox_run *run = &sb->run;
	struct sandbox_run next = { .clock_us = time_now_us() };

	if (!is_boot) {
		next.cpu_base_us = run->cpu_base_us + run->cpu_us;
		next.egress_base = run->egress_base + run->egress_bytes;
	}
	*run = next;
}

int64_t run_end_us(const struct sandbox *sb)
{
	if (sb->run.ended_us)
		return sb->run.ended_us;
	return sb->run_started_us + MAX(time_now_us() - sb->run.clock_us, 0);
}

void run_end(struct sandbox *sb)
{
	struct observe_run run = run_of(sb, run_end_us(sb) - sb->run_started_us);

	if (!sb->run.clock_us)
		return;
	observe_add_run(&sb->used_before, &run);
	/* What was counted so far is what the next one begins with. */
	sb->run = (struct sandbox_run){ .cpu_base_us = sb->run.cpu_base_us + sb->run.cpu_us,
		.egress_base = sb->run.egress_base + sb->run.egress_bytes };
}

void run_was_lost(struct sandbox *sb)
{
	if (sb->run.clock_us)
		sb->run.ended_us = MAX(sb->run.seen_us, sb->run_started_us);
}

void sandbox_used(const struct sandbox *sb, struct observe_amounts *ret)
{
	struct observe_run run;

	*ret = sb->used_before;
	ret->sandboxes = 1;
	if (!sb->run.clock_us)
		return;
	run = run_of(sb, run_end_us(sb) - sb->run_started_us);
	observe_add_run(ret, &run);
}

/* ---- rows ---- */

int run_row_open(struct store_tx *tx, const struct sandbox *sb, struct err *e)
{
	return store_exec(tx,
		"INSERT INTO sandbox_runs (sandbox_id, started_us, seen_us, cpu_base_us, "
		"egress_base) VALUES ($1, $2, $2, $3, $4) ON CONFLICT (sandbox_id, started_us) "
		"DO UPDATE SET ended_us = NULL",
		STORE_PARAMS(P_TEXT(sb->id), P_INT(sb->run_started_us), P_INT(sb->run.cpu_base_us),
			P_INT(sb->run.egress_base)),
		e);
}

int run_row_close(struct store_tx *tx, const struct sandbox *sb, int64_t end_us, struct err *e)
{
	if (!sb->run.clock_us)
		return 0;
	return store_exec(tx,
		"UPDATE sandbox_runs SET ended_us = $1, seen_us = $1, cpu_us = $2, egress_bytes = "
		"$3 WHERE sandbox_id = $4 AND ended_us IS NULL",
		STORE_PARAMS(P_INT(end_us), P_INT(sb->run.cpu_us), P_INT(sb->run.egress_bytes),
			P_TEXT(sb->id)),
		e);
}

struct load {
	run_row_fn fn;
	void *arg;
};

static int load_row(void *arg, const struct store_row *row, struct err *e)
{
	const struct load *load = arg;
	char id[SANDBOX_ID_SIZE];
	struct sandbox_run run = { .ended_us = store_int(row, 2),
		.seen_us = store_int(row, 3),
		.cpu_us = store_int(row, 4),
		.egress_bytes = store_int(row, 5),
		.cpu_base_us = store_int(row, 6),
		.egress_base = store_int(row, 7) };

	(void)e;
	store_copy_text(row, 0, id, sizeof id);
	load->fn(load->arg, id, &run, store_int(row, 1));
	return 0;
}

int run_rows_load(struct store_tx *tx, run_row_fn fn, void *arg, struct err *e)
{
	struct load load = { fn, arg };

	return store_query(tx,
		"SELECT r.sandbox_id, r.started_us, r.ended_us, r.seen_us, r.cpu_us, "
		"r.egress_bytes, r.cpu_base_us, r.egress_base FROM sandbox_runs r "
		"JOIN sandboxes s ON s.id = r.sandbox_id WHERE s.state <> 'ended' "
		"ORDER BY r.sandbox_id, r.started_us",
		NULL, 0, load_row, &load, e);
}

/* One that is open goes on: how long it has run is the wall clock's word, this once. */
void run_take(struct sandbox *sb, const struct sandbox_run *run, int64_t started_us)
{
	int64_t so_far_us = MAX(time_wall_us() - started_us, 0);
	struct observe_run closed;

	sb->run = *run;
	if (!run->ended_us) {
		sb->run.clock_us = MAX(time_now_us() - so_far_us, 1);
		return;
	}
	closed = run_of(sb, run->ended_us - started_us);
	observe_add_run(&sb->used_before, &closed);
	sb->run = (struct sandbox_run){ .cpu_base_us = run->cpu_base_us + run->cpu_us,
		.egress_base = run->egress_base + run->egress_bytes };
}

/* ---- what the kernel has counted ---- */

static void note(struct sandbox *sb, const struct runtime_used *used)
{
	struct sandbox_run *run = &sb->run;

	if (!run->clock_us)
		return;
	run->cpu_us = MAX(used->cpu_us - run->cpu_base_us, run->cpu_us);
	run->egress_bytes = MAX(used->sent_bytes - run->egress_base, run->egress_bytes);
}

struct counting {
	struct live *live;
	live_fn then;
	void *arg;
};

static void counted(void *arg, int r, const struct runtime_used *used, const struct err *e)
{
	struct counting *c = arg;

	(void)e;
	if (r >= 0)
		note(&c->live->view, used);
	c->then(c->live, c->arg);
	free(c);
}

void live_count(struct live *live, live_fn then, void *arg)
{
	struct counting *c = XNEW(struct counting);

	*c = (struct counting){ live, then, arg };
	runtime_used(live->runtime, live->view.id, counted, c);
}

struct question {
	struct sandbox_book *book;
	char id[SANDBOX_ID_SIZE];
};

static void answered(void *arg, int r, const struct runtime_used *used, const struct err *e)
{
	struct question *q = arg;
	struct live *live = live_find(q->book, NULL, str_of(q->id));

	(void)e;
	q->book->questions--;
	if (live && r >= 0 && live->view.state == SANDBOX_RUNNING)
		note(&live->view, used);
	free(q);
}

static void ask(struct live *live)
{
	struct question *q = XNEW(struct question);

	q->book = live->book;
	q->book->questions++;
	memcpy(q->id, live->view.id, sizeof q->id);
	runtime_used(live->runtime, live->view.id, answered, q);
}

/* ---- now and then into the rows ---- */

struct seen {
	size_t n;
	struct {
		char id[SANDBOX_ID_SIZE];
		int64_t began_us, at_us, cpu_us, egress_bytes;
	} v[CHUNK];
};

static int write_seen(struct store_tx *tx, void *arg, struct err *e)
{
	const struct seen *seen = arg;
	int r = 0;

	for (size_t i = 0; r >= 0 && i < seen->n; i++)
		r = store_exec(tx,
			"UPDATE sandbox_runs SET seen_us = $1, cpu_us = $2, egress_bytes = $3 "
			"WHERE sandbox_id = $4 AND started_us = $5 AND ended_us IS NULL",
			STORE_PARAMS(P_INT(seen->v[i].at_us), P_INT(seen->v[i].cpu_us),
				P_INT(seen->v[i].egress_bytes), P_TEXT(seen->v[i].id),
				P_INT(seen->v[i].began_us)),
			e);
	return r;
}

static void seen_written(void *arg, int r, const struct err *e)
{
	if (r < 0)
		log_warn("usage.unwritten", "err=%s", log_quote(str_of(e->msg)));
	free(arg);
}

static struct seen *add_seen(struct sandbox_book *book, struct seen *seen, const struct sandbox *sb)
{
	if (!seen)
		seen = XNEW(struct seen);
	memcpy(seen->v[seen->n].id, sb->id, sizeof sb->id);
	seen->v[seen->n].began_us = sb->run_started_us; /* others may write before: a next run */
	seen->v[seen->n].at_us = run_end_us(sb);
	seen->v[seen->n].cpu_us = sb->run.cpu_us;
	seen->v[seen->n].egress_bytes = sb->run.egress_bytes;
	if (++seen->n < CHUNK)
		return seen;
	store_run(book->config.store, write_seen, seen_written, seen);
	return NULL;
}

void runs_step(struct sandbox_book *book)
{
	bool is_due = time_now_ms() - book->runs_written_ms >= WRITE_MS;
	struct seen *seen = NULL;
	struct live *live;
	size_t at = 0;

	while ((live = map_next(&book->by_id, &at))) {
		if (live->view.state != SANDBOX_RUNNING)
			continue;
		if (is_due)
			seen = add_seen(book, seen, &live->view);
		ask(live);
	}
	if (seen)
		store_run(book->config.store, write_seen, seen_written, seen);
	if (is_due)
		book->runs_written_ms = time_now_ms();
}
