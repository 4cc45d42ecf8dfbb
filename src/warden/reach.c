#include "warden/reach.h"

static int by_key(const void *a, const void *b)
{
	const struct reach_key *x = a, *y = b;

	if (x->flags != y->flags)
		return x->flags < y->flags ? 1 : -1;
	return (x->address > y->address) - (x->address < y->address);
}

/* What is true of all addresses is said once, for all of them. */
struct totals {
	bool allows, denies, denies_all;
};

static struct totals totals_of(const struct ranges *ranges)
{
	struct totals t = { 0 };

	for (uint32_t i = 0; i < ranges->n; i++) {
		const struct warden_range *range = &ranges->v[i];

		t.denies |= !range->allow;
		t.denies_all |= !range->allow && range->bits == 0;
		t.allows |= range->allow && range->bits == 0;
	}
	return t;
}

static struct reach_key key_of(const struct warden_range *range)
{
	return (struct reach_key){ .flags = (range->allow ? REACH_ALLOW : 0) |
					    (range->bits == 32 ? REACH_HOST : 0),
		.address = range->address | reach_marker(range->bits) };
}

/* Sorts them; a range that was given twice is one. */
static uint32_t put_in_order(struct reach_key *keys, uint32_t n)
{
	uint32_t kept = 0;

	qsort(keys, n, sizeof *keys, by_key);
	for (uint32_t i = 0; i < n; i++)
		if (i == 0 || by_key(&keys[i], &keys[i - 1]) != 0)
			keys[kept++] = keys[i];
	return kept;
}

void reach_of(const struct ranges *ranges, struct reach *ret)
{
	struct totals t = totals_of(ranges);

	ret->is_proxied = ranges->flags & WARDEN_PROXIED;
	ret->n = 0;
	ret->kind = REACH_PASS;
	if (t.allows || !t.denies)
		return;
	ret->kind = REACH_FEW;
	for (uint32_t i = 0; i < ranges->n; i++) {
		const struct warden_range *range = &ranges->v[i];

		if (t.denies_all && !range->allow)
			continue;
		if (range->bits % 8)
			ret->kind = REACH_ANY;
		ret->keys[ret->n++] = key_of(range);
	}
	if (ret->n == 0)
		ret->kind = REACH_REFUSE;
	else if (!t.denies_all)
		ret->keys[ret->n++] = (struct reach_key){ .flags = REACH_WHOLE };
	ret->n = put_in_order(ret->keys, ret->n);
}

static bool covers(const struct warden_range *range, uint32_t address)
{
	return ((address ^ range->address) & reach_mask(range->bits)) == 0;
}

bool ranges_allow(const struct ranges *ranges, uint32_t address)
{
	bool denied = false;

	for (uint32_t i = 0; i < ranges->n; i++) {
		if (!covers(&ranges->v[i], address))
			continue;
		if (ranges->v[i].allow)
			return true;
		denied = true;
	}
	return !denied;
}

bool ranges_deny_nothing(const struct ranges *ranges)
{
	struct totals t = totals_of(ranges);

	return t.allows || !t.denies;
}
