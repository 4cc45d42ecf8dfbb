#include "http/http-internal.h"

#include "test.h"

/* A server played by the test on the other end of a socket pair. */
struct play {
	struct loop *loop;
	struct http_stream *stream;
	struct loop_timer timer, limit;
	int fd;
	int status, r, n_ends, n_drained, n_chunks;
	char header[32];
	struct buf body;
	bool pauses, cancels;
	uint64_t asked_turn;           /* in which it was asked last whether more may be read */
	int n_refusals, n_asked_again; /* to come; in a turn in which it had been asked */
};

static void on_head(void *arg, int status)
{
	struct play *p = arg;

	p->status = status;
	(void)snprintf(p->header, sizeof p->header, "%.*s",
		STR_ARG(http_stream_header(p->stream, "X-Word")));
}

static void on_resume(void *arg)
{
	struct play *p = arg;

	http_stream_resume(p->stream);
}

static void on_body(void *arg, struct str bytes)
{
	struct play *p = arg;

	p->n_chunks++;
	(void)buf_add_str(&p->body, bytes);
	if (p->cancels) {
		http_stream_cancel(TAKE(p->stream));
		loop_timer_set(&p->limit, loop_now_ms(p->loop) + 20);
	} else if (p->pauses) {
		http_stream_pause(p->stream);
		loop_timer_set(&p->timer, loop_now_ms(p->loop) + 5);
	}
}

static void on_end(void *arg, int r, const struct err *e)
{
	struct play *p = arg;

	(void)e;
	p->r = r;
	p->n_ends++;
	p->stream = NULL;
	loop_stop(p->loop);
}

static void on_drained(void *arg)
{
	struct play *p = arg;

	p->n_drained++;
	http_stream_send_end(p->stream);
}

static bool may_read(void *arg)
{
	struct play *p = arg;

	p->n_asked_again += p->asked_turn == loop_turn(p->loop);
	p->asked_turn = loop_turn(p->loop);
	return p->n_refusals == 0 || --p->n_refusals == 0;
}

static const struct http_stream_ops ops = { on_head, on_body, on_end, on_drained, may_read };

static void on_limit(void *arg)
{
	struct play *p = arg;

	loop_stop(p->loop);
}

static void play_init(struct play *p, const struct http_stream_request *request)
{
	int fds[2];

	*p = (struct play){ .body = BUF_INIT(1 << 24), .pauses = p->pauses, .cancels = p->cancels };
	(void)loop_new(&p->loop, NULL);
	(void)socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds);
	p->fd = fds[1];
	loop_timer_init(&p->timer, p->loop, on_resume, p);
	loop_timer_init(&p->limit, p->loop, on_limit, p);
	p->stream = http_stream_open(p->loop, fds[0], request, &ops, p);
}

static void say(const struct play *p, const char *text)
{
	(void)fd_write_all(p->fd, text, strlen(text));
}

static void play_run(struct play *p)
{
	loop_timer_set(&p->limit, time_now_ms() + 5000);
	(void)loop_run(p->loop, NULL);
}

static void play_done(struct play *p)
{
	if (p->stream)
		http_stream_cancel(TAKE(p->stream));
	loop_timer_set(&p->limit, time_now_ms());
	(void)loop_run(p->loop, NULL); /* what was deferred */
	loop_timer_cancel(&p->timer);
	loop_timer_cancel(&p->limit);
	close_fdp(&p->fd);
	buf_done(&p->body);
	p->loop = loop_free(p->loop);
}

static const struct http_stream_request get = { .method = "GET", .target = "/" };

TEST(gives_head_and_body_as_they_come)
{
	CLEANUP(play_done) struct play p = { 0 };

	play_init(&p, &get);
	say(&p, "HTTP/1.1 200 OK\r\nX-Word: yes\r\nTransfer-Encoding: chunked\r\n\r\n"
		"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n");
	play_run(&p);
	ASSERT_EQ(p.status, 200);
	ASSERT_STR(p.header, "yes");
	ASSERT_EQ(p.r, 0);
	ASSERT_EQ(p.n_chunks, 2);
	ASSERT_BYTES(buf_str(&p.body), "hello world");
}

TEST(a_paused_reader_loses_nothing)
{
	CLEANUP(play_done) struct play p = { .pauses = true };

	play_init(&p, &get);
	say(&p, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
		"5\r\nhello\r\n6\r\n world\r\n");
	say(&p, "1\r\n!\r\n0\r\n\r\n");
	(void)shutdown(p.fd, SHUT_WR);
	play_run(&p);
	ASSERT_EQ(p.r, 0);
	ASSERT_EQ(p.n_chunks, 3);
	ASSERT_BYTES(buf_str(&p.body), "hello world!");
}

TEST(what_may_not_be_read_yet_waits_for_another_turn)
{
	static char large[150001];
	CLEANUP(play_done) struct play p = { 0 };

	play_init(&p, &get);
	p.n_refusals = 10;
	memset(large, 'x', sizeof large - 1);
	say(&p, "HTTP/1.1 200 OK\r\nContent-Length: 150000\r\n\r\n");
	say(&p, large);
	play_run(&p);
	ASSERT_EQ(p.r, 0);
	ASSERT_EQ(p.n_refusals, 0);
	ASSERT_EQ(p.n_asked_again, 0);
	ASSERT_EQ(p.body.n, 150000);
}

TEST(a_reply_that_breaks_off_is_told)
{
	CLEANUP(play_done) struct play p = { 0 };

	play_init(&p, &get);
	say(&p, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
	(void)shutdown(p.fd, SHUT_WR);
	play_run(&p);
	ASSERT_EQ(p.r, -ECONNRESET);
	ASSERT_BYTES(buf_str(&p.body), "hello");
}

TEST(cancelling_in_a_callback_is_the_end)
{
	CLEANUP(play_done) struct play p = { .cancels = true };

	play_init(&p, &get);
	say(&p, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhelloworld");
	play_run(&p);
	ASSERT_EQ(p.n_ends, 0);
	ASSERT_EQ(p.n_chunks, 1);
}

TEST(deadlines_hold)
{
	static const struct http_stream_request cases[] = {
		{ .method = "GET", .target = "/", .head_timeout_ms = 30 },
		{ .method = "GET", .target = "/", .stall_timeout_ms = 30 },
		{ .method = "GET", .target = "/", .timeout_ms = 30 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(play_done) struct play p = { 0 };

		play_init(&p, &cases[i]);
		if (i > 0)
			say(&p, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
		play_run(&p);
		ASSERT_EQ(p.r, -ETIMEDOUT);
	}
}

TEST(a_body_is_sent_as_it_comes)
{
	static const struct http_stream_request post = { .method = "POST",
		.target = "/up",
		.streams_body = true,
		.length = -1 };
	CLEANUP(play_done) struct play p = { 0 };
	char got[512] = "";
	ssize_t n;

	play_init(&p, &post);
	ASSERT(http_stream_send(p.stream, STR("hello")));
	http_stream_send_end(p.stream);
	n = recv(p.fd, got, sizeof got - 1, 0);
	ASSERT(n > 0);
	ASSERT(strstr(got, "Transfer-Encoding: chunked\r\n"));
	ASSERT(strstr(got, "\r\n\r\n5\r\nhello\r\n0\r\n\r\n"));
	say(&p, "HTTP/1.1 204 No Content\r\n\r\n");
	play_run(&p);
	ASSERT_EQ(p.status, 204);
	ASSERT_EQ(p.r, 0);
}

TEST(a_sender_waits_for_a_slow_server)
{
	static const struct http_stream_request post = { .method = "POST",
		.target = "/up",
		.streams_body = true,
		.length = 4 << 20 };
	CLEANUP(play_done) struct play p = { 0 };
	cleanup_free char *bytes = XNEW_N(char, 4 << 20);
	size_t all = 0;
	char got[65536];

	play_init(&p, &post);
	ASSERT(!http_stream_send(p.stream, str_make(bytes, 4 << 20)));
	(void)fd_set_nonblock(p.fd, true);
	for (int i = 0; i < 1000 && p.n_drained == 0; i++) {
		ssize_t n;

		while ((n = recv(p.fd, got, sizeof got, 0)) > 0)
			all += (size_t)n;
		loop_timer_set(&p.limit, time_now_ms() + 1);
		(void)loop_run(p.loop, NULL);
	}
	ASSERT_EQ(p.n_drained, 1);
	ASSERT(all > 3 << 20);
}

TEST(nonsense_is_refused)
{
	static const char *const replies[] = { "nonsense\r\n\r\n", "\r\n",
		"HTTP/1.1 101 Switching\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" };

	for (size_t i = 0; i < ARRAY_SIZE(replies); i++) {
		CLEANUP(play_done) struct play p = { 0 };

		play_init(&p, &get);
		say(&p, replies[i]);
		play_run(&p);
		ASSERT_EQ(p.r, -EPROTO);
	}
}
