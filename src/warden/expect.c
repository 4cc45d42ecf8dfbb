/* What the next requests will probably want: what the last ones did. A few kinds are remembered
 * (a template with a size of disk and of shared memory), each with how often it was wanted lately,
 * and the pool is shared out between them. While many are wanted it grows. */
#include "warden/warden.h"

enum {
	USE = 1024,     /* what a request counts */
	FADE_MS = 1000, /* after which all counts lose an eighth */
	FADE = 8,
	MOST = 64,       /* prepared, however often they are wanted */
	AHEAD_MS = 250,  /* as many as are wanted in this time */
	FEW_PERCENT = 5, /* of all requests: nothing is prepared for a kind that has less */
	SURPLUS_AT_ONCE = 4,
};

static bool is_kind(const struct expectation *x, const struct expectation *of)
{
	return strcmp(x->template_name, of->template_name) == 0 &&
	       disk_size_eq(x->disk_size, of->disk_size) && x->shm_bytes == of->shm_bytes &&
	       x->goes_with_root == of->goes_with_root;
}

static int64_t all_uses(const struct warden *w)
{
	int64_t sum = 0;

	for (size_t i = 0; i < EXPECTATIONS; i++)
		sum += w->kinds[i].uses;
	return sum;
}

static int64_t pool_size(const struct warden *w)
{
	/* Counts of a steady rate add up to FADE seconds' worth. */
	int64_t wanted = all_uses(w) * AHEAD_MS / (USE * FADE * FADE_MS);

	return w->options->pool ? MAX(w->options->pool, MIN(wanted, (int64_t)MOST)) : 0;
}

static int count_of(const struct warden *w, const struct expectation *kind)
{
	int n = 0;

	LIST_EACH(&w->prepared, node)
	{
		const struct slot *slot = container_of(node, struct slot, pool_node);

		n += !slot_is_bare(slot) && slot->kind == kind->number;
	}
	return n;
}

static int64_t share_of(const struct warden *w, const struct expectation *kind)
{
	int64_t sum = MAX(all_uses(w), 1), size = pool_size(w);

	if (!kind->number || kind->uses * 100 < sum * FEW_PERCENT)
		return 0;
	return (size * kind->uses + sum - 1) / sum;
}

const struct expectation *expect_lacking(const struct warden *w, int64_t *ret_all)
{
	const struct expectation *worst = NULL;
	int64_t most = 0;

	*ret_all = 0;
	for (size_t i = 0; i < EXPECTATIONS; i++) {
		int64_t lacks = share_of(w, &w->kinds[i]) - count_of(w, &w->kinds[i]);

		*ret_all += MAX(lacks, 0);
		if (lacks > most) {
			most = lacks;
			worst = &w->kinds[i];
		}
	}
	return worst;
}

bool expect_size(const struct warden *w, struct disk_size size)
{
	for (size_t i = 0; i < EXPECTATIONS; i++)
		if (w->kinds[i].number && disk_size_eq(w->kinds[i].disk_size, size))
			return true;
	return false;
}

static const struct expectation *kind_of(const struct warden *w, const struct slot *slot)
{
	for (size_t i = 0; i < EXPECTATIONS; i++)
		if (slot->kind && w->kinds[i].number == slot->kind)
			return &w->kinds[i];
	return NULL;
}

/* Those that nobody is likely to want make way, a few at a time; how many did. While many are asked
 * for, one too many is no reason. */
static int end_surplus(struct warden *w, bool is_busy)
{
	struct err why = { .code = -ECANCELED };
	int n = 0;

	LIST_EACH(&w->prepared, node)
	{
		struct slot *slot = container_of(node, struct slot, pool_node);
		const struct expectation *kind;

		if (slot->state != SLOT_IDLE || slot_is_bare(slot) || n == SURPLUS_AT_ONCE)
			continue;
		kind = kind_of(w, slot);
		if (kind && count_of(w, kind) <= share_of(w, kind) + is_busy)
			continue;
		slot_end(slot, &why);
		n++;
	}
	return n;
}

/* The last one stays: something is prepared for an idle server, too. */
static void fade(void *arg)
{
	struct warden *w = arg;
	bool goes_on = false;

	for (size_t i = 0; i < EXPECTATIONS; i++) {
		struct expectation *kind = &w->kinds[i];
		bool is_last = kind->number == w->expected.number;

		kind->uses -= (kind->uses + FADE - 1) / FADE;
		kind->uses = MAX(kind->uses, (int64_t)is_last);
		goes_on |= kind->uses > is_last;
	}
	goes_on |= end_surplus(w, goes_on) > 0;
	refill_soon(w);
	if (goes_on)
		loop_timer_set(&w->fade_timer, loop_now_ms(w->loop) + FADE_MS);
}

/* The one that is this kind, or the least wanted, which is forgotten. */
static struct expectation *find_place(struct warden *w, const struct expectation *x)
{
	struct expectation *least = &w->kinds[0];

	for (size_t i = 0; i < EXPECTATIONS; i++) {
		struct expectation *kind = &w->kinds[i];

		if (kind->number && is_kind(kind, x))
			return kind;
		if (kind->uses < least->uses)
			least = kind;
	}
	*least = *x;
	least->number = ++w->last_kind;
	least->uses = 0;
	return least;
}

void expect_another(struct warden *w, const struct expectation *x)
{
	struct expectation *kind = find_place(w, x);

	kind->uses += USE;
	kind->limits = x->limits;
	w->expected = *kind;
	if (!w->fade_timer.loop)
		loop_timer_init(&w->fade_timer, w->loop, fade, w);
	if (!loop_timer_is_set(&w->fade_timer))
		loop_timer_set(&w->fade_timer, loop_now_ms(w->loop) + FADE_MS);
}
