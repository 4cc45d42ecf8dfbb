#include "connect/connect.h"

#include "test.h"

static const struct proto_name color_names[] = { { "COLOR_NONE", 0 }, { "COLOR_RED", 1 },
	{ "COLOR_ODD", -2 } };
static const struct proto_enum colors = PROTO_ENUM_OF(color_names);
static const struct proto_message item;
static const struct proto_field item_fields[] = {
	{ 1, "a", PROTO_UINT32 },
	{ 2, "b", PROTO_STRING },
	{ 3, "c", PROTO_MESSAGE, .message = &item },
	{ 4, "d", PROTO_UINT32, .is_repeated = true },
	{ 5, "e", PROTO_STRING, .is_repeated = true },
	{ 6, "flag", PROTO_BOOL },
	{ 7, "long", PROTO_INT64 },
	{ 8, "sint", PROTO_SINT32 },
	{ 9, "color", PROTO_ENUM, .values = &colors },
	{ 10, "data", PROTO_BYTES },
	{ 11, "at", PROTO_TIMESTAMP },
	{ 12, "map", PROTO_STRING_MAP },
	{ 13, "x", PROTO_STRING, .oneof = 1 },
	{ 14, "y", PROTO_MESSAGE, .oneof = 1, .message = &item },
	{ 15, "items", PROTO_MESSAGE, .is_repeated = true, .message = &item },
};
static const struct proto_message item = PROTO_MESSAGE_OF(item_fields);

struct pair {
	struct str bytes;
	const char *json;
};

static void check_to_json(const struct pair *c)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(4096);
	struct err e = { 0 };

	ASSERT_EQ(proto_to_json(&item, c->bytes, &out, &e), 0);
	ASSERT_BYTES(buf_str(&out), c->json);
}

static void check_from_json(const struct pair *c)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(4096);
	struct err e = { 0 };

	ASSERT_EQ(proto_from_json(&item, str_of(c->json), &out, &e), 0);
	ASSERT(str_eq(buf_str(&out), c->bytes));
}

/* The first six are those of protobuf's own description of its encoding. */
TEST(bytes_and_json_say_the_same)
{
	static const struct pair cases[] = {
		{ STR("\x08\x96\x01"), "{\"a\":150}" },
		{ STR("\x12\x07testing"), "{\"b\":\"testing\"}" },
		{ STR("\x1a\x03\x08\x96\x01"), "{\"c\":{\"a\":150}}" },
		{ STR("\x22\x06\x03\x8e\x02\x9e\xa7\x05"), "{\"d\":[3,270,86942]}" },
		{ STR("\x2a\x01"
		      "1\x2a\x01"
		      "2\x2a\x01"
		      "3"),
			"{\"e\":[\"1\",\"2\",\"3\"]}" },
		{ STR("\x38\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "{\"long\":\"-2\"}" },
		{ STR(""), "{}" },
		{ STR("\x08\xff\xff\xff\xff\x0f"), "{\"a\":4294967295}" },
		{ STR("\x30\x01"), "{\"flag\":true}" },
		{ STR("\x38\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
			"{\"long\":\"9223372036854775807\"}" },
		{ STR("\x40\x01"), "{\"sint\":-1}" },
		{ STR("\x40\xfe\xff\xff\xff\x0f"), "{\"sint\":2147483647}" },
		{ STR("\x40\xff\xff\xff\xff\x0f"), "{\"sint\":-2147483648}" },
		{ STR("\x48\x01"), "{\"color\":\"COLOR_RED\"}" },
		{ STR("\x48\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
			"{\"color\":\"COLOR_ODD\"}" },
		{ STR("\x48\x07"), "{\"color\":7}" },
		{ STR("\x52\x03\x00\xff\x10"), "{\"data\":\"AP8Q\"}" },
		{ STR("\x52\x00"), "{\"data\":\"\"}" },
		{ STR("\x5a\x04\x08\x00\x10\x00"), "{\"at\":\"1970-01-01T00:00:00Z\"}" },
		{ STR("\x5a\x0c\x08\xc5\x8a\x94\xd1\x06\x10\x80\xca\xb5\xee\x01"),
			"{\"at\":\"2026-06-07T05:44:37.500Z\"}" },
		{ STR("\x62\x06\x0a\x01k\x12\x01v\x62\x05\x0a\x01l\x12\x00"),
			"{\"map\":{\"k\":\"v\",\"l\":\"\"}}" },
		{ STR("\x72\x00"), "{\"y\":{}}" },
		{ STR("\x7a\x02\x08\x01\x7a\x00\x7a\x02\x08\x02"),
			"{\"items\":[{\"a\":1},{},{\"a\":2}]}" },
		{ STR("\x12\x08\"\\\n\x01\xe2\x82\xac/"), "{\"b\":\"\\\"\\\\\\n\\u0001€/\"}" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		check_to_json(&cases[i]);
		check_from_json(&cases[i]);
	}
}

/* Other ways of writing the same that a sender may choose. */
TEST(what_may_be_sent_in_other_ways_is_understood)
{
	static const struct pair cases[] = {
		{ STR("\x08\x01\x08\x02"), "{\"a\":2}" },              /* the last one counts */
		{ STR("\x08\x96\x81\x80\x00"), "{\"a\":150}" },        /* longer than needed */
		{ STR("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), /* 64 bits for 32 */
			"{\"a\":4294967295}" },
		{ STR("\x20\x03\x20\x8e\x02"), "{\"d\":[3,270]}" }, /* not packed */
		{ STR("\x20\x03\x22\x02\x01\x02\x08\x09\x20\x04"),  /* mixed and spread */
			"{\"a\":9,\"d\":[3,1,2,4]}" },
		{ STR("\x22\x00"), "{}" },                                  /* packed, and empty */
		{ STR("\x12\x01x\x08\x05"), "{\"a\":5,\"b\":\"x\"}" },      /* in another order */
		{ STR("\x1a\x02\x08\x01\x1a\x03\x12\x01x\x1a\x02\x08\x02"), /* in parts */
			"{\"c\":{\"a\":2,\"b\":\"x\"}}" },
		{ STR("\x6a\x01s\x72\x02\x08\x01"), "{\"y\":{\"a\":1}}" }, /* one of two */
		{ STR("\x72\x02\x08\x01\x6a\x01s"), "{\"x\":\"s\"}" },
		{ STR("\x72\x02\x08\x01\x6a\x01s\x72\x03\x12\x01z"), "{\"y\":{\"b\":\"z\"}}" },
		{ STR("\x62\x00"), "{\"map\":{\"\":\"\"}}" },
		{ STR("\x30\x02"), "{\"flag\":true}" },
		{ STR("\x98\x06\x01\xa2\x06\x02xy\xa9\x06zzzzzzzz\xad\x06yyyy\x08\x01"),
			"{\"a\":1}" },              /* unknown fields */
		{ STR("\x0a\x01x\x10\x01"), "{}" }, /* of another wire type */
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		check_to_json(&cases[i]);
}

TEST(json_is_read_as_the_mapping_allows)
{
	static const struct pair cases[] = {
		{ STR("\x08\x01"), " { \"a\" : \"1\" , \"nobody\" : [ {\"a\":[1.5e3,\"]\"]} ] } " },
		{ STR(""), "{\"a\":null,\"c\":null,\"d\":null,\"map\":null}" },
		{ STR("\x38\x05"), "{\"long\":5}" },
		{ STR("\x48\x01"), "{\"color\":1}" },
		{ STR(""), "{\"e\":[],\"items\":[],\"map\":{}}" },
		{ STR("\x12\x0d/\b\f\r\t\xc3\xa9\xf0\x9f\x98\x80\xc2\x80"),
			"{\"b\":\"\\/\\b\\f\\r\\t\\u00e9\\uD83D\\uDE00\\u0080\"}" },
		{ STR("\x52\x02\xfb\xff"), "{\"data\":\"-_8\"}" },
		{ STR("\x5a\x05\x08\x01\x10\xc0\x0c"),
			"{\"at\":\"1970-01-01T00:00:01.000001600Z\"}" },
		{ STR("\x30\x00"), "{\"flag\":false}" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		check_from_json(&cases[i]);
}

TEST(bytes_that_are_no_message_are_refused)
{
	static const struct str cases[] = {
		STR("\x08"),                                             /* no value */
		STR("\x08\x80"),                                         /* cut */
		STR("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"),     /* more than 64 bits */
		STR("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), /* more than ten bytes */
		STR("\x12\x02x"),                                        /* shorter than it says */
		STR("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x"),    /* longer than memory */
		STR("\x00\x01"),                                         /* field zero */
		STR("\xf8\xff\xff\xff\x1f\x01"),                         /* field 2^30 */
		STR("\x0b\x0c"),                                         /* a group */
		STR("\x0e"),                                             /* wire type 6 */
		STR("\x09zzzzzzz"),                                      /* seven bytes of eight */
		STR("\x12\x01\xff"),                                     /* not UTF-8 */
		STR("\x12\x01\x00"),                                     /* NUL: no name has one */
		STR("\x62\x03\x0a\x01\xff"), STR("\x22\x02\x01\x80"),    /* cut within the list */
		STR("\x1a\x02\x08\x80"), STR("\x5a\x02\x10\x80"),
		STR("\x5a\x06\x10\x80\x94\xeb\xdc\x03"),     /* 10^9 nanoseconds */
		STR("\x5a\x07\x08\x80\x83\xd1\xff\xaf\x07"), /* the year 10000 */
	};
	CLEANUP(buf_done) struct buf out = BUF_INIT(4096);

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err e = { 0 };

		if (proto_to_json(&item, cases[i], &out, &e) != -EINVAL)
			TEST_FAIL("case %zu was taken", i);
		ASSERT(e.msg[0]);
	}
}

TEST(json_of_another_shape_is_refused)
{
	static const char *const cases[] = {
		"",
		"[]",
		"{",
		"{}}",
		"{\"a\"}",
		"{\"a\":}",
		"{\"a\":1,,\"b\":\"\"}",
		"{\"a\":1 2}",
		"{\"a\":-1}",
		"{\"a\":4294967296}",
		"{\"a\":1.5}",
		"{\"a\":true}",
		"{\"a\":{}}",
		"{\"b\":1}",
		"{\"b\":\"x}",
		"{\"b\":\"\\x\"}",
		"{\"b\":\"\\u12\"}",
		"{\"b\":\"\\ud800\"}",
		"{\"b\":\"\\udc00\"}",
		"{\"b\":\"\\\"}",
		"{\"c\":[]}",
		"{\"d\":1}",
		"{\"d\":[1}",
		"{\"e\":[null]}",
		"{\"flag\":1}",
		"{\"color\":\"RED\"}",
		"{\"data\":\"!\"}",
		"{\"at\":\"2026-02-30T00:00:00Z\"}",
		"{\"at\":\"2026-01-01T00:00:00\"}",
		"{\"at\":\"2026-01-01T00:00:00.1234567890Z\"}",
		"{\"at\":\"2026-01-01T24:00:00Z\"}",
		"{\"at\":\"2026-01-01T00:00:00.Z\"}",
		"{\"map\":[]}",
		"{\"map\":{\"a\":1}}",
		"{\"nobody\":}",
		"{\"nobody\":[}",
	};
	CLEANUP(buf_done) struct buf out = BUF_INIT(4096);

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err e = { 0 };

		if (proto_from_json(&item, str_of(cases[i]), &out, &e) != -EINVAL)
			TEST_FAIL("'%s' was taken", cases[i]);
		ASSERT(e.msg[0]);
	}
}

/* A message in a message in a message ..., `depth` of them, the innermost empty. */
static void add_nested(struct buf *out, unsigned depth)
{
	for (unsigned inner = depth - 1; inner > 0; inner--) {
		(void)buf_addc(out, 0x1a);
		(void)buf_addc(out, (char)(2 * (inner - 1)));
	}
}

TEST(messages_nest_as_deep_as_json_may_and_no_deeper)
{
	for (unsigned depth = PROTO_MAX_DEPTH; depth <= PROTO_MAX_DEPTH + 1; depth++) {
		CLEANUP(buf_done)
		struct buf bytes = BUF_INIT(4096), json = BUF_INIT(4096), back = BUF_INIT(4096);
		int want = depth > PROTO_MAX_DEPTH ? -EINVAL : 0;

		add_nested(&bytes, depth);
		ASSERT_EQ(proto_to_json(&item, buf_str(&bytes), &json, NULL), want);
		buf_clear(&json);
		for (unsigned i = 1; i < depth; i++)
			buf_adds(&json, "{\"c\":");
		buf_adds(&json, "{}");
		for (unsigned i = 1; i < depth; i++)
			buf_adds(&json, "}");
		ASSERT_EQ(proto_from_json(&item, buf_str(&json), &back, NULL), want);
		ASSERT(want < 0 || str_eq(buf_str(&back), buf_str(&bytes)));
	}
}

TEST(what_is_larger_than_its_ceiling_is_refused)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(16);

	ASSERT_EQ(proto_to_json(&item, STR("\x12\x14twenty characters..."), &out, NULL), -ENOBUFS);
	buf_done(&out);
	ASSERT_EQ(proto_from_json(&item, STR("{\"b\":\"twenty characters...\"}"), &out, NULL),
		-ENOBUFS);
}

/* One, two and three bytes of length: what was written must move to make room. */
TEST(long_values_keep_their_bytes)
{
	static const size_t sizes[] = { 127, 128, 129, 16383, 16384, 100000 };

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		CLEANUP(buf_done)
		struct buf json = BUF_INIT(1 << 20), bytes = BUF_INIT(1 << 20),
			   back = BUF_INIT(1 << 20);

		buf_adds(&json, "{\"c\":{\"c\":{\"b\":\"");
		for (size_t n = 0; n < sizes[i]; n++)
			buf_addc(&json, (char)('a' + n % 26));
		buf_adds(&json, "\"}}}");
		ASSERT_EQ(proto_from_json(&item, buf_str(&json), &bytes, NULL), 0);
		ASSERT(bytes.n > sizes[i] && bytes.n <= sizes[i] + 12);
		ASSERT_EQ(proto_to_json(&item, buf_str(&bytes), &back, NULL), 0);
		ASSERT(str_eq(buf_str(&back), buf_str(&json)));
	}
}
