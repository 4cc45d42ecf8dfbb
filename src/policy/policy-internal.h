/* What the files of this room share.
 *
 *   policy.c  the object as a whole: ranges, what is denied, the questions
 *   name.c    names of hosts: which text is one, and which pattern matches it
 *   rules.c   header rules and the secrets they name */
#pragma once

#include "policy/policy.h"

enum {
	NAME_MAX_CHARS = 253,
	LABEL_MAX_CHARS = 63,
};

/* Lower case, without the dot that may end it; p NULL: the arena is full. */
struct str name_normal(struct arena *arena, struct str name);
/* "*.example.com" matches every name below it, "*" every name; both are lower case. */
bool name_matches(struct str pattern, struct str name);
/* Of letters, digits, '-' and '_' in labels, two at least, and not an address in some spelling. */
bool name_is_valid(struct str name);

/* `hosts` as the object has it: {host: [{transform: {headers: {name: value}}}]}. */
int rules_parse(struct arena *arena, const struct json_map *hosts, struct policy *policy,
	struct err *e);
/* What an earlier server took and sent as it is: refused when it is given, and kept rules that hold
 * it go on as they were. */
int rules_check_new(const struct policy *policy, struct err *e);
