/* How fast bytes pass through the relay, beside a plain copy over one loopback connection, and what
 * a request through it costs. Prints one line for each. */
#include "test-rig.h"

enum {
	PIECE = 256 * 1024
};
static const int64_t total_bytes = (int64_t)1 << 30;

static void on_refused(void *arg, struct http_exchange *x, int r)
{
	(void)arg;
	(void)r;
	http_abort(x);
}

static void handle(void *arg, struct http_exchange *x)
{
	struct rig *rig = arg;
	struct http_relay_options options = { 0 };

	(void)http_relay(x, dial(rig->upstream_port), &options, on_refused);
}

static bool send_all(int fd, int64_t n)
{
	static const char piece[PIECE];

	while (n > 0) {
		ssize_t sent = send(fd, piece, (size_t)MIN(n, (int64_t)PIECE), MSG_NOSIGNAL);

		if (sent <= 0)
			return false;
		n -= sent;
	}
	return true;
}

static int64_t receive_all(int fd, int64_t n)
{
	static char piece[PIECE];
	int64_t got = 0;
	ssize_t r;

	while (got < n && (r = recv(fd, piece, (size_t)MIN(n - got, (int64_t)PIECE), 0)) > 0)
		got += r;
	return got;
}

struct upstream {
	int listener;
	const char *reply; /* its head; NULL: no HTTP at all */
	bool upload;
	int times;
};

static void serve_one(const struct upstream *u)
{
	cleanup_close int fd = accept(u->listener, NULL, NULL);
	char head[4096];

	if (u->times > 1)
		(void)!recv(fd, head, sizeof head, 0);
	else if (u->reply)
		(void)hear(fd, head, sizeof head, "\r\n\r\n");
	if (u->upload)
		(void)receive_all(fd, total_bytes);
	if (u->reply)
		(void)say(fd, u->reply);
	if (!u->upload && u->times == 1)
		(void)send_all(fd, total_bytes);
	(void)shutdown(fd, SHUT_WR);
	(void)heard_end(fd);
}

static void *upstream_main(void *arg)
{
	struct upstream *u = arg;

	for (int i = 0; i < u->times; i++)
		serve_one(u);
	return NULL;
}

static void report(const char *what, int64_t bytes, int64_t us)
{
	printf("%-28s %8.2f GiB/s\n", what, (double)bytes / 1073.741824 / (double)us);
}

/* port: where the client goes; the relay, or straight to the upstream. */
static void measure(const char *what, int port, struct upstream *u, const char *request)
{
	cleanup_close int fd = -EBADF;
	pthread_t thread;
	char head[4096];
	int64_t start, bytes = total_bytes;

	if (pthread_create(&thread, NULL, upstream_main, u) != 0)
		return;
	fd = dial(port);
	start = time_now_us();
	if (request)
		(void)say(fd, request);
	if (u->upload)
		(void)send_all(fd, total_bytes);
	if (request)
		(void)hear(fd, head, sizeof head, "\r\n\r\n");
	if (!u->upload)
		bytes = receive_all(fd, total_bytes);
	report(what, bytes, time_now_us() - start);
	close_fdp(&fd);
	fd = -EBADF;
	(void)pthread_join(thread, NULL);
}

static void measure_requests(struct rig *rig, int listener)
{
	struct upstream u = { listener, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false,
		5000 };
	cleanup_close int fd = dial(rig->port);
	pthread_t thread;
	char got[4096];
	int64_t start = time_now_us();

	if (pthread_create(&thread, NULL, upstream_main, &u) != 0)
		return;
	for (int i = 0; i < u.times; i++) {
		(void)say(fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
		(void)!recv(fd, got, sizeof got, 0); /* head and body are sent as one */
	}
	(void)pthread_join(thread, NULL);
	printf("%-28s %8.1f us\n", "request, one after another",
		(double)(time_now_us() - start) / u.times);
}

int main(void)
{
	struct rig rig = { 0 };
	int listener = http_listen("127.0.0.1:0", NULL);
	int port = socket_port(listener);
	struct upstream u = { .listener = listener, .times = 1 };

	(void)fd_set_nonblock(listener, false);
	rig.upstream_port = port;
	if (listener < 0 || !rig_start(&rig, NULL, handle))
		return 1;
	measure("plain copy", port, &u, NULL);
	u.reply = "HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n";
	measure("relay, download", rig.port, &u, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	u.reply = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40000000\r\n";
	measure("relay, chunked download", rig.port, &u, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	u.upload = true;
	u.reply = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
	measure("relay, upload", rig.port, &u,
		"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1073741824\r\n\r\n");
	measure_requests(&rig, listener);
	rig_stop(&rig);
	(void)close(listener);
	return 0;
}
