#include "test-ends.h"
#include "test.h"

TEST(a_request_is_rewritten_and_its_reply_too)
{
	ENDS;

	ASSERT(pass(&t,
		"GET /p?q HTTP/1.1\r\n" HOST "X-Keep: 1\r\nx-real: me\r\nConnection: x-drop\r\n"
		"X-Drop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nProxy-Authorization: x\r\n\r\n"));
	ASSERT_STR(t.got,
		"GET /p?q HTTP/1.1\r\nHost: a\r\nX-Keep: 1\r\nX-Added: yes\r\nX-Real: gate\r\n"
		"Connection: close\r\n\r\n");
	ASSERT(say(t.upstream,
		"HTTP/1.1 201 Made\r\nX-Up: 1\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n"
		"Content-Length: 5\r\n\r\nhello"));
	ASSERT_STR(client_hears(&t, "hello"),
		"HTTP/1.1 201 Made\r\nX-Up: 1\r\nContent-Length: 5\r\n\r\n"
		"hello");
	ASSERT(becomes(&t.rig.closed, 1));
	ASSERT(say(t.client, "GET /direct HTTP/1.1\r\n" HOST "\r\n")); /* the connection was kept */
	ASSERT(strstr(client_hears(&t, "direct"), "200 OK"));
}

TEST(fields_pass_as_whoever_relays_decides)
{
	ENDS;

	ASSERT(pass(&t,
		"GET /fields HTTP/1.1\r\n" HOST "x-stays: 1\r\nX-Turns: 1\r\nX-Keep: 1\r\n\r\n"));
	ASSERT_STR(t.got, "GET /fields HTTP/1.1\r\nHost: a\r\nX-Turns: turned\r\nX-Keep: "
			  "1\r\nX-Added: yes\r\n"
			  "X-Real: gate\r\nConnection: close\r\n\r\n");
	ASSERT(say(t.upstream,
		"HTTP/1.1 103 Hints\r\nX-Stays: 1\r\nX-Turns: 2\r\n\r\nHTTP/1.1 200 OK\r\n"
		"X-Stays: 1\r\nX-Turns: 1\r\nX-Broken: 1\r\nContent-Length: 2\r\n\r\nhi"));
	ASSERT_STR(client_hears(&t, "hi"),
		"HTTP/1.1 103 Hints\r\nX-Turns: turned\r\n\r\nHTTP/1.1 200 OK\r\nX-Turns: "
		"turned\r\nX-More: 1\r\nContent-Length: 2\r\n\r\nhi");
}

TEST(replies_are_framed_for_the_client)
{
	static const struct {
		const char *request, *reply, *want;
		bool close; /* the upstream, after its reply */
	} cases[] = {
		{ GET,
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: "
			"chunked\r\n\r\n3;x\r\nabc\r\n0\r\nT: v\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
			"3;x\r\nabc\r\n0\r\nT: v\r\n\r\n",
			false },
		{ "GET / HTTP/1.0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: "
			"chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc", false },
		{ GET, "HTTP/1.0 200 OK\r\n\r\nabc",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: "
			"chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
			true },
		{ "GET / HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\nabc",
			"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc", true },
		{ "HEAD / HTTP/1.1\r\n" HOST "\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false },
		{ GET, "HTTP/1.1 204 No\r\n\r\n", "HTTP/1.1 204 No\r\n\r\n", false },
		{ GET, "HTTP/1.1 304 No\r\nContent-Length: 5\r\n\r\n",
			"HTTP/1.1 304 No\r\nContent-Length: 5\r\n\r\n", false },
		{ GET,
			"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: "
			"1\r\n\r\nx",
			"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: "
			"1\r\n\r\nx",
			false },
		{ GET, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nsurplus",
			"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		ENDS;

		ASSERT(pass(&t, cases[i].request));
		ASSERT(say(t.upstream, cases[i].reply));
		if (cases[i].close)
			(void)close(TAKE_FD(t.upstream));
		ASSERT(becomes(&t.rig.closed, 1));
		(void)shutdown(t.client, SHUT_WR);
		ASSERT_STR(client_hears(&t, NULL), cases[i].want);
	}
}

TEST(bad_replies_become_bad_gateway)
{
	static const char *const cases[] = {
		"",
		"SSH-2.0-x\r\n",
		"HTTP/1.1 200 OK\n\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
		"HTTP/1.1 101 No one asked\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Le",
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		ENDS;

		ASSERT(pass(&t, GET));
		ASSERT(say(t.upstream, cases[i]));
		(void)shutdown(t.upstream, SHUT_WR);
		if (!strstr(client_hears(&t, "}"), "HTTP/1.1 502 "))
			TEST_FAIL("%s: got %s", cases[i], t.got);
	}
}

TEST(a_reply_that_breaks_off_cuts_the_client)
{
	static const char *const cases[] = {
		"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n",
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		ENDS;

		ASSERT(pass(&t, GET));
		ASSERT(say(t.upstream, cases[i]));
		ASSERT(strstr(client_hears(&t, "half"), "200 OK"));
		(void)close(TAKE_FD(t.upstream));
		ASSERT(!strstr(client_hears(&t, NULL), "0\r\n\r\n"));
		ASSERT(becomes(&t.rig.closed, 1));
	}
}

TEST(an_http10_reply_that_breaks_off_is_a_reset)
{
	struct linger reset = { .l_onoff = 1 };
	ENDS;

	ASSERT(pass(&t, "GET / HTTP/1.0\r\n\r\n"));
	ASSERT(say(t.upstream, "HTTP/1.1 200 OK\r\n\r\nhalf"));
	ASSERT(strstr(client_hears(&t, "half"), "200 OK"));
	(void)setsockopt(t.upstream, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
	(void)close(TAKE_FD(t.upstream));
	ASSERT_EQ(heard_end(t.client), -ECONNRESET);
}

TEST(what_a_carrier_says_was_cut_is_a_reset_where_the_end_is_all_there_is)
{
	static const struct {
		const char *path, *reply;
		int want;
	} cases[] = {
		{ "/carried", "HTTP/1.1 200 OK\r\n\r\nhalf", 1 },
		{ "/cut", "HTTP/1.1 200 OK\r\n\r\nhalf", -ECONNRESET },
		{ "/cut", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhalf", 1 },
		{ "/cut",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: "
			"chunked\r\n\r\n4\r\nhalf\r\n0\r\n\r\n",
			1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char request[64];
		ENDS;

		(void)snprintf(request, sizeof request, "GET %s HTTP/1.0\r\n\r\n", cases[i].path);
		ASSERT(pass(&t, request));
		ASSERT(say(t.upstream, cases[i].reply));
		ASSERT(strstr(client_hears(&t, "half"), "200 OK"));
		(void)close(TAKE_FD(t.upstream));
		ASSERT_EQ(heard_end(t.client), cases[i].want);
		ASSERT(becomes(&t.rig.closed, 1));
	}
}

TEST(a_refused_connection_gives_the_exchange_back_with_its_body)
{
	ENDS;

	(void)close(TAKE_FD(t.listener));
	ASSERT(say(t.client, "POST / HTTP/1.1\r\n" HOST "Content-Length: 4\r\n\r\nbody"));
	ASSERT(strstr(client_hears(&t, "body"), "503 "));
	ASSERT_EQ(atomic_load(&t.rig.refused), ECONNREFUSED);
	ASSERT_EQ(atomic_load(&t.rig.closed), 0);
}

TEST(a_silent_upstream_is_a_gateway_timeout)
{
	ENDS;

	ASSERT(pass(&t, GET));
	ASSERT(strstr(client_hears(&t, "}"), "504 "));
	ASSERT_EQ(heard_end(t.upstream), 1);
}

TEST(request_bodies_pass_as_they_come)
{
	char got[256];
	ENDS;

	ASSERT(pass(&t,
		"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"));
	ASSERT(strstr(t.got, "Transfer-Encoding: chunked\r\n"));
	ASSERT_STR(hear(t.upstream, got, sizeof got, "abc\r\n"), "3\r\nabc\r\n");
	ASSERT(say(t.client, "2\r\nde\r\n0\r\nA: b\r\n\r\nGET /direct HTTP/1.1\r\n" HOST "\r\n"));
	ASSERT_STR(hear(t.upstream, got, sizeof got, "\r\n\r\n"), "2\r\nde\r\n0\r\n\r\n");
	ASSERT(say(t.upstream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"));
	ASSERT(strstr(client_hears(&t, "direct"), "\r\n\r\nokHTTP/1.1 200 OK\r\n")); /* pipelined */
}

TEST(trailers_of_a_request_stay_behind_however_they_come)
{
	static const char text[] = "2\r\nab\r\n0\r\nX-API-Key: k\r\nB:\r\n\r\n";

	for (size_t cut = 0; cut < sizeof text; cut++) {
		char first[sizeof text], got[256];
		ENDS;

		(void)snprintf(first, sizeof first, "%.*s", (int)cut, text);
		ASSERT(pass(&t, "POST / HTTP/1.1\r\n" HOST
				"Trailer: X-API-Key\r\nTransfer-Encoding: chunked\r\n\r\n"));
		ASSERT(!strstr(t.got, "Trailer"));
		ASSERT(say(t.client, first) && say(t.client, text + cut));
		ASSERT_STR(hear(t.upstream, got, sizeof got, "0\r\n\r\n"), "2\r\nab\r\n0\r\n\r\n");
	}
}

TEST(a_badly_framed_request_body_is_refused)
{
	ENDS;

	ASSERT(pass(&t,
		"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"));
	ASSERT(say(t.client, "3 \r\nabc\r\n"));
	ASSERT(strstr(client_hears(&t, "}"), "400 "));
	ASSERT_EQ(heard_end(t.upstream), 1);
}

TEST(expect_continue_passes_end_to_end)
{
	char got[64];
	ENDS;

	ASSERT(pass(&t, "PUT /patient HTTP/1.1\r\n" HOST "Expect: 100-continue\r\n"
			"Content-Length: 3\r\n\r\n"));
	ASSERT(strstr(t.got, "Expect: 100-continue\r\n"));
	ASSERT(say(t.upstream, "HTTP/1.1 100 Continue\r\n\r\n"));
	ASSERT_STR(client_hears(&t, "\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
	ASSERT(say(t.client, "abc"));
	ASSERT_STR(hear(t.upstream, got, sizeof got, "abc"), "abc");
	ASSERT(say(t.upstream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
	ASSERT(strstr(client_hears(&t, "\r\n\r\n"), "200 OK"));
}

TEST(an_early_reply_ends_an_upload)
{
	ENDS;

	ASSERT(pass(&t, "PUT /patient HTTP/1.1\r\n" HOST "Content-Length: 100000000\r\n\r\nabc"));
	ASSERT(say(t.upstream, "HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno"));
	(void)close(TAKE_FD(t.upstream));
	ASSERT(strstr(client_hears(&t, NULL), "Connection: close\r\n\r\nno"));
}

TEST(an_upgrade_becomes_a_tunnel)
{
	char got[64];
	ENDS;

	ASSERT(pass(&t, "GET /ws HTTP/1.1\r\n" HOST "Connection: keep-alive, Upgrade\r\n"
			"Upgrade: websocket\r\n\r\nearly"));
	ASSERT(strstr(t.got, "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"));
	ASSERT(say(t.upstream,
		"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
		"X: y\r\n\r\nfirst"));
	ASSERT_STR(client_hears(&t, "first"),
		"HTTP/1.1 101 Switching\r\nX: y\r\nConnection: Upgrade\r\n"
		"Upgrade: websocket\r\n\r\nfirst");
	ASSERT_STR(hear(t.upstream, got, sizeof got, "early"), "early");
	ASSERT(say(t.client, "ping"));
	ASSERT_STR(hear(t.upstream, got, sizeof got, "ping"), "ping");
	ASSERT(say(t.upstream, "pong"));
	ASSERT_STR(client_hears(&t, "pong"), "pong");
	(void)shutdown(t.client, SHUT_WR); /* half-closed: the other way stays open */
	ASSERT_EQ(heard_end(t.upstream), 1);
	ASSERT(say(t.upstream, "bye"));
	(void)close(TAKE_FD(t.upstream));
	ASSERT_STR(client_hears(&t, NULL), "bye");
	ASSERT(becomes(&t.rig.closed, 1));
}

TEST(another_upgrade_than_the_allowed_one_is_not_asked_for)
{
	static const char *const cases[] = { "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
		"Upgrade: websocket, h2c\r\n", "Upgrade: websocket\r\nUpgrade: h2c\r\n",
		"Upgrade: TLS/1.0\r\n", "Upgrade:\r\n" };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char request[256];
		ENDS;

		(void)snprintf(request, sizeof request,
			"GET /websocket HTTP/1.1\r\n" HOST
			"Connection: Upgrade, HTTP2-Settings\r\n%s\r\n",
			cases[i]);
		ASSERT(pass(&t, request));
		if (strstr(t.got, "Upgrade") || strstr(t.got, "HTTP2") ||
			!strstr(t.got, "Connection: close\r\n"))
			TEST_FAIL("%s: got %s", cases[i], t.got);
		ASSERT(say(t.upstream,
			"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"));
		ASSERT(strstr(client_hears(&t, "}"), "HTTP/1.1 502 "));
	}
}

TEST(the_allowed_upgrade_is_asked_for)
{
	ENDS;

	ASSERT(pass(&t, "GET /websocket HTTP/1.1\r\n" HOST "Connection: upgrade\r\n"
			"Upgrade: WebSocket\r\n\r\n"));
	ASSERT(strstr(t.got, "Connection: Upgrade\r\nUpgrade: WebSocket\r\n"));
}

TEST(a_refused_upgrade_is_an_ordinary_reply)
{
	ENDS;

	ASSERT(pass(&t, "GET /ws HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: x\r\n\r\n"));
	ASSERT(say(t.upstream, "HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno"));
	ASSERT(strstr(client_hears(&t, "no"), "403 No"));
}

#define TUNNEL "GET /tunnel HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: raw\r\n"

TEST(a_raw_tunnel_speaks_no_http_to_the_upstream)
{
	char got[64];
	ENDS;

	ASSERT(say(t.client, TUNNEL "\r\nearly"));
	t.upstream = accept(t.listener, NULL, NULL);
	ASSERT(t.upstream >= 0);
	set_wait(t.upstream);
	ASSERT_STR(hear(t.upstream, got, sizeof got, "early"), "early");
	ASSERT(say(t.upstream, "220 me first\r\n"));
	ASSERT_STR(client_hears(&t, "first\r\n"),
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n"
		"220 me first\r\n");
	ASSERT(say(t.client, "ping"));
	ASSERT_STR(hear(t.upstream, got, sizeof got, "ping"), "ping");
	(void)poll(NULL, 0, 400); /* no deadline of a reply goes for it */
	(void)shutdown(t.client, SHUT_WR);
	ASSERT_EQ(heard_end(t.upstream), 1);
	ASSERT(say(t.upstream, "bye"));
	(void)close(TAKE_FD(t.upstream));
	ASSERT_STR(client_hears(&t, NULL), "bye");
	ASSERT(becomes(&t.rig.closed, 1));
}

TEST(a_raw_tunnel_is_given_back_when_refused_and_needs_an_upgrade)
{
	ENDS;

	ASSERT(say(t.client, "GET /tunnel HTTP/1.1\r\n" HOST "\r\n"));
	ASSERT(strstr(client_hears(&t, "}"), "400 "));
	ASSERT(say(t.client, TUNNEL "Content-Length: 4\r\n\r\nbo"));
	ASSERT(strstr(client_hears(&t, "}"), "400 "));
	(void)close(t.client);
	(void)close(TAKE_FD(t.listener));
	t.client = dial(t.rig.port);
	ASSERT(say(t.client, TUNNEL "\r\n"));
	ASSERT(strstr(client_hears(&t, "\r\n\r\n"), "503 "));
	ASSERT_EQ(atomic_load(&t.rig.refused), ECONNREFUSED);
}

TEST(a_client_that_leaves_closes_the_upstream)
{
	{ /* while the upstream is silent */
		ENDS;

		ASSERT(pass(&t, "GET /patient HTTP/1.1\r\n" HOST "\r\n"));
		(void)close(TAKE_FD(t.client));
		ASSERT_EQ(heard_end(t.upstream), 1);
		ASSERT(becomes(&t.rig.closed, 1));
	}
	{ /* in the middle of its body */
		ENDS;

		ASSERT(pass(&t, "PUT /patient HTTP/1.1\r\n" HOST "Content-Length: 9\r\n\r\nabc"));
		(void)close(TAKE_FD(t.client));
		ASSERT_EQ(heard_end(t.upstream), 1);
	}
	{ /* in the middle of a stream */
		ENDS;

		ASSERT(pass(&t, GET));
		ASSERT(say(t.upstream, "HTTP/1.1 200 OK\r\n\r\nhello"));
		ASSERT(strstr(client_hears(&t, "hello"), "200 OK"));
		(void)close(TAKE_FD(t.client));
		ASSERT(heard_end(t.upstream) != 0);
	}
}

TEST(a_half_closed_client_keeps_a_stream_that_flows)
{
	ENDS;

	ASSERT(pass(&t, GET));
	(void)shutdown(t.client, SHUT_WR);
	ASSERT(say(t.upstream, "HTTP/1.1 200 OK\r\n\r\n"));
	(void)poll(NULL, 0, 50);
	ASSERT(say(t.upstream, "one"));
	(void)poll(NULL, 0, 1300); /* longer than a client that may be gone is given */
	ASSERT(say(t.upstream, "two"));
	(void)close(TAKE_FD(t.upstream));
	ASSERT(strstr(client_hears(&t, NULL), "one\r\n3\r\ntwo\r\n0\r\n\r\n"));
}

TEST(a_half_closed_client_gets_its_reply)
{
	ENDS;

	ASSERT(pass(&t, GET));
	(void)shutdown(t.client, SHUT_WR);
	(void)poll(NULL, 0, 50);
	ASSERT(say(t.upstream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"));
	ASSERT(strstr(client_hears(&t, NULL), "\r\n\r\nok"));
}

TEST(a_server_freed_under_a_relay_cuts_both_ends)
{
	ENDS;

	ASSERT(pass(&t, "GET /patient HTTP/1.1\r\n" HOST "\r\n"));
	rig_stop(&t.rig);
	t.rig.thread = 0;
	ASSERT_EQ(heard_end(t.upstream), 1);
	ASSERT(heard_end(t.client) != 0);
}

/* What the upstream did not take of a body must not be taken for the next request. */
TEST(a_body_that_the_upstream_refuses_is_no_request)
{
	int pair[2];
	ENDS;

	ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	t.upstream = pair[0];
	t.rig.upstream_fd = pair[1];
	ASSERT(say(t.client, "POST /patient HTTP/1.1\r\n" HOST "Content-Length: 36\r\n\r\n"));
	ASSERT(hear(t.upstream, t.got, sizeof t.got, "\r\n\r\n"));
	(void)shutdown(t.upstream, SHUT_RD);
	ASSERT(say(t.client, "GET /direct HTTP/1.1\r\nHost: evil\r\n\r\n"));
	(void)poll(NULL, 0, 100);
	ASSERT(say(t.upstream, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine"));
	ASSERT(strstr(client_hears(&t, "mine"), "200 OK"));
	ASSERT(becomes(&t.rig.closed, 1));
	(void)shutdown(t.client, SHUT_WR);
	ASSERT_STR(client_hears(&t, NULL), "");
}
