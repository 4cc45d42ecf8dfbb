/* Snapshots: a sandbox's disk kept under a name, to start others from. A name is a template's to
 * the clients: `alias:tag`, with one template id for all tags of an alias. */
#include "sandbox/sandbox-internal.h"

struct snapshot {
	struct op op;
	struct live *live;
	struct sandbox_snapshot snap;
	char replaced[SANDBOX_ID_SIZE], actor[SANDBOX_TEAM_SIZE];
	int64_t began_us;
	struct err e;
	sandbox_snapshot_fn fn;
	void *arg;
};

/* ---- finding ---- */

/* [team/]name[:tag]; the tag is empty when none is given. */
static int split_name(struct str text, struct str *name, struct str *tag)
{
	ptrdiff_t slash = str_find(text, '/'), colon;

	if (slash >= 0)
		text = str_from(text, (size_t)slash + 1);
	colon = str_find(text, ':');
	*name = colon < 0 ? text : (struct str){ text.p, (size_t)colon };
	*tag = colon < 0 ? STR_NONE : str_from(text, (size_t)colon + 1);
	return name->n && name->n < TEMPLATE_NAME_SIZE && tag->n < TEMPLATE_NAME_SIZE ? 0 : -EINVAL;
}

/* Without a tag: the one tagged `default`, or the newest of any tag. */
static struct snap *find(const struct sandbox_book *book, const char *team_id, struct str wanted,
	bool any_tag)
{
	struct str name, tag;

	if (split_name(wanted, &name, &tag) < 0)
		return NULL;
	any_tag = any_tag && !tag.n;
	if (!tag.n)
		tag = STR("default");
	LIST_EACH(&book->snaps, node)
	{
		struct snap *snap = container_of(node, struct snap, node);
		const struct sandbox_snapshot *s = &snap->view;

		if (strcmp(s->team_id, team_id) == 0 &&
			(any_tag || str_eq_nocase(tag, str_of(s->tag))) &&
			(str_eq_nocase(name, str_of(s->template_id)) ||
				(s->alias[0] && str_eq_nocase(name, str_of(s->alias)))))
			return snap;
	}
	return NULL;
}

const struct sandbox_snapshot *sandbox_find_snapshot(const struct sandbox_book *book,
	const char *team_id, struct str wanted)
{
	struct snap *snap = find(book, team_id, wanted, false);

	return snap ? &snap->view : NULL;
}

const struct sandbox_snapshot *sandbox_newest_snapshot(const struct sandbox_book *book,
	const char *team_id, struct str wanted)
{
	struct snap *snap = find(book, team_id, wanted, true);

	return snap ? &snap->view : NULL;
}

void sandbox_each_snapshot(const struct sandbox_book *book, const char *team_id,
	void (*fn)(void *arg, const struct sandbox_snapshot *snap), void *arg)
{
	LIST_EACH(&book->snaps, node)
	{
		struct snap *snap = container_of(node, struct snap, node);

		if (strcmp(snap->view.team_id, team_id) == 0)
			fn(arg, &snap->view);
	}
}

/* ---- making ---- */

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_named_by(char c, const char *also)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c && strchr(also, c));
}

static bool fold(struct str from, char *to, const char *also)
{
	for (size_t i = 0; i < from.n; i++) {
		to[i] = lower(from.p[i]);
		if (!is_named_by(to[i], also))
			return false;
	}
	to[from.n] = '\0';
	return true;
}

/* Fills alias, tag and template id; a new tag of a known alias shares its id. */
static int name_it(struct snapshot *p, struct str wanted, struct err *e)
{
	struct sandbox_snapshot *s = &p->snap;
	struct str name = STR_NONE, tag = STR_NONE;
	struct snap *same;

	random_id(s->template_id, TEMPLATE_ID_SIZE - 1);
	(void)snprintf(s->tag, sizeof s->tag, "default");
	if (!wanted.n)
		return 0;
	if (split_name(wanted, &name, &tag) < 0 || !fold(name, s->alias, "-_") ||
		(tag.n && !fold(tag, s->tag, "-_.")))
		return err_set(e, -EINVAL,
			"invalid snapshot name '%.*s': use letters, digits, '-' and '_', and a "
			"':tag' if wanted",
			STR_ARG(wanted));
	LIST_EACH(&p->op.book->snaps, node)
	{
		same = container_of(node, struct snap, node);
		if (strcmp(same->view.team_id, s->team_id) == 0 &&
			strcmp(same->view.alias, s->alias) == 0) {
			memcpy(s->template_id, same->view.template_id, sizeof s->template_id);
			if (strcmp(same->view.tag, s->tag) == 0)
				memcpy(p->replaced, same->view.image, sizeof p->replaced);
		}
	}
	return 0;
}

static void snapshot_end(struct snapshot *p, int r, const struct err *e)
{
	p->fn(p->arg, r, &p->snap, e);
	p->op.book->in_flight--;
	free(p);
}

static void forget_replaced(struct snapshot *p)
{
	LIST_EACH(&p->op.book->snaps, node)
	{
		struct snap *snap = container_of(node, struct snap, node);

		if (strcmp(snap->view.image, p->replaced) != 0)
			continue;
		list_remove(&snap->node);
		free(snap);
		runtime_discard(book_images(p->op.book), p->replaced, done_nothing, NULL);
	}
}

/* Newest first; one that was begun later may have been written earlier. */
static void keep(struct sandbox_book *book, const struct sandbox_snapshot *view)
{
	struct snap *snap = XNEW(struct snap);
	struct list *before = book->snaps.next;

	snap->view = *view;
	while (before != &book->snaps &&
		container_of(before, struct snap, node)->view.created_us > view->created_us)
		before = before->next;
	list_append(before, &snap->node);
}

static void snapshot_recorded(void *arg, int r, const struct err *e)
{
	struct snapshot *p = arg;

	CRASH_POINT("snapshot.recorded");
	if (r < 0) {
		runtime_discard(book_images(p->op.book), p->snap.image, done_nothing, NULL);
		snapshot_end(p, r, e);
		return;
	}
	if (p->replaced[0])
		forget_replaced(p);
	keep(p->op.book, &p->snap);
	log_info("snapshot.created", "sandbox=%s image=%s us=%" PRId64, p->snap.sandbox_id,
		p->snap.image, time_now_us() - p->began_us);
	snapshot_end(p, 0, NULL);
}

static void snapshot_saved(void *arg, int r, const struct err *e)
{
	struct snapshot *p = arg;

	CRASH_POINT("snapshot.saved");
	live_saved(TAKE(p->live), r);
	if (r < 0)
		snapshot_end(p, r, e);
	else
		snap_rows_insert(p->op.book->config.store, &p->snap, p->replaced, p->actor,
			snapshot_recorded, p);
}

static void describe(struct snapshot *p, const struct sandbox *sb)
{
	struct sandbox_snapshot *s = &p->snap;

	make_image_name(s->image, 's');
	(void)snprintf(s->base_template, sizeof s->base_template, "%s", sb->base_template);
	(void)snprintf(s->sandbox_id, sizeof s->sandbox_id, "%s", sb->id);
	memcpy(s->runtime, sb->runtime, sizeof s->runtime);
	s->cpu_count = sb->limits.v[LIMIT_CPU];
	s->memory_mb = sb->limits.v[LIMIT_MEMORY];
	s->disk_mb = sb->limits.v[LIMIT_DISK];
	s->created_us = time_wall_us();
}

static void snapshot_run(struct op *op, struct live *live)
{
	struct snapshot *p = container_of(op, struct snapshot, op);
	struct err e = p->e;

	if (e.code >= 0 && !live)
		(void)op_not_found(op, &e);
	else if (e.code >= 0 && live->view.state != SANDBOX_RUNNING)
		(void)err_set(&e, -EBUSY, "Sandbox \"%s\" is paused: resume it to take a snapshot",
			op->id);
	if (!live || e.code < 0) {
		snapshot_end(p, e.code, &e);
		return;
	}
	describe(p, &live->view);
	p->live = live;
	p->began_us = time_now_us();
	live->saving++;
	runtime_save(live->runtime, live->view.id, p->snap.image, snapshot_saved, p);
}

void sandbox_snapshot(struct sandbox_book *book, const char *team_id, struct str id,
	struct str name, const char *actor, sandbox_snapshot_fn fn, void *arg)
{
	struct snapshot *p = XNEW(struct snapshot);

	p->op.book = book;
	p->fn = fn;
	p->arg = arg;
	(void)snprintf(p->snap.team_id, sizeof p->snap.team_id, "%s", team_id);
	(void)snprintf(p->actor, sizeof p->actor, "%s", actor);
	(void)name_it(p, name, &p->e);
	book->in_flight++;
	op_start(&p->op, book, team_id, id, snapshot_run);
}

/* ---- deleting ---- */

struct deletion { /* of one image */
	struct sandbox_book *book;
	char image[SANDBOX_ID_SIZE];
	struct join *join;
};

static void discarded(void *arg, int r, const struct err *e)
{
	struct join *join = arg;
	struct err none = { 0 };

	done_nothing(NULL, r, e);
	join_one(join, 0, &none);
}

static void row_deleted(void *arg, int r, const struct err *e)
{
	struct deletion *d = arg;

	if (r < 0)
		join_one(d->join, r, e);
	else
		runtime_discard(book_images(d->book), d->image, discarded, d->join);
	free(d);
}

static void delete_one(struct sandbox_book *book, struct snap *snap, const char *actor,
	struct join *join)
{
	struct deletion *d = XNEW(struct deletion);

	d->book = book;
	d->join = join;
	memcpy(d->image, snap->view.image, sizeof d->image);
	list_remove(&snap->node);
	free(snap);
	join->waiting++;
	snap_rows_delete(book->config.store, d->image, actor, row_deleted, d);
}

void sandbox_delete_snapshot(struct sandbox_book *book, const char *team_id, struct str wanted,
	const char *actor, done_fn done, void *arg)
{
	struct snap *snap = find(book, team_id, wanted, true);
	struct join *join = join_new(1, done, arg);
	struct err e = { 0 };

	if (!snap)
		(void)err_set(&e, -ENOENT, "snapshot '%.*s' not found", STR_ARG(wanted));
	for (; snap; snap = find(book, team_id, wanted, true))
		delete_one(book, snap, actor, join);
	tell_later(book, &e, join_one, join);
}
