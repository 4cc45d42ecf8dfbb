/* Kept policies are written by the warden, but read from a directory inside the server's. The keys
 * they come to are in order and say of every edge what the ranges say. */
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

static bool has(const struct reach *reach, uint32_t flags, uint32_t address)
{
	for (uint32_t i = 0; i < reach->n; i++)
		if (reach->keys[i].flags == flags && reach->keys[i].address == address)
			return true;
	return false;
}

/* As the firewall's rules do. */
static bool finds(const struct reach *reach, uint32_t flags, uint32_t address)
{
	unsigned step = reach->kind == REACH_FEW ? 8 : 1;

	for (unsigned bits = step; bits < 32; bits += step)
		if (has(reach, flags, (address & reach_mask(bits)) ^ reach_marker(bits)))
			return true;
	return has(reach, flags | REACH_HOST, address);
}

static bool reaches(const struct reach *reach, uint32_t address)
{
	if (reach->kind == REACH_PASS || reach->kind == REACH_REFUSE)
		return reach->kind == REACH_PASS;
	return finds(reach, REACH_ALLOW, address) ||
	       (!finds(reach, 0, address) && has(reach, REACH_WHOLE, 0));
}

static void check(const struct ranges *ranges, const struct reach *reach, uint32_t address)
{
	if (allows(ranges, address) != reaches(reach, address))
		abort();
}

static void check_keys(const struct reach *reach)
{
	for (uint32_t i = 1; i < reach->n; i++)
		if (memcmp(&reach->keys[i], &reach->keys[i - 1], sizeof *reach->keys) == 0)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ranges ranges;
	static struct reach reach;

	if (ranges_parse(str_make(data, size), &ranges) < 0)
		return 0;
	reach_of(&ranges, &reach);
	check_keys(&reach);
	for (uint32_t i = 0; i < MIN(ranges.n, 64); i++) {
		uint32_t first = ranges.v[i].address;
		uint32_t last = first | ~reach_mask(ranges.v[i].bits);

		check(&ranges, &reach, first);
		check(&ranges, &reach, first - 1);
		check(&ranges, &reach, last);
		check(&ranges, &reach, last + 1);
	}
	check(&ranges, &reach, 0);
	check(&ranges, &reach, UINT32_MAX);
	return 0;
}
