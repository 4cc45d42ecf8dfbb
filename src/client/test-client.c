#include "client/client.h"
#include "test.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

/* The other end is a child process that accepts connections one after the other and plays a script,
 * so that it can also do what no decent server does. */
typedef void (*script_fn)(int fd);
struct peer {
	pid_t pid;
	char url[64];
	char path[64];
};

static void peer_done(struct peer *peer)
{
	if (peer->pid > 0) {
		(void)kill(peer->pid, SIGKILL);
		(void)waitpid(peer->pid, NULL, 0);
	}
	if (peer->path[0])
		(void)unlink(peer->path);
}

static void peer_serve(struct peer *peer, int listen_fd, script_fn script)
{
	peer->pid = fork();
	if (peer->pid != 0) {
		(void)close(listen_fd);
		return;
	}
	for (;;) {
		int fd = accept(listen_fd, NULL, NULL);

		if (fd < 0)
			_exit(1);
		script(fd);
		(void)close(fd);
	}
}

static struct peer peer_start(script_fn script)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof address;
	struct peer peer = { 0 };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (bind(fd, (void *)&address, n) < 0 || listen(fd, 8) < 0 ||
		getsockname(fd, (void *)&address, &n) < 0)
		abort();
	(void)snprintf(peer.url, sizeof peer.url, "http://127.0.0.1:%d/", ntohs(address.sin_port));
	peer_serve(&peer, fd, script);
	return peer;
}

static void say(int fd, const char *text)
{
	(void)fd_write_all(fd, text, strlen(text));
}

static void read_head(int fd, char *head, size_t size)
{
	size_t n = 0;

	while (n < size - 1 && read(fd, head + n, 1) == 1) {
		head[++n] = '\0';
		if (n >= 4 && memcmp(head + n - 4, "\r\n\r\n", 4) == 0)
			return;
	}
}

/* ---- what a test remembers of its call ---- */
struct seen {
	struct loop *loop;
	struct client *client;
	struct client_call *call;
	struct buf body;
	int heads, dones, status, r;
	char header[64];
	char text[256];
	size_t pause_after; /* 0: never */
	struct loop_timer timer;
	size_t sent, to_send, waits;
	bool source_waits;
};

static void on_head(void *arg, struct client_call *call)
{
	struct seen *seen = arg;
	struct str value = client_header(call, "x-test");

	seen->heads++;
	seen->status = client_status(call);
	(void)snprintf(seen->header, sizeof seen->header, "%.*s", STR_ARG(value));
}

static void on_data(void *arg, struct client_call *call, struct str bytes)
{
	struct seen *seen = arg;

	(void)buf_add_str(&seen->body, bytes);
	if (seen->pause_after && seen->body.n >= seen->pause_after)
		client_pause(call);
}

static void on_done(void *arg, int r, const struct err *e)
{
	struct seen *seen = arg;

	seen->dones++;
	seen->r = r;
	seen->call = NULL;
	(void)snprintf(seen->text, sizeof seen->text, "%s", r < 0 ? e->msg : "");
	loop_stop(seen->loop);
}

static void seen_init(struct seen *seen)
{
	*seen = (struct seen){ .body = BUF_INIT(64 << 20) };
	if (loop_new(&seen->loop, NULL) < 0 || client_new(seen->loop, &seen->client, NULL) < 0)
		abort();
}

static void seen_done(struct seen *seen)
{
	loop_timer_cancel(&seen->timer);
	seen->client = client_free(seen->client);
	seen->loop = loop_free(seen->loop);
	buf_done(&seen->body);
}

static void start(struct seen *seen, const struct client_request *request)
{
	const struct client_handlers handlers = { on_head, on_data, on_done, seen };

	seen->call = client_start(seen->client, request, &handlers);
}

static void go(struct seen *seen, const struct client_request *request)
{
	start(seen, request);
	(void)loop_run(seen->loop, NULL);
}

/* ---- scripts and tests ---- */

static void echo_head(int fd)
{
	char head[4096] = "", reply[8192];

	read_head(fd, head, sizeof head);
	(void)snprintf(reply, sizeof reply,
		"HTTP/1.1 103 Early Hints\r\nX-Test: early\r\n\r\n"
		"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nX-Test: real\r\nContent-Length: "
		"%zu\r\n\r\n%s",
		strlen(head), head);
	say(fd, reply);
}

TEST(answers_with_final_head_and_never_follows_a_redirect)
{
	CLEANUP(peer_done) struct peer peer = peer_start(echo_head);
	CLEANUP(seen_done) struct seen seen;
	const char *headers[] = { "X-API-Key: k", NULL };

	seen_init(&seen);
	go(&seen, &(struct client_request){ .method = "DELETE",
			  .url = peer.url,
			  .headers = headers });
	ASSERT_EQ(seen.r, 0);
	ASSERT_EQ(seen.heads, 1);
	ASSERT_EQ(seen.status, 302);
	ASSERT_STR(seen.header, "real");
	ASSERT(strstr(seen.body.p, "DELETE / HTTP/1.1\r\n") == seen.body.p);
	ASSERT(strstr(seen.body.p, "X-API-Key: k\r\n"));
	ASSERT(!strstr(seen.body.p, "Content-Type"));
}

TEST(post_without_a_body_says_length_zero)
{
	CLEANUP(peer_done) struct peer peer = peer_start(echo_head);
	CLEANUP(seen_done) struct seen seen;

	seen_init(&seen);
	go(&seen, &(struct client_request){ .method = "POST", .url = peer.url });
	ASSERT(strstr(seen.body.p, "Content-Length: 0\r\n"));
	ASSERT(!strstr(seen.body.p, "Content-Type"));
}

TEST(proxy_of_the_environment_is_not_used_for_loopback)
{
	CLEANUP(peer_done) struct peer peer = peer_start(echo_head);
	CLEANUP(seen_done) struct seen seen;

	seen_init(&seen);
	(void)setenv("http_proxy", "http://127.0.0.1:1", 1);
	go(&seen, &(struct client_request){ .method = "GET", .url = peer.url });
	(void)unsetenv("http_proxy");
	ASSERT_EQ(seen.r, 0);
	ASSERT_EQ(seen.status, 302);
}

static void cut_short(int fd)
{
	char head[4096];

	read_head(fd, head, sizeof head);
	say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
}

static void say_nothing(int fd)
{
	char head[4096];

	read_head(fd, head, sizeof head);
	say(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n");
	(void)pause();
}

static void talk_rubbish(int fd)
{
	char head[4096];

	read_head(fd, head, sizeof head);
	say(fd, "SSH-2.0-rubbish\r\n\r\n");
}

TEST(failures_have_their_codes)
{
	static const struct {
		script_fn script;
		const char *url;
		const char *header;
		int r;
	} cases[] = {
		{ cut_short, NULL, NULL, -ECONNRESET },
		{ say_nothing, NULL, NULL, -ETIMEDOUT },
		{ talk_rubbish, NULL, NULL, -EPROTO },
		{ NULL, "http://127.0.0.1:1/", NULL, -ECONNREFUSED },
		{ NULL, "ftp://127.0.0.1/", NULL, -EINVAL },
		{ NULL, "http://a b/", NULL, -EINVAL },
		{ NULL, "http://127.0.0.1:1/", "X: a\r\nY: b", -EINVAL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(peer_done) struct peer peer = { 0 };
		CLEANUP(seen_done) struct seen seen;
		const char *headers[] = { cases[i].header, NULL };

		if (cases[i].script)
			peer = peer_start(cases[i].script);
		seen_init(&seen);
		go(&seen, &(struct client_request){ .method = "GET",
				  .url = cases[i].url ? cases[i].url : peer.url,
				  .headers = headers,
				  .idle_timeout_ms = 200 });
		if (seen.r != cases[i].r)
			TEST_FAIL("case %zu: got %d (%s), want %d", i, seen.r, seen.text,
				cases[i].r);
		ASSERT_EQ(seen.dones, 1);
	}
}

static void cancel_now(void *arg)
{
	struct seen *seen = arg;

	client_cancel(seen->call);
}

TEST(cancel_ends_once_and_freeing_ends_the_rest)
{
	CLEANUP(peer_done) struct peer peer = peer_start(say_nothing);
	CLEANUP(seen_done) struct seen seen;

	seen_init(&seen);
	loop_timer_init(&seen.timer, seen.loop, cancel_now, &seen);
	loop_timer_set(&seen.timer, time_now_ms() + 50);
	go(&seen, &(struct client_request){ .method = "GET", .url = peer.url });
	ASSERT_EQ(seen.r, -ECANCELED);
	ASSERT_EQ(seen.dones, 1);

	start(&seen, &(struct client_request){ .method = "GET", .url = peer.url });
	seen.client = client_free(seen.client);
	ASSERT_EQ(seen.dones, 2);
	ASSERT_EQ(seen.r, -ECANCELED);
}

/* Says whether a chunked body of 3 MiB came. */
static void echo_chunked(int fd)
{
	char head[4096], bytes[65536], reply[128];
	size_t total = 0;
	ssize_t n;

	read_head(fd, head, sizeof head);
	while ((n = read(fd, bytes, sizeof bytes)) > 0) {
		total += (size_t)n;
		if (n >= 5 && memcmp(bytes + n - 5, "0\r\n\r\n", 5) == 0)
			break;
	}
	(void)snprintf(reply, sizeof reply,
		"HTTP/1.1 200 OK\r\nX-Test: %s\r\nContent-Length: 0\r\n\r\n",
		strstr(head, "Transfer-Encoding: chunked") && total > 3000000 ? "whole" : "bad");
	say(fd, reply);
}

static void source_again(void *arg)
{
	struct seen *seen = arg;

	seen->source_waits = false;
	client_more(seen->call);
}

/* Has nothing yet before each MiB: then it waits a moment, and says so when it goes on. */
static ssize_t source(void *arg, char *p, size_t n)
{
	struct seen *seen = arg;
	size_t to_pause = (1 << 20) - seen->sent % (1 << 20);

	if (seen->source_waits)
		return -EAGAIN;
	if (to_pause == 1 << 20 && seen->waits <= seen->sent >> 20) {
		seen->waits++;
		seen->source_waits = true;
		loop_timer_set(&seen->timer, loop_now_ms(seen->loop) + 5);
		return -EAGAIN;
	}
	n = MIN(MIN(n, to_pause), seen->to_send - seen->sent);
	memset(p, 'x', n);
	seen->sent += n;
	return (ssize_t)n;
}

TEST(source_may_wait_and_is_sent_whole)
{
	CLEANUP(peer_done) struct peer peer = peer_start(echo_chunked);
	CLEANUP(seen_done) struct seen seen;

	seen_init(&seen);
	seen.to_send = 3 << 20;
	loop_timer_init(&seen.timer, seen.loop, source_again, &seen);
	go(&seen, &(struct client_request){ .method = "POST",
			  .url = peer.url,
			  .source = source,
			  .source_length = -1,
			  .timeout_ms = 10000 });
	ASSERT_EQ(seen.r, 0);
	ASSERT_EQ(seen.sent, seen.to_send);
	ASSERT_STR(seen.header, "whole");
}

static ssize_t broken_source(void *arg, char *p, size_t n)
{
	(void)arg;
	(void)p;
	(void)n;
	return -ENOSPC;
}

TEST(source_that_fails_ends_the_call_with_its_code)
{
	CLEANUP(peer_done) struct peer peer = peer_start(echo_chunked);
	CLEANUP(seen_done) struct seen seen;

	seen_init(&seen);
	go(&seen, &(struct client_request){ .method = "POST",
			  .url = peer.url,
			  .source = broken_source,
			  .source_length = -1 });
	ASSERT_EQ(seen.r, -ENOSPC);
}

/* Sends 32 MiB and is held back by whoever does not read. */
static void flood(int fd)
{
	static char bytes[1 << 20];
	char head[4096];

	read_head(fd, head, sizeof head);
	say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 33554432\r\n\r\n");
	for (int i = 0; i < 32; i++)
		(void)fd_write_all(fd, bytes, sizeof bytes);
}

static void look_and_resume(void *arg)
{
	struct seen *seen = arg;

	seen->sent = seen->body.n; /* what came although nobody wanted it */
	seen->pause_after = 0;
	client_resume(seen->call);
}

TEST(pause_holds_the_sender_and_resume_loses_nothing)
{
	CLEANUP(peer_done) struct peer peer = peer_start(flood);
	CLEANUP(seen_done) struct seen seen;

	seen_init(&seen);
	seen.pause_after = 1 << 20;
	loop_timer_init(&seen.timer, seen.loop, look_and_resume, &seen);
	loop_timer_set(&seen.timer, time_now_ms() + 300);
	go(&seen, &(struct client_request){ .method = "GET",
			  .url = peer.url,
			  .idle_timeout_ms = 100 /* does not count while paused */ });
	ASSERT_EQ(seen.r, 0);
	ASSERT(seen.sent < 2 << 20);
	ASSERT_EQ(seen.body.n, 32 << 20);
}

static void on_fetched(void *arg, int r, const struct client_call *call, struct str body,
	const struct err *e)
{
	struct seen *seen = arg;

	seen->status = client_status(call);
	(void)buf_add_str(&seen->body, body);
	on_done(arg, r, e);
}

TEST(fetch_collects_up_to_its_limit)
{
	CLEANUP(peer_done) struct peer peer = peer_start(flood);
	CLEANUP(seen_done) struct seen seen;
	struct client_request request = { .method = "GET", .url = peer.url };

	seen_init(&seen);
	(void)client_fetch(seen.client, &request, 32 << 20, on_fetched, &seen);
	(void)loop_run(seen.loop, NULL);
	ASSERT_EQ(seen.r, 0);
	ASSERT_EQ(seen.status, 200);
	ASSERT_EQ(seen.body.n, 32 << 20);

	(void)client_fetch(seen.client, &request, 1000, on_fetched, &seen);
	(void)loop_run(seen.loop, NULL);
	ASSERT_EQ(seen.r, -ENOBUFS);
}

TEST(unix_socket_takes_the_place_of_the_host)
{
	CLEANUP(peer_done) struct peer peer = { 0 };
	CLEANUP(seen_done) struct seen seen;
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(peer.path, sizeof peer.path, "/tmp/test-client.%d", getpid());
	memcpy(address.sun_path, peer.path, sizeof peer.path);
	ASSERT(bind(fd, (void *)&address, sizeof address) == 0 && listen(fd, 1) == 0);
	peer_serve(&peer, fd, echo_head);
	seen_init(&seen);
	go(&seen, &(struct client_request){ .method = "GET",
			  .url = "http://docker/v1/info",
			  .unix_socket = peer.path });
	ASSERT_EQ(seen.r, 0);
	ASSERT(strstr(seen.body.p, "GET /v1/info HTTP/1.1\r\nHost: docker\r\n"));
}
