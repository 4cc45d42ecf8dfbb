/* The ports run in a child, so that this side can wait like any client of them. */
#include "guest/ports.h"
#include "warden/proto.h"

#include "test.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

enum {
	PATIENCE_S = 10,
	LARGE = 8 << 20,
};

struct rig {
	struct sockaddr_un at; /* abstract: nothing to tidy up */
	socklen_t size;
	pid_t pid;
};

static _Noreturn void serve(int fd)
{
	struct ports ports = { 0 };
	struct loop *loop;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (loop_new(&loop, NULL) < 0 || ports_take(&ports, loop, fd, NULL) < 0)
		_exit(1);
	(void)loop_run(loop, NULL);
	_exit(0);
}

static int rig_start(struct rig *rig)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	rig->at = (struct sockaddr_un){ .sun_family = AF_UNIX };
	rig->size = sizeof rig->at.sun_family;
	if (fd < 0 || bind(fd, (struct sockaddr *)&rig->at, rig->size) < 0 || listen(fd, 16) < 0)
		return -errno;
	rig->size = sizeof rig->at; /* the kernel chose a name */
	if (getsockname(fd, (struct sockaddr *)&rig->at, &rig->size) < 0)
		return -errno;
	rig->pid = fork();
	if (rig->pid == 0)
		serve(fd);
	(void)close(fd);
	return rig->pid < 0 ? -errno : 0;
}

static void rig_stop(struct rig *rig)
{
	if (rig->pid > 0) {
		(void)kill(rig->pid, SIGKILL);
		(void)waitpid(rig->pid, NULL, 0);
	}
}

static void be_patient(int fd)
{
	struct timeval limit = { .tv_sec = PATIENCE_S };

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

/* A listening socket on the loopback and its port. */
static int service(int family, uint16_t *ret_port)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr *at = family == AF_INET ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
	socklen_t n = family == AF_INET ? sizeof v4 : sizeof v6;
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, at, n) < 0 || listen(fd, 4) < 0 || getsockname(fd, at, &n) < 0)
		return -errno;
	be_patient(fd);
	*ret_port = family == AF_INET ? v4.sin_port : v6.sin6_port;
	return fd;
}

/* Connects and asks; the answer, or -errno. */
static int dial(const struct rig *rig, uint16_t port, int *ret)
{
	struct guest_dial ask = { .port = port };
	unsigned char answer;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*ret = fd;
	be_patient(fd);
	if (connect(fd, (const struct sockaddr *)&rig->at, rig->size) < 0 ||
		send(fd, &ask, sizeof ask, MSG_NOSIGNAL) != sizeof ask ||
		recv(fd, &answer, 1, 0) != 1)
		return -errno;
	return answer;
}

static void check_service(int family)
{
	CLEANUP(rig_stop) struct rig rig = { 0 };
	cleanup_close int listening = -EBADF, host = -EBADF, inside = -EBADF;
	uint16_t port = 0;
	char got[16] = "";

	listening = service(family, &port);
	if (listening < 0)
		TEST_SKIP("this host has no such loopback");
	ASSERT_EQ(rig_start(&rig), 0);
	ASSERT_EQ(dial(&rig, port, &host), 0);
	inside = accept(listening, NULL, NULL);
	ASSERT(inside >= 0);
	be_patient(inside);
	ASSERT_EQ(send(host, "ping", 4, 0), 4);
	ASSERT_EQ(recv(inside, got, sizeof got, 0), 4);
	ASSERT_EQ(send(inside, "pong!", 5, 0), 5);
	ASSERT_EQ(recv(host, got, sizeof got, 0), 5);
	/* Each direction ends by itself. */
	ASSERT_EQ(shutdown(host, SHUT_WR), 0);
	ASSERT_EQ(recv(inside, got, sizeof got, 0), 0);
	ASSERT_EQ(send(inside, "late", 4, 0), 4);
	ASSERT_EQ(recv(host, got, sizeof got, 0), 4);
	ASSERT_EQ(shutdown(inside, SHUT_WR), 0);
	ASSERT_EQ(recv(host, got, sizeof got, 0), 0);
}

TEST(a_service_on_the_loopback_is_reached)
{
	check_service(AF_INET);
}

TEST(one_that_speaks_only_ipv6_too)
{
	check_service(AF_INET6);
}

TEST(where_nobody_listens_the_answer_says_so)
{
	CLEANUP(rig_stop) struct rig rig = { 0 };
	cleanup_close int listening = -EBADF, host = -EBADF;
	uint16_t port = 0;
	char byte;

	listening = service(AF_INET, &port);
	ASSERT(listening >= 0);
	(void)close(TAKE_FD(listening));
	ASSERT_EQ(rig_start(&rig), 0);
	ASSERT_EQ(dial(&rig, port, &host), ECONNREFUSED);
	ASSERT_EQ(recv(host, &byte, 1, 0), 0);
}

TEST(port_zero_is_no_port)
{
	CLEANUP(rig_stop) struct rig rig = { 0 };
	cleanup_close int host = -EBADF;

	ASSERT_EQ(rig_start(&rig), 0);
	errno = 0;
	ASSERT_EQ(dial(&rig, 0, &host), 0); /* the end of the stream, not an answer */
	ASSERT_EQ(send(host, "x", 1, MSG_NOSIGNAL), -1);
}

/* More than all buffers on the way hold: who does not read stops who writes, and nothing is lost.
 */
TEST(a_slow_reader_gets_everything)
{
	CLEANUP(rig_stop) struct rig rig = { 0 };
	cleanup_close int listening = -EBADF, host = -EBADF, inside = -EBADF;
	cleanup_free char *bytes = XNEW_N(char, 65536);
	size_t sent = 0, got = 0;
	uint16_t port = 0;
	pid_t writer;
	ssize_t n;

	listening = service(AF_INET, &port);
	ASSERT(listening >= 0);
	ASSERT_EQ(rig_start(&rig), 0);
	ASSERT_EQ(dial(&rig, port, &host), 0);
	inside = accept(listening, NULL, NULL);
	ASSERT(inside >= 0);
	writer = fork();
	if (writer == 0) {
		while (sent < LARGE && (n = send(inside, bytes, 65536, MSG_NOSIGNAL)) > 0)
			sent += (size_t)n;
		_exit(sent < LARGE);
	}
	(void)close(TAKE_FD(inside));
	(void)usleep(200000);
	while ((n = recv(host, bytes, 65536, 0)) > 0)
		got += (size_t)n;
	ASSERT(writer > 0);
	(void)waitpid(writer, NULL, 0);
	ASSERT_EQ(n, 0);
	ASSERT(got >= LARGE);
}
