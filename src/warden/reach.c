#include "warden/reach.h"

/* Where something begins or ends to hold. */
struct edge {
	uint64_t at; /* one past the last address is an edge too */
	int allow, deny;
};

static int by_place(const void *a, const void *b)
{
	const struct edge *x = a, *y = b;

	return (x->at > y->at) - (x->at < y->at);
}

/* With the first address, and the one past the last, where no range may begin or end. */
static size_t edges_of(const struct ranges *ranges, struct edge *ret)
{
	size_t n = 0;

	ret[n++] = (struct edge){ .at = 0 };
	ret[n++] = (struct edge){ .at = UINT64_C(1) << 32 };
	for (uint32_t i = 0; i < ranges->n; i++) {
		const struct warden_range *range = &ranges->v[i];
		int allow = range->allow ? 1 : 0;

		ret[n++] = (struct edge){ range->address, allow, 1 - allow };
		ret[n++] = (struct edge){ range->address + (UINT64_C(1) << (32 - range->bits)),
			-allow, allow - 1 };
	}
	return n;
}

static void add_segment(struct reach *reach, uint64_t from, uint64_t to, bool allow)
{
	struct segment *last = reach->n ? &reach->segments[reach->n - 1] : NULL;

	if (last && last->allow == allow) {
		last->last = (uint32_t)(to - 1);
		return;
	}
	reach->segments[reach->n++] = (struct segment){ (uint32_t)from, (uint32_t)(to - 1), allow };
}

/* Walks from edge to edge, knowing how many ranges of either kind hold in between. */
void reach_of(const struct ranges *ranges, struct reach *ret)
{
	cleanup_free struct edge *edges = XNEW_N(struct edge, ranges->n * 2 + 2);
	size_t n = edges_of(ranges, edges);
	int allow = 0, deny = 0;

	ret->is_proxied = ranges->flags & WARDEN_PROXIED;
	ret->n = 0;
	qsort(edges, n, sizeof *edges, by_place);
	for (size_t i = 0; i + 1 < n; i++) {
		allow += edges[i].allow;
		deny += edges[i].deny;
		if (edges[i + 1].at > edges[i].at)
			add_segment(ret, edges[i].at, edges[i + 1].at, allow > 0 || deny == 0);
	}
}

bool reach_is_open(const struct reach *reach)
{
	return reach->n == 1 && reach->segments[0].allow;
}

bool reach_is_closed(const struct reach *reach)
{
	return reach->n == 1 && !reach->segments[0].allow;
}
