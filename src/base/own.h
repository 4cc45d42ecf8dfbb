/* Ownership: every resource has one name that owns it, released when that name leaves its scope,
 * and handed over with TAKE(). */
#pragma once

#include <stdlib.h>
#include <unistd.h>

#define CLEANUP(fn) __attribute__((cleanup(fn)))

/* After `struct x *x_free(struct x *)`: gives x_freep for CLEANUP(x_freep). */
#define DEFINE_CLEANUP(type, free_fn)           \
	static inline void free_fn##p(type **p) \
	{                                       \
		*p = free_fn(*p);               \
	}

#define TAKE(ptr)                              \
	({                                     \
		__typeof__(ptr) take_ = (ptr); \
		(ptr) = NULL;                  \
		take_;                         \
	})

#define TAKE_FD(fd)               \
	({                        \
		int take_ = (fd); \
		(fd) = -EBADF;    \
		take_;            \
	})

static inline void close_fdp(const int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
}

static inline void freep(void *p)
{
	free(*(void **)p);
}

#define cleanup_close CLEANUP(close_fdp)
#define cleanup_free CLEANUP(freep)

/* Small fixed objects: zeroed, and an abort when memory is out. Sandboxes outlive the server, so a
 * restarted one finds them again; half-handled exhaustion would not be as kind. */
void *xcalloc(size_t n, size_t size);
char *xstrdup(const char *s);
#define XNEW(type) ((type *)xcalloc(1, sizeof(type)))
#define XNEW_N(type, n) ((type *)xcalloc((n), sizeof(type)))
