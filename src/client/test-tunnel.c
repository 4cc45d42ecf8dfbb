#include "client/client-internal.h"
#include "test.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

/* Three parts: the tunnel on the loop of this thread, a server played by one thread, and the local
 * program played by another. */
struct rig {
	struct loop *loop;
	struct client *client;
	struct client_tunnel *tunnel;
	int listen_fd;
	char url[64];
	const char *answer; /* what the server says to the request */
	void (*serve)(int fd);
	void (*play)(int fd);
	int local[2];
	int r, status;
	char body[256], message[256];
};

enum {
	BULK = 8 << 20,
};

static void wait_at_most(int fd)
{
	struct timeval limit = { .tv_sec = 20 };

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

static void say(int fd, const char *text)
{
	(void)fd_write_all(fd, text, strlen(text));
}

/* Reads to the end of the stream or of the buffer. */
static size_t hear(int fd, char *text, size_t size)
{
	size_t n = 0;
	ssize_t got;

	while (n < size - 1 && (got = read(fd, text + n, size - 1 - n)) > 0)
		n += (size_t)got;
	text[n] = '\0';
	return n;
}

static void *serve_main(void *arg)
{
	struct rig *rig = arg;
	cleanup_close int fd = accept(rig->listen_fd, NULL, NULL);
	char head[1024] = "";
	size_t n = 0;

	wait_at_most(fd);
	while (n < sizeof head - 1 && !strstr(head, "\r\n\r\n") && read(fd, head + n, 1) == 1)
		head[++n] = '\0';
	if (strstr(head, "GET /way HTTP/1.1\r\nHost: 127.0.0.1:") &&
		strstr(head, "\r\nConnection: Upgrade\r\nUpgrade: bytes\r\nX-Mine: 1\r\n"))
		say(fd, rig->answer);
	if (rig->serve)
		rig->serve(fd);
	return NULL;
}

static void *play_main(void *arg)
{
	struct rig *rig = arg;

	wait_at_most(rig->local[1]);
	if (rig->play)
		rig->play(rig->local[1]);
	return NULL;
}

static void on_end(void *arg, struct client_tunnel *tunnel, int r, int status, struct str body,
	const struct err *e)
{
	struct rig *rig = arg;

	rig->r = r;
	rig->status = status;
	(void)snprintf(rig->body, sizeof rig->body, "%.*s", STR_ARG(body));
	(void)snprintf(rig->message, sizeof rig->message, "%s", e->msg);
	rig->tunnel = client_tunnel_free(tunnel);
	loop_stop(rig->loop);
}

static void rig_init(struct rig *rig)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof address;

	rig->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(rig->listen_fd, (void *)&address, n) < 0 || listen(rig->listen_fd, 8) < 0 ||
		getsockname(rig->listen_fd, (void *)&address, &n) < 0 ||
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, rig->local) < 0 ||
		loop_new(&rig->loop, NULL) < 0 || client_new(rig->loop, &rig->client, NULL) < 0)
		abort();
	(void)snprintf(rig->url, sizeof rig->url, "http://127.0.0.1:%d/way",
		ntohs(address.sin_port));
}

static void rig_open(struct rig *rig)
{
	static const char *const headers[] = { "X-Mine: 1", NULL };
	struct client_request request = { .url = rig->url, .headers = headers };

	rig->tunnel = client_take_tunnel(rig->client, &request, "bytes", TAKE_FD(rig->local[0]),
		on_end, rig);
}

static void rig_done(struct rig *rig)
{
	rig->tunnel = client_tunnel_free(rig->tunnel);
	rig->client = client_free(rig->client);
	rig->loop = loop_free(rig->loop);
	close_fdp(&rig->local[0]);
	close_fdp(&rig->local[1]);
	close_fdp(&rig->listen_fd);
}

static void rig_run(struct rig *rig)
{
	pthread_t server, player;

	rig_init(rig);
	rig_open(rig);
	if (pthread_create(&server, NULL, serve_main, rig) != 0 ||
		pthread_create(&player, NULL, play_main, rig) != 0)
		abort();
	(void)loop_run(rig->loop, NULL);
	(void)pthread_join(server, NULL);
	(void)pthread_join(player, NULL);
}

#define AGREED "HTTP/1.1 101 Go\r\nConnection: Upgrade\r\nUpgrade: bytes\r\n\r\n"

static void answer_at_the_end(int fd)
{
	char text[64];

	(void)hear(fd, text, sizeof text); /* until our half is closed */
	say(fd, strcmp(text, "question") == 0 ? "answer" : text);
}

static char heard[64];

static void ask_and_half_close(int fd)
{
	say(fd, "question");
	(void)shutdown(fd, SHUT_WR);
	(void)hear(fd, heard, sizeof heard);
}

TEST(bytes_and_half_closes_pass_both_ways)
{
	CLEANUP(rig_done)
	struct rig rig = { .answer = "HTTP/1.1 103 Hint\r\n\r\n" AGREED "early ",
		.serve = answer_at_the_end,
		.play = ask_and_half_close };

	rig_run(&rig);
	ASSERT_STR(heard, "early answer");
	ASSERT_EQ(rig.r, 0);
	ASSERT_EQ(rig.status, 101);
}

static uint64_t sum_down, sum_up;

static uint64_t swallow(int fd)
{
	static _Thread_local char bytes[64 << 10];
	uint64_t sum = 0;
	ssize_t n;

	while ((n = read(fd, bytes, sizeof bytes)) > 0) {
		sum += (uint64_t)n;
		(void)poll(NULL, 0, sum % 7 ? 0 : 1); /* now and then it is the slow one */
	}
	return sum;
}

static void *flood(void *arg)
{
	static const char block[32 << 10];
	int fd = *(int *)arg;

	for (int i = 0; i < BULK / (int)sizeof block; i++)
		if (fd_write_all(fd, block, sizeof block) < 0)
			break;
	(void)shutdown(fd, SHUT_WR);
	return NULL;
}

static uint64_t flood_and_swallow(int fd)
{
	pthread_t writer;
	uint64_t sum;

	if (pthread_create(&writer, NULL, flood, &fd) != 0)
		return 0;
	sum = swallow(fd);
	(void)pthread_join(writer, NULL);
	return sum;
}

static void flood_up(int fd)
{
	sum_down = flood_and_swallow(fd);
}

static void flood_down(int fd)
{
	sum_up = flood_and_swallow(fd);
}

TEST(bulk_passes_both_ways_at_once)
{
	CLEANUP(rig_done)
	struct rig rig = { .answer = AGREED, .serve = flood_down, .play = flood_up };

	rig_run(&rig);
	ASSERT_EQ(rig.r, 0);
	ASSERT_EQ(sum_up, BULK);
	ASSERT_EQ(sum_down, BULK);
}

static int end_of_reading;

static void read_end(int fd)
{
	char c;

	end_of_reading = read(fd, &c, 1) == 0 ? 0 : -errno;
}

TEST(refusals_are_told_and_reset_the_local_side)
{
	static const struct {
		const char *answer;
		int r, status;
		const char *body;
	} cases[] = {
		{ "HTTP/1.1 502 No\r\ncontent-length: 4\r\n\r\nshut", -EREMOTEIO, 502, "shut" },
		{ "HTTP/1.1 403 No\r\n\r\nto the end", -EREMOTEIO, 403, "to the end" },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", -EREMOTEIO, 200, "" },
		{ "SSH-2.0\r\n", -EPROTO, 0, "" },
		{ "HTTP/1.1 502 No\r\nContent-Length: x\r\n\r\n", -EPROTO, 0, "" },
		{ "HTTP/1.1 101 Go\r\n", -ECONNRESET, 0, "" },
		{ "", -ECONNRESET, 0, "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(rig_done)
		struct rig rig = { .answer = cases[i].answer, .play = read_end };

		rig_run(&rig);
		ASSERT_EQ(rig.r, cases[i].r);
		ASSERT_EQ(rig.status, cases[i].status);
		ASSERT_STR(rig.body, cases[i].body);
		ASSERT(rig.message[0]);
	}
}

TEST(a_server_that_is_not_there_is_refused)
{
	CLEANUP(rig_done) struct rig rig = { 0 };

	rig_init(&rig);
	(void)close(TAKE_FD(rig.listen_fd));
	rig_open(&rig);
	ASSERT_EQ(loop_run(rig.loop, NULL), 0);
	ASSERT_EQ(rig.r, -ECONNREFUSED);
}

TEST(a_tunnel_can_be_given_up_at_any_time)
{
	for (int turns = 0; turns < 2; turns++) {
		CLEANUP(rig_done) struct rig rig = { 0 };

		rig_init(&rig);
		rig_open(&rig);
		rig.tunnel = client_tunnel_free(rig.tunnel);
		ASSERT_EQ(rig.r, 0);
	}
}
