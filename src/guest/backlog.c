#include "guest/backlog.h"

#include <malloc.h>

enum {
	TRIM_BYTES = 1 << 20, /* less than this is not worth a walk over the heap */
};

struct backlog_chunk {
	struct list node; /* in the backlog, oldest first */
	uint64_t seq;
	enum output_kind kind;
	size_t n;
	char bytes[];
};

struct backlog {
	struct backlog_pool *pool;
	struct list node; /* in pool->droppable: holds something, and nobody is reading it */
	struct list chunks;
	size_t used_bytes;
	uint64_t next_seq;
	int n_refs, n_readers;
};

void backlog_pool_init(struct backlog_pool *pool, size_t max_bytes)
{
	*pool = (struct backlog_pool){ .max_bytes = max_bytes };
	list_init(&pool->droppable);
}

void backlog_pool_trim(struct backlog_pool *pool)
{
	if (pool->freed_bytes < TRIM_BYTES)
		return;
	pool->freed_bytes = 0;
	(void)malloc_trim(0);
}

struct backlog *backlog_new(struct backlog_pool *pool)
{
	struct backlog *b = XNEW(struct backlog);

	b->pool = pool;
	b->next_seq = 1;
	b->n_refs = 1;
	list_init(&b->node);
	list_init(&b->chunks);
	return b;
}

struct backlog *backlog_ref(struct backlog *b)
{
	b->n_refs++;
	return b;
}

static size_t cost_of(size_t n)
{
	return sizeof(struct backlog_chunk) + n;
}

/* Drops the oldest until no more than max_bytes are left. */
static void shrink(struct backlog *b, size_t max_bytes)
{
	LIST_EACH(&b->chunks, node)
	{
		struct backlog_chunk *chunk = container_of(node, struct backlog_chunk, node);
		size_t cost = cost_of(chunk->n);

		if (b->used_bytes <= max_bytes)
			break;
		b->used_bytes -= cost;
		b->pool->used_bytes -= cost;
		b->pool->freed_bytes += cost;
		list_remove(node);
		free(chunk);
	}
	if (list_empty(&b->chunks))
		list_remove(&b->node);
}

struct backlog *backlog_unref(struct backlog *b)
{
	if (!b || --b->n_refs > 0)
		return NULL;
	assert(b->n_readers == 0);
	shrink(b, 0);
	free(b);
	return NULL;
}

/* ---- adding ---- */

/* Of what nobody is reading, whoever was quiet longest gives way. False: all of it is being read.
 */
static bool make_room(struct backlog_pool *pool, size_t cost)
{
	while (pool->used_bytes + cost > pool->max_bytes) {
		size_t excess = pool->used_bytes + cost - pool->max_bytes;
		struct backlog *quiet;

		if (list_empty(&pool->droppable))
			return false;
		quiet = container_of(pool->droppable.next, struct backlog, node);
		shrink(quiet, quiet->used_bytes - MIN(excess, quiet->used_bytes));
	}
	return true;
}

uint64_t backlog_add(struct backlog *b, enum output_kind kind, struct str bytes)
{
	size_t cost = cost_of(bytes.n);
	struct backlog_chunk *chunk = NULL;

	assert(b->n_readers == 0 && cost <= BACKLOG_MAX_BYTES);
	shrink(b, BACKLOG_MAX_BYTES - cost);
	if (make_room(b->pool, cost))
		chunk = malloc(cost);
	if (!chunk) { /* nor may older ones stay: they would look like the newest */
		shrink(b, 0);
		return b->next_seq++;
	}
	chunk->seq = b->next_seq++;
	chunk->kind = kind;
	chunk->n = bytes.n;
	memcpy(chunk->bytes, bytes.p, bytes.n);
	list_append(&b->chunks, &chunk->node);
	b->used_bytes += cost;
	b->pool->used_bytes += cost;
	list_remove(&b->node);
	list_append(&b->pool->droppable, &b->node);
	return chunk->seq;
}

uint64_t backlog_first(const struct backlog *b)
{
	if (list_empty(&b->chunks))
		return b->next_seq;
	return container_of(b->chunks.next, struct backlog_chunk, node)->seq;
}

uint64_t backlog_next(const struct backlog *b)
{
	return b->next_seq;
}

size_t backlog_bytes(const struct backlog *b)
{
	return b->used_bytes;
}

/* ---- reading ---- */

void backlog_hold(struct backlog *b)
{
	b->n_readers++;
	list_remove(&b->node);
}

void backlog_release(struct backlog *b)
{
	assert(b->n_readers > 0);
	if (--b->n_readers == 0 && !list_empty(&b->chunks))
		list_append(&b->pool->droppable, &b->node);
}

bool backlog_read(struct backlog *b, uint64_t seq, struct backlog_chunk **at,
	struct backlog_event *ret)
{
	struct list *node = *at ? &(*at)->node : b->chunks.next;

	for (; node != &b->chunks; node = node->next) {
		struct backlog_chunk *chunk = container_of(node, struct backlog_chunk, node);

		if (chunk->seq < seq)
			continue;
		*at = chunk;
		*ret = (struct backlog_event){ chunk->seq, chunk->kind,
			str_make(chunk->bytes, chunk->n) };
		return true;
	}
	return false;
}
