/* Faults that a test may cause in a running program, by writing into a file that the program has
 * mapped. Only in the sanitizer build; elsewhere they are nothing. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#define FAULT_VARIABLE "ATOLL_FAULTS" /* of the server's environment: the file */

enum fault {
	FAULT_CLOCK_US,     /* the wall clock is so far from the right time */
	FAULT_CREATE_EVERY, /* of a runtime's creations each so manieth fails; 0: none */
	FAULT_CREATE_ERRNO, /* with this; 0: EIO */
	FAULT_GUEST_DEAF,   /* 1: what guests answer to the server's own questions is not heard */
	FAULT_CARE_MS,    /* guests are asked, and sandboxes looked after, so often; 0: as usual */
	FAULT_SYNC_ERRNO, /* files of artifacts cannot be written out: this; 0: they can */
	FAULT_JOB_MS,     /* jobs that are somebody's take so much longer */
	FAULTS,
};

#ifdef ATOLL_CRASH_POINTS
/* Maps the file, FAULTS numbers of 8 bytes; NULL or a file that cannot be had: no faults. */
void fault_arm(const char *path);
int64_t fault_value(enum fault fault);
/* Counts one passing: true for each nth, as the fault's value says. */
bool fault_strikes(enum fault fault);
#else
static inline void fault_arm(const char *path)
{
	(void)path;
}
static inline int64_t fault_value(enum fault fault)
{
	(void)fault;
	return 0;
}
static inline bool fault_strikes(enum fault fault)
{
	(void)fault;
	return false;
}
#endif
