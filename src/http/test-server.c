#include "test-rig.h"
#include "test.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/un.h>

#define HOST "Host: a\r\n"

/* ---- handlers ---- */

static void echo_done(void *arg, int r, struct str body)
{
	struct http_exchange *x = arg;

	if (r == -E2BIG)
		http_reply(x, 413, NULL, STR("too big"));
	else if (r == -EPROTO)
		http_reply(x, 400, NULL, STR("bad body"));
	else if (r < 0)
		http_abort(x);
	else
		http_reply(x, 200, "text/plain", body);
}

static void count_piece(void *arg, int r, struct str bytes)
{
	struct http_exchange *x = arg;
	struct rig *rig = http_data(x);
	char text[32];

	if (bytes.n > 0) {
		atomic_fetch_add(&rig->body_bytes, (long)bytes.n);
		return;
	}
	atomic_fetch_add(&rig->bodies, 1);
	(void)snprintf(text, sizeof text, "%ld", atomic_load(&rig->body_bytes));
	if (r < 0)
		http_abort(x);
	else
		http_reply(x, 200, NULL, str_of(text));
}

static void on_gone(void *arg)
{
	struct http_exchange *x = arg;
	struct rig *rig = http_data(x);

	atomic_fetch_add(&rig->gone, 1);
	http_abort(x);
}

struct flood {
	struct http_exchange *x;
	int left;
};

static void flood_more(void *arg)
{
	static const char piece[65536];
	struct flood *flood = arg;
	struct rig *rig = http_data(flood->x);

	while (flood->left > 0) {
		flood->left--;
		atomic_fetch_add(&rig->body_bytes, sizeof piece);
		if (!http_write(flood->x, str_make(piece, sizeof piece)) && flood->left > 0)
			return;
	}
	http_end(flood->x);
}

static void flood(struct http_exchange *x)
{
	struct flood *flood = arena_alloc(http_arena(x), sizeof *flood);

	*flood = (struct flood){ x, 1024 };
	http_on_drain(x, flood_more, flood);
	http_begin(x, 200, NULL, -1);
	flood_more(flood);
}

struct later {
	struct loop_timer timer;
	struct http_exchange *x;
};

static void reply_later(void *arg)
{
	struct later *later = arg;

	http_reply(later->x, 200, NULL, STR("later"));
}

static void wait_ms(struct http_exchange *x, int64_t ms)
{
	struct later *later = arena_alloc(http_arena(x), sizeof *later);

	later->x = x;
	loop_timer_init(&later->timer, http_loop(x), reply_later, later);
	loop_timer_set(&later->timer, loop_now_ms(http_loop(x)) + ms);
}

static void send_file(struct http_exchange *x)
{
	int fd = memfd_create("file", MFD_CLOEXEC);

	(void)!write(fd, "0123456789", 10);
	http_begin(x, 200, NULL, 4);
	http_take_file(x, fd, 3, 4);
}

static void switch_protocol(struct http_exchange *x)
{
	struct buf rest = BUF_INIT(1024);
	int fd = http_detach(x, &rest);

	(void)fd_set_nonblock(fd, false);
	(void)fd_write_all(fd, "raw:", 4);
	(void)fd_write_all(fd, rest.p, rest.n);
	(void)close(fd);
	buf_done(&rest);
}

static void describe(struct http_exchange *x)
{
	char *text = arena_printf(http_arena(x), "%.*s|%.*s|%.*s|%.*s|%.*s", STR_ARG(http_method(x)),
		STR_ARG(http_path(x)), STR_ARG(http_query(x)), STR_ARG(http_query_value(x, "a b")),
		STR_ARG(http_header(x, "x-y")));

	http_reply(x, 200, NULL, str_of(text));
}

static void handle(void *arg, struct http_exchange *x)
{
	struct str path = http_path(x);

	http_set_data(x, arg);
	if (str_is(path, "/echo")) {
		http_read_body(x, 100000, echo_done, x);
	} else if (str_is(path, "/count")) {
		http_stream_body(x, count_piece, x);
	} else if (str_is(path, "/flood")) {
		flood(x);
	} else if (str_is(path, "/hold")) {
		http_on_gone(x, on_gone, x);
	} else if (str_is(path, "/hold-stream")) {
		http_on_gone(x, on_gone, x);
		http_sse_begin(x);
	} else if (str_is(path, "/wait")) {
		wait_ms(x, 50);
	} else if (str_is(path, "/file")) {
		send_file(x);
	} else if (str_is(path, "/detach")) {
		switch_protocol(x);
	} else if (str_is(path, "/describe")) {
		describe(x);
	} else if (str_is(path, "/empty")) {
		http_reply(x, 204, NULL, STR(""));
	} else if (str_is(path, "/peer")) {
		http_reply(x, 200, NULL, http_peer(x));
	} else if (str_is(path, "/headers")) {
		http_add_header(x, "X-Good", STR("1"));
		http_add_header(x, "X-Bad", STR("1\r\nEvil: 1"));
		http_add_header(x, "Content-Length", STR("7"));
		http_reply(x, 200, NULL, STR("ok"));
	} else if (str_is(path, "/chunks")) {
		http_begin(x, 200, "text/plain", -1);
		(void)http_write(x, STR("one"));
		(void)http_write(x, STR("two"));
		http_end(x);
	} else if (str_is(path, "/sse")) {
		http_sse_begin(x);
		(void)http_sse_send(x, "tick", "7", STR("a\nb\r"));
		http_end(x);
	} else if (str_is(path, "/break")) {
		http_begin(x, 200, NULL, -1);
		(void)http_write(x, STR("half"));
		http_abort(x);
	} else {
		http_reply(x, 200, "text/plain", STR("hi"));
	}
}

#define RIG_WITH(limits) \
	CLEANUP(rig_stop) struct rig rig = { 0 }; \
	ASSERT(rig_start(&rig, limits, handle))
#define RIG RIG_WITH(NULL)
#define DIAL cleanup_close int fd = dial(rig.port)

/* ---- the simple ways ---- */

struct talk {
	const char *send, *want; /* want: in this order, separated by '*' */
};

static bool has_in_order(const char *text, const char *want)
{
	struct str rest = str_of(want), part;
	char one[256];

	while (str_split(&rest, '*', &part)) {
		(void)snprintf(one, sizeof one, "%.*s", STR_ARG(part));
		text = strstr(text, one);
		if (!text)
			return false;
		text += strlen(one);
	}
	return true;
}

/* Sends all, shuts the sending side, reads to the end: a half-closed client gets its replies. */
static void check_talks(struct rig *rig, const struct talk *talks, size_t n)
{
	char got[4096];

	for (size_t i = 0; i < n; i++) {
		cleanup_close int fd = dial(rig->port);

		(void)say(fd, talks[i].send);
		(void)shutdown(fd, SHUT_WR);
		(void)hear(fd, got, sizeof got, NULL);
		if (!has_in_order(got, talks[i].want))
			TEST_FAIL("sent:\n%s\ngot:\n%s\nwant: %s", talks[i].send, got, talks[i].want);
	}
}

TEST(good_requests_are_answered)
{
	static const struct talk talks[] = {
		{ "GET / HTTP/1.1\r\n" HOST "\r\n", "HTTP/1.1 200 OK\r\n*Content-Length: 2\r\n\r\nhi" },
		{ "\r\nGET / HTTP/1.1\r\n" HOST "\r\n", "200 OK" },
		{ "GET / HTTP/1.0\r\n\r\n", "200 OK*Connection: close\r\n*hi" },
		{ "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "Connection: keep-alive\r\n*hi" },
		{ "GET / HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n", "Connection: close\r\n*hi" },
		{ "HEAD / HTTP/1.1\r\n" HOST "\r\n", "Content-Length: 2\r\n\r\n" },
		{ "GET /empty HTTP/1.1\r\n" HOST "\r\n", "204 No Content\r\n" },
		{ "GET /chunks HTTP/1.1\r\n" HOST "\r\n",
			"chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n" },
		{ "GET /chunks HTTP/1.0\r\n\r\n", "Connection: close\r\n\r\nonetwo" },
		{ "GET /sse HTTP/1.1\r\n" HOST "\r\n",
			"text/event-stream*event: tick\nid: 7\ndata: a\ndata: b\n\n*0\r\n\r\n" },
		{ "GET /file HTTP/1.1\r\n" HOST "\r\n", "Content-Length: 4\r\n\r\n3456" },
		{ "HEAD /file HTTP/1.1\r\n" HOST "\r\nGET / HTTP/1.1\r\n" HOST "\r\n",
			"Content-Length: 4\r\n\r\nHTTP/1.1 200" },
		{ "GET /detach HTTP/1.1\r\n" HOST "\r\nrest", "raw:rest" },
		{ "GET /describe?a+b=c%20d HTTP/1.1\r\n" HOST "X-Y:  z \r\n\r\n",
			"\r\n\r\nGET|/describe|a+b=c%20d|c d|z" },
		{ "GET http://a/describe HTTP/1.1\r\n" HOST "\r\n", "GET|/describe||" },
		{ "GET /headers HTTP/1.1\r\n" HOST "\r\n", "Content-Length: 2\r\nX-Good: 1\r\n\r\nok" },
		{ "GET /peer HTTP/1.1\r\n" HOST "\r\n", "\r\n\r\n127.0.0.1:" },
		{ "GET /wait HTTP/1.1\r\n" HOST "\r\n", "later" },
	};
	RIG;

	check_talks(&rig, talks, ARRAY_SIZE(talks));
}

TEST(bodies_are_read_however_they_are_framed)
{
	static const struct talk talks[] = {
		{ "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello", "\r\n\r\nhello" },
		{ "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", "Content-Length: 0\r\n" },
		{ "POST /echo HTTP/1.1\r\n" HOST "\r\n", "Content-Length: 0\r\n" },
		{ "POST /echo HTTP/1.1\r\n" HOST
		  "Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x\r\nllo\r\n0\r\nA: b\r\n\r\n",
			"\r\n\r\nhello" },
		{ "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 100001\r\n\r\n", "413 *Connection: close" },
		{ "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\nhello",
			"400 *Connection: close*bad body" },
		{ "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n-5\r\nhello",
			"400 *Connection: close" },
		/* unread, small: the next request is still understood */
		{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhelloGET /describe HTTP/1.1\r\n" HOST
		  "\r\n",
			"hi*GET|/describe" },
		{ "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
		  "GET /describe HTTP/1.1\r\n" HOST "\r\n",
			"hi*GET|/describe" },
		/* unread, large: refused to go on */
		{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 10000000\r\n\r\nhello",
			"Connection: close\r\n*hi" },
	};
	RIG;

	check_talks(&rig, talks, ARRAY_SIZE(talks));
}

TEST(pipelined_requests_are_answered_in_order)
{
	static const struct talk talks[] = {
		{ "GET /wait HTTP/1.1\r\n" HOST "\r\nPOST /echo HTTP/1.1\r\n" HOST
		  "Content-Length: 3\r\n\r\nabcGET /chunks HTTP/1.1\r\n" HOST
		  "\r\nGET /describe HTTP/1.1\r\n" HOST "\r\n",
			"later*abc*one*GET|/describe" },
	};
	RIG;

	check_talks(&rig, talks, ARRAY_SIZE(talks));
}

TEST(ambiguous_requests_are_refused_and_the_connection_closed)
{
	static const struct {
		const char *text;
		int status;
	} cases[] = {
		{ "GET / HTTP/1.1\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\n" HOST HOST "\r\n", 400 },
		{ "GET / HTTP/1.1\nHost: a\n\n", 400 },
		{ "GET / HTTP/1.1\r\n" HOST "A: b\r\n c\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip\r\n\r\n", 501 },
		{ "GET / HTTP/2.0\r\n\r\n", 505 },
		{ "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505 },
		{ "CONNECT a:1 HTTP/1.1\r\n" HOST "\r\n", 501 },
		{ "GET / HTTP/1.1\r\n" HOST "Expect: x\r\n\r\n", 417 },
		{ "\x16\x03\x01\x02", 400 },
		{ "\r\n\r\n\r\n\r\n\r\n\r\n", 400 },
	};
	RIG;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		DIAL;
		char got[1024], want[16];

		(void)say(fd, cases[i].text);
		(void)say(fd, "GET /describe HTTP/1.1\r\n" HOST "\r\n"); /* must not be answered */
		(void)hear(fd, got, sizeof got, NULL);
		(void)snprintf(want, sizeof want, "HTTP/1.1 %d ", cases[i].status);
		if (!strstr(got, want) || !strstr(got, "Connection: close") || strstr(got, "describe"))
			TEST_FAIL("sent:\n%s\ngot:\n%s\nwant: %s", cases[i].text, got, want);
	}
}

TEST(a_head_that_is_too_large_is_refused)
{
	struct http_limits limits = { .head_bytes = 1024, .max_headers = 4 };
	RIG_WITH(&limits);
	char text[2048], got[1024];

	(void)snprintf(text, sizeof text, "GET / HTTP/1.1\r\n" HOST "A: %01500d\r\n\r\n", 1);
	{
		DIAL;
		ASSERT(say(fd, text));
		ASSERT(strstr(hear(fd, got, sizeof got, NULL), " 431 "));
	}
	{
		DIAL;
		ASSERT(say(fd, "GET / HTTP/1.1\r\n" HOST "A:1\r\nB:1\r\nC:1\r\nD:1\r\n\r\n"));
		ASSERT(strstr(hear(fd, got, sizeof got, NULL), " 431 "));
	}
}

TEST(a_request_may_come_byte_by_byte)
{
	const char *text = "POST /echo HTTP/1.1\r\n" HOST
			   "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
			   "GET / HTTP/1.1\r\n" HOST "\r\n";
	char got[1024];
	RIG;
	DIAL;

	for (const char *p = text; *p; p++) {
		ASSERT_EQ(send(fd, p, 1, MSG_NOSIGNAL), 1);
		(void)poll(NULL, 0, 1);
	}
	ASSERT(strstr(hear(fd, got, sizeof got, "hi"), "\r\n\r\nabcHTTP/1.1 200"));
}

TEST(a_client_that_leaves_inside_a_head_is_forgotten)
{
	char got[1024];
	RIG;
	DIAL;

	ASSERT(say(fd, "GET / HTTP/1.1\r\n"));
	(void)poll(NULL, 0, 20);
	(void)shutdown(fd, SHUT_WR);
	ASSERT_STR(hear(fd, got, sizeof got, NULL), "");
}

TEST(continue_is_said_when_the_handler_wants_the_body)
{
	char got[1024];
	RIG;
	DIAL;

	ASSERT(say(fd, "POST /echo HTTP/1.1\r\n" HOST
		       "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n"));
	ASSERT_STR(hear(fd, got, sizeof got, "\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
	ASSERT(say(fd, "abc"));
	ASSERT(strstr(hear(fd, got, sizeof got, "abc"), "200 OK"));
}

TEST(continue_is_not_said_when_nobody_wants_the_body)
{
	char got[1024];
	RIG;
	DIAL;

	ASSERT(say(fd, "POST / HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n"));
	(void)hear(fd, got, sizeof got, "hi");
	ASSERT(!strstr(got, "100 Continue"));
	ASSERT(strstr(got, "Connection: close"));
	(void)shutdown(fd, SHUT_WR);
	ASSERT_EQ(heard_end(fd), 1);
}

/* ---- large and slow ---- */

TEST(a_large_upload_streams)
{
	static char piece[65536];
	char got[1024];
	RIG;
	DIAL;

	ASSERT(say(fd, "PUT /count HTTP/1.1\r\n" HOST "Content-Length: 67108864\r\n\r\n"));
	for (int i = 0; i < 1024; i++)
		ASSERT_EQ(send(fd, piece, sizeof piece, MSG_NOSIGNAL), sizeof piece);
	ASSERT(strstr(hear(fd, got, sizeof got, "67108864"), "200 OK"));
}

TEST(a_client_that_does_not_read_stops_the_writer)
{
	RIG;
	DIAL;
	long stopped_at;

	ASSERT(say(fd, "GET /flood HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n"));
	do { /* until the writer rests */
		stopped_at = atomic_load(&rig.body_bytes);
		(void)poll(NULL, 0, 100);
	} while (atomic_load(&rig.body_bytes) != stopped_at || stopped_at == 0);
	ASSERT(stopped_at < 32 << 20);
	ASSERT_EQ(heard_end(fd), 1);
	ASSERT_EQ(atomic_load(&rig.body_bytes), 64 << 20);
}

TEST(a_broken_stream_never_ends_cleanly)
{
	char got[1024];
	RIG;
	DIAL;

	ASSERT(say(fd, "GET /break HTTP/1.1\r\n" HOST "\r\n"));
	(void)hear(fd, got, sizeof got, NULL);
	ASSERT(!strstr(got, "0\r\n\r\n"));
}

static long count_to_end(int fd)
{
	char bytes[4096];
	long total = 0;
	ssize_t n;

	while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0)
		total += n;
	return total;
}

TEST(slow_heads_bodies_and_readers_are_cut)
{
	struct http_limits limits = {
		.head_timeout_ms = 100, .idle_timeout_ms = 150, .stall_timeout_ms = 100
	};
	char got[1024];
	RIG_WITH(&limits);

	{ /* half a head */
		DIAL;
		ASSERT(say(fd, "GET / HT"));
		ASSERT(strstr(hear(fd, got, sizeof got, NULL), " 408 "));
	}
	{ /* idle */
		DIAL;
		ASSERT_EQ(heard_end(fd), 1);
	}
	{ /* half a body */
		DIAL;
		ASSERT(say(fd, "POST /count HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nab"));
		ASSERT(becomes(&rig.bodies, 1));
		ASSERT(heard_end(fd) != 0);
	}
	{ /* a reply that nobody reads */
		DIAL;
		ASSERT(say(fd, "GET /flood HTTP/1.1\r\n" HOST "\r\n"));
		(void)poll(NULL, 0, 400);
		ASSERT(count_to_end(fd) < 64 << 20);
	}
	{ /* a handler that waits longer than any of these is not cut */
		DIAL;
		ASSERT(say(fd, "GET /hold HTTP/1.1\r\n" HOST "\r\n"));
		(void)poll(NULL, 0, 400);
		ASSERT_EQ(atomic_load(&rig.gone), 0);
	}
}

TEST(a_client_that_leaves_is_noticed)
{
	struct linger reset = { .l_onoff = 1 };
	RIG;

	{ /* by reset: at once */
		DIAL;
		ASSERT(say(fd, "GET /hold HTTP/1.1\r\n" HOST "\r\n"));
		(void)poll(NULL, 0, 20);
		(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
	}
	ASSERT(becomes(&rig.gone, 1));
	{ /* by close, while a stream is silent */
		DIAL;
		ASSERT(say(fd, "GET /hold-stream HTTP/1.1\r\n" HOST "\r\n"));
		(void)poll(NULL, 0, 20);
	}
	ASSERT(becomes(&rig.gone, 2));
	{ /* in the middle of a body */
		DIAL;
		ASSERT(say(fd, "POST /count HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nab"));
	}
	ASSERT(becomes(&rig.bodies, 1));
}

TEST(the_reply_survives_a_client_that_is_still_sending)
{
	static char piece[65536];
	char got[1024];
	RIG;
	DIAL;

	ASSERT(say(fd, "POST / HTTP/1.1\r\n" HOST "Content-Length: 100000000\r\n\r\n"));
	for (int i = 0; i < 8; i++)
		(void)!send(fd, piece, sizeof piece, MSG_NOSIGNAL);
	ASSERT(strstr(hear(fd, got, sizeof got, NULL), "Connection: close"));
}

/* ---- many, and the end ---- */

TEST(a_full_server_drops_the_longest_idle_first)
{
	struct http_limits limits = { .max_connections = 2 };
	char got[1024];
	RIG_WITH(&limits);
	cleanup_close int first = dial(rig.port), second = -1, third = -1;

	ASSERT(say(first, "GET / HTTP/1.1\r\n" HOST "\r\n"));
	ASSERT(strstr(hear(first, got, sizeof got, "hi"), "200 OK"));
	second = dial(rig.port);
	ASSERT(say(second, "GET /hold HTTP/1.1\r\n" HOST "\r\n"));
	(void)poll(NULL, 0, 20);
	third = dial(rig.port);
	ASSERT(say(third, "GET /hold HTTP/1.1\r\n" HOST "\r\n"));
	ASSERT_EQ(heard_end(first), 1);
	{ /* now both are busy */
		DIAL;
		ASSERT(strstr(hear(fd, got, sizeof got, NULL), " 503 "));
	}
}

TEST(a_server_out_of_descriptors_waits_and_recovers)
{
	struct rlimit before, few;
	char got[1024];
	int dups[64], n = 0, fd;
	RIG;

	(void)getrlimit(RLIMIT_NOFILE, &before);
	few = (struct rlimit){ 64, before.rlim_max };
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	set_wait(fd);
	(void)setrlimit(RLIMIT_NOFILE, &few);
	while (n < 64 && (dups[n] = dup(fd)) >= 0)
		n++;
	(void)connect_to(fd, rig.port);
	(void)say(fd, "GET / HTTP/1.1\r\n" HOST "\r\n");
	(void)poll(NULL, 0, 150);
	while (n > 0)
		(void)close(dups[--n]);
	(void)hear(fd, got, sizeof got, "hi");
	(void)setrlimit(RLIMIT_NOFILE, &before);
	(void)close(fd);
	ASSERT(strstr(got, "200 OK"));
}

TEST(unix_sockets_work_and_stale_ones_are_replaced)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	char address[sizeof to.sun_path + 8], got[1024];
	cleanup_close int stale = -EBADF, listener = -EBADF, fd = -EBADF;

	(void)snprintf(to.sun_path, sizeof to.sun_path, "/tmp/test-http-%d", (int)getpid());
	(void)snprintf(address, sizeof address, "unix:%s", to.sun_path);
	stale = http_listen(address, NULL);
	ASSERT(stale >= 0);
	ASSERT_EQ(http_listen(address, NULL), -EADDRINUSE);
	(void)close(stale);
	stale = -EBADF;
	listener = http_listen(address, NULL);
	ASSERT(listener >= 0);
	{
		RIG;
		ASSERT_EQ(http_server_take_listener(rig.server, TAKE_FD(listener), NULL), 0);
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		set_wait(fd);
		ASSERT_EQ(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
		ASSERT(say(fd, "GET /peer HTTP/1.1\r\n" HOST "\r\n"));
		ASSERT(strstr(hear(fd, got, sizeof got, "unix"), "\r\n\r\nunix"));
		ASSERT(say(fd, "GET /hold HTTP/1.1\r\n" HOST "\r\n"));
		(void)poll(NULL, 0, 20);
		(void)close(TAKE_FD(fd));
		ASSERT(becomes(&rig.gone, 1));
	}
	(void)unlink(to.sun_path);
}

TEST(addresses_are_understood_or_refused)
{
	static const char *const good[] = { "127.0.0.1:0", "[::1]:0", "localhost:0", ":0" };
	static const char *const bad[] = { "", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "::1:80x",
		"example.org:80", "[::1:80", "unix:" };

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		cleanup_close int fd = http_listen(good[i], NULL);

		if (fd < 0 && fd != -EADDRNOTAVAIL && fd != -EAFNOSUPPORT)
			TEST_FAIL("%s: %d", good[i], fd);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct err e = { 0 };

		ASSERT(http_listen(bad[i], &e) < 0);
		ASSERT(e.msg[0] != '\0');
	}
}

struct stopper {
	struct rig *rig;
	struct loop_task task;
	atomic_int done;
	int result;
	int64_t deadline_ms;
};

static void stopped(void *arg, int r, const struct err *e)
{
	struct stopper *s = arg;

	(void)e;
	s->result = r;
	atomic_store(&s->done, 1);
}

static void handle_stop(void *arg, struct http_exchange *x)
{
	struct stopper *s = arg;

	http_set_data(x, s->rig);
	if (str_is(http_path(x), "/stop")) {
		http_server_stop(s->rig->server, loop_now_ms(http_loop(x)) + s->deadline_ms, stopped, s);
		http_reply(x, 200, NULL, STR("stopping"));
	} else if (str_is(http_path(x), "/wait")) {
		wait_ms(x, 100);
	} else {
		http_on_gone(x, on_gone, x);
	}
}

static bool stopper_start(struct rig *rig, struct stopper *s)
{
	int fd = http_listen("127.0.0.1:0", NULL);

	s->rig = rig;
	rig->port = socket_port(fd);
	if (loop_new(&rig->loop, NULL) < 0)
		return false;
	rig->server = http_server_new(rig->loop, NULL, handle_stop, s);
	rig->stop_fd = eventfd(0, EFD_CLOEXEC);
	return http_server_take_listener(rig->server, fd, NULL) == 0 &&
		loop_io_add(rig->loop, &rig->stop_io, rig->stop_fd, EPOLLIN, rig_on_stop, rig, NULL) ==
		0 &&
		pthread_create(&rig->thread, NULL, rig_main, rig) == 0;
}

TEST(stopping_lets_exchanges_finish)
{
	CLEANUP(rig_stop) struct rig rig = { 0 };
	struct stopper s = { .deadline_ms = 3000 };
	cleanup_close int idle = -1, busy = -1, last = -1;
	char got[1024];

	ASSERT(stopper_start(&rig, &s));
	idle = dial(rig.port);
	busy = dial(rig.port);
	last = dial(rig.port);
	ASSERT(say(busy, "GET /wait HTTP/1.1\r\n" HOST "\r\n"));
	(void)poll(NULL, 0, 20);
	ASSERT(say(last, "GET /stop HTTP/1.1\r\n" HOST "\r\n"));
	ASSERT_EQ(heard_end(idle), 1);
	ASSERT(strstr(hear(busy, got, sizeof got, NULL), "Connection: close\r\n\r\nlater"));
	ASSERT(becomes(&s.done, 1));
	ASSERT_EQ(s.result, 0);
	ASSERT(dial(rig.port) < 0);
}

TEST(stopping_cuts_at_its_deadline)
{
	CLEANUP(rig_stop) struct rig rig = { 0 };
	struct stopper s = { .deadline_ms = 100 };
	cleanup_close int busy = -1, last = -1;

	ASSERT(stopper_start(&rig, &s));
	busy = dial(rig.port);
	last = dial(rig.port);
	ASSERT(say(busy, "GET /hold HTTP/1.1\r\n" HOST "\r\n"));
	(void)poll(NULL, 0, 20);
	ASSERT(say(last, "GET /stop HTTP/1.1\r\n" HOST "\r\n"));
	ASSERT(heard_end(busy) != 0);
	ASSERT(becomes(&s.done, 1));
	ASSERT_EQ(s.result, -ETIMEDOUT);
	ASSERT(becomes(&rig.gone, 1));
}

/* ---- our own requests ---- */

struct answer {
	struct loop *loop;
	int r, status;
	char body[64];
	int times;
};

static void answered(void *arg, int r, int status, struct str body, const struct err *e)
{
	struct answer *a = arg;

	(void)e;
	a->r = r;
	a->status = status;
	a->times++;
	(void)snprintf(a->body, sizeof a->body, "%.*s", STR_ARG(body));
	loop_stop(a->loop);
}

static struct answer ask(int port, const struct http_request *request)
{
	CLEANUP(loop_freep) struct loop *loop = NULL;
	struct answer a = { 0 };

	if (loop_new(&loop, NULL) < 0)
		return a;
	a.loop = loop;
	http_request(loop, dial(port), request, answered, &a);
	(void)loop_run(loop, NULL);
	return a;
}

TEST(our_own_requests_are_answered)
{
	RIG;
	struct answer a;

	a = ask(rig.port, &(struct http_request){ "POST", "/echo", "a", NULL, STR("abc"), 10, 2000 });
	ASSERT(a.r == 0 && a.status == 200 && a.times == 1);
	ASSERT_STR(a.body, "abc");
	a = ask(rig.port, &(struct http_request){ "GET", "/chunks", NULL, "X: y\r\n", STR_NONE, 10, 0 });
	ASSERT(a.r == 0 && a.status == 200);
	ASSERT_STR(a.body, "onetwo");
	a = ask(rig.port, &(struct http_request){ "HEAD", "/chunks", "a", NULL, STR_NONE, 10, 2000 });
	ASSERT(a.r == 0 && a.status == 200);
	a = ask(rig.port, &(struct http_request){ "GET", "/chunks", "a", NULL, STR_NONE, 3, 2000 });
	ASSERT_EQ(a.r, -EMSGSIZE);
	a = ask(rig.port, &(struct http_request){ "GET", "/break", "a", NULL, STR_NONE, 10, 2000 });
	ASSERT_EQ(a.r, -ECONNRESET);
	a = ask(rig.port, &(struct http_request){ "GET", "/hold", "a", NULL, STR_NONE, 10, 100 });
	ASSERT_EQ(a.r, -ETIMEDOUT);
}
