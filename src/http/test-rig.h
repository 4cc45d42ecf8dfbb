/* A real server on a thread of its own, and a blocking client to throw bytes at it. Each test
 * program includes this once. Nothing but the descriptors passes between the two threads while both
 * run. */
#pragma once

#include "http/http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

enum {
	RIG_WAIT_MS = 30000
};

struct rig {
	struct loop *loop;
	struct http_server *server;
	int port;
	int stop_fd;
	struct loop_io stop_io;
	pthread_t thread;
	int upstream_port; /* for handlers that relay */
	int upstream_fd;   /* or this, once, when it is set */
	atomic_int gone, closed, bodies, refused;
	atomic_long body_bytes;
};

static void rig_on_stop(void *arg, uint32_t events)
{
	struct rig *rig = arg;

	(void)events;
	loop_io_remove(&rig->stop_io);
	loop_stop(rig->loop);
}

static void *rig_main(void *arg)
{
	struct rig *rig = arg;

	(void)loop_run(rig->loop, NULL);
	rig->server = http_server_free(rig->server);
	rig->loop = loop_free(rig->loop);
	return NULL;
}

static int socket_port(int fd)
{
	struct sockaddr_in address = { 0 };
	socklen_t size = sizeof address;

	return getsockname(fd, (struct sockaddr *)&address, &size) == 0 ? ntohs(address.sin_port)
									: -1;
}

static bool rig_start(struct rig *rig, const struct http_limits *limits, http_handler_fn handler)
{
	int fd = http_listen("127.0.0.1:0", NULL);

	if (fd < 0 || loop_new(&rig->loop, NULL) < 0)
		return false;
	rig->port = socket_port(fd);
	rig->server = http_server_new(rig->loop, limits, handler, rig);
	rig->stop_fd = eventfd(0, EFD_CLOEXEC);
	return http_server_take_listener(rig->server, fd, NULL) == 0 &&
	       loop_io_add(rig->loop, &rig->stop_io, rig->stop_fd, EPOLLIN, rig_on_stop, rig,
		       NULL) == 0 &&
	       pthread_create(&rig->thread, NULL, rig_main, rig) == 0;
}

static void rig_stop(struct rig *rig)
{
	uint64_t one = 1;

	if (!rig->thread)
		return;
	(void)!write(rig->stop_fd, &one, sizeof one);
	(void)pthread_join(rig->thread, NULL);
	(void)close(rig->stop_fd);
}

static void set_wait(int fd)
{
	struct timeval wait = { .tv_sec = RIG_WAIT_MS / 1000 };

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
}

static int connect_to(int fd, int port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return connect(fd, (struct sockaddr *)&to, sizeof to) < 0 ? -errno : 0;
}

static int dial(int port)
{
	cleanup_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int r;

	set_wait(fd);
	r = connect_to(fd, port);
	return r < 0 ? r : TAKE_FD(fd);
}

static __attribute__((unused)) bool say(int fd, const char *text)
{
	size_t n = strlen(text);

	return send(fd, text, n, MSG_NOSIGNAL) == (ssize_t)n;
}

/* Reads until `until` has been seen, the end, an error or the limit. Always terminated. */
static __attribute__((unused)) const char *hear(int fd, char *out, size_t size, const char *until)
{
	size_t n = 0;
	ssize_t got;

	out[0] = '\0';
	while (n < size - 1) {
		/* By bytes when something is awaited, so that nothing behind it is taken. */
		got = recv(fd, out + n, until ? 1 : size - 1 - n, 0);
		if (got <= 0)
			break;
		n += (size_t)got;
		out[n] = '\0';
		if (until && strstr(out, until))
			break;
	}
	return out;
}

/* 1: the peer closed cleanly, 0: it did not within the time, -errno: it was reset. */
static __attribute__((unused)) int heard_end(int fd)
{
	char bytes[4096];
	ssize_t n;

	do
		n = recv(fd, bytes, sizeof bytes, 0);
	while (n > 0);
	if (n == 0)
		return 1;
	return errno == EAGAIN ? 0 : -errno;
}

/* Polls until *value >= want. */
static __attribute__((unused)) bool becomes(atomic_int *value, int want)
{
	for (int i = 0; i < RIG_WAIT_MS && atomic_load(value) < want; i += 2)
		(void)poll(NULL, 0, 2);
	return atomic_load(value) >= want;
}
