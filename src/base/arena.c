#include "base/base.h"

enum {
	ARENA_BLOCK = 4096 - 64
};

struct arena_block {
	struct arena_block *next;
	size_t used, size;
	_Alignas(max_align_t) char bytes[];
};

struct arena {
	struct arena_block *blocks;
	size_t total, max;
};

void *xcalloc(size_t n, size_t size)
{
	void *p = calloc(n, size);

	if (!p)
		abort();
	return p;
}

char *xstrdup(const char *s)
{
	char *p = strdup(s);

	if (!p)
		abort();
	return p;
}

struct arena *arena_new(size_t max_bytes)
{
	struct arena *a = XNEW(struct arena);

	a->max = max_bytes;
	return a;
}

struct arena *arena_free(struct arena *a)
{
	if (!a)
		return NULL;
	while (a->blocks) {
		struct arena_block *block = a->blocks;

		a->blocks = block->next;
		free(block);
	}
	free(a);
	return NULL;
}

static struct arena_block *grow(struct arena *a, size_t size)
{
	size_t room = MAX(size, (size_t)ARENA_BLOCK);
	struct arena_block *block;

	if (room > a->max - a->total && room > size)
		room = size; /* near the ceiling: only what is asked */
	if (room > a->max - a->total)
		return NULL;
	block = calloc(1, sizeof *block + room);
	if (!block)
		return NULL;
	block->size = room;
	block->next = a->blocks;
	a->blocks = block;
	a->total += room;
	return block;
}

void *arena_alloc(struct arena *a, size_t size)
{
	struct arena_block *block = a->blocks;
	void *p;

	if (size > SIZE_MAX / 2)
		return NULL;
	size = (MAX(size, (size_t)1) + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1);
	if (!block || block->size - block->used < size)
		block = grow(a, size);
	if (!block)
		return NULL;
	p = block->bytes + block->used;
	block->used += size;
	return p;
}

char *arena_dup(struct arena *a, struct str s)
{
	char *p = arena_alloc(a, s.n + 1);

	if (p && s.n)
		memcpy(p, s.p, s.n);
	return p;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
	va_list ap;
	char *p;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	p = n < 0 ? NULL : arena_alloc(a, (size_t)n + 1);
	if (!p)
		return NULL;
	va_start(ap, fmt);
	(void)vsnprintf(p, (size_t)n + 1, fmt, ap);
	va_end(ap);
	return p;
}
