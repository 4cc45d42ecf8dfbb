/* The machine and the streams that run on it. A node's string is the path to it; the state's string
 * is always the end of what was read, so the bytes before it can no longer be part of a needle that
 * is still to come: they are certain. Matches are kept as intervals until then, merged as they
 * overlap. */
#include "secret/mask-internal.h"

enum {
	SLICE_BYTES = 32 << 10, /* looked at before what is certain is given on */
	FIRST_SPANS = 16,
};

struct span { /* absolute places in the stream */
	uint64_t from, to;
	uint32_t name;
};

struct mask_stream {
	struct mask_needles *needles;
	uint32_t state;
	struct buf held; /* from `base` on */
	uint64_t base, covered_to;
	struct span *spans; /* found, not yet told; they do not overlap, in order */
	size_t n_spans, cap_spans;
};

struct mask_stream *mask_stream_new(struct mask_needles *n)
{
	struct mask_stream *m = XNEW(struct mask_stream);

	needles_build(n);
	m->needles = mask_needles_ref(n);
	m->held = BUF_INIT((size_t)MASK_MAX_NODES + SLICE_BYTES);
	return m;
}

struct mask_stream *mask_stream_free(struct mask_stream *m)
{
	if (!m)
		return NULL;
	if (m->held.p)
		explicit_bzero(m->held.p, m->held.cap);
	buf_done(&m->held);
	m->needles = mask_needles_unref(m->needles);
	free(m->spans);
	free(m);
	return NULL;
}

static void push(struct mask_stream *m, struct span span)
{
	if (m->n_spans == m->cap_spans) {
		size_t cap = m->cap_spans ? 2 * m->cap_spans : FIRST_SPANS;
		struct span *grown = XNEW_N(struct span, cap);

		if (m->n_spans)
			memcpy(grown, m->spans, m->n_spans * sizeof *grown);
		free(m->spans);
		m->spans = grown;
		m->cap_spans = cap;
	}
	m->spans[m->n_spans++] = span;
}

/* One more occurrence, which ends where we are: what it touches becomes one with it. */
static void found(struct mask_stream *m, struct span span)
{
	if (span.from < m->covered_to) {
		m->n_spans = 0;
		m->covered_to = MAX(m->covered_to, span.to);
		return;
	}
	while (m->n_spans > 0 && m->spans[m->n_spans - 1].to > span.from) {
		const struct span *last = &m->spans[--m->n_spans];

		if (last->from < span.from) {
			span.from = last->from;
			span.name = last->name;
		}
	}
	push(m, span);
}

static void read_bytes(struct mask_stream *m, struct str bytes, uint64_t at)
{
	const struct mask_needles *n = m->needles;

	for (size_t i = 0; i < bytes.n; i++) {
		const struct node *node;

		m->state = needles_step(n, m->state, (unsigned char)bytes.p[i]);
		if (m->state == 0)
			continue;
		node = &n->nodes[m->state];
		if (node->out) {
			const struct node *out = &n->nodes[node->out];

			found(m, (struct span){ at + i + 1 - out->depth, at + i + 1, out->name });
		}
		/* Behind a needle that no other goes on from, only its own end matters. */
		while (m->state != 0 && n->nodes[m->state].child == 0)
			m->state = n->nodes[m->state].fail;
	}
}

/* Gives on everything before `to`. */
static void give(struct mask_stream *m, uint64_t to, struct buf *out)
{
	uint64_t at = m->base;
	size_t i = 0;

	while (at < to) {
		uint64_t until = to;

		if (m->covered_to > at) {
			at = MIN(m->covered_to, to);
			continue;
		}
		if (i < m->n_spans && m->spans[i].from < to)
			until = m->spans[i].from;
		(void)buf_add(out, m->held.p + (at - m->base), (size_t)(until - at));
		at = until;
		if (i < m->n_spans && m->spans[i].from < to) {
			(void)buf_printf(out, "[secret:%s]", m->needles->names[m->spans[i].name]);
			m->covered_to = m->spans[i++].to;
		}
	}
	m->n_spans -= i;
	if (i > 0)
		memmove(m->spans, m->spans + i, m->n_spans * sizeof *m->spans);
	buf_consume(&m->held, (size_t)(to - m->base));
	m->base = to;
}

int mask_stream_feed(struct mask_stream *m, struct str bytes, struct buf *out)
{
	if (mask_needles_empty(m->needles))
		return buf_add_str(out, bytes);
	while (bytes.n > 0) {
		struct str slice = { bytes.p, MIN(bytes.n, (size_t)SLICE_BYTES) };
		uint64_t at = m->base + m->held.n;

		if (buf_add_str(&m->held, slice) < 0)
			return -ENOBUFS;
		read_bytes(m, slice, at);
		give(m, at + slice.n - m->needles->nodes[m->state].depth, out);
		bytes = str_from(bytes, slice.n);
	}
	return out->failed ? -ENOBUFS : 0;
}

int mask_stream_end(struct mask_stream *m, struct buf *out)
{
	if (m->held.n > 0)
		give(m, m->base + m->held.n, out);
	m->state = 0;
	m->covered_to = 0;
	m->base = 0;
	return out->failed ? -ENOBUFS : 0;
}

struct str mask_stream_held(const struct mask_stream *m)
{
	return buf_str(&m->held);
}

size_t mask_stream_covered(const struct mask_stream *m)
{
	return m->covered_to > m->base ? (size_t)(m->covered_to - m->base) : 0;
}

int mask_stream_restore(struct mask_stream *m, struct str held, size_t covered)
{
	m->base = 0;
	m->state = 0;
	m->n_spans = 0;
	m->covered_to = covered;
	buf_clear(&m->held);
	if (buf_add_str(&m->held, held) < 0)
		return -ENOBUFS;
	read_bytes(m, held, m->base);
	return 0;
}

int mask_text(struct mask_needles *n, struct str text, struct buf *out)
{
	CLEANUP(mask_stream_freep) struct mask_stream *m = mask_stream_new(n);
	int r = mask_stream_feed(m, text, out);

	return r < 0 ? r : mask_stream_end(m, out);
}
