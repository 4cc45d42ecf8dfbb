/* What a line gives is part of the line, and only whole lines give anything. */
#include "cli/attack.h"

static bool is_within(struct str part, struct str whole)
{
	return part.n == 0 || (part.p >= whole.p && part.p + part.n <= whole.p + whole.n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str line = str_make(data, size);
	struct attack_line l = { 0 };

	if (attack_line_parse(line, &l) < 0) {
		assert(l.name.p == NULL && l.end == 0);
		return 0;
	}
	assert(l.name.n > 0 && is_within(l.name, line));
	assert(is_within(l.title, line) && is_within(l.evidence, line));
	assert(l.end > 0 || (l.title.p && l.verdict <= ATTACK_ESCAPED));
	return 0;
}
