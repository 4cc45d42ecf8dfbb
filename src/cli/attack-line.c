#include "cli/attack.h"

static int verdict_of(struct str word, enum attack_verdict *ret)
{
	if (str_is(word, "absent"))
		*ret = ATTACK_ABSENT;
	else if (str_is(word, "refused"))
		*ret = ATTACK_REFUSED;
	else if (str_is(word, "contained"))
		*ret = ATTACK_CONTAINED;
	else if (str_is(word, "ESCAPED"))
		*ret = ATTACK_ESCAPED;
	else if (str_is(word, "inconclusive"))
		*ret = ATTACK_INCONCLUSIVE;
	else
		return -EPROTO;
	return 0;
}

int attack_line_parse(struct str line, struct attack_line *ret)
{
	struct attack_line l = { 0 };
	struct str verdict;

	if (!str_split(&line, '\t', &l.name) || l.name.n == 0 || !str_split(&line, '\t', &verdict))
		return -EPROTO;
	if (str_is(l.name, "end")) {
		if (str_to_int(verdict, 1, 100000, &l.end) < 0)
			return -EPROTO;
		*ret = l;
		return 0;
	}
	if (verdict_of(verdict, &l.verdict) < 0 || !str_split(&line, '\t', &l.title) ||
		!str_split(&line, '\t', &l.evidence))
		return -EPROTO;
	*ret = l;
	return 0;
}
