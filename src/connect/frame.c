#include "connect/connect.h"

#include "json/json.h"

enum {
	KEPT_BYTES =
		16 << 10, /* memory a reader keeps between frames; a larger frame's is given back */
};

void connect_reader_init(struct connect_reader *r, size_t max_bytes)
{
	*r = (struct connect_reader){
		.held = BUF_INIT(max_bytes + CONNECT_HEAD),
		.max_bytes = max_bytes,
	};
}

void connect_reader_done(struct connect_reader *r)
{
	buf_done(&r->held);
}

/* Payload length by a whole head, or why the frame is refused. */
static int64_t read_head(const char *head, size_t max_bytes, struct err *e)
{
	const unsigned char *p = (const unsigned char *)head;
	uint32_t n = (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];

	if (p[0] & CONNECT_FLAG_COMPRESSED)
		return err_set(e, -EPROTO, "compressed messages are not supported");
	if (p[0] & ~CONNECT_FLAG_END)
		return err_set(e, -EPROTO, "unknown flags 0x%02x in a message's envelope", p[0]);
	if (n > max_bytes)
		return err_set(e, -EMSGSIZE, "message of %" PRIu32 " bytes, the limit is %zu", n,
			max_bytes);
	return n;
}

/* Moves bytes into the held frame until it has `want` of them; false when there were too few. */
static bool hold(struct connect_reader *r, struct str *bytes, size_t want)
{
	size_t n = MIN(want - r->held.n, bytes->n);

	(void)buf_add(&r->held, bytes->p, n);
	*bytes = str_from(*bytes, n);
	return r->held.n == want;
}

/* The frame leaves the reader before fn sees it: fn may end the reader and return a failure. */
static int deliver_held(struct connect_reader *r, connect_frame_fn fn, void *arg, struct err *e)
{
	CLEANUP(buf_done) struct buf frame = r->held;
	int result;

	r->held = BUF_INIT(frame.max);
	result = fn(arg, (unsigned char)frame.p[0], str_from(buf_str(&frame), CONNECT_HEAD), e);
	if (result < 0)
		return result;
	if (frame.cap <= KEPT_BYTES) {
		r->held = frame;
		buf_clear(&r->held);
		frame = BUF_INIT(0);
	}
	return 0;
}

/* Goes on with a frame of which only a part has come. 1: delivered; 0: more bytes are needed. */
static int feed_held(struct connect_reader *r, struct str *bytes, connect_frame_fn fn, void *arg,
	struct err *e)
{
	int64_t n;
	int result;

	if (r->held.n < CONNECT_HEAD && !hold(r, bytes, CONNECT_HEAD))
		return r->held.failed ? err_set(e, -ENOBUFS, "no memory for a message") : 0;
	n = read_head(r->held.p, r->max_bytes, e);
	if (n < 0)
		return (int)n;
	if (!hold(r, bytes, CONNECT_HEAD + (size_t)n))
		return r->held.failed ? err_set(e, -ENOBUFS, "no memory for a message") : 0;
	result = deliver_held(r, fn, arg, e);
	return result < 0 ? result : 1;
}

/* Delivers a frame that is whole within `bytes`, uncopied. 1: delivered; 0: it is not whole. */
static int feed_whole(const struct connect_reader *r, struct str *bytes, connect_frame_fn fn,
	void *arg, struct err *e)
{
	unsigned char flags;
	struct str payload;
	int64_t n;
	int result;

	if (bytes->n < CONNECT_HEAD)
		return 0;
	n = read_head(bytes->p, r->max_bytes, e);
	if (n < 0)
		return (int)n;
	if (bytes->n - CONNECT_HEAD < (size_t)n)
		return 0;
	flags = (unsigned char)bytes->p[0];
	payload = str_make(bytes->p + CONNECT_HEAD, (size_t)n);
	*bytes = str_from(*bytes, CONNECT_HEAD + (size_t)n);
	result = fn(arg, flags, payload, e);
	return result < 0 ? result : 1;
}

int connect_reader_feed(struct connect_reader *r, struct str bytes, connect_frame_fn fn, void *arg,
	struct err *e)
{
	while (bytes.n > 0) {
		int result = r->held.n == 0 ? feed_whole(r, &bytes, fn, arg, e) : 0;

		if (result == 0)
			result = feed_held(r, &bytes, fn, arg, e);
		if (result < 0)
			return result;
	}
	return 0;
}

int connect_reader_finish(const struct connect_reader *r, struct err *e)
{
	return r->held.n > 0 ? err_set(e, -EPROTO, "the body ends within a message") : 0;
}

size_t connect_frame_begin(struct buf *out)
{
	static const char head[CONNECT_HEAD];
	size_t mark = out->n;

	(void)buf_add(out, head, sizeof head);
	return mark;
}

void connect_frame_end(struct buf *out, size_t mark, unsigned flags)
{
	unsigned char *head;
	size_t n;

	if (out->failed)
		return;
	assert(out->n >= mark + CONNECT_HEAD);
	n = out->n - mark - CONNECT_HEAD;
	if (n > UINT32_MAX) {
		out->failed = true;
		return;
	}
	head = (unsigned char *)out->p + mark;
	head[0] = (unsigned char)flags;
	head[1] = (unsigned char)(n >> 24);
	head[2] = (unsigned char)(n >> 16);
	head[3] = (unsigned char)(n >> 8);
	head[4] = (unsigned char)n;
}

static void write_error(struct jsonw *w, const char *key, enum connect_code code,
	const char *message)
{
	jsonw_object(w, key);
	jsonw_strz(w, "code", connect_code_name(code));
	if (message && *message)
		jsonw_strz(w, "message", message);
	jsonw_end_object(w);
}

void connect_end_ok(struct buf *out)
{
	size_t mark = connect_frame_begin(out);

	(void)buf_adds(out, "{}");
	connect_frame_end(out, mark, CONNECT_FLAG_END);
}

void connect_end_error(struct buf *out, enum connect_code code, const char *message)
{
	size_t mark = connect_frame_begin(out);
	struct jsonw w;

	jsonw_init(&w, out);
	jsonw_object(&w, NULL);
	write_error(&w, "error", code, message);
	jsonw_end_object(&w);
	connect_frame_end(out, mark, CONNECT_FLAG_END);
}

void connect_error_body(struct buf *out, enum connect_code code, const char *message)
{
	struct jsonw w;

	jsonw_init(&w, out);
	write_error(&w, NULL, code, message);
}
