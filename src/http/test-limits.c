/* Large, slow, many, and the end. */
#include "test-handlers.h"
#include "test.h"

#include <sys/resource.h>

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

/* A reply that waits keeps nothing of its handler's, who must have been told by then. */
TEST(the_end_is_told_once_and_before_the_arena_goes)
{
	static char some[1 << 20];
	RIG;
	DIAL;

	ASSERT(say(fd, "GET /keep HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n"));
	ASSERT_EQ(recv(fd, some, sizeof some, MSG_WAITALL), sizeof some);
	ASSERT(becomes(&rig.closed, 1)); /* though most of it is not read yet */
	ASSERT_EQ(heard_end(fd), 1);
	ASSERT_EQ(atomic_load(&rig.closed), 1);
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
	struct http_limits limits = { .head_timeout_ms = 100,
		.idle_timeout_ms = 2000, /* these clients may be slow themselves */
		.stall_timeout_ms = 100 };
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
		(void)poll(NULL, 0, 3000);
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
		(void)poll(NULL, 0, 1500); /* what was not read goes with the connection */
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

static void reply_admission(struct http_exchange *x)
{
	struct http_admission a;
	char text[128];

	http_server_admission(http_server_of(x), &a);
	(void)snprintf(text, sizeof text, "cut=%" PRIu64 " last=%s within=%d end", a.cut_unread,
		a.last_cut, a.bytes <= a.max_bytes);
	http_reply(x, 200, NULL, str_of(text));
}

static struct http_exchange *stayed[8]; /* of the one server that runs */
static size_t n_stayed;

static void release_stayed(void)
{
	while (n_stayed > 0)
		http_reply(stayed[--n_stayed], 200, NULL, STR("late"));
}

/* Admits those that name a team. */
static void handle_team(void *arg, struct http_exchange *x)
{
	struct http_claim claim = { .holder = http_header(x, "Team") };

	if (claim.holder.n && http_admit(x, &claim, NULL) < 0)
		http_reply(x, 429, NULL, STR("too many"));
	else if (str_is(http_path(x), "/admission"))
		reply_admission(x);
	else if (str_is(http_path(x), "/stay") && n_stayed < ARRAY_SIZE(stayed))
		stayed[n_stayed++] = x;
	else
		handle(arg, x);
	if (str_is(http_path(x), "/release"))
		release_stayed();
}

#define TEAMS(...)                                                               \
	struct http_limits limits = { .stranger_body_bytes = 100, __VA_ARGS__ }; \
	CLEANUP(rig_stop) struct rig rig = { 0 };                                \
	ASSERT(rig_start(&rig, &limits, handle_team))

TEST(little_is_read_before_the_caller_is_known)
{
	static char piece[4096];
	char got[1024];
	TEAMS(.head_timeout_ms = 100, .stall_timeout_ms = 10000);

	{ /* it says how much it would send */
		DIAL;
		ASSERT(say(fd, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 101\r\n\r\n"));
		ASSERT(strstr(hear(fd, got, sizeof got, "\n"), " 413 "));
	}
	{ /* or not */
		DIAL;
		ASSERT(say(fd,
			"POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"));
		ASSERT(say(fd, "1000\r\n"));
		ASSERT_EQ(send(fd, piece, sizeof piece, MSG_NOSIGNAL), sizeof piece);
		ASSERT(strstr(hear(fd, got, sizeof got, "\n"), " 413 "));
	}
	{ /* a little has a little time */
		DIAL;
		ASSERT(say(fd, "POST /count HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nab"));
		ASSERT(becomes(&rig.bodies, 1));
		ASSERT(heard_end(fd) != 0);
	}
	{ /* who is known may send more, and take longer */
		DIAL;
		ASSERT(say(fd,
			"POST /count HTTP/1.1\r\n" HOST "Team: a\r\nContent-Length: 4100\r\n\r\n"));
		(void)poll(NULL, 0, 300);
		ASSERT_EQ(send(fd, piece, sizeof piece, MSG_NOSIGNAL), sizeof piece);
		(void)poll(NULL, 0, 300);
		ASSERT(say(fd, "1234"));
		ASSERT(strstr(hear(fd, got, sizeof got, "4102"), "200 OK"));
	}
}

TEST(a_body_has_a_least_rate)
{
	char got[64];
	TEAMS(.stall_timeout_ms = 400, .min_body_bytes = 100);

	{ /* a byte now and then is not enough */
		DIAL;
		ASSERT(say(fd,
			"POST /count HTTP/1.1\r\n" HOST "Team: a\r\nContent-Length: 4100\r\n\r\n"));
		for (int i = 0; i < RIG_WAIT_MS / 100 && atomic_load(&rig.bodies) == 0; i++) {
			(void)send(fd, "x", 1, MSG_NOSIGNAL);
			(void)poll(NULL, 0, 100);
		}
		ASSERT_EQ(atomic_load(&rig.bodies), 1);
		ASSERT(heard_end(fd) != 0);
	}
	{ /* between requests and within a reply it has no meaning */
		DIAL;
		ASSERT(say(fd, "GET /hold-stream HTTP/1.1\r\n" HOST "Team: a\r\n\r\n"));
		(void)hear(fd, got, sizeof got, "\r\n");
		(void)poll(NULL, 0, 1000);
		ASSERT_EQ(atomic_load(&rig.gone), 0);
	}
}

TEST(slow_strangers_make_room_and_others_do_not)
{
	char got[1024];
	int slow[24];
	TEAMS(.max_connections = 16);
	cleanup_close int held = dial(rig.port), idle = dial(rig.port);

	ASSERT(say(held, "GET /hold-stream HTTP/1.1\r\n" HOST "Team: a\r\n\r\n"));
	ASSERT(strstr(hear(held, got, sizeof got, "\r\n\r\n"), "200 OK"));
	ASSERT(say(idle, "GET / HTTP/1.1\r\n" HOST "Team: a\r\n\r\n"));
	ASSERT(strstr(hear(idle, got, sizeof got, "hi"), "200 OK"));
	for (size_t i = 0; i < ARRAY_SIZE(slow); i++) {
		slow[i] = dial(rig.port);
		ASSERT(say(slow[i], "GET / HT"));
	}
	for (size_t i = 0; i < ARRAY_SIZE(slow) - 14; i++)
		ASSERT(heard_end(slow[i]) != 0);
	for (int i = 0; i < 3; i++) {
		DIAL;
		ASSERT(say(fd, "GET / HTTP/1.1\r\n" HOST "\r\n"));
		ASSERT(strstr(hear(fd, got, sizeof got, "hi"), "200 OK"));
	}
	ASSERT(say(idle, "GET / HTTP/1.1\r\n" HOST "Team: a\r\n\r\n"));
	ASSERT(strstr(hear(idle, got, sizeof got, "hi"), "200 OK"));
	ASSERT_EQ(atomic_load(&rig.gone), 0);
	for (size_t i = 0; i < ARRAY_SIZE(slow); i++)
		(void)close(slow[i]);
}

/* Who asks and leaves has work done for it all the same. */
TEST(what_is_done_for_those_who_left_counts)
{
	enum {
		MOST = 6
	};
	struct linger now = { .l_onoff = 1 };
	char got[1024];
	TEAMS(.max_connections = 16);

	for (int i = 0; i < MOST; i++) {
		DIAL;
		ASSERT(say(fd, "GET /stay HTTP/1.1\r\n" HOST "Team: a\r\n\r\n"));
		(void)poll(NULL, 0, 50);
		(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	}
	(void)poll(NULL, 0, 100);
	{
		DIAL;
		ASSERT(say(fd, "GET / HTTP/1.1\r\n" HOST "Team: a\r\n\r\n"));
		ASSERT(strstr(hear(fd, got, sizeof got, "too many"), " 429 "));
		ASSERT(say(fd, "GET /release HTTP/1.1\r\n" HOST "Team: b\r\n\r\n"));
		ASSERT(strstr(hear(fd, got, sizeof got, "hi"), "200 OK"));
		ASSERT(say(fd, "GET / HTTP/1.1\r\n" HOST "Team: a\r\n\r\n"));
		ASSERT(strstr(hear(fd, got, sizeof got, "hi"), "200 OK"));
	}
}

TEST(unread_replies_are_bounded_and_their_owner_pays)
{
	int unread[40], few = 4096;
	char got[1024];
	TEAMS(.max_queued_bytes = 1 << 20);
	cleanup_close int other = dial(rig.port);

	for (size_t i = 0; i < ARRAY_SIZE(unread); i++) {
		unread[i] = dial(rig.port);
		(void)setsockopt(unread[i], SOL_SOCKET, SO_RCVBUF, &few, sizeof few);
		ASSERT(say(unread[i], "GET /flood HTTP/1.1\r\n" HOST "Team: a\r\n\r\n"));
	}
	do {
		(void)poll(NULL, 0, 10);
		ASSERT(say(other, "GET /admission HTTP/1.1\r\n" HOST "Team: b\r\n\r\n"));
		(void)hear(other, got, sizeof got, "end");
		ASSERT(strstr(got, "200 OK") && strstr(got, "within=1"));
	} while (strstr(got, "cut=0"));
	ASSERT(strstr(got, "last=a "));
	for (size_t i = 0; i < ARRAY_SIZE(unread); i++)
		(void)close(unread[i]);
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

TEST(a_server_out_of_descriptors_lets_strangers_go)
{
	struct rlimit before, few;
	int dups[64], silent[8], n = 0, fd;
	char got[1024];
	TEAMS(.max_headers = 0);

	for (size_t i = 0; i < ARRAY_SIZE(silent); i++)
		silent[i] = dial(rig.port);
	(void)poll(NULL, 0, 50);
	(void)getrlimit(RLIMIT_NOFILE, &before);
	few = (struct rlimit){ 64, before.rlim_max };
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	set_wait(fd);
	(void)setrlimit(RLIMIT_NOFILE, &few);
	while (n < 64 && (dups[n] = dup(fd)) >= 0)
		n++;
	(void)connect_to(fd, rig.port);
	(void)say(fd, "GET / HTTP/1.1\r\n" HOST "\r\n");
	(void)hear(fd, got, sizeof got, "hi");
	(void)setrlimit(RLIMIT_NOFILE, &before);
	while (n > 0)
		(void)close(dups[--n]);
	(void)close(fd);
	for (size_t i = 0; i < ARRAY_SIZE(silent); i++)
		(void)close(silent[i]);
	ASSERT(strstr(got, "200 OK"));
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
		http_server_stop(s->rig->server, loop_now_ms(http_loop(x)) + s->deadline_ms,
			stopped, s);
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
	       loop_io_add(rig->loop, &rig->stop_io, rig->stop_fd, EPOLLIN, rig_on_stop, rig,
		       NULL) == 0 &&
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
