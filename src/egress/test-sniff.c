#include "egress/egress-internal.h"

#include "test.h"

/* A hello as clients send it: `name` NULL leaves the extension out. */
static void make_hello(struct buf *out, const char *name, bool twice)
{
	static const char fixed[] = "\3\3"
				    "0123456789abcdef0123456789abcdef"
				    "\0"         /* no session */
				    "\0\2\x13\1" /* one cipher */
				    "\1\0";      /* no compression */
	CLEANUP(buf_done) struct buf ext = BUF_INIT(4096);
	CLEANUP(buf_done) struct buf body = BUF_INIT(4096);
	size_t n = name ? strlen(name) : 0;

	(void)buf_add(&ext, "\x2a\x2a\0\0", 4); /* as those add who keep others tolerant */
	for (int i = 0; name && i < 1 + twice; i++) {
		const char head[9] = { 0, 0, 0, (char)(n + 5), 0, (char)(n + 3), 0, 0, (char)n };

		(void)buf_add(&ext, head, sizeof head);
		(void)buf_adds(&ext, name);
	}
	(void)buf_add(&ext, "\0\x2b\0\3\2\3\4", 7);
	(void)buf_add(&body, fixed, sizeof fixed - 1);
	(void)buf_addc(&body, (char)(ext.n >> 8));
	(void)buf_addc(&body, (char)ext.n);
	(void)buf_add_str(&body, buf_str(&ext));
	(void)buf_addc(out, 1);
	(void)buf_addc(out, 0);
	(void)buf_addc(out, (char)(body.n >> 8));
	(void)buf_addc(out, (char)body.n);
	(void)buf_add_str(out, buf_str(&body));
}

static void add_records(struct buf *out, struct str message, size_t step)
{
	while (message.n > 0) {
		size_t n = MIN(message.n, step);
		const char head[5] = { 22, 3, 1, (char)(n >> 8), (char)n };

		(void)buf_add(out, head, sizeof head);
		(void)buf_add(out, message.p, n);
		message = str_from(message, n);
	}
}

TEST(the_name_is_found_however_the_hello_is_cut)
{
	CLEANUP(buf_done) struct buf hello = BUF_INIT(4096);
	char name[DNS_TEXT_SIZE];

	make_hello(&hello, "WWW.Example.com", false);
	for (size_t step = 1; step <= hello.n; step++) {
		CLEANUP(buf_done) struct buf wire = BUF_INIT(8192);

		add_records(&wire, buf_str(&hello), step);
		for (size_t n = 0; n < wire.n; n++)
			ASSERT_EQ(sniff(str_make(wire.p, n), name), SNIFF_MORE);
		ASSERT_EQ(sniff(buf_str(&wire), name), SNIFF_TLS);
		ASSERT_STR(name, "www.example.com");
	}
}

TEST(a_hello_that_names_nobody_or_two_has_no_name)
{
	static const struct {
		const char *name;
		bool twice;
		const char *want;
	} cases[] = {
		{ NULL, false, "" }, { "example.com.", false, "example.com" },
		{ "example.com", true, "" }, { "exam ple.com", false, "" }, { "a..b", false, "" },
		{ "", false, "" },
		{ "1.2.3.4", false, "1.2.3.4" }, /* a text; that it is no name the policy knows */
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(buf_done) struct buf hello = BUF_INIT(4096);
		CLEANUP(buf_done) struct buf wire = BUF_INIT(8192);
		char name[DNS_TEXT_SIZE];

		make_hello(&hello, cases[i].name, cases[i].twice);
		add_records(&wire, buf_str(&hello), 4096);
		ASSERT_EQ(sniff(buf_str(&wire), name), SNIFF_TLS);
		ASSERT_STR(name, cases[i].want);
	}
}

TEST(bytes_that_only_begin_like_tls_are_not)
{
	static const struct str cases[] = {
		{ "\x16\x03\x01\x00\x00", 5 },                    /* an empty record */
		{ "\x16\x02", 2 },                                /* a version nobody speaks */
		{ "\x16\x03\x01\x00\x05\x02\0\0\1\0", 10 },       /* not a client's hello */
		{ "\x16\x03\x01\xff\xff\x01", 6 },                /* larger than records are */
		{ "\x16\x03\x01\x00\x05\x01\xff\xff\xff\0", 10 }, /* larger than hellos are */
	};
	char name[DNS_TEXT_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (sniff(cases[i], name) != SNIFF_OTHER)
			TEST_FAIL("case %zu", i);
}

TEST(requests_of_http_are_known_by_their_first_line)
{
	static const struct {
		const char *bytes;
		enum sniffed what;
	} cases[] = {
		{ "", SNIFF_MORE },
		{ "G", SNIFF_MORE },
		{ "GET /", SNIFF_MORE },
		{ "GET / HTTP/1.1\r", SNIFF_MORE },
		{ "GET / HTTP/1.1\r\n", SNIFF_HTTP },
		{ "GET / HTTP/1.0\n", SNIFF_HTTP },
		{ "CONNECT evil.example:443 HTTP/1.1\r\n", SNIFF_HTTP },
		{ "GET http://evil.example/ HTTP/1.1\r\nHost: a\r\n", SNIFF_HTTP },
		{ "PRI * HTTP/2.0\r\n", SNIFF_OTHER },
		{ "GET /\r\n", SNIFF_OTHER },
		{ "SSH-2.0-OpenSSH_9.2\r\n", SNIFF_OTHER },
		{ "EHLO me\r\n", SNIFF_OTHER },
		{ "\x05\x01", SNIFF_OTHER },
		{ " GET / HTTP/1.1\r\n", SNIFF_OTHER },
	};
	char name[DNS_TEXT_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (sniff(str_of(cases[i].bytes), name) != cases[i].what)
			TEST_FAIL("'%s'", cases[i].bytes);
}

TEST(a_line_without_end_is_not_waited_for)
{
	static char line[SNIFF_MAX_BYTES];
	char name[DNS_TEXT_SIZE];

	memset(line, 'A', sizeof line);
	line[3] = ' ';
	ASSERT_EQ(sniff(str_make(line, 100), name), SNIFF_MORE);
	ASSERT_EQ(sniff(str_make(line, sizeof line), name), SNIFF_OTHER);
}
