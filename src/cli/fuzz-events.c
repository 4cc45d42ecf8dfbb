/* The same events and the same result, however the bytes are split. */
#include "cli/events.h"

static int note(void *arg, const struct process_event *event, struct err *e)
{
	struct buf *seen = arg;

	(void)e;
	assert(event->exit_code >= 0 && event->exit_code <= 255);
	(void)buf_printf(seen, "%d %d %d %d ", (int)event->kind, (int)event->pid, event->exit_code,
		event->signo);
	(void)buf_add_str(seen, event->bytes);
	(void)buf_add_str(seen, event->cause);
	(void)buf_add_str(seen, event->code);
	(void)buf_add_str(seen, event->message);
	return 0;
}

static int run(struct str bytes, size_t step, struct buf *seen)
{
	struct event_stream stream;
	int r = 0;

	event_stream_init(&stream, note, seen);
	while (r == 0 && bytes.n > 0) {
		r = event_stream_feed(&stream, str_make(bytes.p, MIN(bytes.n, step)), NULL);
		bytes = str_from(bytes, step);
	}
	if (r == 0)
		r = event_stream_finish(&stream, NULL);
	event_stream_done(&stream);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf whole = BUF_INIT(1 << 20), split = whole;
	int a, b;

	if (size < 1)
		return 0;
	a = run(str_make(data + 1, size - 1), size, &whole);
	b = run(str_make(data + 1, size - 1), data[0] % 16u + 1, &split);
	assert(a == b);
	assert(str_eq(buf_str(&whole), buf_str(&split)));
	buf_done(&whole);
	buf_done(&split);
	return 0;
}
