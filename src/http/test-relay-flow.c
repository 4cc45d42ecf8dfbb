/* What a relay does when there is much to move, or one side does not take it. */
#include "test-ends.h"
#include "test.h"

#include <time.h>

/* How much can be sent before the other side stops taking it. */
static long push(int fd, long most)
{
	static const char piece[65536];
	long total = 0;
	int idle = 0;

	while (total < most && idle < 20) {
		ssize_t n = send(fd, piece, sizeof piece, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0) {
			total += n;
			idle = 0;
		} else if (errno == EAGAIN) {
			(void)poll(NULL, 0, 10);
			idle++;
		} else {
			return -errno;
		}
	}
	return total;
}

static long drain(int fd, long most)
{
	static char piece[65536];
	long total = 0;
	ssize_t n;

	while (total < most &&
		(n = recv(fd, piece, (size_t)MIN((long)sizeof piece, most - total), 0)) > 0)
		total += n;
	return total;
}

enum {
	BULK = 256 << 20,
	QUEUED_MAX = 64 << 20
};

static void check_download(const char *head, long framing)
{
	ENDS;
	long sent;

	ASSERT(pass(&t, GET));
	ASSERT(say(t.upstream, head));
	sent = push(t.upstream, BULK);
	ASSERT(sent > 0 && sent < QUEUED_MAX); /* a client that does not read stops the upstream */
	ASSERT(strstr(client_hears(&t, "\r\n\r\n"), "200 OK"));
	if (framing > 0)
		ASSERT(strstr(client_hears(&t, "\r\n"), "10000000\r\n"));
	ASSERT_EQ(drain(t.client, sent), sent);
}

TEST(a_slow_reader_stops_a_download)
{
	check_download("HTTP/1.1 200 OK\r\nContent-Length: 268435456\r\n\r\n", 0);
	check_download("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000\r\n", 1);
}

TEST(a_slow_upstream_stops_an_upload)
{
	ENDS;
	long sent, rest;

	ASSERT(pass(&t, "PUT /patient HTTP/1.1\r\n" HOST "Content-Length: 100000000\r\n\r\n"));
	sent = push(t.client, 100000000);
	ASSERT(sent > 0 && sent < QUEUED_MAX);
	ASSERT_EQ(drain(t.upstream, sent), sent);
	rest = push(t.client, 1000000);
	ASSERT(rest > 0);
	ASSERT_EQ(drain(t.upstream, rest), rest);
}

/* Sends n bytes of a pattern that no shift of itself equals, from a thread of its own. */
struct pattern {
	int fd;
	uint32_t n;
};

static uint32_t pattern_at(uint32_t i)
{
	return i * 2654435761u;
}

static void *send_pattern(void *arg)
{
	const struct pattern *p = arg;
	uint32_t words[4096];

	for (uint32_t i = 0; i < p->n / 4; i += 4096) {
		for (uint32_t k = 0; k < 4096; k++)
			words[k] = pattern_at(i + k);
		if (fd_write_all(p->fd, words, MIN(sizeof words, p->n - (size_t)i * 4)) < 0)
			break;
	}
	return NULL;
}

static bool is_pattern(int fd, uint32_t n)
{
	static uint32_t words[1024];

	for (uint32_t i = 0; i < n / 4; i += 1024) {
		size_t want = MIN(sizeof words, n - (size_t)i * 4);

		if (recv(fd, words, want, MSG_WAITALL) != (ssize_t)want)
			return false;
		for (uint32_t k = 0; k < want / 4; k++)
			if (words[k] != pattern_at(i + k))
				return false;
	}
	return true;
}

TEST(bulk_arrives_whole_and_the_connection_is_kept)
{
	enum {
		SIZE = 5000000
	};
	struct pattern up, down;
	pthread_t thread;
	ENDS;

	for (int i = 0; i < 2; i++) {
		close_fdp(&t.upstream);
		ASSERT(pass(&t,
			"PUT /patient HTTP/1.1\r\n" HOST "Content-Length: 5000000\r\n\r\n"));
		up = (struct pattern){ t.client, SIZE };
		ASSERT_EQ(pthread_create(&thread, NULL, send_pattern, &up), 0);
		ASSERT(is_pattern(t.upstream, SIZE));
		(void)pthread_join(thread, NULL);
		ASSERT(say(t.upstream, "HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n"));
		down = (struct pattern){ t.upstream, SIZE };
		ASSERT_EQ(pthread_create(&thread, NULL, send_pattern, &down), 0);
		ASSERT(strstr(client_hears(&t, "\r\n\r\n"), "200 OK"));
		ASSERT(is_pattern(t.client, SIZE));
		(void)pthread_join(thread, NULL);
		ASSERT(becomes(&t.rig.closed, i + 1));
	}
}

TEST(a_tunnel_carries_bulk_both_ways)
{
	ENDS;
	long up, down;

	ASSERT(pass(&t, "GET /ws HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: x\r\n\r\n"));
	ASSERT(say(t.upstream, "HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"));
	ASSERT(strstr(client_hears(&t, "\r\n\r\n"), "101 Go"));
	up = push(t.client, BULK);
	down = push(t.upstream, BULK);
	ASSERT(up > 0 && up < QUEUED_MAX && down > 0 && down < QUEUED_MAX);
	ASSERT_EQ(drain(t.upstream, up), up);
	ASSERT_EQ(drain(t.client, down), down);
	(void)close(TAKE_FD(t.client));
	ASSERT_EQ(heard_end(t.upstream), 1);
}

TEST(a_stalled_client_is_cut_after_its_time)
{
	struct http_limits limits = { .stall_timeout_ms = 150 };
	ENDS_WITH(&limits);
	long sent;

	ASSERT(pass(&t, GET));
	ASSERT(say(t.upstream, "HTTP/1.1 200 OK\r\nContent-Length: 268435456\r\n\r\n"));
	sent = push(t.upstream, BULK);
	ASSERT(sent == -EPIPE || sent == -ECONNRESET);
	ASSERT(becomes(&t.rig.closed, 1));
}

TEST(a_half_closed_upload_waits_for_a_slow_upstream)
{
	enum {
		BODY = 268435456
	};
	int small = 4096;
	ENDS;
	long sent;

	/* The upstream holds little, so most of what was sent is still before the relay when the
	 * client shuts its side; how much the kernel takes in all is found out by trying. */
	(void)setsockopt(t.listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
	ASSERT(pass(&t, "PUT /patient HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"));
	ASSERT(say(t.client, "10000000\r\n"));
	sent = push(t.client, BODY);
	ASSERT(sent > 0 && sent < BODY);
	(void)shutdown(t.client, SHUT_WR);
	(void)poll(NULL, 0, 1300);
	ASSERT_EQ(drain(t.upstream, sent + 10), sent + 10);
	ASSERT_EQ(heard_end(t.upstream), 1); /* only now: half a body was all there was */
}

static int64_t cpu_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

TEST(an_upstream_that_hung_up_waits_for_the_client_without_spinning)
{
	int pair[2];
	int64_t before;
	long sent;
	ENDS;

	ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	t.upstream = pair[0];
	t.rig.upstream_fd = pair[1];
	ASSERT(say(t.client, GET));
	ASSERT(hear(t.upstream, t.got, sizeof t.got, "\r\n\r\n"));
	ASSERT(say(t.upstream, "HTTP/1.1 200 OK\r\n\r\n"));
	sent = push(t.upstream, BULK);
	ASSERT(sent > 0 && sent < BULK);
	(void)close(TAKE_FD(t.upstream));
	before = cpu_ms();
	(void)poll(NULL, 0, 500);
	ASSERT(cpu_ms() - before < 200);
	ASSERT_EQ(drain(t.client, sent + 1), sent + 1); /* with the chunks' own bytes */
	ASSERT(becomes(&t.rig.closed, 1));
}

TEST(a_tunnel_whose_client_sends_no_more_waits_without_spinning)
{
	int64_t before;
	long sent;
	ENDS;

	ASSERT(pass(&t, "GET /ws HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: x\r\n\r\n"));
	ASSERT(say(t.upstream, "HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"));
	ASSERT(strstr(client_hears(&t, "\r\n\r\n"), "101 Go"));
	sent = push(t.client, BULK);
	ASSERT(sent > 0 && sent < BULK);
	(void)shutdown(t.client, SHUT_WR);
	before = cpu_ms();
	(void)poll(NULL, 0, 500);
	ASSERT(cpu_ms() - before < 200); /* while its bytes wait for the upstream */
	ASSERT_EQ(drain(t.upstream, sent), sent);
	ASSERT_EQ(heard_end(t.upstream), 1);
	before = cpu_ms();
	(void)poll(NULL, 0, 500);
	ASSERT(cpu_ms() - before < 200); /* and when only the other way is open */
	ASSERT(say(t.upstream, "bye"));
	ASSERT_STR(client_hears(&t, "bye"), "bye");
}

/* Large enough that the middle of it goes through a pipe. */
TEST(a_long_reply_that_breaks_off_cuts_the_client)
{
	ENDS;
	static char half[2000000];

	ASSERT(pass(&t, GET));
	ASSERT(say(t.upstream, "HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n"));
	ASSERT_EQ(fd_write_all(t.upstream, half, sizeof half), 0);
	(void)close(TAKE_FD(t.upstream));
	ASSERT(strstr(client_hears(&t, "\r\n\r\n"), "200 OK"));
	ASSERT(heard_end(t.client) != 0);
	ASSERT(becomes(&t.rig.closed, 1));
}

/* A service can send them for ever: what each costs is taken from all the others. */
TEST(chunks_of_a_byte_are_not_sent_one_by_one)
{
	enum {
		CHUNKS = 200000
	};
	static char bytes[6 * CHUNKS];
	int64_t before;
	ENDS;

	for (size_t i = 0; i < sizeof bytes; i += 6)
		memcpy(bytes + i, "1\r\na\r\n", 6);
	ASSERT(pass(&t, "GET / HTTP/1.0\r\n\r\n"));
	ASSERT(say(t.upstream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"));
	before = cpu_ms();
	ASSERT_EQ(fd_write_all(t.upstream, bytes, sizeof bytes), 0);
	ASSERT(strstr(client_hears(&t, "\r\n\r\n"), "200 OK"));
	ASSERT_EQ(drain(t.client, CHUNKS), CHUNKS);
	ASSERT(cpu_ms() - before < 250);
}

TEST(a_relayed_body_has_a_least_rate)
{
	struct http_limits limits = { .stranger_body_bytes = 1,
		.stall_timeout_ms = 400,
		.min_body_bytes = 100 };
	ENDS_WITH(&limits);

	ASSERT(pass(&t, "POST /patient HTTP/1.1\r\n" HOST "Content-Length: 5000\r\n\r\n"));
	for (int i = 0; i < RIG_WAIT_MS / 100 && atomic_load(&t.rig.closed) == 0; i++) {
		(void)send(t.client, "x", 1, MSG_NOSIGNAL);
		(void)poll(NULL, 0, 100);
	}
	ASSERT_EQ(atomic_load(&t.rig.closed), 1);
}

/* Chunks go through our own memory; bulk whose end is known does not. */
TEST(unread_relayed_replies_are_cut_where_their_memory_ends)
{
	struct http_limits limits = { .stranger_body_bytes = 1, .max_queued_bytes = 256 << 10 };
	int clients[8], upstreams[8], few = 4096;
	ENDS_WITH(&limits);

	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		clients[i] = dial(t.rig.port);
		(void)setsockopt(clients[i], SOL_SOCKET, SO_RCVBUF, &few, sizeof few);
		ASSERT(say(clients[i], "GET /patient HTTP/1.1\r\n" HOST "\r\n"));
		upstreams[i] = accept(t.listener, NULL, NULL);
		ASSERT(say(upstreams[i], "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
					 "fffffff\r\n"));
		(void)push(upstreams[i], QUEUED_MAX);
	}
	ASSERT(becomes(&t.rig.closed, 1));
	ASSERT(atomic_load(&t.rig.closed) < (int)ARRAY_SIZE(clients));
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		(void)close(clients[i]);
		(void)close(upstreams[i]);
	}
}

TEST(a_relayed_reply_that_is_too_large_for_its_holder_is_cut_at_once)
{
	struct http_limits limits = { .stranger_body_bytes = 1, .max_queued_bytes = 1 };
	int few = 4096;
	ENDS_WITH(&limits);

	(void)setsockopt(t.client, SOL_SOCKET, SO_RCVBUF, &few, sizeof few);
	ASSERT(pass(&t, GET));
	ASSERT(say(t.upstream, "HTTP/1.1 200 OK\r\n\r\n"));
	(void)push(t.upstream, QUEUED_MAX);
	ASSERT(becomes(&t.rig.closed, 1));
	ASSERT(heard_end(t.client) != 1); /* and not like one that is whole */
}
