#include "connect/connect.h"

#include "test.h"

/* Frames as text: "flags:payload;" each. */
static int note_frame(void *arg, unsigned flags, struct str payload, struct err *e)
{
	struct buf *seen = arg;

	if (str_is(payload, "stop"))
		return err_set(e, -ECANCELED, "stopped");
	buf_printf(seen, "%u:%.*s;", flags, STR_ARG(payload));
	return 0;
}

/* Feeds the bytes in pieces of `step`, then the end of the body. */
static int read_in_steps(struct str bytes, size_t step, size_t max_bytes, struct buf *seen,
	struct err *e)
{
	CLEANUP(connect_reader_done) struct connect_reader reader;
	int r = 0;

	connect_reader_init(&reader, max_bytes);
	for (size_t at = 0; r >= 0 && at < bytes.n; at += step)
		r = connect_reader_feed(&reader, str_make(bytes.p + at, MIN(step, bytes.n - at)),
			note_frame, seen, e);
	return r < 0 ? r : connect_reader_finish(&reader, e);
}

struct split_case {
	struct str bytes;
	int result;
	const char *frames;
};

static void check_split(const struct split_case *c, size_t step)
{
	CLEANUP(buf_done) struct buf seen = BUF_INIT(1024);

	ASSERT_EQ(read_in_steps(c->bytes, step, 8, &seen, NULL), c->result);
	ASSERT_BYTES(buf_str(&seen), c->frames);
}

TEST(frames_come_out_the_same_however_they_are_split)
{
	static const struct split_case cases[] = {
		{ STR(""), 0, "" },
		{ STR("\0\0\0\0\0"), 0, "0:;" },
		{ STR("\0\0\0\0\2{}"), 0, "0:{};" },
		{ STR("\0\0\0\0\2{}\0\0\0\0\3abc\2\0\0\0\2{}"), 0, "0:{};0:abc;2:{};" },
		{ STR("\0\0\0\0\2{"), -EPROTO, "" },                /* cut in the payload */
		{ STR("\0\0\0"), -EPROTO, "" },                     /* cut in the head */
		{ STR("\0\0\0\0\1a\1\0\0\0\1b"), -EPROTO, "0:a;" }, /* compressed */
		{ STR("\4\0\0\0\1b"), -EPROTO, "" },                /* a flag nobody knows */
		{ STR("\0\0\0\0\1a\0\0\0\0\24too long for eight."), -EMSGSIZE, "0:a;" },
		{ STR("\0\xff\xff\xff\xff"), -EMSGSIZE, "" },
		{ STR("\0\0\0\0\1a\0\0\0\0\4stop\0\0\0\0\1b"), -ECANCELED, "0:a;" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		for (size_t step = 1; step <= cases[i].bytes.n + 1; step++)
			check_split(&cases[i], step);
}

TEST(a_frame_as_long_as_the_limit_is_read_and_one_more_byte_is_not)
{
	static const struct str frame = STR("\0\0\0\0\4abcd");
	CLEANUP(buf_done) struct buf seen = BUF_INIT(1024);
	struct err e;

	ASSERT_EQ(read_in_steps(frame, 1, 4, &seen, &e), 0);
	ASSERT_EQ(read_in_steps(frame, 1, 3, &seen, &e), -EMSGSIZE);
	ASSERT_STR(e.msg, "message of 4 bytes, the limit is 3");
}

static int end_reader(void *arg, unsigned flags, struct str payload, struct err *e)
{
	(void)flags;
	connect_reader_done(arg);
	return payload.p[0] == 'x' ? err_set(e, -EPIPE, "gone") : 0;
}

TEST(a_callback_that_fails_may_have_ended_the_reader)
{
	struct connect_reader *reader = XNEW(struct connect_reader);

	connect_reader_init(reader, 64);
	ASSERT_EQ(connect_reader_feed(reader, STR("\0\0\0"), end_reader, reader, NULL), 0);
	ASSERT_EQ(connect_reader_feed(reader, STR("\0\1x\0\0\0\0\1y"), end_reader, reader, NULL),
		-EPIPE);
	free(reader);
}

TEST(memory_of_a_large_frame_is_given_back)
{
	enum {
		SIZE = 1 << 20
	};
	CLEANUP(connect_reader_done) struct connect_reader reader;
	CLEANUP(buf_done) struct buf bytes = BUF_INIT(2 << 20), seen = BUF_INIT(2 << 20);
	size_t mark = connect_frame_begin(&bytes);

	ASSERT(buf_reserve(&bytes, SIZE));
	memset(bytes.p + bytes.n, 'a', SIZE);
	bytes.n += SIZE;
	connect_frame_end(&bytes, mark, 0);
	connect_reader_init(&reader, SIZE);
	ASSERT_EQ(connect_reader_feed(&reader, str_make(bytes.p, 100), note_frame, &seen, NULL), 0);
	ASSERT_EQ(connect_reader_feed(&reader, str_from(buf_str(&bytes), 100), note_frame, &seen,
			  NULL),
		0);
	ASSERT_EQ(seen.n, SIZE + 3);
	ASSERT_EQ(reader.held.cap, 0);
}

TEST(a_written_frame_is_read_back)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(1024), seen = BUF_INIT(1024);
	size_t mark;

	mark = connect_frame_begin(&out);
	buf_adds(&out, "{\"event\":{}}");
	connect_frame_end(&out, mark, 0);
	connect_end_ok(&out);
	ASSERT_EQ(read_in_steps(buf_str(&out), 3, 64, &seen, NULL), 0);
	ASSERT_BYTES(buf_str(&seen), "0:{\"event\":{}};2:{};");
}

TEST(errors_are_written_as_the_clients_read_them)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(1024), seen = BUF_INIT(1024);

	connect_end_error(&out, CONNECT_NOT_FOUND, "no \"x\"");
	ASSERT_EQ(read_in_steps(buf_str(&out), 1, 256, &seen, NULL), 0);
	ASSERT_BYTES(buf_str(&seen),
		"2:{\"error\":{\"code\":\"not_found\",\"message\":\"no \\\"x\\\"\"}};");

	buf_clear(&out);
	connect_error_body(&out, CONNECT_INTERNAL, NULL);
	ASSERT_BYTES(buf_str(&out), "{\"code\":\"internal\"}");
}

TEST(a_full_buffer_fails_once_and_says_so)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(8);

	connect_end_error(&out, CONNECT_UNKNOWN, "longer than the ceiling");
	ASSERT(out.failed);
}

TEST(codes_have_the_protocols_names_and_statuses)
{
	static const struct {
		const char *name;
		int http;
	} cases[] = { { "canceled", 499 }, { "unknown", 500 }, { "invalid_argument", 400 },
		{ "deadline_exceeded", 504 }, { "not_found", 404 }, { "already_exists", 409 },
		{ "permission_denied", 403 }, { "resource_exhausted", 429 },
		{ "failed_precondition", 400 }, { "aborted", 409 }, { "out_of_range", 400 },
		{ "unimplemented", 501 }, { "internal", 500 }, { "unavailable", 503 },
		{ "data_loss", 500 }, { "unauthenticated", 401 } };
	enum connect_code code;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		ASSERT_EQ(connect_code_parse(str_of(cases[i].name), &code), 0);
		ASSERT_EQ(code, i);
		ASSERT_STR(connect_code_name(code), cases[i].name);
		ASSERT_EQ(connect_code_http(code), cases[i].http);
	}
	ASSERT_EQ(connect_code_parse(STR("NOT_FOUND"), &code), -ENOENT);
	ASSERT_EQ(connect_code_parse(STR(""), &code), -ENOENT);
}

TEST(errno_values_map_to_what_the_sdks_tell_apart)
{
	static const struct {
		int err_code;
		enum connect_code code;
	} cases[] = { { -ENOENT, CONNECT_NOT_FOUND }, { -EEXIST, CONNECT_ALREADY_EXISTS },
		{ -EINVAL, CONNECT_INVALID_ARGUMENT }, { -EACCES, CONNECT_PERMISSION_DENIED },
		{ -ENOSPC, CONNECT_RESOURCE_EXHAUSTED }, { -ELOOP, CONNECT_FAILED_PRECONDITION },
		{ -ETIMEDOUT, CONNECT_DEADLINE_EXCEEDED }, { -ECANCELED, CONNECT_CANCELED },
		{ -EOPNOTSUPP, CONNECT_UNIMPLEMENTED }, { -EXDEV, CONNECT_INTERNAL },
		{ -EIO, CONNECT_INTERNAL } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		ASSERT_EQ(connect_code_of(cases[i].err_code), cases[i].code);
}
