/* backlog - the last output of a process, for a client that comes back for it.
 * Every data event of a process has a number, from 1 on. The newest are kept, oldest dropped first:
 * so much for a process, so much for all of them together. While a reader holds a backlog nothing
 * of it is dropped; its owner adds nothing meanwhile, as a reader that waits stops the process. */
#pragma once

#include "base/base.h"

enum output_kind {
	OUTPUT_STDOUT,
	OUTPUT_STDERR,
	OUTPUT_PTY,
};

enum {
	BACKLOG_MAX_BYTES = 1 << 20,       /* of one process, what keeping costs included */
	BACKLOG_POOL_MAX_BYTES = 16 << 20, /* of all */
	BACKLOG_HELD_MAX_BYTES = 64 << 20, /* of all that the server waits for */
};

struct backlog;

struct backlog_pool {
	struct list droppable; /* of struct backlog: the one that was quiet longest first */
	size_t used_bytes, max_bytes;
	size_t freed_bytes; /* since memory was last given back */
};

void backlog_pool_init(struct backlog_pool *pool, size_t max_bytes);
/* Gives what was freed since the last time back to the kernel, if it is worth the walk. */
void backlog_pool_trim(struct backlog_pool *pool);

/* Borrows the pool. Shared: by its process, then by what is remembered of it, and by streams. */
struct backlog *backlog_new(struct backlog_pool *pool);
struct backlog *backlog_ref(struct backlog *b);
struct backlog *backlog_unref(struct backlog *b);
DEFINE_CLEANUP(struct backlog, backlog_unref)

/* Numbers the event, keeps it if there is room at all; its number. */
uint64_t backlog_add(struct backlog *b, enum output_kind kind, struct str bytes);
uint64_t backlog_first(const struct backlog *b); /* the oldest kept; the next one when none is */
uint64_t backlog_next(const struct backlog *b);  /* the number of the event to come */
size_t backlog_bytes(const struct backlog *b);   /* kept, what keeping costs included */

/* A reader keeps what is there until it has read it. */
void backlog_hold(struct backlog *b);
void backlog_release(struct backlog *b);

struct backlog_event {
	uint64_t seq;
	enum output_kind kind;
	struct str bytes; /* borrowed from the backlog */
};
/* The event with this number, or the oldest behind it; false past the newest. `at` remembers the
 * place between calls and begins as NULL; it may be used while the backlog is held. */
struct backlog_chunk;
bool backlog_read(struct backlog *b, uint64_t seq, struct backlog_chunk **at,
	struct backlog_event *ret);
