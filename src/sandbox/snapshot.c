/* Snapshots: a sandbox's disk kept under a name, to start others from. A name is a template's to
 * the clients: `alias:tag`, with one template id for all tags of an alias. */
#include "observe/observe.h"
#include "sandbox/sandbox-internal.h"

enum {
	QUIET_MS = 10000, /* between two lines about snapshots that are refused */
};

struct snapshot {
	struct op op;
	struct list node; /* in the book's taking */
	bool is_saved, is_recording;
	bool is_naming; /* of one that is there: it takes no room */
	struct live *live;
	struct sandbox_snapshot snap;
	char replaced[SANDBOX_ID_SIZE], actor[ACTOR_SIZE];
	int64_t began_us;
	struct err e;
	sandbox_snapshot_fn fn;
	void *arg;
};

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

static int read_name(struct sandbox_snapshot *s, struct str wanted, struct err *e)
{
	struct str name = STR_NONE, tag = STR_NONE;

	random_id(s->template_id, TEMPLATE_ID_SIZE - 1);
	(void)snprintf(s->tag, sizeof s->tag, "default");
	if (!wanted.n)
		return 0;
	if (snap_name_split(wanted, &name, &tag) < 0 || !fold(name, s->alias, "-_") ||
		(tag.n && !fold(tag, s->tag, "-_.")))
		return err_set(e, -EINVAL,
			"invalid snapshot name '%.*s': use letters, digits, '-' and '_', and a "
			"':tag' if wanted",
			STR_ARG(wanted));
	if (template_is_id(name))
		return err_set(e, -EINVAL,
			"invalid snapshot name '%.*s': %d letters and digits are an id; make it "
			"longer or shorter, or put a '-' into it",
			STR_ARG(name), TEMPLATE_ID_SIZE - 1);
	if (str_is_uuid(tag))
		return err_set(e, -EINVAL, "invalid snapshot tag '%.*s': a UUID is a build's id",
			STR_ARG(tag));
	return 0;
}

/* Names of the team and of each of its agents are apart: the same one may mean another. */
static bool has_same_alias(const struct sandbox_snapshot *a, const struct sandbox_snapshot *b)
{
	return a->alias[0] && strcmp(a->team_id, b->team_id) == 0 &&
	       strcmp(a->named_by, b->named_by) == 0 && strcmp(a->alias, b->alias) == 0;
}

/* A new tag of a known alias shares its id, a known one is replaced. */
static int find_place(struct snapshot *p, struct err *e)
{
	struct sandbox_snapshot *s = &p->snap;
	struct template t;

	if (p->op.agent_id[0] && s->alias[0] &&
		template_find(p->op.book->config.templates, str_of(s->alias), &t, NULL) >= 0)
		return err_set(e, -EEXIST, "the name '%s' is that of a template", s->alias);
	p->replaced[0] = '\0';
	LIST_EACH(&p->op.book->snaps, node)
	{
		const struct sandbox_snapshot *same = &container_of(node, struct snap, node)->view;

		if (!has_same_alias(s, same))
			continue;
		memcpy(s->template_id, same->template_id, sizeof s->template_id);
		if (strcmp(same->tag, s->tag) == 0)
			memcpy(p->replaced, same->image, sizeof p->replaced);
	}
	return 0;
}

/* ---- what a team may keep ---- */

void sandbox_snapshot_use(const struct sandbox_book *book, const char *team_id,
	struct sandbox_snapshot_use *ret)
{
	*ret = (struct sandbox_snapshot_use){ 0 };
	for (struct list *node = book->snaps.next; node != &book->snaps; node = node->next) {
		const struct sandbox_snapshot *s = &container_of(node, struct snap, node)->view;

		if (strcmp(s->team_id, team_id) != 0)
			continue;
		ret->count++;
		ret->size_mb += s->size_mb;
	}
}

/* With those that are being taken, and this one, but without what it replaces. */
static struct sandbox_snapshot_use use_with(const struct snapshot *p)
{
	const struct sandbox_book *book = p->op.book;
	struct sandbox_snapshot_use use;

	sandbox_snapshot_use(book, p->snap.team_id, &use);
	LIST_EACH(&book->taking, node)
	{
		const struct snapshot *q = container_of(node, struct snapshot, node);

		if (strcmp(q->snap.team_id, p->snap.team_id) != 0 || q->is_naming)
			continue;
		use.count++;
		use.size_mb += q->snap.size_mb;
	}
	LIST_EACH(&book->snaps, node)
	{
		const struct sandbox_snapshot *s = &container_of(node, struct snap, node)->view;

		if (strcmp(s->image, p->replaced) == 0) {
			use.count--;
			use.size_mb -= s->size_mb;
		}
	}
	return use;
}

static void tell_refused(struct snapshot *p, enum limit_kind kind, int64_t most,
	const struct err *e)
{
	CLEANUP(buf_done) struct buf data = BUF_INIT(1024);
	struct sandbox_book *book = p->op.book;
	struct live *live = live_find(book, NULL, str_of(p->op.id));
	struct observe_event event = { .actor = p->actor,
		.kind = "snapshot.limit",
		.subject = p->op.id,
		.team_id = p->snap.team_id,
		.cause = e->msg };
	struct jsonw w;

	if (!live || loop_now_ms(book->config.loop) < live->snaps_quiet_to_ms)
		return;
	live->snaps_quiet_to_ms = loop_now_ms(book->config.loop) + QUIET_MS;
	jsonw_init(&w, &data);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "limit", limit_key(kind));
	jsonw_int(&w, "value", most);
	jsonw_strz(&w, "cause", e->msg);
	jsonw_end_object(&w);
	event.data = buf_str(&data);
	observe_event(book->config.events, &event);
}

/* -EDQUOT. How much one takes is known when it is there. */
static int check_keep(struct snapshot *p, struct err *e)
{
	const struct limit_teams *teams = &p->op.book->config.teams;
	struct sandbox_snapshot_use use = use_with(p);
	int64_t most = limit_team_ceiling(teams, p->snap.team_id, LIMIT_SNAPSHOTS);
	enum limit_kind kind = LIMIT_SNAPSHOTS;
	int r = 0;

	if (use.count > most)
		r = err_set(e, -EDQUOT,
			"the limit of your team, %" PRId64
			" snapshots, was reached: remove some first",
			most);
	if (r >= 0) {
		kind = LIMIT_SNAPSHOT_STORAGE;
		most = limit_team_ceiling(teams, p->snap.team_id, kind);
		if (use.size_mb > most)
			r = err_set(e, -EDQUOT,
				"the limit of your team, %" PRId64
				" MiB of snapshots, was reached: remove some first",
				most);
	}
	if (r < 0)
		tell_refused(p, kind, most, e);
	return r;
}

/* ---- taking ---- */

static void record_next(struct sandbox_book *book);

static void snapshot_end(struct snapshot *p, int r, const struct err *e)
{
	struct sandbox_book *book = p->op.book;

	list_remove(&p->node);
	p->fn(p->arg, r, &p->snap, e);
	book->in_flight--;
	free(p);
	record_next(book);
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
	log_info("snapshot.created", "sandbox_id=%s image=%s us=%" PRId64, p->snap.sandbox_id,
		p->snap.image, time_now_us() - p->began_us);
	snapshot_end(p, 0, NULL);
}

/* One of a name at a time: who comes next finds what the one before has made, and replaces it. */
static bool must_wait(const struct snapshot *p)
{
	LIST_EACH(&p->op.book->taking, node)
	{
		const struct snapshot *q = container_of(node, struct snapshot, node);

		if (q->is_recording && has_same_alias(&q->snap, &p->snap))
			return true;
	}
	return false;
}

static void record(struct snapshot *p)
{
	struct sandbox_book *book = p->op.book;
	struct err e = { 0 };

	if (find_place(p, &e) < 0 || check_keep(p, &e) < 0) {
		runtime_discard(book_images(book), p->snap.image, done_nothing, NULL);
		snapshot_end(p, e.code, &e);
		return;
	}
	p->is_recording = true;
	snap_rows_insert(book->config.store, &p->snap,
		&(struct snap_change){ p->replaced, p->actor, p->began_us }, snapshot_recorded, p);
}

static struct snapshot *find_waiting(const struct sandbox_book *book)
{
	LIST_EACH(&book->taking, node)
	{
		struct snapshot *p = container_of(node, struct snapshot, node);

		if (p->is_saved && !p->is_recording && !must_wait(p))
			return p;
	}
	return NULL;
}

static void record_next(struct sandbox_book *book)
{
	struct snapshot *p;

	while ((p = find_waiting(book)))
		record(p);
}

static void snapshot_saved(void *arg, int r, const struct err *e)
{
	struct snapshot *p = arg;

	CRASH_POINT("snapshot.saved");
	live_saved(TAKE(p->live), r);
	if (r < 0) {
		snapshot_end(p, r, e);
		return;
	}
	p->snap.size_mb = r;
	p->is_saved = true;
	record_next(p->op.book);
}

static void describe(struct snapshot *p, const struct sandbox *sb)
{
	struct sandbox_snapshot *s = &p->snap;

	make_image_name(s->image, 's');
	(void)snprintf(s->base_template, sizeof s->base_template, "%s", sb->base_template);
	(void)snprintf(s->sandbox_id, sizeof s->sandbox_id, "%s", sb->id);
	memcpy(s->runtime, sb->runtime, sizeof s->runtime);
	s->is_nested = sb->options.nested.value;
	memcpy(s->agent_id, sb->agent_id, sizeof s->agent_id); /* they are that agent's files */
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
	else if (e.code >= 0 && find_place(p, &e) >= 0)
		(void)check_keep(p, &e);
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

void sandbox_snapshot(struct sandbox_book *book, const struct sandbox_owner *who, struct str id,
	struct str name, const char *actor, sandbox_snapshot_fn fn, void *arg)
{
	struct snapshot *p = XNEW(struct snapshot);

	p->op.book = book;
	p->fn = fn;
	p->arg = arg;
	(void)snprintf(p->snap.team_id, sizeof p->snap.team_id, "%s", who->team_id);
	(void)snprintf(p->snap.named_by, sizeof p->snap.named_by, "%s",
		who->agent_id ? who->agent_id : "");
	(void)snprintf(p->actor, sizeof p->actor, "%s", actor);
	(void)read_name(&p->snap, name, &p->e);
	list_append(&book->taking, &p->node);
	book->in_flight++;
	op_start(&p->op, book, who, id, snapshot_run);
}

/* ---- naming ---- */

/* What an agent may see of the team's own it may neither name nor take away. */
static bool may_change(const struct sandbox_owner *who, const struct sandbox_snapshot *snap)
{
	return snap_may_see(who, snap) &&
	       (!who || !who->agent_id || !who->agent_id[0] || snap->agent_id[0]);
}

static struct snap *find_image(const struct sandbox_book *book, const char *image)
{
	LIST_EACH(&book->snaps, node)
	{
		struct snap *snap = container_of(node, struct snap, node);

		if (strcmp(snap->view.image, image) == 0)
			return snap;
	}
	return NULL;
}

static void named(void *arg, int r, const struct err *e)
{
	struct snapshot *p = arg;
	struct snap *snap = find_image(p->op.book, p->snap.image);
	struct err gone = { 0 };

	CRASH_POINT("snapshot.named");
	if (r >= 0 && !snap) /* deleted meanwhile */
		r = err_set(&gone, -ENOENT, "the snapshot was deleted");
	if (r >= 0)
		snap->view = p->snap;
	snapshot_end(p, r, r == -ENOENT ? &gone : e);
}

/* Nothing is replaced, unlike by a new one: that would delete what has the name. */
static int check_free(const struct snapshot *p, struct err *e)
{
	LIST_EACH(&p->op.book->snaps, node)
	{
		const struct sandbox_snapshot *s = &container_of(node, struct snap, node)->view;

		if (has_same_alias(s, &p->snap) && strcmp(s->tag, p->snap.tag) == 0)
			return err_set(e, -EEXIST, "there is a snapshot '%s:%s' already", s->alias,
				s->tag);
	}
	return must_wait(p) ? err_set(e, -EBUSY, "a snapshot is being named '%s': try again",
				      p->snap.alias)
			    : 0;
}

static int describe_naming(struct snapshot *p, const struct sandbox_owner *who, struct str wanted,
	struct str name, struct err *e)
{
	const struct sandbox_snapshot *found = sandbox_newest_snapshot(p->op.book, who, wanted);
	int r;

	if (!found || !may_change(who, found))
		return err_set(e, -ENOENT, "snapshot '%.*s' not found", STR_ARG(wanted));
	p->snap = *found;
	r = name.n ? read_name(&p->snap, name, e) : err_set(e, -EINVAL, "the name is empty");
	if (r < 0)
		return r;
	(void)snprintf(p->snap.named_by, sizeof p->snap.named_by, "%s", p->op.agent_id);
	r = check_free(p, e);
	return r < 0 ? r : find_place(p, e);
}

/* It stands among those that are taken: who takes one of that name waits for it. */
void sandbox_name_snapshot(struct sandbox_book *book, const struct sandbox_owner *who,
	struct str wanted, struct str name, const char *actor, sandbox_snapshot_fn fn, void *arg)
{
	struct snapshot *p = XNEW(struct snapshot);
	struct err e = { 0 };

	p->op.book = book;
	p->fn = fn;
	p->arg = arg;
	p->is_naming = p->is_recording = true;
	(void)snprintf(p->op.agent_id, sizeof p->op.agent_id, "%s",
		who->agent_id ? who->agent_id : "");
	(void)snprintf(p->actor, sizeof p->actor, "%s", actor);
	if (describe_naming(p, who, wanted, name, &e) < 0) {
		fn(arg, e.code, NULL, &e);
		free(p);
		return;
	}
	list_append(&book->taking, &p->node);
	book->in_flight++;
	snap_rows_name(book->config.store, &p->snap, p->actor, named, p);
}

/* ---- deleting ---- */

struct deletion { /* of one image */
	struct sandbox_book *book;
	struct sandbox_snapshot snap;
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

	if (r < 0) {
		keep(d->book, &d->snap); /* its row is still there */
		join_one(d->join, r, e);
	} else {
		runtime_discard(book_images(d->book), d->snap.image, discarded, d->join);
	}
	free(d);
}

static void delete_one(struct sandbox_book *book, struct snap *snap, const char *actor,
	struct join *join)
{
	struct deletion *d = XNEW(struct deletion);

	d->book = book;
	d->join = join;
	d->snap = snap->view;
	list_remove(&snap->node);
	join->waiting++;
	snap_rows_delete(book->config.store, &snap->view, actor, row_deleted, d);
	free(snap);
}

void sandbox_delete_snapshot(struct sandbox_book *book, const struct sandbox_owner *who,
	struct str wanted, const char *actor, done_fn done, void *arg)
{
	const struct sandbox_snapshot *found = sandbox_newest_snapshot(book, who, wanted);
	struct join *join = join_new(1, done, arg);
	struct sandbox_snapshot which = { 0 };
	bool has_tag = str_find(wanted, ':') >= 0;
	struct err e = { 0 };

	if (found && may_change(who, found))
		which = *found;
	else
		(void)err_set(&e, -ENOENT, "snapshot '%.*s' not found", STR_ARG(wanted));
	LIST_EACH(&book->snaps, node)
	{
		struct snap *snap = container_of(node, struct snap, node);

		if (strcmp(snap->view.template_id, which.template_id) == 0 &&
			may_change(who, &snap->view) &&
			(!has_tag || strcmp(snap->view.image, which.image) == 0))
			delete_one(book, snap, actor, join);
	}
	tell_later(book, &e, join_one, join);
}
