/* Kept policies are written by the warden, but read from a directory inside the server's. What they
 * come to is in order, without gaps, and says of every edge what the ranges say. */
#include "warden/reach.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* By the definition: allowed by one, or denied by none. */
static bool allows(const struct ranges *ranges, uint32_t address)
{
	bool denied = false;

	for (uint32_t i = 0; i < ranges->n; i++) {
		const struct warden_range *range = &ranges->v[i];
		uint32_t mask = range->bits ? UINT32_MAX << (32 - range->bits) : 0;

		if ((address & mask) != range->address)
			continue;
		if (range->allow)
			return true;
		denied = true;
	}
	return !denied;
}

static bool reaches(const struct reach *reach, uint32_t address)
{
	for (size_t i = 0; i < reach->n; i++)
		if (address >= reach->segments[i].first && address <= reach->segments[i].last)
			return reach->segments[i].allow;
	abort();
}

static void check(const struct ranges *ranges, const struct reach *reach, uint32_t address)
{
	if (allows(ranges, address) != reaches(reach, address))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ranges ranges;
	static struct reach reach;

	if (ranges_parse(str_make(data, size), &ranges) < 0)
		return 0;
	reach_of(&ranges, &reach);
	for (size_t i = 0; i < reach.n; i++) {
		const struct segment *s = &reach.segments[i];

		if (s->first > s->last || (i && s[-1].last + 1 != s->first) ||
			(i && s[-1].allow == s->allow))
			abort();
		check(&ranges, &reach, s->first);
		check(&ranges, &reach, s->first - 1);
		check(&ranges, &reach, s->last);
		check(&ranges, &reach, s->last + 1);
	}
	check(&ranges, &reach, 0);
	check(&ranges, &reach, UINT32_MAX);
	return 0;
}
