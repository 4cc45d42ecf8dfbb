/* GET /api/v1/events: the event log, live as server-sent events or by pages. */
#include "api/v1/v1.h"

/* ---- live ---- */

struct stream { /* in the exchange's arena */
	struct api_call *call;
	struct observe_reader *reader;
	bool is_over;
};

static void stream_end(struct stream *s)
{
	if (s->is_over)
		return;
	s->is_over = true;
	s->reader = observe_reader_free(s->reader);
	http_end(s->call->x);
}

static void on_gone(void *arg)
{
	stream_end(arg);
}

static void on_closed(void *arg)
{
	struct stream *s = arg;

	s->reader = NULL;
	stream_end(s);
}

static void on_drain(void *arg)
{
	struct stream *s = arg;

	if (s->reader)
		observe_reader_drained(s->reader);
}

static bool on_send(void *arg, struct str text)
{
	struct stream *s = arg;

	return http_write(s->call->x, text);
}

static size_t on_queued(void *arg)
{
	return http_queued(((struct stream *)arg)->call->x);
}

/* Something at once: a proxy on the way passes the head on only then. With it the number behind
 * which a stream goes on that asked for none: one that is lost before its first event has that to
 * come again with. */
static void greet(struct api_call *call, int64_t after)
{
	char text[64] = "retry: 1000\n\n";

	if (after < 0)
		(void)snprintf(text, sizeof text, "retry: 1000\nid: %" PRId64 "\n\n",
			observe_feed_head(call->api->config.feed));
	(void)http_write(call->x, str_of(text));
}

static void stream_events(struct api_call *call, const struct observe_filter *filter, int64_t after)
{
	struct stream *s = arena_alloc(http_arena(call->x), sizeof *s);
	struct observe_reader_config config = { .filter = *filter,
		.after = after,
		.send = on_send,
		.queued = on_queued,
		.closed = on_closed,
		.arg = s };

	s->call = call;
	s->reader = observe_reader_new(call->api->config.feed, &config);
	if (!s->reader) {
		api_fail_status(call, 503, "the server takes no more streams of events just now");
		return;
	}
	http_add_header(call->x, "Cache-Control", STR("no-store, no-transform"));
	http_add_header(call->x, "X-Accel-Buffering", STR("no"));
	api_note_answer(call, 200);
	http_begin(call->x, 200, "text/event-stream", -1);
	http_on_gone(call->x, on_gone, s);
	http_on_drain(call->x, on_drain, s);
	greet(call, after);
}

/* ---- by pages ---- */

static void page_events(struct api_call *call, const struct observe_filter *filter, int64_t after)
{
	struct observe_query query = { .filter = *filter, .after = MAX(after, 0) };
	struct v1_page page;

	if (v1_page_read(call, 100, OBSERVE_MAX_PAGE, &page) < 0)
		return;
	if (page.cursor.n && str_to_int(page.cursor, 0, INT64_MAX, &query.after) < 0) {
		api_fail_status(call, 400, "validation error: cursor is none of ours");
		return;
	}
	query.limit = page.limit;
	query.newest_first = str_is(http_query_value(call->x, "order"), "desc");
	if (query.newest_first) { /* the cursor leads the other way */
		query.before = page.cursor.n ? query.after : 0;
		query.after = MAX(after, 0);
	}
	observe_read(call->api->config.store, &query, v1_events_page, call);
}

/* Last-Event-ID is what a client that lost its stream sends by itself, so it wins over the address
 * it was opened with. */
static int read_after(struct api_call *call, int64_t *ret)
{
	struct str last = http_header(call->x, "Last-Event-ID");

	*ret = -1;
	if (api_query_int(call, "after", 0, INT64_MAX, ret) < 0)
		return -EINVAL;
	if (!last.n || str_to_int(last, 0, INT64_MAX, ret) == 0)
		return 0;
	api_fail_status(call, 400, "validation error: Last-Event-ID must be an event's number");
	return -EINVAL;
}

void v1_events(struct api_call *call)
{
	struct observe_filter filter;
	int64_t after;

	if (v1_event_filter(call, &filter) < 0 || read_after(call, &after) < 0)
		return;
	switch (v1_format(call)) {
	case V1_ANY:
	case V1_SSE:
		stream_events(call, &filter, after);
		return;
	case V1_JSON:
		page_events(call, &filter, after);
		return;
	case V1_NDJSON:
	case V1_CSV:
	case V1_UNKNOWN:
		break;
	}
	api_fail_status(call, 400, "validation error: format must be sse or json");
}
