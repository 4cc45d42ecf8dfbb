/* Readers of the event feed, many of them, and somebody who makes events at a given rate.
 *
 *     bench-events PORT READERS SECONDS RATE     the key is in E2B_API_KEY
 *
 * RATE 0: the readers are opened and held until stdin ends; "open" is printed when all are. Else it
 * prints: events made, fewest and most that a reader got, and how late (ms) the last event came to
 * the last reader. */
#include "base/base.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum {
	ROOM = 256 << 10,
	IN_FLIGHT = 32, /* requests that are not answered yet */
};

struct reader {
	int fd;
	int64_t events;
	size_t matched; /* of the mark that begins an event */
};

static int dial(int port)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr = { htonl(INADDR_LOOPBACK) } };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
		return -errno;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	return fd;
}

static int open_reader(struct reader *r, int port, const char *key)
{
	char text[512];
	int n = snprintf(text, sizeof text,
		"GET /api/v1/events?kind=secret. HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\n\r\n",
		key);

	*r = (struct reader){ .fd = dial(port) };
	return r->fd < 0 ? r->fd : fd_write_all(r->fd, text, (size_t)n);
}

/* Counts marks over any cut of the bytes. */
static void count(struct reader *r, const char *p, size_t n)
{
	static const char mark[] = "\ndata: ";

	for (size_t i = 0; i < n; i++) {
		r->matched = p[i] == mark[r->matched] ? r->matched + 1 : p[i] == mark[0];
		if (r->matched == sizeof mark - 1) {
			r->events++;
			r->matched = 0;
		}
	}
}

struct writer {
	int fd;
	int64_t made, answered;
	size_t matched;
	char request[512];
	size_t request_n;
};

static void writer_init(struct writer *w, int port, const char *key)
{
	static const char body[] = "{\"value\":\"benchmark\"}";

	*w = (struct writer){ .fd = dial(port) };
	w->request_n = (size_t)snprintf(w->request, sizeof w->request,
		"PUT /api/v1/secrets/bench HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\nContent-Type: "
		"application/json\r\nContent-Length: %zu\r\n\r\n%s",
		key, sizeof body - 1, body);
}

static void writer_read(struct writer *w, const char *p, size_t n)
{
	static const char mark[] = "HTTP/1.1 2";

	for (size_t i = 0; i < n; i++) {
		w->matched = p[i] == mark[w->matched] ? w->matched + 1 : p[i] == mark[0];
		if (w->matched == sizeof mark - 1) {
			w->answered++;
			w->matched = 0;
		}
	}
}

static void write_due(struct writer *w, int64_t due)
{
	while (w->made < due && w->made - w->answered < IN_FLIGHT) {
		if (fd_write_all(w->fd, w->request, w->request_n) < 0)
			exit(1);
		w->made++;
	}
}

struct bench {
	struct reader *readers;
	struct writer writer;
	int n_readers, epoll_fd;
	char *room;
};

/* Whoever has something; true: something came. */
static bool take(struct bench *b, int wait_ms)
{
	struct epoll_event ready[64];
	int n = epoll_wait(b->epoll_fd, ready, ARRAY_SIZE(ready), wait_ms);

	for (int i = 0; i < n; i++) {
		struct reader *r = ready[i].data.ptr;
		ssize_t got = read(r ? r->fd : b->writer.fd, b->room, ROOM);

		if (got <= 0)
			exit(1);
		if (r)
			count(r, b->room, (size_t)got);
		else
			writer_read(&b->writer, b->room, (size_t)got);
	}
	return n > 0;
}

static int64_t fewest(const struct bench *b)
{
	int64_t n = INT64_MAX;

	for (int i = 0; i < b->n_readers; i++)
		n = MIN(n, b->readers[i].events);
	return n;
}

static int run(struct bench *b, int64_t seconds, int64_t rate)
{
	int64_t began = time_now_us(), done_us, most = 0;

	while (time_now_us() - began < seconds * 1000000) {
		write_due(&b->writer, (time_now_us() - began) * rate / 1000000);
		(void)take(b, 1);
	}
	while (b->writer.answered < b->writer.made)
		(void)take(b, 1000);
	done_us = time_now_us();
	while (fewest(b) < b->writer.answered && time_now_us() - done_us < 30000000)
		(void)take(b, 10);
	for (int i = 0; i < b->n_readers; i++)
		most = MAX(most, b->readers[i].events);
	printf("%" PRId64 "\n%" PRId64 "\n%" PRId64 "\n%" PRId64 "\n", b->writer.answered,
		fewest(b), most, (time_now_us() - done_us) / 1000);
	return fewest(b) == b->writer.answered && most == b->writer.answered ? 0 : 1;
}

static int hold(void)
{
	char c;

	printf("open\n");
	(void)fflush(stdout);
	while (read(STDIN_FILENO, &c, 1) > 0)
		;
	return 0;
}

static int64_t number(const char *text)
{
	int64_t value = 0;

	if (str_to_int(str_of(text), 0, 1000000, &value) < 0)
		exit(2);
	return value;
}

int main(int argc, char **argv)
{
	const char *key = getenv("E2B_API_KEY");
	struct bench b = { .epoll_fd = epoll_create1(EPOLL_CLOEXEC) };
	struct rlimit files = { 16384, 16384 };
	int64_t rate;

	if (argc != 5 || !key)
		return 2;
	(void)setrlimit(RLIMIT_NOFILE, &files);
	rate = number(argv[4]);
	b.n_readers = (int)number(argv[2]);
	b.readers = XNEW_N(struct reader, (size_t)b.n_readers);
	b.room = XNEW_N(char, ROOM);
	for (int i = 0; i < b.n_readers; i++) {
		struct epoll_event event = { .events = EPOLLIN, .data.ptr = &b.readers[i] };

		if (open_reader(&b.readers[i], (int)number(argv[1]), key) < 0 ||
			epoll_ctl(b.epoll_fd, EPOLL_CTL_ADD, b.readers[i].fd, &event) < 0)
			return 1;
	}
	writer_init(&b.writer, (int)number(argv[1]), key);
	(void)epoll_ctl(b.epoll_fd, EPOLL_CTL_ADD, b.writer.fd,
		&(struct epoll_event){ .events = EPOLLIN, .data.ptr = NULL });
	while (take(&b, 500)) /* the heads */
		;
	return rate ? run(&b, number(argv[3]), rate) : hold();
}
