/* Preparing slots ahead of requests, as many as are wanted and a few at a time. */
#include "warden/warden.h"

enum {
	BARE_SLOTS = 2,         /* kept besides the complete ones */
	AT_ONCE = 4,            /* being made ahead of requests */
	REFILL_AFTER_MS = 2,    /* the request that emptied the pool is still being served */
	BURST_MS = 20,          /* for so long a burst has the processors to itself */
	REFILL_PAUSE_MS = 1000, /* after a failure */
	REFILL_MAX_PAUSE_MS = 60000,
	WARM_MS = 500, /* cgroups stay cheap to join so long after one was made */
	WARM_ORDER_MS = 250,
};

/* Without a disk: those that wait for a request, and those that are being placed. */
static int count_bare(const struct warden *w, enum slot_state state)
{
	int n = 0;

	LIST_EACH(&w->prepared, node)
	{
		struct slot *slot = container_of(node, struct slot, pool_node);

		n += slot->state == state && slot_is_bare(slot);
	}
	return n;
}

static int count_ready(const struct warden *w)
{
	int n = 0;

	LIST_EACH(&w->prepared, node)
	{
		struct slot *slot = container_of(node, struct slot, pool_node);

		n += slot->state == SLOT_IDLE && !slot_is_bare(slot);
	}
	return n;
}

static int count_in_making(const struct warden *w)
{
	int n = 0;

	LIST_EACH(&w->prepared, node)
	n += container_of(node, struct slot, pool_node)->state == SLOT_MAKING;
	return n;
}

/* ---- joining cgroups ---- */

static void ask_warm(struct warden *w);

static void warmed(void *arg, const struct work_report *report, const int *fds, int n_fds)
{
	struct warden *w = arg;

	(void)fds;
	(void)n_fds;
	w->warm = NULL;
	if (report->e.code >= 0 && loop_now_ms(w->loop) < w->warm_until_ms)
		ask_warm(w);
}

static void ask_warm(struct warden *w)
{
	struct work_order order = { .op = WORK_WARM, .warm_ms = WARM_ORDER_MS };

	w->warm = work_ask(&w->workers, LANE_WARM, true, &order, NULL, warmed, w);
}

void refill_warm(struct warden *w)
{
	if (w->leaving || w->cgroups.legacy_fd[CGROUP_PIDS] < 0)
		return;
	w->warm_until_ms = loop_now_ms(w->loop) + WARM_MS;
	if (!w->warm)
		ask_warm(w);
}

/* ---- the pool ---- */

/* Of those that die together only the first counts. */
void refill_back_off(struct warden *w)
{
	int64_t now_ms = loop_now_ms(w->loop);

	if (now_ms < w->refill_from_ms)
		return;
	w->refill_pause_ms = MIN(MAX(w->refill_pause_ms * 2, REFILL_PAUSE_MS), REFILL_MAX_PAUSE_MS);
	w->refill_from_ms = now_ms + w->refill_pause_ms;
	log_warn("refill.pause", "ms=%" PRId64, w->refill_pause_ms);
}

static int64_t wanted_bare(const struct warden *w)
{
	return disk_has_images(&w->disk) ? MIN(w->options->pool, BARE_SLOTS) : 0;
}

static bool lacks(const struct warden *w)
{
	int64_t disks;

	(void)expect_lacking(w, &disks);
	return count_bare(w, SLOT_IDLE) + count_bare(w, SLOT_MAKING) < disks + wanted_bare(w);
}

static void failed(struct slot *slot, const struct err *e)
{
	log_error("slot.failed", "err=%s", log_quote(str_of(e->msg)));
	slot_end(slot, e);
	loop_timer_set(&slot->w->refill, slot->w->refill_from_ms);
}

static void prepared(struct slot *slot, const struct err *e)
{
	if (e->code < 0) {
		failed(slot, e);
		return;
	}
	slot->state = SLOT_IDLE;
	refill_soon(slot->w);
}

/* The expected template may not exist, or no longer, and volumes go with the root: then the root
 * waits until all is known. */
static void give_disk_ahead(struct slot *slot, const struct expectation *kind)
{
	CLEANUP(tree_done) struct tree tree = TREE_INIT;
	bool has_tree = !kind->goes_with_root && kind->template_name[0] &&
			tree_open(slot->w, kind->template_name, &tree, NULL) >= 0;

	slot->state = SLOT_MAKING;
	slot->kind = kind->number;
	slot->disk_size = kind->disk_size;
	slot->shm_bytes = kind->shm_bytes;
	slot_ask_disk(slot, has_tree ? &tree : NULL, prepared);
}

static struct slot *oldest_bare(const struct warden *w)
{
	LIST_EACH(&w->prepared, node)
	{
		struct slot *slot = container_of(node, struct slot, pool_node);

		if (slot->state == SLOT_IDLE && slot_is_bare(slot))
			return slot;
	}
	return NULL;
}

/* The disk is begun of the one that has waited longest, so that none waits for ever. */
static void placed(struct slot *slot, const struct err *e)
{
	const struct expectation *kind;
	struct warden *w = slot->w;
	int64_t n;

	if (e->code < 0) {
		failed(slot, e);
		return;
	}
	slot->state = SLOT_IDLE;
	kind = expect_lacking(w, &n);
	if (kind)
		give_disk_ahead(oldest_bare(w), kind);
	refill_soon(w);
}

/* A kind of which more are wanted gets those that wait without a disk first. */
static void use_bare(struct warden *w)
{
	LIST_EACH(&w->prepared, node)
	{
		struct slot *slot = container_of(node, struct slot, pool_node);
		const struct expectation *kind;
		int64_t n;

		if (slot->state != SLOT_IDLE || !slot_is_bare(slot) ||
			count_bare(w, SLOT_IDLE) <= wanted_bare(w))
			continue;
		kind = expect_lacking(w, &n);
		if (kind)
			give_disk_ahead(slot, kind);
	}
}

static bool may_begin(struct warden *w)
{
	bool is_lacking = lacks(w);

	if (!is_lacking)
		w->lacks_since_ms = 0;
	else if (!w->lacks_since_ms)
		w->lacks_since_ms = loop_now_ms(w->loop);
	if (!is_lacking || w->is_short || count_in_making(w) >= AT_ONCE)
		return false;
	if (loop_now_ms(w->loop) >= w->refill_from_ms)
		return true;
	loop_timer_set(&w->refill, w->refill_from_ms);
	return false;
}

/* Requests on their way need the processors more: for as long as the next ones find enough, and for
 * a burst, which takes all at once, until it is over. One that waits for its disk needs none, and
 * an engine takes so long that the next ones would find nothing. */
static bool can_wait(const struct warden *w)
{
	return !list_empty(&w->booting) &&
	       (count_ready(w) * 2 > w->options->pool ||
		       loop_now_ms(w->loop) < w->lacks_since_ms + BURST_MS);
}

static void refill_step(void *arg)
{
	struct warden *w = arg;
	struct err e = { 0 };
	STEP(w, WARDEN_STEP_REFILL);

	if (!w->leaving && !w->is_short)
		use_bare(w);
	while (!w->leaving && may_begin(w)) {
		struct slot *slot;

		if (can_wait(w)) {
			loop_timer_set(&w->refill, loop_now_ms(w->loop) + REFILL_AFTER_MS);
			return;
		}
		slot = slot_new(w, &w->expected);
		if (slot_ask_place(slot, false, placed, &e) < 0)
			failed(slot, &e);
	}
}

void refill_soon(struct warden *w)
{
	if (!w->refill.loop)
		loop_timer_init(&w->refill, w->loop, refill_step, w);
	if (w->leaving || loop_timer_is_set(&w->refill))
		return;
	loop_timer_set(&w->refill, loop_now_ms(w->loop) + REFILL_AFTER_MS);
}
