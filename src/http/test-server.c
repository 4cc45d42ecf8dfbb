#include "test-handlers.h"
#include "test.h"

#include <sys/un.h>

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
			TEST_FAIL("sent:\n%s\ngot:\n%s\nwant: %s", talks[i].send, got,
				talks[i].want);
	}
}

TEST(good_requests_are_answered)
{
	static const struct talk talks[] = {
		{ "GET / HTTP/1.1\r\n" HOST "\r\n",
			"HTTP/1.1 200 OK\r\n*Content-Length: 2\r\n\r\nhi" },
		{ "\r\nGET / HTTP/1.1\r\n" HOST "\r\n", "200 OK" },
		{ "GET / HTTP/1.0\r\n\r\n", "200 OK*Connection: close\r\n*hi" },
		{ "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
			"Connection: keep-alive\r\n*hi" },
		{ "GET / HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n",
			"Connection: close\r\n*hi" },
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
		{ "GET /headers HTTP/1.1\r\n" HOST "\r\n",
			"Content-Length: 2\r\nX-Good: 1\r\n\r\nok" },
		{ "GET /peer HTTP/1.1\r\n" HOST "\r\n", "\r\n\r\n127.0.0.1:" },
		{ "GET /wait HTTP/1.1\r\n" HOST "\r\n", "later" },
	};
	RIG;

	check_talks(&rig, talks, ARRAY_SIZE(talks));
}

TEST(bodies_are_read_however_they_are_framed)
{
	static const struct talk talks[] = {
		{ "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello",
			"\r\n\r\nhello" },
		{ "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n",
			"Content-Length: 0\r\n" },
		{ "POST /echo HTTP/1.1\r\n" HOST "\r\n", "Content-Length: 0\r\n" },
		{ "POST /echo HTTP/1.1\r\n" HOST
		  "Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x\r\nllo\r\n0\r\nA: b\r\n\r\n",
			"\r\n\r\nhello" },
		{ "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 100001\r\n\r\n",
			"413 *Connection: close" },
		{ "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\nhello",
			"400 *Connection: close*bad body" },
		{ "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n-5\r\nhello",
			"400 *Connection: close" },
		/* unread, small: the next request is still understood */
		{ "POST / HTTP/1.1\r\n" HOST
		  "Content-Length: 5\r\n\r\nhelloGET /describe HTTP/1.1\r\n" HOST "\r\n",
			"hi*GET|/describe" },
		{ "POST / HTTP/1.1\r\n" HOST
		  "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
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
		{ "GET / HTTP/1.1\r\n" HOST
		  "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
			400 },
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
		if (!strstr(got, want) || !strstr(got, "Connection: close") ||
			strstr(got, "describe"))
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

	ASSERT(say(fd,
		"POST / HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n"));
	(void)hear(fd, got, sizeof got, "hi");
	ASSERT(!strstr(got, "100 Continue"));
	ASSERT(strstr(got, "Connection: close"));
	(void)shutdown(fd, SHUT_WR);
	ASSERT_EQ(heard_end(fd), 1);
}

TEST(unix_sockets_work_and_stale_ones_are_replaced)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	char address[sizeof to.sun_path + 8], got[1024];
	cleanup_close int listener = -EBADF, fd = -EBADF;

	(void)snprintf(to.sun_path, sizeof to.sun_path, "/tmp/test-http-%d", (int)getpid());
	(void)snprintf(address, sizeof address, "unix:%s", to.sun_path);
	{
		cleanup_close int stale = http_listen(address, NULL);

		ASSERT(stale >= 0);
		ASSERT_EQ(http_listen(address, NULL), -EADDRINUSE);
	}
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

TEST(whoever_is_dismissed_gets_nothing_more)
{
	static const struct {
		const char *how, *want, *never;
		int gone;
	} cases[] = {
		{ "answered", "answer", "x", 0 },
		{ "waiting", "", "answer", 0 },
		{ "stream", "4\r\nhalf\r\n0\r\n\r\n", "x", 1 },
		{ "deaf-stream", "", "0\r\n\r\n", 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		RIG;
		DIAL;
		char request[128], got[1024];

		(void)snprintf(request, sizeof request,
			"GET /dismiss?%s HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n",
			cases[i].how);
		ASSERT(say(fd, request));
		(void)hear(fd, got, sizeof got, NULL);
		if (!strstr(got, cases[i].want) || strstr(got, cases[i].never))
			TEST_FAIL("%s: %s", cases[i].how, got);
		ASSERT(becomes(&rig.closed, 1));
		ASSERT_EQ(atomic_load(&rig.gone), cases[i].gone);
	}
}

TEST(addresses_are_understood_or_refused)
{
	static const char *const good[] = { "127.0.0.1:0", "[::1]:0", "localhost:0", ":0" };
	static const char *const bad[] = { "", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536",
		"::1:80x", "example.org:80", "[::1:80", "unix:" };

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

	a = ask(rig.port,
		&(struct http_request){ "POST", "/echo", "a", NULL, STR("abc"), 10, 2000 });
	ASSERT(a.r == 0 && a.status == 200 && a.times == 1);
	ASSERT_STR(a.body, "abc");
	a = ask(rig.port,
		&(struct http_request){ "GET", "/chunks", NULL, "X: y\r\n", STR_NONE, 10, 0 });
	ASSERT(a.r == 0 && a.status == 200);
	ASSERT_STR(a.body, "onetwo");
	a = ask(rig.port,
		&(struct http_request){ "HEAD", "/chunks", "a", NULL, STR_NONE, 10, 2000 });
	ASSERT(a.r == 0 && a.status == 200);
	a = ask(rig.port, &(struct http_request){ "GET", "/chunks", "a", NULL, STR_NONE, 3, 2000 });
	ASSERT_EQ(a.r, -EMSGSIZE);
	a = ask(rig.port, &(struct http_request){ "GET", "/break", "a", NULL, STR_NONE, 10, 2000 });
	ASSERT_EQ(a.r, -ECONNRESET);
	a = ask(rig.port, &(struct http_request){ "GET", "/hold", "a", NULL, STR_NONE, 10, 100 });
	ASSERT_EQ(a.r, -ETIMEDOUT);
}

static void close_and_answer(void *arg, struct http_exchange *x)
{
	struct rig *rig = arg;

	http_server_close(rig->server);
	http_reply(x, 200, NULL, STR("closing"));
}

/* What replaces a server under load relies on it: nobody is refused, and nobody who got in is cut.
 */
TEST(closed_it_serves_who_is_in_and_leaves_the_others_to_the_next)
{
	const char *request = "GET / HTTP/1.1\r\n" HOST "\r\n";
	cleanup_close int kept = http_listen("127.0.0.1:0", NULL), in = -EBADF, first = -EBADF,
			  late = -EBADF;
	int port = socket_port(kept);
	char got[1024];

	{
		CLEANUP(rig_stop) struct rig rig = { 0 };

		ASSERT(rig_start(&rig, NULL, close_and_answer));
		ASSERT_EQ(http_server_take_listener(rig.server, dup(kept), NULL), 0);
		in = dial(port);
		ASSERT(say(in, "G")); /* accepted, and has not said yet what it wants */
		(void)poll(NULL, 0, 50);
		first = dial(port);
		ASSERT(say(first, request));
		(void)hear(first, got, sizeof got, NULL);
		ASSERT(strstr(got, "Connection: close") && strstr(got, "closing"));
		ASSERT_EQ(http_server_newcomers(rig.server), 1);
		late = dial(port);
		ASSERT(late >= 0 && say(late, request));
		ASSERT(say(in, request + 1));
		(void)hear(in, got, sizeof got, NULL);
		ASSERT(strstr(got, "Connection: close") && strstr(got, "closing"));
		ASSERT_EQ(poll(&(struct pollfd){ .fd = late, .events = POLLIN }, 1, 50), 0);
	}
	{
		RIG;
		ASSERT_EQ(http_server_take_listener(rig.server, TAKE_FD(kept), NULL), 0);
		(void)hear(late, got, sizeof got, "hi");
		ASSERT(strstr(got, "200 OK"));
	}
}
