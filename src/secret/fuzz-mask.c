/* Property: a stream is masked the same however it is cut, stopped and restored, and the same as by
 * looking for every needle at every place of the whole text.
 *
 * Input: up to three values, each a length byte and so many bytes; a byte that decides the cuts;
 * the text. */
#include "secret/mask-internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	MAX_TEXT = 4096
};

struct cover {
	size_t from, to;
	uint16_t name;
};

/* The longest needle that begins here, by walking the tree alone. */
static bool begins(const struct mask_needles *n, struct str text, size_t at, struct cover *ret)
{
	uint32_t node = 0;
	bool is_found = false;

	for (size_t i = at; i < text.n; i++) {
		node = needles_child(n, node, (unsigned char)text.p[i]);
		if (node == 0)
			break;
		if (n->nodes[node].is_needle) {
			*ret = (struct cover){ at, i + 1, n->nodes[node].name };
			is_found = true;
		}
	}
	return is_found;
}

static void mask_plainly(const struct mask_needles *n, struct str text, struct buf *out)
{
	struct cover last = { 0 };

	for (size_t i = 0; i < text.n; i++) {
		struct cover here;

		if (begins(n, text, i, &here)) {
			if (i >= last.to)
				(void)buf_printf(out, "[secret:%s]", n->names[here.name]);
			last.to = MAX(last.to, here.to);
		}
		if (i >= last.to)
			(void)buf_addc(out, text.p[i]);
	}
}

/* Cut into pieces, and now and then stopped and taken up by another stream. */
static void mask_cut(struct mask_needles *n, struct str text, unsigned how, struct buf *out)
{
	struct mask_stream *m = mask_stream_new(n);
	size_t step = how % 7 + 1;

	for (size_t at = 0; at < text.n; at += step) {
		struct str piece = str_from(text, at);

		piece.n = MIN(piece.n, step);
		assert(mask_stream_feed(m, piece, out) == 0);
		if (how & 8) {
			struct mask_stream *next = mask_stream_new(n);

			assert(mask_stream_restore(next, mask_stream_held(m),
				       mask_stream_covered(m)) == 0);
			(void)mask_stream_free(m);
			m = next;
		}
	}
	assert(mask_stream_end(m, out) == 0);
	(void)mask_stream_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(mask_needles_unrefp) struct mask_needles *n = mask_needles_new();
	CLEANUP(buf_done) struct buf plain = BUF_INIT(1 << 20), cut = BUF_INIT(1 << 20);
	struct str rest = { (const char *)data, size };
	unsigned how;

	for (int i = 0; i < 3 && rest.n > 0; i++) {
		size_t length = MIN((size_t)(unsigned char)rest.p[0] % 32, rest.n - 1);
		char name[2] = { (char)('A' + i), 0 };

		(void)mask_needles_add(n, str_of(name), str_make(rest.p + 1, length), NULL);
		rest = str_from(rest, 1 + length);
	}
	if (rest.n == 0)
		return 0;
	how = (unsigned char)rest.p[0];
	rest = str_from(rest, 1);
	rest.n = MIN(rest.n, (size_t)MAX_TEXT);
	mask_cut(n, rest, how, &cut);
	mask_plainly(n, rest, &plain);
	assert(str_eq(buf_str(&plain), buf_str(&cut)));
	return 0;
}
