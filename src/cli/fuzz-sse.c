/* The same events come out however the bytes are cut. */
#include "cli/sse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int note(void *arg, const struct sse_event *event, struct err *e)
{
	struct buf *log = arg;

	(void)e;
	assert(str_find(event->name, '\n') < 0 && str_find(event->id, '\r') < 0);
	(void)buf_printf(log, "%zu %zu %zu|", event->name.n, event->id.n, event->data.n);
	(void)buf_add_str(log, event->name);
	(void)buf_add_str(log, event->id);
	(void)buf_add_str(log, event->data);
	return 0;
}

static int feed(struct str bytes, size_t step, struct buf *log)
{
	struct err e = { 0 };
	struct sse s;
	int r = 0;

	sse_init(&s, note, log);
	while (r >= 0 && bytes.n) {
		size_t n = MIN(step, bytes.n);

		r = sse_feed(&s, str_make(bytes.p, n), &e);
		bytes = str_from(bytes, n);
	}
	sse_done(&s);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(buf_done) struct buf whole = BUF_INIT(16 << 20), cut = BUF_INIT(16 << 20);
	size_t step = size ? data[0] % 7 + 1 : 1;
	struct str bytes = str_make(data, size);

	assert(feed(bytes, size ? size : 1, &whole) == feed(bytes, step, &cut));
	assert(str_eq(buf_str(&whole), buf_str(&cut)));
	return 0;
}
