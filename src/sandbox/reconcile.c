/* At start the store says what should be and the kernel what is. Here they are made to agree, and
 * only then does the server answer. */
#include "sandbox/sandbox-internal.h"

struct reconcile {
	struct sandbox_book *book;
	size_t at; /* the runtime that is being asked */
	struct join *join;
	int adopted, lost, strays;
	done_fn done;
	void *arg;
};

static void all_settled(void *arg, int r, const struct err *e)
{
	struct reconcile *rec = arg;

	if (r >= 0) {
		log_info("reconciled", "adopted=%d lost=%d strays=%d", rec->adopted, rec->lost,
			rec->strays);
		metrics_start(rec->book);
	}
	rec->done(rec->arg, r, e);
	free(rec);
}

static void settled(void *arg, int r, const struct err *e)
{
	if (r < 0 && r != -ENOENT)
		log_warn("reconcile.left_over", "err=%s", log_quote(str_of(e->msg)));
	join_one(arg, 0,
		e); /* one that cannot be ended must not keep the others from being served */
}

static void remove_stray(struct reconcile *rec, const char *id)
{
	rec->strays++;
	rec->join->waiting++;
	runtime_destroy(rec->book->config.runtimes.v[rec->at], id, settled, rec->join);
}

static void seen(void *arg, const char *id, bool is_frozen)
{
	struct reconcile *rec = arg;
	struct live *live = live_find(rec->book, NULL, str_of(id));

	/* Made for a request that was never answered, ended in the row only, or paused to disk and
	 * not yet taken away. */
	if (!live || live->view.image[0] ||
		live->runtime != rec->book->config.runtimes.v[rec->at]) {
		remove_stray(rec, id);
		return;
	}
	live->is_alive = true;
	live->is_frozen = is_frozen;
}

static void trusted(void *arg, int r, const struct err *e)
{
	(void)arg;
	(void)r;
	(void)e;
}

/* A change may have been in the row already, and its guest not told. What runs in there may keep it
 * from answering: nobody waits for it. */
static void trust_again(struct live *live, const struct policy *policy)
{
	if (policy->n_rules > 0 && live->view.state == SANDBOX_RUNNING &&
		live->book->config.authority.n)
		live_trust(live, trusted, NULL);
}

/* A change may have been under way: laid, and not yet in the row. The same again costs nothing. */
static void lay_policy(struct reconcile *rec, struct live *live)
{
	CLEANUP(arena_freep) struct arena *arena = arena_new(POLICY_BYTES);
	struct policy policy;
	struct err e = { 0 };

	rec->join->waiting++;
	if (live_policy(live, arena, &policy, &e) < 0) {
		tell_later(rec->book, &e, settled, rec->join);
		return;
	}
	runtime_set_policy(live->runtime, live->view.id, &policy, settled, rec->join);
	trust_again(live, &policy);
}

/* The kernel follows the row: what it says was promised. */
static void adopt(struct reconcile *rec, struct live *live)
{
	struct runtime *runtime = live->runtime;
	bool paused = live->view.state == SANDBOX_PAUSED;

	rec->adopted++;
	if (!paused)
		live_arm(live);
	if (live->view.image[0])
		return;
	lay_policy(rec, live);
	if (paused == live->is_frozen)
		return;
	rec->join->waiting++;
	if (paused)
		runtime_pause(runtime, live->view.id, settled, rec->join);
	else
		runtime_resume(runtime, live->view.id, settled, rec->join);
}

static bool image_is_named(const struct sandbox_book *book, const char *image)
{
	const struct live *live;
	size_t at = 0;

	LIST_EACH(&book->snaps, node)
	if (strcmp(container_of(node, struct snap, node)->view.image, image) == 0)
		return true;
	while ((live = map_next(&book->by_id, &at)))
		if (strcmp(live->view.image, image) == 0)
			return true;
	return false;
}

static void seen_image(void *arg, const char *image, bool is_frozen)
{
	struct reconcile *rec = arg;

	(void)is_frozen;
	if (image_is_named(rec->book, image))
		return;
	rec->strays++;
	rec->join->waiting++;
	runtime_discard(book_images(rec->book), image, settled, rec->join);
}

static void images_listed(void *arg, int r, const struct err *e)
{
	struct reconcile *rec = arg;

	settled(rec->join, r == -EOPNOTSUPP ? 0 : r, e);
}

static void compare(struct reconcile *rec)
{
	struct live *live;
	size_t at = 0;

	while ((live = map_next(&rec->book->by_id, &at))) {
		if (!live_find(rec->book, NULL, str_of(live->view.id)))
			continue;
		if (live->is_alive || live->view.image[0]) {
			adopt(rec, live);
			continue;
		}
		rec->lost++;
		run_was_lost(&live->view);
		rec->join->waiting++;
		live_end(live, SANDBOX_END_INFRASTRUCTURE, "system",
			"it was gone when the server started (host restarted, or ended meanwhile)",
			settled, rec->join);
	}
	runtime_list_images(book_images(rec->book), seen_image, images_listed, rec);
}

/* One runtime after the other; only when all have been heard is it known what is lost. */
static void listed(void *arg, int r, const struct err *e)
{
	struct reconcile *rec = arg;
	const struct runtime_set *set = &rec->book->config.runtimes;

	if (r < 0)
		join_one(rec->join, r, e);
	else if (++rec->at < set->n)
		runtime_list(set->v[rec->at], seen, listed, rec);
	else
		compare(rec);
}

static void loaded(void *arg, int r, const struct err *e)
{
	struct reconcile *rec = arg;

	if (r < 0)
		join_one(rec->join, r, e);
	else
		runtime_list(rec->book->config.runtimes.v[0], seen, listed, rec);
}

void sandbox_reconcile(struct sandbox_book *book, done_fn done, void *arg)
{
	struct reconcile *rec = XNEW(struct reconcile);

	rec->book = book;
	rec->done = done;
	rec->arg = arg;
	rec->join = join_new(1, all_settled, rec);
	rows_load(book, loaded, rec);
}
