#include "json/json.h"

#include "test.h"

TEST(commas_and_nesting)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(4096);
	struct json_pair pairs[] = { { STR("a\"b"), STR("1") }, { STR("c"), STR("") } };
	struct json_map map = { .v = pairs, .n = 2 };
	struct jsonw w;

	jsonw_init(&w, &out);
	jsonw_object(&w, NULL);
	jsonw_int(&w, "int", -7);
	jsonw_array(&w, "list");
	jsonw_object(&w, NULL);
	jsonw_end_object(&w);
	jsonw_array(&w, NULL);
	jsonw_end_array(&w);
	jsonw_str(&w, NULL, STR("x"));
	jsonw_null(&w, NULL);
	jsonw_end_array(&w);
	jsonw_map(&w, "map", &map);
	jsonw_int64_str(&w, "big", INT64_MIN);
	jsonw_bool(&w, "yes", true);
	jsonw_bool(&w, "no", false);
	jsonw_num(&w, "num", 1.005);
	jsonw_strz(&w, "nothing", NULL);
	jsonw_raw(&w, "raw", STR("[1]"));
	jsonw_base64(&w, "bytes", STR("\0\1\xff\xfe"));
	jsonw_base64(&w, "none", STR(""));
	jsonw_end_object(&w);
	ASSERT(!out.failed);
	ASSERT_EQ(w.depth, 0);
	ASSERT_BYTES(buf_str(&out),
		"{\"int\":-7,\"list\":[{},[],\"x\",null],\"map\":{\"a\\\"b\":\"1\",\"c\":\"\"},"
		"\"big\":\"-9223372036854775808\",\"yes\":true,\"no\":false,\"num\":1.00,"
		"\"nothing\":null,\"raw\":[1],\"bytes\":\"AAH//g==\",\"none\":\"\"}");
	ASSERT_EQ(out.p[out.n], 0);
}

TEST(strings_are_escaped_and_always_valid)
{
	static const struct {
		struct str in;
		const char *out;
	} cases[] = {
		{ STR(""), "\"\"" },
		{ STR_NONE, "\"\"" },
		{ STR("plain /text/ <b>"), "\"plain /text/ <b>\"" },
		{ STR("\"\\\b\f\n\r\t"), "\"\\\"\\\\\\b\\f\\n\\r\\t\"" },
		{ STR("\0\x1f\x7f"), "\"\\u0000\\u001f\x7f\"" },
		{ STR("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"),
			"\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"" },
		{ STR("\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf"),
			"\"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\"" },
		{ STR("a\xff"
		      "b"),
			"\"a\xef\xbf\xbd"
			"b\"" },
		{ STR("\xc3"), "\"\xef\xbf\xbd\"" },                 /* cut */
		{ STR("\xc0\xaf"), "\"\xef\xbf\xbd\xef\xbf\xbd\"" }, /* overlong */
		{ STR("\xe0\x80\xaf"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
		{ STR("\xed\xa0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" }, /* surrogate */
		{ STR("\xf4\x90\x80\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
		{ STR("\xe2\x82\n"), "\"\xef\xbf\xbd\xef\xbf\xbd\\n\"" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(buf_done) struct buf out = BUF_INIT(4096);
		struct jsonw w;

		jsonw_init(&w, &out);
		jsonw_str(&w, NULL, cases[i].in);
		ASSERT_BYTES(buf_str(&out), cases[i].out);
		ASSERT(str_is_utf8(buf_str(&out)));
	}
}

TEST(numbers_that_json_cannot_say_become_null)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(4096);
	struct jsonw w;

	jsonw_init(&w, &out);
	jsonw_array(&w, NULL);
	jsonw_num(&w, NULL, 0.0 / 0.0);
	jsonw_num(&w, NULL, 1.0 / 0.0);
	jsonw_num(&w, NULL, -2.5);
	jsonw_end_array(&w);
	ASSERT_BYTES(buf_str(&out), "[null,null,-2.50]");
}

TEST(a_document_past_the_ceiling_is_marked_failed)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(16);
	struct jsonw w;

	jsonw_init(&w, &out);
	jsonw_object(&w, NULL);
	jsonw_base64(&w, "bytes", STR("longer than the ceiling allows"));
	jsonw_str(&w, "more", STR("x"));
	jsonw_end_object(&w);
	ASSERT(out.failed);
	ASSERT(out.n <= 16);
}

TEST(members_of_a_text_are_renamed_and_others_left_out)
{
	static const struct json_rename names[] = { { "allowOut", "allow_out" }, { "b", "b" } };
	static const struct {
		const char *text, *want;
	} cases[] = {
		{ "{}", "{\"k\":{}}" },
		{ "{\"b\":1}", "{\"k\":{\"b\":1}}" },
		{ "{\"allowOut\":[\"a,}\\\"\",\"]\"],\"c\":{\"b\":2},\"b\":{\"allowOut\":[{}]}}",
			"{\"k\":{\"allow_out\":[\"a,}\\\"\",\"]\"],\"b\":{\"allowOut\":[{}]}}}" },
		{ "{\"c\":\"\\\\\",\"b\":null}", "{\"k\":{\"b\":null}}" },
		{ "", "{\"k\":{}}" },
		{ "{\"b", "{\"k\":{}}" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(buf_done) struct buf out = BUF_INIT(4096);
		struct jsonw w;

		jsonw_init(&w, &out);
		jsonw_object(&w, NULL);
		jsonw_members(&w, "k", str_of(cases[i].text), names, ARRAY_SIZE(names));
		jsonw_end_object(&w);
		ASSERT_STR(buf_str(&out).p, cases[i].want);
	}
}

TEST(sixty_deep)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(4096);
	struct jsonw w;

	jsonw_init(&w, &out);
	for (int i = 0; i < 60; i++)
		jsonw_array(&w, NULL);
	for (int i = 0; i < 60; i++)
		jsonw_end_array(&w);
	jsonw_array(&w, NULL);
	ASSERT_EQ(out.n, 122);
	ASSERT_EQ(out.p[120], ',');
}
