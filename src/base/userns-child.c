#include "base/userns-child.h"
#include "base/base.h"

_Noreturn void userns_child_main(int fd)
{
	char unused;
	ssize_t n;

	/* Its copy of the other end above all: else it would wait for itself. */
	if (fd > 0)
		(void)close_range(0, (unsigned)fd - 1, 0);
	(void)close_range((unsigned)fd + 1, ~0U, 0);
	do
		n = read(fd, &unused, 1);
	while (n < 0 && errno == EINTR);
	_exit(0);
}
