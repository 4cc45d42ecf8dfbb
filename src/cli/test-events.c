#include "cli/events.h"
#include "test.h"

struct seen {
	struct buf text;
};

static int note(void *arg, const struct process_event *event, struct err *e)
{
	static const char *const names[] = { "started", "out", "err", "ended", "alive", "closed" };
	struct seen *seen = arg;

	(void)e;
	(void)buf_printf(&seen->text, "%s ", names[event->kind]);
	if (event->pid)
		(void)buf_printf(&seen->text, "pid=%d ", (int)event->pid);
	if (event->bytes.n)
		(void)buf_printf(&seen->text, "'%.*s' ", STR_ARG(event->bytes));
	if (event->kind == PROCESS_ENDED)
		(void)buf_printf(&seen->text, "%d/%d ", event->exit_code, event->signo);
	if (event->cause.n)
		(void)buf_printf(&seen->text, "(%.*s) ", STR_ARG(event->cause));
	if (event->code.n)
		(void)buf_printf(&seen->text, "%.*s: %.*s ", STR_ARG(event->code),
			STR_ARG(event->message));
	return 0;
}

/* Messages one after the other; the one that begins with '!' is the stream's end. */
static int play(const char *const *messages, struct buf *ret)
{
	CLEANUP(buf_done) struct buf bytes = BUF_INIT(1 << 20);
	struct seen seen = { BUF_INIT(1 << 20) };
	struct event_stream stream;
	int r;

	for (; *messages; messages++) {
		bool is_end = (*messages)[0] == '!';
		size_t mark = connect_frame_begin(&bytes);

		(void)buf_adds(&bytes, *messages + is_end);
		connect_frame_end(&bytes, mark, is_end ? CONNECT_FLAG_END : 0);
	}
	event_stream_init(&stream, note, &seen);
	r = event_stream_feed(&stream, buf_str(&bytes), NULL);
	if (r == 0)
		r = event_stream_finish(&stream, NULL);
	event_stream_done(&stream);
	*ret = seen.text;
	return r;
}

TEST(streams_become_events)
{
	static const struct {
		const char *messages[6];
		int r;
		const char *seen;
	} cases[] = {
		{ { "{\"event\":{\"start\":{\"pid\":7}}}",
			  "{\"event\":{\"data\":{\"stdout\":\"aGk=\"}}}",
			  "{\"event\":{\"end\":{\"exitCode\":3,\"exited\":true,\"status\":\"exit "
			  "status 3\"}}}",
			  "!{}" },
			0, "started pid=7 out 'hi' ended 3/0 closed " },
		{ { "{\"event\":{\"start\":{\"pid\":7}}}",
			  "{\"event\":{\"data\":{\"stderr\":\"aGk\"}}}",
			  "{\"event\":{\"keepalive\":{}}}",
			  "{\"event\":{\"data\":{\"pty\":\"aGk=\"}}}",
			  "!{\"error\":{\"code\":\"deadline_exceeded\",\"message\":\"late\"}}" },
			0,
			"started pid=7 err 'hi' alive out 'hi' closed deadline_exceeded: late " },
		/* a failure repeats its status, unless more is known of it */
		{ { "{\"event\":{\"start\":{\"pid\":7}}}",
			  "{\"event\":{\"end\":{\"exitCode\":-1,\"status\":\"signal: killed\","
			  "\"error\":\"out of memory\"}}}",
			  "!{}" },
			0, "started pid=7 ended 137/9 (out of memory) closed " },
		{ { "{\"event\":{\"start\":{\"pid\":7}}}",
			  "{\"event\":{\"end\":{\"exitCode\":1,\"status\":\"exit status 1\","
			  "\"error\":\"exit status 1\"}}}",
			  "!{}" },
			0, "started pid=7 ended 1/0 closed " },
		/* the same bytes in another spelling */
		{ { "{\"event\":{\"start\":{\"pid\":7}}}",
			  "{\"event\":{\"data\":{\"stdout\":\"aG8\\/\"}}}",
			  "{ \"event\":{\"data\":{\"stdout\":\"aG8/\"}}}",
			  "{\"event\":{\"data\":{\"stdout\":\"aG8/\"}}}", "!{}" },
			0, "started pid=7 out 'ho?' out 'ho?' out 'ho?' closed " },
		{ { "{\"event\":{\"start\":{}}}", "{\"event\":{\"data\":{\"stdout\":\"!\"}}}" },
			-EPROTO, "started " },
		/* zero values may be left out; numbers may come as text */
		{ { "{\"event\":{\"start\":{\"pid\":\"7\"}}}", "{\"event\":{\"end\":{}}}", "!{}" },
			0, "started pid=7 ended 0/0 closed " },
		{ { "{\"event\":{\"start\":{\"pid\":7}}}",
			  "{\"event\":{\"end\":{\"exitCode\":-1,\"status\":\"signal: killed\"}}}",
			  "!{}" },
			0, "started pid=7 ended 137/9 closed " },
		{ { "!{\"error\":{\"code\":\"not_found\",\"message\":\"no\"}}" }, 0,
			"closed not_found: no " },
		{ { "{\"event\":{\"start\":{\"pid\":7}}}" }, -EPROTO, "started pid=7 " },
		{ { "{\"event\":{\"data\":{\"stdout\":\"aGk=\"}}}" }, -EPROTO, "" },
		{ { "{\"event\":{\"start\":{\"pid\":7}}}", "{\"event\":{\"start\":{\"pid\":8}}}" },
			-EPROTO, "started pid=7 " },
		{ { "{\"event\":{}}" }, -EPROTO, "" },
		{ { "{\"event\":{\"start\":{},\"end\":{}}}" }, -EPROTO, "" },
		{ { "nonsense" }, -EPROTO, "" },
		{ { "!nonsense" }, -EPROTO, "" },
		{ { "!{}", "!{}" }, -EPROTO, "closed " },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(buf_done) struct buf seen;
		int r = play(cases[i].messages, &seen);

		if (r != cases[i].r)
			TEST_FAIL("case %zu: got %d, want %d", i, r, cases[i].r);
		ASSERT_BYTES(buf_str(&seen), cases[i].seen);
	}
}

TEST(signals_are_known_by_their_words)
{
	ASSERT_EQ(process_signal_of(STR("killed")), 9);
	ASSERT_EQ(process_signal_of(STR("segmentation fault (core dumped)")), 11);
	ASSERT_EQ(process_signal_of(STR("terminated")), 15);
	ASSERT_EQ(process_signal_of(STR("signal 35")), 35);
	ASSERT_EQ(process_signal_of(STR("signal 350")), 0);
	ASSERT_EQ(process_signal_of(STR("")), 0);
	ASSERT_EQ(process_signal_of(STR("sneezed")), 0);
}
