#include "cli/sse.h"

#include "test.h"

static int note(void *arg, const struct sse_event *event, struct err *e)
{
	(void)e;
	(void)buf_printf(arg, "[%.*s/%.*s/%.*s]", STR_ARG(event->name), STR_ARG(event->id),
		STR_ARG(event->data));
	return 0;
}

TEST(events_are_read_as_the_standard_says)
{
	static const struct {
		const char *bytes, *want;
	} cases[] = {
		{ "data: a\n\n", "[//a]" },
		{ "id: 7\ndata: a\n\n", "[/7/a]" },
		{ "event: gap\ndata: {}\n\n", "[gap//{}]" },
		{ "data:a\r\ndata:b\r\n\r\n", "[//a\nb]" },
		{ "data: a\r\rdata: b\r\r", "[//a][//b]" },
		{ ": hb\n\nretry: 1000\n\n", "" },
		{ "data\n\n", "[//]" },
		{ "id: 1\n\ndata: x\n\n", "[/1/][//x]" },
		{ "data: not whole\n", "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		for (size_t step = 1; step < 4; step++) {
			CLEANUP(buf_done) struct buf got = BUF_INIT(4096);
			CLEANUP(sse_done) struct sse s;
			struct str rest = str_of(cases[i].bytes);
			struct err e = { 0 };

			sse_init(&s, note, &got);
			for (; rest.n; rest = str_from(rest, step))
				ASSERT_EQ(sse_feed(&s, str_make(rest.p, MIN(step, rest.n)), &e), 0);
			ASSERT_STR(buf_str(&got).p, cases[i].want);
		}
}

TEST(an_event_has_a_ceiling_and_half_of_one_is_forgotten)
{
	CLEANUP(buf_done) struct buf got = BUF_INIT(4096), big = BUF_INIT(8 << 20);
	CLEANUP(sse_done) struct sse s;
	struct err e = { 0 };

	sse_init(&s, note, &got);
	ASSERT_EQ(sse_feed(&s, STR("id: 3\ndata: lost"), &e), 0);
	sse_reset(&s);
	ASSERT_EQ(sse_feed(&s, STR("data: kept\n\n"), &e), 0);
	ASSERT_STR(got.p, "[//kept]");
	for (int i = 0; i < 5 << 20; i++)
		(void)buf_addc(&big, 'x');
	ASSERT_EQ(sse_feed(&s, buf_str(&big), &e), -EPROTO);
}
