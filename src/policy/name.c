#include "policy/policy-internal.h"

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

struct str name_normal(struct arena *arena, struct str name)
{
	char *copy = arena_dup(arena, name);

	if (!copy)
		return STR_NONE;
	for (size_t i = 0; i < name.n; i++)
		copy[i] = lower(copy[i]);
	if (name.n > 1 && copy[name.n - 1] == '.')
		name.n--;
	return str_make(copy, name.n);
}

bool name_matches(struct str pattern, struct str name)
{
	struct str tail;

	if (str_is(pattern, "*"))
		return true;
	if (!str_has_prefix(pattern, STR("*.")))
		return str_eq_nocase(pattern, name);
	tail = str_from(pattern, 1); /* with its dot */
	return name.n > tail.n && str_eq_nocase(str_from(name, name.n - tail.n), tail);
}

static bool is_label(struct str label)
{
	for (size_t i = 0; i < label.n; i++) {
		char c = lower(label.p[i]);

		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'))
			return false;
	}
	return label.n > 0 && label.n <= LABEL_MAX_CHARS;
}

/* What stands behind the last dot tells: 127.1, 0x7f.0.0.1 and 1.2.3.4 are addresses to somebody.
 */
static bool ends_in_number(struct str label)
{
	if (label.n > 1 && label.p[0] == '0' && lower(label.p[1]) == 'x')
		return true;
	for (size_t i = 0; i < label.n; i++)
		if (label.p[i] < '0' || label.p[i] > '9')
			return false;
	return true;
}

bool name_is_valid(struct str name)
{
	struct str rest = name, label = STR_NONE;
	size_t labels = 0;

	if (name.n == 0 || name.n > NAME_MAX_CHARS)
		return false;
	while (str_split(&rest, '.', &label)) {
		if (!is_label(label))
			return false;
		labels++;
	}
	return labels > 1 && !ends_in_number(label);
}
