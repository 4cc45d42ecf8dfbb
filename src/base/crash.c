#include "base/base.h"

#ifdef ATOLL_CRASH_POINTS

#include <signal.h>

static struct str armed;
static int64_t passings = 1;

void crash_arm(const char *where)
{
	struct str rest = str_of(where), count;

	if (!where || !str_split(&rest, ':', &armed))
		return;
	if (str_split(&rest, ':', &count))
		(void)str_to_int(count, 1, 1000, &passings);
}

void crash_point(const char *name)
{
	if (armed.n && str_is(armed, name) && --passings == 0)
		(void)kill(getpid(), SIGKILL);
}

#endif
