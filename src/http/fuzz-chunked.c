/* Property: the payload of a chunked body, where it ends and whether it is refused do not depend on
 * how its bytes were split, and passing it on unchanged finds the same end. */
#include "http/http-internal.h"

struct outcome {
	struct buf payload;
	size_t used;
	enum body_state state;
};

static void decode(struct str in, size_t step, struct outcome *o)
{
	struct body body;
	size_t limit = 0;

	*o = (struct outcome){ .payload = BUF_INIT(1 << 24) };
	body_start_chunked(&body);
	while (o->used < in.n && body.state != BODY_DONE && body.state != BODY_BAD) {
		struct str piece;
		ssize_t n;

		if (o->used >= limit)
			limit = MIN(step, in.n - o->used) + o->used;
		n = body_next(&body, str_make(in.p + o->used, limit - o->used), &piece);
		if (n < 0)
			break;
		o->used += (size_t)n;
		(void)buf_add_str(&o->payload, piece);
	}
	o->state = body.state;
}

static void same(const struct outcome *a, const struct outcome *b)
{
	assert(a->state == b->state);
	assert(a->state == BODY_BAD || a->used == b->used);
	assert(str_eq(buf_str(&a->payload), buf_str(&b->payload)));
}

/* Without trailers it ends in the same place, and what is left holds the same. */
static void same_bare(struct str in, ssize_t passed, enum body_state state)
{
	struct outcome all, bare;
	struct str kept[2];
	struct body body;
	struct buf left;

	body_start_chunked(&body);
	assert(body_pass_bare(&body, in, kept) == passed && body.state == state);
	if (passed < 0)
		return;
	left = BUF_INIT(in.n + 1);
	(void)buf_add_str(&left, kept[0]);
	(void)buf_add_str(&left, kept[1]);
	decode(str_make(in.p, (size_t)passed), SIZE_MAX / 2, &all);
	decode(buf_str(&left), SIZE_MAX / 2, &bare);
	assert(str_eq(buf_str(&all.payload), buf_str(&bare.payload)));
	assert(state != BODY_DONE || bare.state == BODY_DONE);
	buf_done(&all.payload);
	buf_done(&bare.payload);
	buf_done(&left);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str in = str_make(data, size);
	struct outcome whole, bytes, fives;
	struct body body;
	ssize_t passed;

	decode(in, SIZE_MAX / 2, &whole);
	decode(in, 1, &bytes);
	decode(in, 5, &fives);
	same(&whole, &bytes);
	same(&whole, &fives);
	body_start_chunked(&body);
	passed = body_pass(&body, in);
	assert(body.state == whole.state);
	same_bare(in, passed, body.state);
	assert(passed < 0 ? whole.state == BODY_BAD : (size_t)passed == whole.used);
	buf_done(&whole.payload);
	buf_done(&bytes.payload);
	buf_done(&fives.payload);
	return 0;
}
