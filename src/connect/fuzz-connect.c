/* The same frames and the same result, however the bytes are split. The first byte of the input
 * chooses the split, the second the size limit. */
#include "connect/connect.h"

struct trace {
	struct buf frames;
	unsigned left; /* frames until the callback itself says stop */
};

static int note_frame(void *arg, unsigned flags, struct str payload, struct err *e)
{
	struct trace *trace = arg;

	if (trace->left-- == 0)
		return err_set(e, -ECANCELED, "enough");
	buf_printf(&trace->frames, "%u %zu:", flags, payload.n);
	buf_add_str(&trace->frames, payload);
	return 0;
}

/* Pieces of 1 to 16 bytes, by a small generator; seed 0: everything at once. */
static size_t next_step(uint32_t *seed, size_t rest)
{
	if (*seed == 0)
		return rest;
	*seed = *seed * 1103515245u + 12345u;
	return MIN(rest, (size_t)(*seed >> 16) % 16 + 1);
}

static int run(struct str bytes, uint32_t seed, size_t max_bytes, struct trace *trace)
{
	CLEANUP(connect_reader_done) struct connect_reader reader;
	int r = 0;

	connect_reader_init(&reader, max_bytes);
	while (r >= 0 && bytes.n > 0) {
		size_t step = next_step(&seed, bytes.n);

		r = connect_reader_feed(&reader, str_make(bytes.p, step), note_frame, trace, NULL);
		bytes = str_from(bytes, step);
	}
	assert(reader.held.n <= max_bytes + CONNECT_HEAD);
	return r < 0 ? r : connect_reader_finish(&reader, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct trace whole = { .frames = BUF_INIT(1 << 20) }, split = whole;
	int a, b;

	if (size < 3)
		return 0;
	whole.left = split.left = data[2];
	a = run(str_make(data + 3, size - 3), 0, data[1], &whole);
	b = run(str_make(data + 3, size - 3), (uint32_t)data[0] + 1, data[1], &split);
	assert(a == b);
	assert(str_eq(buf_str(&whole.frames), buf_str(&split.frames)));
	buf_done(&whole.frames);
	buf_done(&split.frames);
	return 0;
}
