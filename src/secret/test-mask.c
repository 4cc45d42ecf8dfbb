#include "secret/mask.h"

#include "test.h"

static struct mask_needles *needles_of(const char *const *values)
{
	struct mask_needles *n = mask_needles_new();

	for (int i = 0; values[i]; i++) {
		char name[2] = { (char)('A' + i), 0 };

		if (mask_needles_add(n, str_of(name), str_of(values[i]), NULL) < 0)
			return mask_needles_unref(n);
	}
	return n;
}

static const struct {
	const char *values[4];
	const char *in, *out;
} cases[] = {
	{ { "hunter2" }, "the word is hunter2.", "the word is [secret:A]." },
	{ { "hunter2" }, "hunter2", "[secret:A]" },
	{ { "hunter2" }, "hunter hunter2hunter2 hunter", "hunter [secret:A][secret:A] hunter" },
	{ { "hunter2" }, "hunterhunter2", "hunter[secret:A]" },
	{ { "abcd", "abcdefgh" }, "abcdefg", "[secret:A]efg" },
	{ { "abcd", "abcdefgh" }, "abcdefgh!", "[secret:B]!" },
	{ { "abcdefgh", "cdef" }, "abcdefg", "ab[secret:B]g" },
	{ { "abcdef", "defxyz" }, "abcdefxyz!", "[secret:A]!" },
	{ { "aaaa" }, "aaaaaaaaab", "[secret:A]b" },
	{ { "abcabc" }, "abcabcabc-abc", "[secret:A]-abc" },
	/* as programs encode it: base64 alone, within a longer text, and in URLs */
	{ { "s3cr3t/+?" }, "czNjcjN0Lys/", "[secret:A]" },
	{ { "s3cr3t-value" }, "x=a2V5PXMzY3IzdC12YWx1ZQo=", "x=a2V5PX[secret:A]Qo=" },
	{ { "p w/d?&" }, "q=p%20w%2Fd%3F%26 p+w%2fd%3f%26", "q=[secret:A] [secret:A]" },
	/* a key of several lines, within JSON and as a shell would echo it */
	{ { "-key-\na\"b\\c\n-end-\n" }, "{\"k\":\"-key-\\na\\\"b\\\\c\\n-end-\\n\"}",
		"{\"k\":\"[secret:A]\"}" },
	{ { "-key-\nabc\n" }, "-key-\nabc -key-\nabc\n.", "[secret:A] [secret:A]." },
	{ { "hunter2" }, "", "" },
	{ { NULL }, "nothing to hide", "nothing to hide" },
};

TEST(masks_the_same_at_every_split)
{
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(mask_needles_unrefp) struct mask_needles *n = needles_of(cases[i].values);
		struct str in = str_of(cases[i].in);

		ASSERT(n);
		for (size_t at = 0; at <= in.n; at++) {
			CLEANUP(mask_stream_freep) struct mask_stream *m = mask_stream_new(n);
			CLEANUP(buf_done) struct buf out = BUF_INIT(4096);

			ASSERT_EQ(mask_stream_feed(m, str_make(in.p, at), &out), 0);
			ASSERT_EQ(mask_stream_feed(m, str_from(in, at), &out), 0);
			ASSERT_EQ(mask_stream_end(m, &out), 0);
			ASSERT_BYTES(buf_str(&out), cases[i].out);
		}
	}
}

TEST(masks_the_same_when_taken_up_by_another)
{
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(mask_needles_unrefp) struct mask_needles *n = needles_of(cases[i].values);
		struct str in = str_of(cases[i].in);

		for (size_t at = 0; at <= in.n; at++) {
			CLEANUP(mask_stream_freep) struct mask_stream *m = mask_stream_new(n);
			CLEANUP(mask_stream_freep) struct mask_stream *next = mask_stream_new(n);
			CLEANUP(buf_done) struct buf out = BUF_INIT(4096);

			ASSERT_EQ(mask_stream_feed(m, str_make(in.p, at), &out), 0);
			ASSERT_EQ(mask_stream_restore(next, mask_stream_held(m),
					  mask_stream_covered(m)),
				0);
			ASSERT_EQ(mask_stream_feed(next, str_from(in, at), &out), 0);
			ASSERT_EQ(mask_stream_end(next, &out), 0);
			ASSERT_BYTES(buf_str(&out), cases[i].out);
		}
	}
}

TEST(holds_back_only_what_may_become_a_secret)
{
	static const char *const values[] = { "hunter2", NULL };
	CLEANUP(mask_needles_unrefp) struct mask_needles *n = needles_of(values);
	CLEANUP(mask_stream_freep) struct mask_stream *m = mask_stream_new(n);
	CLEANUP(buf_done) struct buf out = BUF_INIT(4096);

	ASSERT_EQ(mask_stream_feed(m, STR("name? hunt"), &out), 0);
	ASSERT_BYTES(buf_str(&out), "name? ");
	ASSERT_BYTES(mask_stream_held(m), "hunt");
	ASSERT_EQ(mask_stream_feed(m, STR("ing"), &out), 0);
	ASSERT_BYTES(buf_str(&out), "name? hunting");
	ASSERT_EQ(mask_stream_held(m).n, 0);
	ASSERT_EQ(mask_stream_feed(m, STR("hunter2"), &out), 0);
	ASSERT_BYTES(buf_str(&out), "name? hunting[secret:A]");
}

TEST(refuses_what_is_too_short_to_mask)
{
	CLEANUP(mask_needles_unrefp) struct mask_needles *n = mask_needles_new();
	struct err e = { 0 };

	ASSERT_EQ(mask_needles_add(n, STR("PIN"), STR("123"), &e), -EINVAL);
	ASSERT(strstr(e.msg, "PIN") && !strstr(e.msg, "123"));
	ASSERT_EQ(mask_needles_add(n, STR("PIN"), STR("1234"), &e), 0);
}

TEST(large_values_cost_a_step_a_byte)
{
	CLEANUP(mask_needles_unrefp) struct mask_needles *n = mask_needles_new();
	CLEANUP(buf_done) struct buf out = BUF_INIT(64 << 20);
	cleanup_free char *value = XNEW_N(char, (64 << 10) + 1);
	cleanup_free char *text = XNEW_N(char, 8 << 20);
	int64_t began_us;

	/* The worst there is: everything is nearly the secret all the time. */
	memset(value, 'a', 64 << 10);
	value[(64 << 10) - 1] = 'b';
	memset(text, 'a', 8 << 20);
	ASSERT_EQ(mask_needles_add(n, STR("BIG"), str_of(value), NULL), 0);
	began_us = time_now_us();
	ASSERT_EQ(mask_text(n, str_make(text, 8 << 20), &out), 0);
	ASSERT_EQ(out.n, 8 << 20);
	ASSERT(time_now_us() - began_us < 20 * 1000 * 1000);
	text[(8 << 20) - 1] = 'b';
	buf_clear(&out);
	ASSERT_EQ(mask_text(n, str_make(text, 8 << 20), &out), 0);
	ASSERT_EQ(out.n, (8 << 20) - (64 << 10) + strlen("[secret:BIG]"));
}

TEST(refuses_more_than_it_can_hold)
{
	CLEANUP(mask_needles_unrefp) struct mask_needles *n = mask_needles_new();
	cleanup_free char *value = XNEW_N(char, 64 << 10);
	int r = 0;

	for (int i = 0; r == 0 && i < 100; i++) {
		random_bytes(value, 64 << 10);
		r = mask_needles_add(n, STR("BIG"), str_make(value, 64 << 10), NULL);
	}
	ASSERT_EQ(r, -E2BIG);
}
