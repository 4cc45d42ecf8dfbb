/* mask - takes secrets out of a stream of bytes, however it is cut into chunks.
 * Every byte that belongs to an occurrence of a needle (a secret's value, or its value in base64,
 * percent-encoded or in JSON) is covered; each run of occurrences that overlap becomes one
 * [secret:NAME], with the name of the one that begins first.
 *
 * The machine is Aho and Corasick's: one step a byte, whatever the number of needles. What is held
 * back is only what is the beginning of a needle right now, so nothing waits for a pause in the
 * stream: text that no secret begins like goes through at once, and a part of a secret never does
 * before it is certain that the rest does not follow. */
#pragma once

#include "base/base.h"

enum {
	MASK_MIN_BYTES = 4,       /* shorter values would blot out ordinary text */
	MASK_MAX_NEEDLES = 4096,  /* up to a score for each secret */
	MASK_MAX_NODES = 1 << 20, /* bytes of all needles together: about 24 MiB */
};

struct mask_needles; /* shared by all streams of a command */
struct mask_needles *mask_needles_new(void);
struct mask_needles *mask_needles_ref(struct mask_needles *n);
struct mask_needles *mask_needles_unref(struct mask_needles *n);
DEFINE_CLEANUP(struct mask_needles, mask_needles_unref)
/* The value and its encodings; before the first stream is made. -EINVAL: too short to be masked, or
 * empty. -E2BIG: too many, or too large all together. */
int mask_needles_add(struct mask_needles *n, struct str name, struct str value, struct err *e);
bool mask_needles_empty(const struct mask_needles *n);
size_t mask_needles_bytes(const struct mask_needles *n); /* of memory; NULL: none */

struct mask_stream;
struct mask_stream *mask_stream_new(struct mask_needles *n);
struct mask_stream *mask_stream_free(struct mask_stream *m);
DEFINE_CLEANUP(struct mask_stream, mask_stream_free)
/* Appends to out what is certain by now. -ENOBUFS: out is full; the stream is spoilt then. */
int mask_stream_feed(struct mask_stream *m, struct str bytes, struct buf *out);
/* The stream has ended: appends the rest. It may begin anew. */
int mask_stream_end(struct mask_stream *m, struct buf *out);
/* What is held back, and how much of it is told as a marker already: from these two the stream goes
 * on as if it had never stopped. */
struct str mask_stream_held(const struct mask_stream *m);
size_t mask_stream_covered(const struct mask_stream *m);
int mask_stream_restore(struct mask_stream *m, struct str held, size_t covered);

/* A whole text at once. */
int mask_text(struct mask_needles *n, struct str text, struct buf *out);
