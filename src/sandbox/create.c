/* Creating: the row and the sandbox are made at the same time, since neither needs the other.
 * Nothing was promised until both stand; a crash in between leaves a row without a sandbox or a
 * sandbox without a row, and reconciling removes either. */
#include "sandbox/sandbox-internal.h"

struct creation {
	struct live *live;
	int64_t began_us;
	int row_r, run_r; /* 1: still waiting */
	struct err row_e, run_e;
	struct loop_task task;
	sandbox_created_fn fn;
	void *arg;
};

static void settings_json(const struct sandbox_book *book, const struct live *live,
	const struct template *t, const struct json_map *env, struct buf *out)
{
	char token[SANDBOX_TOKEN_SIZE];
	struct jsonw w;

	jsonw_init(&w, out);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "sandboxId", live->view.id);
	jsonw_strz(&w, "templateId", t->id);
	jsonw_map(&w, "envVars", env);
	if (live->view.secure) {
		sandbox_token(book, live->view.id, token);
		jsonw_strz(&w, "accessToken", token);
	}
	jsonw_strz(&w, "defaultUser", t->user);
	if (t->workdir[0])
		jsonw_strz(&w, "defaultWorkdir", t->workdir);
	if (t->start[0])
		jsonw_strz(&w, "startCmd", t->start);
	jsonw_int(&w, "cpuCount", t->cpu);
	jsonw_int(&w, "memoryMB", t->memory_mb);
	jsonw_end_object(&w);
}

static struct str keep(struct arena *arena, struct str s)
{
	char *copy = arena_dup(arena, s);

	return copy ? (struct str){ copy, s.n } : STR_NONE;
}

static int copy_metadata(struct live *live, const struct json_map *from, struct err *e)
{
	struct json_map *to = &live->view.metadata;

	*to = (struct json_map){ .n = from->n, .is_set = from->is_set };
	to->v = arena_alloc(live->arena, from->n * sizeof *to->v);
	for (size_t i = 0; to->v && i < from->n; i++) {
		to->v[i].key = keep(live->arena, from->v[i].key);
		to->v[i].value = keep(live->arena, from->v[i].value);
		if (!to->v[i].key.p || !to->v[i].value.p)
			to->v = NULL;
	}
	return to->v ? 0 : err_set(e, -E2BIG, "metadata is larger than 1 MiB");
}

static void finish(struct creation *c, int r, const struct err *e)
{
	struct sandbox_book *book = c->live ? c->live->book : NULL;

	if (r < 0 && c->live) {
		live_forget(c->live);
		c->live = NULL;
	}
	if (book)
		book->in_flight--;
	c->fn(c->arg, r, c->live ? &c->live->view : NULL, e);
	free(c);
}

/* The sandbox was made, but its row could not be: take it away again before saying so. */
static void undone(void *arg, int r, const struct err *e)
{
	struct creation *c = arg;

	(void)r;
	(void)e;
	finish(c, c->row_r, &c->row_e);
}

static void row_closed(void *arg, int r, const struct err *e)
{
	struct creation *c = arg;

	(void)r;
	(void)e;
	finish(c, c->run_r, &c->run_e);
}

static void both_done(struct creation *c)
{
	struct sandbox_book *book = c->live->book;
	struct live *live = c->live;

	if (c->run_r < 0 && c->row_r >= 0) {
		rows_ended(book->config.store, live->view.id, SANDBOX_END_INFRASTRUCTURE, "system",
			c->run_e.msg, row_closed, c);
	} else if (c->run_r < 0) {
		finish(c, c->run_r, &c->run_e);
	} else if (c->row_r < 0) {
		runtime_destroy(book->config.runtime, live->view.id, undone, c);
	} else {
		live->view.state = SANDBOX_RUNNING;
		live_arm(live);
		log_info("sandbox.created", "sandbox=%s template=%s us=%" PRId64, live->view.id,
			live->view.template_name, time_now_us() - c->began_us);
		finish(c, 0, NULL);
	}
}

static void row_done(void *arg, int r, const struct err *e)
{
	struct creation *c = arg;

	c->row_r = r;
	if (r < 0)
		c->row_e = *e;
	if (c->run_r <= 0)
		both_done(c);
}

static void run_done(void *arg, int r, const struct err *e)
{
	struct creation *c = arg;

	c->run_r = r;
	if (r < 0)
		c->run_e = *e;
	if (c->row_r <= 0)
		both_done(c);
}

static void fail_now(void *arg)
{
	struct creation *c = arg;

	finish(c, c->run_e.code, &c->run_e);
}

static int64_t count_of_team(const struct sandbox_book *book, const char *team_id)
{
	const struct live *live;
	int64_t n = 0;
	size_t at = 0;

	while ((live = map_next(&book->by_id, &at)))
		n += live->view.state != SANDBOX_ENDING && strcmp(live->view.team_id, team_id) == 0;
	return n;
}

static int check(struct sandbox_book *book, const struct sandbox_spec *spec, struct template *t,
	struct err *e)
{
	const struct sandbox_limits *limits = &book->config.limits;
	int r = template_find(book->config.templates, spec->template_name, t, e);

	if (r < 0)
		return r;
	if (spec->timeout_s < 1 || spec->timeout_s > limits->max_timeout_s)
		return err_set(e, -ERANGE, "timeout must be from 1 to %" PRId64 " seconds",
			limits->max_timeout_s);
	if (count_of_team(book, spec->team_id) >= limits->max_running)
		return err_set(e, -EDQUOT,
			"you have reached the maximum number of concurrent E2B sandboxes (%" PRId64
			"): kill one, or start the server with a higher --max-sandboxes",
			limits->max_running);
	return 0;
}

static struct live *admit(struct sandbox_book *book, const struct sandbox_spec *spec,
	const struct template *t, struct err *e)
{
	char id[SANDBOX_ID_SIZE] = "i";
	struct live *live;
	struct sandbox *sb;

	random_id(id + 1, SANDBOX_ID_SIZE - 2);
	live = live_new(book, id);
	sb = &live->view;
	(void)snprintf(sb->team_id, sizeof sb->team_id, "%s", spec->team_id);
	(void)snprintf(sb->template_id, sizeof sb->template_id, "%s", t->id);
	(void)snprintf(sb->template_name, sizeof sb->template_name, "%s", t->name);
	sb->secure = spec->secure;
	sb->cpu_count = t->cpu;
	sb->memory_mb = t->memory_mb;
	sb->disk_mb = t->disk_mb;
	sb->timeout_s = spec->timeout_s;
	sb->started_us = time_wall_us();
	sb->end_us = sb->started_us + spec->timeout_s * 1000000;
	if (copy_metadata(live, &spec->metadata, e) < 0) {
		live_forget(live);
		return NULL;
	}
	return live;
}

void sandbox_create(struct sandbox_book *book, const struct sandbox_spec *spec,
	sandbox_created_fn fn, void *arg)
{
	CLEANUP(buf_done) struct buf settings = BUF_INIT(2 << 20);
	struct creation *c = XNEW(struct creation);
	struct runtime_spec run = { 0 };
	struct template t;

	*c = (struct creation){ .began_us = time_now_us(),
		.row_r = 1,
		.run_r = 1,
		.fn = fn,
		.arg = arg };
	if (check(book, spec, &t, &c->run_e) >= 0)
		c->live = admit(book, spec, &t, &c->run_e);
	if (!c->live) {
		loop_defer(book->config.loop, &c->task, fail_now, c);
		return;
	}
	book->in_flight++;
	settings_json(book, c->live, &t, &spec->env_vars, &settings);
	run = (struct runtime_spec){ c->live->view.id, t.name, t.cpu, t.memory_mb, t.disk_mb,
		t.max_pids, buf_str(&settings) };
	runtime_create(book->config.runtime, &run, run_done, c);
	rows_insert(book->config.store, &c->live->view, runtime_name(book->config.runtime),
		spec->actor, row_done, c);
}
