/* Forking: one saved disk, several new sandboxes started from it, the disk removed again. The
 * source runs on; what its processes hold in memory stays its own. */
#include "sandbox/sandbox-internal.h"

struct fork {
	struct op op;
	struct live *live; /* only until its disk is saved */
	struct sandbox_fork how;
	char actor[ACTOR_SIZE];
	struct source source;
	struct sandbox_spec spec; /* its texts are in the arena */
	struct limit_ceilings ceilings;
	struct arena *arena;
	int waiting;
	sandbox_forked_fn each;
	done_fn done;
	void *arg;
};

static void fork_end(struct fork *p, int r, const struct err *e)
{
	p->done(p->arg, r, e);
	p->op.book->in_flight--;
	p->arena = arena_free(p->arena);
	free(p);
}

static void forked(void *arg, int r, const struct sandbox *sb, const struct err *e)
{
	struct fork *p = arg;

	CRASH_POINT("fork.one");
	p->each(p->arg, r, sb, e);
	if (--p->waiting > 0)
		return;
	runtime_discard(book_images(p->op.book), p->source.image, done_nothing, NULL);
	fork_end(p, 0, NULL);
}

static struct json_map copy_map(struct arena *arena, const struct json_map *from)
{
	struct json_map to = { .n = from->n, .is_set = from->is_set };

	to.v = arena_alloc(arena, from->n * sizeof *to.v);
	for (size_t i = 0; to.v && i < from->n; i++) {
		to.v[i].key = (struct str){ arena_dup(arena, from->v[i].key), from->v[i].key.n };
		to.v[i].value =
			(struct str){ arena_dup(arena, from->v[i].value), from->v[i].value.n };
	}
	return to;
}

/* Everything of the source that its forks share, kept by value: it may end while they start. */
static int describe(struct fork *p, struct live *live, struct err *e)
{
	const struct sandbox *sb = &live->view;
	const struct limit_teams *teams = &p->op.book->config.teams;
	struct source *s = &p->source;
	int r = template_find(p->op.book->config.templates, str_of(sb->base_template), &s->t, e);

	if (r < 0)
		return r;
	memcpy(s->base_template, sb->base_template, sizeof s->base_template);
	memcpy(s->runtime, sb->runtime, sizeof s->runtime);
	memcpy(s->t.id, sb->template_id, sizeof s->t.id);
	memcpy(s->t.name, sb->template_name, sizeof s->t.name);
	s->t.limits = sb->limits;
	s->t.start[0] = '\0';
	make_image_name(s->image, 'f');
	p->spec = (struct sandbox_spec){ .team_id = arena_dup(p->arena, str_of(sb->team_id)),
		.actor = p->actor,
		.agent_id = arena_dup(p->arena, str_of(sb->agent_id)),
		.task_id = arena_dup(p->arena, str_of(sb->task_id)),
		.traceparent = arena_dup(p->arena, str_of(sb->traceparent)),
		.timeout_s = p->how.timeout_s,
		.secure = sb->secure,
		.metadata = copy_map(p->arena, &sb->metadata),
		.env_vars = copy_map(p->arena, &live->env),
		.options = sb->options };
	if (teams->find) { /* as they are now: the source may be from before */
		teams->find(teams->arg, sb->team_id, &p->ceilings);
		p->spec.ceilings = &p->ceilings;
	}
	p->spec.options.network = str_of(arena_dup(p->arena, sb->options.network));
	p->spec.options.mask_host = str_of(arena_dup(p->arena, sb->options.mask_host));
	p->spec.options.https_ports = str_of(arena_dup(p->arena, sb->options.https_ports));
	p->spec.options.secrets = str_of(arena_dup(p->arena, sb->options.secrets));
	p->spec.options.request = STR_NONE; /* that made the first one, not these */
	/* A longer time-out, or another server, may have let the first become older. */
	if (sweep_check_age(p->op.book, &p->spec.options, NULL) < 0)
		p->spec.options.max_age_s = SANDBOX_AGE_USUAL;
	p->spec.options.mounts = mounts_keep(p->arena, &sb->options);
	if (!p->spec.options.mounts)
		return err_set(e, -E2BIG, "the sandbox has too much metadata to be forked");
	return 0;
}

static void fork_saved(void *arg, int r, const struct err *e)
{
	struct fork *p = arg;

	CRASH_POINT("fork.saved");
	live_saved(TAKE(p->live), r);
	if (r < 0) {
		fork_end(p, r, e);
		return;
	}
	p->waiting = p->how.count;
	for (int i = 0; i < p->how.count; i++) /* answers come on later turns */
		create_from(p->op.book, &p->spec, &p->source, forked, p);
}

static void fork_run(struct op *op, struct live *live)
{
	struct fork *p = container_of(op, struct fork, op);
	struct err e = { 0 };

	if (!live)
		(void)op_not_found(op, &e);
	else if (live->view.state != SANDBOX_RUNNING)
		(void)err_set(&e, -EBUSY, "Sandbox \"%s\" is paused: resume it to fork it", op->id);
	else if (p->how.count < 1 || p->how.count > SANDBOX_MAX_FORKS)
		(void)err_set(&e, -EINVAL, "count must be from 1 to %d", SANDBOX_MAX_FORKS);
	else if (p->how.count >= op->book->config.limits.max_running)
		(void)err_set(&e, -EINVAL,
			"count must be less than the %" PRId64 " sandboxes that may run at once",
			op->book->config.limits.max_running);
	else
		(void)describe(p, live, &e);
	if (!live || e.code < 0) {
		fork_end(p, e.code, &e);
		return;
	}
	p->live = live;
	live->saving++;
	runtime_save(live->runtime, live->view.id, p->source.image, fork_saved, p);
}

void sandbox_fork(struct sandbox_book *book, const struct sandbox_owner *who, struct str id,
	const struct sandbox_fork *how, sandbox_forked_fn each, done_fn done, void *arg)
{
	struct fork *p = XNEW(struct fork);

	p->how = *how;
	(void)snprintf(p->actor, sizeof p->actor, "%s", how->actor);
	p->arena = arena_new(8 << 20);
	p->each = each;
	p->done = done;
	p->arg = arg;
	book->in_flight++;
	op_start(&p->op, book, who, id, fork_run);
}
