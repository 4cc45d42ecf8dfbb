/* Places where a test may have the process die: `CRASH_POINT("pause.frozen")`. Only in the
 * sanitizer build; elsewhere it is nothing. Which place is set once, in main. */
#pragma once

#define CRASH_VARIABLE "ATOLL_CRASH_AT" /* of the server's environment, passed on to the warden */

#ifdef ATOLL_CRASH_POINTS
/* "name", or "name:n" for its nth passing; NULL: nowhere. */
void crash_arm(const char *where);
void crash_point(const char *name);
#define CRASH_POINT(name) crash_point(name)
#else
static inline void crash_arm(const char *where)
{
	(void)where;
}
#define CRASH_POINT(name) ((void)0)
#endif
