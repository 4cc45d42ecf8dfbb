#include "guest/multipart.h"

#include "test.h"

struct seen {
	struct buf text;
};

static int on_begin(void *arg, const struct multipart_part *part, struct err *e)
{
	struct seen *s = arg;

	if (str_is(part->name, "refuse"))
		return err_set(e, -EISDIR, "no");
	buf_printf(&s->text, "[%.*s|%.*s]", STR_ARG(part->name), STR_ARG(part->filename));
	return 0;
}

static int on_data(void *arg, struct str bytes, struct err *e)
{
	struct seen *s = arg;

	(void)e;
	buf_add_str(&s->text, bytes);
	return 0;
}

static int on_end(void *arg, struct err *e)
{
	struct seen *s = arg;

	(void)e;
	buf_adds(&s->text, ";");
	return 0;
}

static const struct multipart_ops ops = { on_begin, on_data, on_end };

#define PART(disposition) "Content-Disposition: form-data; " disposition "\r\n\r\n"

static const struct {
	const char *body, *want; /* want NULL: refused */
} cases[] = {
	{ "--XX\r\n" PART("name=\"file\"; filename=\"a/b.txt\"") "hello\r\n--XX--\r\n",
		"[file|a/b.txt]hello;" },
	{ "--XX\r\n" PART("name=file; filename=a") "\r\n--XX--", "[file|a];" },
	{ "--XX\r\n" PART("name=a") "1\r\n--XX\r\n" PART("name=b") "2\r\n--XX--", "[a|]1;[b|]2;" },
	{ "preamble\r\n--XX \t\r\n" PART("name=a") "1\r\n--XX--epilogue\r\n--XX\r\n", "[a|]1;" },
	{ "--XX\r\n" PART("name=a") "\r\n--X\r\r\n--\r\n\r\n--XX--", "[a|]\r\n--X\r\r\n--\r\n;" },
	{ "--XX\r\nX-Other: 1\r\ncontent-disposition:form-data;name=\"a\"\r\n\r\n1\r\n--XX--",
		"[a|]1;" },
	{ "--XX\r\n\r\n1\r\n--XX--", "[|]1;" },
	{ "--XX\r\n" PART("name=a; filename=\"x%22y\"") "\r\n--XX--", "[a|x%22y];" },
	{ "--XX\r\n" PART("name=a; filename=\"x\\\"y\\z\"") "\r\n--XX--", "[a|x\"y\\z];" },
	{ "--XX\r\n" PART("name=a; filename=plain; filename*=UTF-8''%C3%A4") "\r\n--XX--",
		"[a|\xc3\xa4];" },
	{ "--XX\r\n" PART("name=a; filename=plain; filename*=latin1''%E4") "\r\n--XX--",
		"[a|plain];" },
	{ "--XX--", "" },
	{ "", NULL },
	{ "no boundary at all", NULL },
	{ "--XX\r\n" PART("name=a") "1", NULL },
	{ "--XX\r\n" PART("name=a") "1\r\n--XX", NULL },
	{ "--XXY\r\n" PART("name=a") "1\r\n--XX--", NULL },
	{ "--XX\r\n" PART("name=refuse") "1\r\n--XX--", NULL },
};

static int parse(struct str body, size_t piece, struct seen *seen)
{
	struct multipart m;
	int r = 0;

	multipart_init(&m, "XX", &ops, seen);
	while (body.n && r == 0) {
		size_t n = MIN(piece, body.n);

		r = multipart_feed(&m, str_make(body.p, n), NULL);
		body = str_from(body, n);
	}
	if (r == 0)
		r = multipart_finish(&m, NULL);
	multipart_done(&m);
	return r;
}

TEST(parts_come_out_however_they_are_cut)
{
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		for (size_t piece = 1; piece < 40; piece++) {
			struct seen seen = { BUF_INIT(4096) };
			int r = parse(str_of(cases[i].body), piece, &seen);
			bool fine = cases[i].want
					    ? r == 0 && str_is(buf_str(&seen.text), cases[i].want)
					    : r < 0;

			buf_done(&seen.text);
			if (!fine)
				TEST_FAIL("case %zu cut into %zu: %d", i, piece, r);
		}
}

TEST(headers_of_a_part_have_a_limit)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(1 << 20);
	struct seen seen = { BUF_INIT(4096) };

	buf_adds(&body, "--XX\r\nX: ");
	for (int i = 0; i < MULTIPART_MAX_HEADERS; i++)
		buf_addc(&body, 'x');
	ASSERT_EQ(parse(buf_str(&body), SIZE_MAX, &seen), -EPROTO);
	buf_done(&seen.text);
}

TEST(boundaries_are_read_from_the_content_type)
{
	static const struct {
		const char *type, *want;
	} types[] = {
		{ "multipart/form-data; boundary=abc", "abc" },
		{ "multipart/form-data; charset=x; Boundary=\"a b'c\"", "a b'c" },
		{ "multipart/form-data;boundary=a;x=y", "a" },
		{ "multipart/form-data", NULL },
		{ "multipart/form-data; boundary=", NULL },
		{ "multipart/form-data; boundary=\"", NULL },
		{ "multipart/form-data; boundary=\"a\rb\"", NULL },
		{ "multipart/form-data; "
		  "boundary="
		  "12345678901234567890123456789012345678901234567890123456789012345678901",
			NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		char got[MULTIPART_MAX_BOUNDARY + 1];
		int r = multipart_boundary(str_of(types[i].type), got, NULL);

		ASSERT_EQ(r, types[i].want ? 0 : -EINVAL);
		if (types[i].want)
			ASSERT_STR(got, types[i].want);
	}
}
