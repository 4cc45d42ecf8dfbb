/* The pattern is a machine whose states are "the first i parts are matched", kept as bits of one
 * wide number: all states move on together with each byte of the name, and nothing is ever tried
 * again. */
#include "base/glob.h"

#include "base/base.h"

static void set_bit(uint64_t *words, size_t i)
{
	words[i / 64] |= UINT64_C(1) << (i % 64);
}

/* ---- patterns ---- */

static void take_byte(struct glob *g, unsigned char c)
{
	set_bit(g->takes[c], g->n);
}

static void take_range(struct glob *g, const bool set[256], bool is_not)
{
	for (size_t c = 0; c < 256; c++)
		if (set[c] != is_not)
			take_byte(g, (unsigned char)c);
}

/* The end of a set whose '[' is at `at`, behind its ']'; 0: it has none, and is no set. */
static size_t set_end(struct str p, size_t at)
{
	size_t i = at + 1;

	if (i < p.n && (p.p[i] == '!' || p.p[i] == '^'))
		i++;
	if (i < p.n && p.p[i] == ']') /* as the first it is a member */
		i++;
	for (; i < p.n; i++)
		if (p.p[i] == ']')
			return i + 1;
	return 0;
}

/* What is between the brackets. */
static void add_set(struct glob *g, struct str in)
{
	bool set[256] = { false }, is_not = in.n && (in.p[0] == '!' || in.p[0] == '^');

	for (size_t i = is_not; i < in.n; i++) {
		unsigned char from = (unsigned char)in.p[i], to = from;

		if (i + 2 < in.n && in.p[i + 1] == '-') {
			to = (unsigned char)in.p[i + 2];
			i += 2;
		}
		for (size_t c = from; c <= to; c++)
			set[c] = true;
	}
	take_range(g, set, is_not);
}

/* One part, from `at`; returns where the next begins. */
static size_t add_part(struct glob *g, struct str p, size_t at)
{
	static const bool none[256];
	size_t end = p.p[at] == '[' ? set_end(p, at) : 0;

	if (end)
		add_set(g, str_make(p.p + at + 1, end - at - 2));
	else if (p.p[at] == '?')
		take_range(g, none, true);
	else if (p.p[at] == '\\' && at + 1 < p.n)
		take_byte(g, (unsigned char)p.p[++at]);
	else
		take_byte(g, (unsigned char)p.p[at]);
	g->n++;
	return end ? end : at + 1;
}

int glob_compile(struct glob *g, struct str pattern)
{
	size_t at = 0;

	*g = (struct glob){ 0 };
	g->takes_hidden = str_has_prefix(pattern, STR(".")) || str_has_prefix(pattern, STR("\\."));
	while (at < pattern.n) {
		if (pattern.p[at] == '*') {
			set_bit(g->star, g->n);
			at++;
		} else if (g->n == GLOB_PARTS_MAX) {
			return -E2BIG;
		} else {
			at = add_part(g, pattern, at);
		}
	}
	return 0;
}

/* ---- names ---- */

bool glob_matches(const struct glob *g, struct str name)
{
	uint64_t states[GLOB_WORDS] = { 1 };

	if (name.n > GLOB_NAME_MAX || (name.n && name.p[0] == '.' && !g->takes_hidden))
		return false;
	for (size_t i = 0; i < name.n; i++) {
		const uint64_t *takes = g->takes[(unsigned char)name.p[i]];
		uint64_t carry = 0;

		for (size_t w = 0; w < GLOB_WORDS; w++) {
			uint64_t moved = states[w] & takes[w];

			states[w] = (moved << 1) | carry | (states[w] & g->star[w]);
			carry = moved >> 63;
		}
	}
	return states[g->n / 64] >> (g->n % 64) & 1;
}
