#include "base/base.h"
#include "base/fault.h"

#ifdef ATOLL_CRASH_POINTS

#include <sys/mman.h>

static const volatile int64_t *values; /* shared with the test: it changes by itself */
static int64_t passings[FAULTS];

void fault_arm(const char *path)
{
	cleanup_close int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -EBADF;
	void *p;

	if (fd < 0)
		return;
	p = mmap(NULL, FAULTS * sizeof *values, PROT_READ, MAP_SHARED, fd, 0);
	values = p == MAP_FAILED ? NULL : p;
}

int64_t fault_value(enum fault fault)
{
	return values ? values[fault] : 0;
}

bool fault_strikes(enum fault fault)
{
	int64_t every = fault_value(fault);

	return every > 0 && ++passings[fault] % every == 0;
}

#endif
