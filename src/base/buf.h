/* A growing byte string with a ceiling: always terminated, never larger than `max`. Appending past
 * the ceiling or out of memory sets `failed` and is refused, so a chain of appends needs one check.
 */
#pragma once

#include "base/str.h"

struct buf {
	char *p;
	size_t n, cap, max;
	bool failed;
};

#define BUF_INIT(max_bytes) ((struct buf){ .max = (max_bytes) })

void buf_done(struct buf *b); /* frees, back to an empty buf of the same ceiling */
static inline struct str buf_str(const struct buf *b)
{
	return (struct str){ b->p ? b->p : "", b->n };
}
int buf_add(struct buf *b, const void *p, size_t n); /* 0 or -ENOBUFS */
int buf_adds(struct buf *b, const char *z);
int buf_add_str(struct buf *b, struct str s);
int buf_addc(struct buf *b, char c);
int buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *buf_reserve(struct buf *b, size_t n); /* room for n more at b->p + b->n; NULL on failure */
void buf_consume(struct buf *b, size_t n);  /* drops n bytes from the front */
void buf_clear(struct buf *b);              /* empties, keeps the memory */
