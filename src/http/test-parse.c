#include "http/http-internal.h"
#include "test.h"

#define HOST "Host: a\r\n"

struct parsed {
	int found, status;
	struct head head;
	struct field fields[8];
};

static struct parsed parse(const char *text, bool request)
{
	struct parsed p = { 0 };
	struct head_scan scan = { 0 };
	size_t end = 0;

	p.found = head_find_end(str_of(text), 512, &scan, &end);
	if (p.found <= 0)
		return p;
	if (request)
		p.status = head_parse_request(str_make(text, end), p.fields, 8, &p.head);
	else
		p.status = head_parse_response(str_make(text, end), p.fields, 8, &p.head);
	return p;
}

TEST(requests_are_accepted_or_refused_with_a_status)
{
	static const struct {
		const char *text;
		int status;
	} cases[] = {
		{ "GET / HTTP/1.1\r\n" HOST "\r\n", 0 },
		{ "GET / HTTP/1.0\r\n\r\n", 0 },
		{ "GET /\xc3\xa9?q=1 HTTP/1.1\r\n" HOST "\r\n", 0 },
		{ "OPTIONS * HTTP/1.1\r\n" HOST "\r\n", 0 },
		{ "GET http://a/p HTTP/1.1\r\n" HOST "\r\n", 0 },
		{ "GET http://b/p HTTP/1.1\r\n" HOST "\r\n", 400 },
		{ "GET http://a HTTP/1.1\r\n" HOST "\r\n", 400 },
		{ "GET ftp://a/ HTTP/1.1\r\n" HOST "\r\n", 400 },
		{ "GET p HTTP/1.1\r\n" HOST "\r\n", 400 },
		{ "GET * HTTP/1.1\r\n" HOST "\r\n", 400 },
		{ "GET /a#b HTTP/1.1\r\n" HOST "\r\n", 400 },
		{ "GET /a b HTTP/1.1\r\n" HOST "\r\n", 400 },
		{ "GET  / HTTP/1.1\r\n" HOST "\r\n", 400 },
		{ "GET / HTTP/1.1 \r\n" HOST "\r\n", 400 },
		{ "GET /\r\n" HOST "\r\n", 400 },
		{ "GET / http/1.1\r\n" HOST "\r\n", 400 },
		{ "GET / HTTP/2.0\r\n" HOST "\r\n", 505 },
		{ "GET / HTTP/1.2\r\n" HOST "\r\n", 505 },
		{ "CONNECT a:80 HTTP/1.1\r\n" HOST "\r\n", 501 },
		{ "G{T / HTTP/1.1\r\n" HOST "\r\n", 400 },
		{ "GET / HTTP/1.1\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\n" HOST HOST "\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 0 },
		{ "GET / HTTP/1.1\r\n" HOST "A : b\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\n" HOST "A\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\n" HOST ": b\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\n" HOST "A: b\r\n c\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\n" HOST "A: b\rc\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\n" HOST "A: b\x01\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\n" HOST "A: b\x7f\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\n" HOST "A: \r\n\r\n", 0 },
		{ "GET / HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\n", 0 },
		{ "GET / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\n" HOST "Content-Length: 5, 5\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\n" HOST "Content-Length: +5\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\n" HOST "Content-Length: -5\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\n" HOST "Content-Length: 0x5\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\n" HOST "Content-Length: 9999999999999999999\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", 0 },
		{ "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", 501 },
		{ "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n", 501 },
		{ "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: identity\r\n\r\n", 501 },
		{ "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\n" HOST
		  "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
			400 },
		{ "GET / HTTP/1.1\r\n" HOST
		  "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
			400 },
		{ "GET / HTTP/1.1\r\n" HOST "Expect: magic\r\n\r\n", 417 },
		{ "GET / HTTP/1.1\r\n" HOST
		  "A:1\r\nB:1\r\nC:1\r\nD:1\r\nE:1\r\nF:1\r\nG:1\r\nH:1\r\n\r\n",
			431 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct parsed p = parse(cases[i].text, true);

		if (p.found != 1 || p.status != cases[i].status)
			TEST_FAIL("%s: got %d, want %d", cases[i].text,
				p.found == 1 ? p.status : p.found, cases[i].status);
	}
}

TEST(the_end_of_a_head_is_found_or_refused_early)
{
	static const struct {
		const char *text;
		int found;
	} cases[] = {
		{ "", 0 },
		{ "GET / HT", 0 },
		{ "GET / HTTP/1.1\r\n", 0 },
		{ "GET / HTTP/1.1\r\n\r\nrest", 1 },
		{ "\r\n", 1 },
		{ "GET / HTTP/1.1\n\n", -EBADMSG },
		{ "GET / HTTP/1.1\r\nA: b\n", -EBADMSG },
		{ "\n", -EBADMSG },
		{ " GET", -EBADMSG },
		{ "\x16\x03\x01", -EBADMSG },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (parse(cases[i].text, true).found != cases[i].found)
			TEST_FAIL("%s: got %d", cases[i].text, parse(cases[i].text, true).found);
}

TEST(an_oversized_head_is_refused_before_its_end)
{
	char text[600];

	memset(text, 'a', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	ASSERT_EQ(parse(text, true).found, -EMSGSIZE);
}

TEST(a_request_says_what_it_wants)
{
	struct parsed p =
		parse("POST /a?b HTTP/1.1\r\nhost: x:1\r\nConnection: keep-alive, Upgrade\r\n"
		      "Upgrade: websocket\r\ncontent-length: 12\r\nExpect: 100-Continue\r\n\r\n",
			true);

	ASSERT_EQ(p.status, 0);
	ASSERT_BYTES(str_make(p.head.base, p.head.method_n), "POST");
	ASSERT_BYTES(str_make(p.head.base + p.head.target, p.head.target_n), "/a?b");
	ASSERT_BYTES(head_get(&p.head, STR("HOST")), "x:1");
	ASSERT_EQ(p.head.length, 12);
	ASSERT(p.head.keep_alive && p.head.upgrade && p.head.expect && !p.head.chunked);
	ASSERT(head_get(&p.head, STR("absent")).p == NULL);
}

TEST(keeping_the_connection_follows_version_and_field)
{
	ASSERT(parse("GET / HTTP/1.1\r\n" HOST "\r\n", true).head.keep_alive);
	ASSERT(!parse("GET / HTTP/1.1\r\n" HOST "Connection: x, Close\r\n\r\n", true)
			.head.keep_alive);
	ASSERT(!parse("GET / HTTP/1.0\r\n\r\n", true).head.keep_alive);
	ASSERT(parse("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true).head.keep_alive);
}

TEST(replies_are_parsed_or_refused)
{
	static const struct {
		const char *text;
		int status; /* of the head; 0: refused */
	} cases[] = {
		{ "HTTP/1.1 200 OK\r\n\r\n", 200 },
		{ "HTTP/1.1 200 \r\n\r\n", 200 },
		{ "HTTP/1.0 404\r\n\r\n", 404 },
		{ "HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", 101 },
		{ "HTTP/1.1 99 No\r\n\r\n", 0 },
		{ "HTTP/1.1 2000 No\r\n\r\n", 0 },
		{ "HTTP/1.1 -20 No\r\n\r\n", 0 },
		{ "HTTP/2 200 OK\r\n\r\n", 0 },
		{ "HTTP/1.1 200 O\x01K\r\n\r\n", 0 },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 0 },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct parsed p = parse(cases[i].text, false);

		if (p.found != 1 || p.head.status != cases[i].status)
			TEST_FAIL("%s: got %d", cases[i].text, p.head.status);
	}
}

struct decoded {
	char text[64];
	size_t n;
	bool done, bad;
};

static struct decoded decode(const char *text)
{
	struct str in = str_of(text), piece;
	struct decoded d = { 0 };
	struct body body;

	body_start_chunked(&body);
	while (in.n > 0 && !body_is_done(&body)) {
		ssize_t n = body_next(&body, in, &piece);

		if (n < 0) {
			d.bad = true;
			return d;
		}
		if (piece.n > 0)
			memcpy(d.text + d.n, piece.p, piece.n);
		d.n += piece.n;
		in = str_from(in, (size_t)n);
	}
	d.done = body_is_done(&body);
	return d;
}

TEST(chunked_bodies_are_decoded)
{
	ASSERT_STR(decode("5\r\nhello\r\n0\r\n\r\n").text, "hello");
	ASSERT_STR(decode("5;a=b\r\nhello\r\nA\r\n0123456789\r\n00\r\nX: y\r\n\r\n").text,
		"hello0123456789");
	ASSERT(decode("5\r\nhello\r\n0\r\n\r\n").done);
	ASSERT(!decode("5\r\nhello\r\n0\r\n").done);
}

TEST(bad_chunks_are_refused)
{
	static const char *const cases[] = { "\r\n", "g\r\n", "-5\r\nhello\r\n", "+5\r\n", " 5\r\n",
		"5 \r\nhello", "5\nhello", "0x5\r\n", ";a\r\n", "5\rhello", "5\r\nhelloX",
		"5\r\nhello\n", "5\r\nhello\r5", "1000000000000000\r\n", "ffffffffffffffffff\r\n",
		"5;a\x01\r\n", "5;a\nb\r\n", "0\r\nX\r\n\r\n", "0\r\n X: y\r\n\r\n",
		"0\r\nX: y\n\r\n", "0\r\n\n", "0\r\n\rX", "0\r\nX : y\r\n\r\n" };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (!decode(cases[i]).bad)
			TEST_FAIL("accepted: %s", cases[i]);
}

TEST(endless_extensions_and_trailers_are_refused)
{
	static char extension[10000] = "5;", trailer[10000] = "0\r\nX:";

	memset(extension + 2, 'a', sizeof extension - 3);
	ASSERT(decode(extension).bad);
	memset(trailer + 5, 'a', sizeof trailer - 6);
	ASSERT(decode(trailer).bad);
}
