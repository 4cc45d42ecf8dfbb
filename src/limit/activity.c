/* How much is told of what is done in a team's sandboxes. */
#include "limit/limit.h"

static const char *const names[] = {
	[LIMIT_ACTIVITY_UNSAID] = NULL,
	[LIMIT_ACTIVITY_ALL] = "all",
	[LIMIT_ACTIVITY_PROCESSES] = "processes",
	[LIMIT_ACTIVITY_NONE] = "none",
};

const char *limit_activity_name(enum limit_activity activity)
{
	return names[activity];
}

int limit_activity_parse(struct str name, enum limit_activity *ret, struct err *e)
{
	for (size_t i = LIMIT_ACTIVITY_ALL; i < ARRAY_SIZE(names); i++)
		if (str_is(name, names[i])) {
			*ret = (enum limit_activity)i;
			return 0;
		}
	return err_set(e, -EINVAL, "activity must be all, processes or none");
}
