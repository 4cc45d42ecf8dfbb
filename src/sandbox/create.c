/* Creating: the row and the sandbox are made at the same time, since neither needs the other.
 * Nothing was promised until both stand; a crash in between leaves a row without a sandbox or a
 * sandbox without a row, and reconciling removes either. */
#include "sandbox/activity.h"

struct creation {
	struct list node; /* in the book's */
	struct live *live;
	struct gate_pass pass;
	struct source source; /* for another attempt */
	int attempts;         /* that failed */
	bool is_unwanted;     /* who asked has gone: no more attempts */
	int64_t began_us, asked_us, row_us,
		run_us; /* monotonic; the latter two: how long it took */
	char actor[ACTOR_SIZE];
	int row_r, run_r; /* 1: still waiting */
	struct err row_e, run_e;
	struct loop_task task;
	sandbox_created_fn fn;
	void *arg;
};

void make_image_name(char out[SANDBOX_ID_SIZE], char kind)
{
	out[0] = kind;
	random_id(out + 1, SANDBOX_ID_SIZE - 2);
}

/* ---- the runtime's part ---- */

/* A map has no name twice, so only what was there before is looked through. */
static void put_all(struct json_map *env, const struct json_map *from)
{
	size_t known = env->n;

	for (size_t i = 0; i < from->n; i++) {
		size_t at = 0;

		while (at < known && !str_eq(env->v[at].key, from->v[i].key))
			at++;
		env->v[at < known ? at : env->n++] = from->v[i];
	}
}

/* What the creator said goes before what holds for the team, and that before the server's. */
static void write_env(const struct live *live, struct jsonw *w)
{
	const struct sandbox_book_config *config = &live->book->config;
	struct json_map team = { 0 }, env = { 0 };

	if (config->team_env)
		config->team_env(config->team_env_arg, live->view.team_id, &team);
	if (config->env.n == 0 && team.n == 0) {
		jsonw_map(w, "envVars", &live->env);
		return;
	}
	env.v = XNEW_N(struct json_pair, config->env.n + team.n + live->env.n);
	put_all(&env, &config->env);
	put_all(&env, &team);
	put_all(&env, &live->env);
	jsonw_map(w, "envVars", &env);
	free(env.v);
}

static void settings_json(const struct live *live, const struct template *t,
	const struct policy *policy, struct buf *out)
{
	char token[SANDBOX_TOKEN_SIZE];
	struct jsonw w;

	jsonw_init(&w, out);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "sandboxId", live->view.id);
	jsonw_strz(&w, "templateId", live->view.template_id);
	write_env(live, &w);
	if (live->view.secure) {
		sandbox_token(live->book, live->view.id, token);
		jsonw_strz(&w, "accessToken", token);
	}
	jsonw_strz(&w, "defaultUser", t->user);
	if (t->workdir[0])
		jsonw_strz(&w, "defaultWorkdir", t->workdir);
	if (t->start[0])
		jsonw_strz(&w, "startCmd", t->start);
	for (size_t i = 0; i < LIMIT_KINDS; i++)
		jsonw_int(&w, limit_name((enum limit_kind)i), live->view.limits.v[i]);
	trust_write(live->book, policy->n_rules > 0, &w);
	jsonw_end_object(&w);
}

static void boot(struct live *live, const struct template *base, const char *image, done_fn done,
	void *arg)
{
	CLEANUP(buf_done) struct buf settings = BUF_INIT(8 << 20);
	CLEANUP(arena_freep) struct arena *arena = arena_new(POLICY_BYTES);
	const struct sandbox *sb = &live->view;
	struct err e = { 0 };
	struct policy policy;
	struct runtime_mount mounts[SANDBOX_MAX_MOUNTS];
	struct runtime_spec run = { .id = sb->id,
		.template_name = sb->base_template,
		.image = image && image[0] ? image : NULL,
		.limits = &sb->limits,
		.mounts = mounts,
		.n_mounts = sb->options.n_mounts,
		.is_nested = sb->options.nested.value,
		.policy = &policy };

	if (live_policy(live, arena, &policy, &e) < 0) {
		tell_later(live->book, &e, done, arg);
		return;
	}
	for (size_t i = 0; i < run.n_mounts; i++)
		mounts[i] = (struct runtime_mount){ sb->options.mounts[i].volume_id,
			sb->options.mounts[i].path };
	crossings_reborn(live);
	activity_reborn(live);
	settings_json(live, base, &policy, &settings);
	run.settings = buf_str(&settings);
	if (settings.failed) {
		(void)err_set(&e, -E2BIG, "the environment is too large");
		tell_later(live->book, &e, done, arg);
	} else {
		live->has_exited = false;
		runtime_create(live->runtime, &run, done, arg);
	}
	if (settings.p)
		explicit_bzero(settings.p, settings.n);
}

struct failed_boot {
	struct loop_task task;
	struct err e;
	done_fn done;
	void *arg;
};

static void tell_failed(void *arg)
{
	struct failed_boot *f = arg;

	f->done(f->arg, f->e.code, &f->e);
	free(f);
}

void live_boot(struct live *live, const char *image, done_fn done, void *arg)
{
	struct failed_boot *f;
	struct template base;
	struct err e = { 0 };

	if (template_find(live->book->config.templates, str_of(live->view.base_template), &base,
		    &e) >= 0) {
		boot(live, &base, image, done, arg);
		return;
	}
	f = XNEW(struct failed_boot);
	f->e = e;
	f->e.code = -ENOTRECOVERABLE; /* its tree is gone, which is not the sandbox being gone */
	f->done = done;
	f->arg = arg;
	loop_defer(live->book->config.loop, &f->task, tell_failed, f);
}

/* ---- both parts together ---- */

static void finish(struct creation *c, int r, const struct err *e)
{
	struct sandbox_book *book = c->live ? c->live->book : NULL;

	list_remove(&c->node);
	gate_leave(&c->pass);
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

/* What it took, for those who read the log: the row and the sandbox are made at the same time. */
static void tell_started(struct creation *c)
{
	const struct sandbox *sb = &c->live->view;
	CLEANUP(buf_done) struct buf data = BUF_INIT(1024);
	int64_t us = time_now_us() - c->began_us, quota_us = c->asked_us - c->began_us;
	int64_t made_us = quota_us + (c->row_us > c->run_us ? c->row_us : c->run_us);
	struct jsonw w;

	jsonw_init(&w, &data);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "runtime", sb->runtime);
	jsonw_strz(&w, "template", sb->template_name);
	jsonw_int(&w, "us", us);
	jsonw_int(&w, "quota_us", quota_us);
	jsonw_int(&w, "row_us", c->row_us);
	jsonw_int(&w, "runtime_us", c->run_us);
	jsonw_int(&w, "ready_us", MAX(us - made_us, 0));
	jsonw_end_object(&w);
	observe_event(c->live->book->config.events, &(struct observe_event){ .actor = c->actor,
							    .kind = "sandbox.started",
							    .subject = sb->id,
							    .team_id = sb->team_id,
							    .agent_id = sb->agent_id,
							    .task_id = sb->task_id,
							    .data = buf_str(&data) });
}

/* What the attempts before it took is neither its time nor anybody's bill. */
static void forgive(struct creation *c)
{
	struct sandbox *sb = &c->live->view;

	run_begin(sb, true);
	sb->end_us = book_wall_us(c->live->book) + sb->timeout_s * 1000000;
	rows_set_end(c->live->book->config.store, sb, sb->end_us, done_nothing, NULL);
}

static void both_done(struct creation *c)
{
	struct sandbox_book *book = c->live->book;
	struct live *live = c->live;

	if (c->run_r >= 0 && live->has_exited)
		c->run_r = err_set(&c->run_e, -EIO, "it ended as soon as it had started");
	if (c->run_r < 0 && c->row_r >= 0) {
		run_begin(&live->view, true); /* it never ran: what is closed now was empty */
		rows_ended(book->config.store, &live->view,
			runtime_fault_of(c->run_r) == RUNTIME_FAULT_REQUEST
				? SANDBOX_END_USER
				: SANDBOX_END_INFRASTRUCTURE,
			"system", c->run_e.msg, row_closed, c);
	} else if (c->run_r < 0) {
		finish(c, c->row_r, &c->row_e);
	} else if (c->row_r < 0) {
		runtime_destroy(live->runtime, live->view.id, undone, c);
	} else {
		CRASH_POINT("create.both");
		if (c->attempts)
			forgive(c);
		live_used(live);
		live_settle(live, SANDBOX_RUNNING);
		tell_started(c);
		log_info("sandbox.created", "%s template=%s us=%" PRId64, live_name(&live->view),
			live->view.template_name, time_now_us() - c->began_us);
		finish(c, 0, NULL);
	}
}

static void row_done(void *arg, int r, const struct err *e)
{
	struct creation *c = arg;

	CRASH_POINT("create.row");
	c->row_r = r;
	c->row_us = time_now_us() - c->asked_us;
	if (r < 0)
		c->row_e = *e;
	else
		history_grown(c->live->book, c->live->view.team_id);
	if (c->run_r <= 0)
		both_done(c);
}

/* The request was right, so whatever the runtime could not do is our failure and not the caller's;
 * but for volumes: one may just have been removed, or its place in this tree be taken; and for more
 * than a guest can be told. */
static int infrastructure(int r)
{
	if (r >= 0 || r == -ENOSPC || r == -EPIPE || r == -EAGAIN || r == -ETIMEDOUT ||
		r == -EOPNOTSUPP || r == -ESTALE || r == -ENOTDIR || r == -E2BIG || r == -EHOSTDOWN)
		return r;
	return -EIO;
}

static void run_done(void *arg, int r, const struct err *e)
{
	struct creation *c = arg;

	CRASH_POINT("create.run");
	gate_leave(&c->pass);
	c->run_r = infrastructure(r);
	c->run_us = time_now_us() - c->asked_us;
	if (r < 0) {
		c->run_e = *e;
		c->run_e.code = c->run_r;
	}
	if (c->row_r <= 0)
		both_done(c);
}

static void creation_ask(void *arg, done_fn done, void *done_arg)
{
	struct creation *c = arg;
	struct err e = { 0 };

	if (!c->is_unwanted && c->row_r >= 0) {
		boot(c->live, &c->source.t, c->source.image, done, done_arg);
		return;
	}
	(void)err_set(&e, -ECANCELED, "it is not tried again: %s",
		c->is_unwanted ? "who asked for it has gone" : c->row_e.msg);
	tell_later(c->live->book, &e, done, done_arg);
}

static void creation_failed(void *arg, int n, int64_t again_ms, const struct err *e)
{
	struct creation *c = arg;
	const struct attempt what = { "create", n, again_ms };

	c->attempts = n;
	attempt_failed(c->live, &what, e);
}

static void creation_try(void *arg)
{
	struct creation *c = arg;
	const struct runtime_tries tries = { .ask = creation_ask,
		.failed = creation_failed,
		.done = run_done,
		.arg = c,
		.deadline_ms = time_now_ms() + TRY_MS };

	runtime_try(c->live->runtime, &tries);
}

static struct gate *gate_of(const struct creation *c)
{
	struct sandbox_book *book = c->live->book;
	size_t i = 0;

	while (book->config.runtimes.v[i] != c->live->runtime)
		i++;
	return &book->gates[i];
}

void creations_unwanted(struct sandbox_book *book, const void *arg)
{
	LIST_EACH(&book->creations, node)
	{
		struct creation *c = container_of(node, struct creation, node);

		c->is_unwanted |= c->arg == arg;
	}
}

static void fail_now(void *arg)
{
	struct creation *c = arg;

	finish(c, c->run_e.code, &c->run_e);
}

/* ---- what is asked for ---- */

static int check_time(const struct sandbox_book *book, const struct sandbox_spec *spec,
	struct err *e)
{
	const struct sandbox_limits *limits = &book->config.limits;

	if (spec->timeout_s < 1 || spec->timeout_s > limits->max_timeout_s)
		return err_set(e, -ERANGE, "timeout must be from 1 to %" PRId64 " seconds",
			limits->max_timeout_s);
	return 0;
}

int source_find(const struct sandbox_book *book, const struct sandbox_spec *spec,
	struct source *ret, struct err *e)
{
	const struct sandbox_owner who = { spec->team_id, spec->bound_agent };
	const struct sandbox_snapshot *snap =
		sandbox_find_snapshot(book, &who, spec->template_name);
	int r;

	*ret = (struct source){ 0 };
	if (!snap) {
		r = template_find(book->config.templates, spec->template_name, &ret->t, e);
		(void)snprintf(ret->base_template, sizeof ret->base_template, "%s", ret->t.name);
		(void)snprintf(ret->runtime, sizeof ret->runtime, "%s", ret->t.runtime);
		return r;
	}
	r = template_find(book->config.templates, str_of(snap->base_template), &ret->t, e);
	if (r < 0)
		return err_wrap(e, r, "the snapshot's tree");
	(void)snprintf(ret->base_template, sizeof ret->base_template, "%s", snap->base_template);
	(void)snprintf(ret->image, sizeof ret->image, "%s", snap->image);
	(void)snprintf(ret->runtime, sizeof ret->runtime, "%s", snap->runtime);
	(void)snprintf(ret->t.id, sizeof ret->t.id, "%s", snap->template_id);
	(void)snprintf(ret->t.name, sizeof ret->t.name, "%s",
		snap->alias[0] ? snap->alias : snap->template_id);
	ret->t.is_nested = snap->is_nested;
	ret->t.limits.v[LIMIT_CPU] = snap->cpu_count;
	ret->t.limits.v[LIMIT_MEMORY] = snap->memory_mb;
	ret->t.limits.v[LIMIT_SHM] = MIN(ret->t.limits.v[LIMIT_SHM], snap->memory_mb);
	ret->t.limits.v[LIMIT_DISK] = snap->disk_mb;
	ret->t.start[0] = '\0'; /* it has run already; what it left is in the files */
	return 0;
}

static int keep_options(struct live *live, const struct sandbox_options *from)
{
	struct sandbox_options *to = &live->view.options;

	*to = *from;
	to->network = live_keep_str(live, from->network);
	to->mask_host = live_keep_str(live, from->mask_host);
	to->https_ports = live_keep_str(live, from->https_ports);
	to->secrets = live_keep_str(live, from->secrets);
	to->request = live_keep_str(live, from->request);
	to->mounts = mounts_keep(live->arena, from);
	return to->network.p && to->mask_host.p && to->https_ports.p && to->secrets.p &&
			       to->request.p && to->mounts
		       ? 0
		       : -E2BIG;
}

static int choose_limits(const struct sandbox_spec *spec, const struct source *source,
	struct limit_set *ret, struct err *e)
{
	const struct limit_choice choice = { .template = &source->t.limits,
		.asked = &spec->limits,
		.ceilings = spec->ceilings,
		.by_key = spec->limits_by_key };
	int r = limit_choose(&choice, ret, e);

	if (r >= 0 && source->image[0] && ret->v[LIMIT_DISK] != source->t.limits.v[LIMIT_DISK])
		r = err_set(e, -ERANGE,
			"%s: what starts from a snapshot has its disk, %" PRId64
			" MiB; you asked for or may have %" PRId64,
			limit_word(&choice, LIMIT_DISK).text, source->t.limits.v[LIMIT_DISK],
			ret->v[LIMIT_DISK]);
	return r;
}

int create_ask(const struct sandbox_spec *spec, const struct source *source, struct quota_ask *ask,
	struct err *e)
{
	struct limit_set limits = { 0 };
	int r = choose_limits(spec, source, &limits, e);

	*ask = (struct quota_ask){ .team_id = spec->team_id,
		.is_new = true,
		.memory_mb = limits.v[LIMIT_MEMORY],
		.disk_mb = limits.v[LIMIT_DISK] };
	return r;
}

static int check_size(const struct json_map *map, const char *what, size_t most, struct err *e)
{
	size_t bytes = 0;

	for (size_t i = 0; i < map->n; i++)
		bytes += map->v[i].key.n + map->v[i].value.n;
	return bytes <= most ? 0
			     : err_set(e, -EINVAL,
				       "%s: %zu bytes of names and values are more than the %zu "
				       "that a sandbox may have",
				       what, bytes, most);
}

static int check_nested(const struct sandbox_book *book, const struct sandbox_spec *spec,
	const struct source *source, struct err *e)
{
	const struct json_bool *asked = &spec->options.nested;

	if (!book->config.limits.no_nested || !(asked->is_set ? asked->value : source->t.is_nested))
		return 0;
	return err_set(e, -EOPNOTSUPP, "nested: this server allows none (--no-nested)");
}

static int check(struct sandbox_book *book, const struct sandbox_spec *spec,
	const struct source *source, struct err *e)
{
	struct quota_ask ask;
	int r = check_time(book, spec, e);

	if (r >= 0)
		r = check_nested(book, spec, source, e);
	if (r >= 0)
		r = check_size(&spec->metadata, "metadata", SANDBOX_METADATA_BYTES, e);
	if (r >= 0)
		r = check_size(&spec->env_vars, "environment", SANDBOX_ENV_BYTES, e);
	if (r >= 0)
		r = sweep_check_age(book, &spec->options, e);
	if (r >= 0)
		r = create_ask(spec, source, &ask, e);
	return r < 0 ? r : quota_check(book, &ask, e);
}

static struct live *admit(struct sandbox_book *book, const struct sandbox_spec *spec,
	const struct source *source, struct err *e)
{
	char id[SANDBOX_ID_SIZE];
	struct live *live;
	struct sandbox *sb;

	make_image_name(id, 'i');
	live = live_new(book, id);
	sb = &live->view;
	(void)snprintf(sb->team_id, sizeof sb->team_id, "%s", spec->team_id);
	(void)snprintf(sb->template_id, sizeof sb->template_id, "%s", source->t.id);
	(void)snprintf(sb->template_name, sizeof sb->template_name, "%s", source->t.name);
	(void)snprintf(sb->base_template, sizeof sb->base_template, "%s", source->base_template);
	(void)snprintf(sb->agent_id, sizeof sb->agent_id, "%s",
		spec->agent_id ? spec->agent_id : "");
	(void)snprintf(sb->task_id, sizeof sb->task_id, "%s", spec->task_id ? spec->task_id : "");
	(void)snprintf(sb->traceparent, sizeof sb->traceparent, "%s",
		spec->traceparent ? spec->traceparent : "");
	sb->secure = spec->secure;
	sb->timeout_s = spec->timeout_s;
	sb->started_us = sb->run_started_us = book_wall_us(book);
	run_begin(sb, true);
	sb->end_us = sb->started_us + spec->timeout_s * 1000000;
	if (choose_limits(spec, source, &sb->limits, e) < 0 ||
		live_use(live, spec->runtime.n ? spec->runtime : str_of(source->runtime), e) < 0 ||
		live_keep_map(live, &spec->metadata, &sb->metadata, e) < 0 ||
		live_keep_map(live, &spec->env_vars, &live->env, e) < 0 ||
		keep_options(live, &spec->options) < 0) {
		live_forget(live);
		return NULL;
	}
	if (!spec->options.nested.is_set)
		sb->options.nested = (struct json_bool){ true, source->t.is_nested };
	sb->options.max_age_s = sweep_age(book, spec->options.max_age_s, spec->timeout_s);
	return live;
}

void create_from(struct sandbox_book *book, const struct sandbox_spec *spec,
	const struct source *source, sandbox_created_fn fn, void *arg)
{
	struct creation *c = XNEW(struct creation);

	*c = (struct creation){ .began_us = time_now_us(),
		.row_r = 1,
		.run_r = 1,
		.fn = fn,
		.arg = arg };
	list_init(&c->node);
	(void)err_set(&c->run_e, -E2BIG, "the request is too large");
	if (check(book, spec, source, &c->run_e) >= 0)
		c->live = admit(book, spec, source, &c->run_e);
	if (!c->live) {
		loop_defer(book->config.loop, &c->task, fail_now, c);
		return;
	}
	c->asked_us = time_now_us();
	(void)snprintf(c->actor, sizeof c->actor, "%s", spec->actor);
	book->in_flight++;
	quota_note_start(book, spec->team_id);
	c->source = *source;
	list_append(&book->creations, &c->node);
	gate_enter(gate_of(c), &c->pass, spec->team_id, creation_try, c);
	rows_insert(book->config.store, c->live, spec->actor, row_done, c);
	CRASH_POINT("create.asked");
}

struct refused {
	struct loop_task task;
	struct err e;
	sandbox_created_fn fn;
	void *arg;
};

static void tell_refused(void *arg)
{
	struct refused *refused = arg;

	refused->fn(refused->arg, refused->e.code, NULL, &refused->e);
	free(refused);
}

void sandbox_create(struct sandbox_book *book, const struct sandbox_spec *spec,
	sandbox_created_fn fn, void *arg)
{
	struct source source;
	struct refused *refused;
	struct err e = { 0 };

	if (source_find(book, spec, &source, &e) >= 0) {
		if ((spec->wait_ms <= 0 && list_empty(&book->waiting)) ||
			!queue_takes(book, spec, &source, fn, arg))
			create_from(book, spec, &source, fn, arg);
		return;
	}
	refused = XNEW(struct refused);
	refused->e = e;
	refused->fn = fn;
	refused->arg = arg;
	loop_defer(book->config.loop, &refused->task, tell_refused, refused);
}
