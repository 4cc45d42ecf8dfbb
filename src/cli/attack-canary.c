/* The canary: on the host, at every address, TCP, UDP and an abstract socket. It tells the mark to
 * whoever comes, so a sandbox that knows the mark was there. */
#include "cli/attack.h"

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

enum {
	METADATA_PORT = 80,
	METADATA_ADDRESS = 0xa9fea9fe, /* 169.254.169.254 */
	SOCKETS = 5,
	DATAGRAM_MAX = 512,
	CONTROL_S = 3,
};

/* IPv6 takes IPv4 as well; a host without it has only the latter. */
static int bind_wildcard(int type, uint16_t port)
{
	int fd = socket(AF_INET6, type | SOCK_CLOEXEC, 0);
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };
	const int off = 0;

	if (fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0 &&
		bind(fd, (void *)&v6, sizeof v6) == 0)
		return fd;
	close_fdp(&fd);
	fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
	if (fd >= 0 && bind(fd, (void *)&v4, sizeof v4) == 0)
		return fd;
	close_fdp(&fd);
	return -EADDRINUSE;
}

static uint16_t port_of(int fd)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} at = { .v6 = { 0 } };
	socklen_t size = sizeof at;

	(void)getsockname(fd, &at.any, &size);
	return ntohs(at.any.sa_family == AF_INET6 ? at.v6.sin6_port : at.v4.sin_port);
}

static int bind_metadata(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
		.sin_port = htons(METADATA_PORT),
		.sin_addr.s_addr = htonl(METADATA_ADDRESS) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && bind(fd, (void *)&at, sizeof at) == 0 && listen(fd, 16) == 0)
		return fd;
	close_fdp(&fd);
	return -EADDRNOTAVAIL;
}

static int bind_abstract(const struct attack *a)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "atoll-host-%s", a->mark);

	if (fd >= 0 &&
		bind(fd, (void *)&at,
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0 &&
		listen(fd, 16) == 0)
		return fd;
	close_fdp(&fd);
	return -EADDRINUSE;
}

/* A control socket, where everybody on the host finds it. */
static int bind_control(const struct attack *a)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (snprintf(at.sun_path, sizeof at.sun_path, "%s/control", a->bait) <
			(int)sizeof at.sun_path &&
		fd >= 0 && bind(fd, (void *)&at, sizeof at) == 0 && chmod(at.sun_path, 0777) == 0 &&
		listen(fd, 16) == 0)
		return fd;
	close_fdp(&fd);
	return -EADDRINUSE;
}

static void greet(int listener, const char *mark)
{
	cleanup_close int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd >= 0)
		(void)!send(fd, mark, strlen(mark), MSG_NOSIGNAL);
}

/* What does not carry the mark is not of ours: a host has other traffic. */
static void hear(int fd, const char *mark, struct canary_memory *memory)
{
	struct sockaddr_storage from;
	socklen_t size = sizeof from;
	char text[DATAGRAM_MAX];
	ssize_t n = recvfrom(fd, text, sizeof text, 0, (void *)&from, &size);

	if (n <= 0 || !memmem(text, (size_t)n, mark, strlen(mark)))
		return;
	if (memory->datagrams++ == 0)
		out_clean(str_make(text, (size_t)n), memory->first, sizeof memory->first);
	(void)sendto(fd, mark, strlen(mark), 0, (void *)&from, size);
}

static _Noreturn void sit(const int fds[SOCKETS], const char *mark, struct canary_memory *memory)
{
	struct pollfd p[SOCKETS];
	char name[13];

	(void)snprintf(name, sizeof name, "%.12s", mark);
	(void)prctl(PR_SET_NAME, name);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i < SOCKETS; i++)
		p[i] = (struct pollfd){ .fd = fds[i], .events = POLLIN };
	for (;;) {
		if (poll(p, SOCKETS, -1) < 0)
			_exit(0);
		for (int i = 0; i < SOCKETS; i++) {
			if (p[i].revents & POLLIN && i == 1)
				hear(fds[i], mark, memory);
			else if (p[i].revents & POLLIN)
				greet(fds[i], mark);
		}
	}
}

/* From the host itself, where it can be reached: what says the mark here is what stays silent to a
 * sandbox. */
static bool answers(const struct attack *a, int type)
{
	cleanup_close int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
	const struct sockaddr_in at = { .sin_family = AF_INET,
		.sin_port = htons(a->canary.port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const struct timeval wait = { .tv_sec = CONTROL_S };
	char text[ATTACK_MARK];

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) < 0 ||
		connect(fd, (const void *)&at, sizeof at) < 0 ||
		send(fd, a->mark, ATTACK_MARK, MSG_NOSIGNAL) < 0)
		return false;
	return recv(fd, text, sizeof text, MSG_WAITALL) == ATTACK_MARK &&
	       memcmp(text, a->mark, ATTACK_MARK) == 0;
}

static int check(struct attack *a, struct err *e)
{
	if (!answers(a, SOCK_STREAM) || !answers(a, SOCK_DGRAM) || a->canary.memory->datagrams != 1)
		return err_set(e, -EIO, "the canary does not answer even this machine");
	*a->canary.memory = (struct canary_memory){ 0 }; /* that one was ours */
	return 0;
}

int canary_start(struct attack *a, struct err *e)
{
	int fds[SOCKETS] = { -EBADF, -EBADF, -EBADF, -EBADF, -EBADF };
	int r = 0;

	a->canary.memory = mmap(NULL, sizeof *a->canary.memory, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	fds[0] = bind_wildcard(SOCK_STREAM, 0);
	if (fds[0] >= 0 && listen(fds[0], 64) == 0)
		fds[1] = bind_wildcard(SOCK_DGRAM, port_of(fds[0]));
	fds[2] = bind_abstract(a);
	fds[3] = bind_metadata();
	fds[4] = bind_control(a);
	if (a->canary.memory == MAP_FAILED || fds[0] < 0 || fds[1] < 0 || fds[2] < 0 || fds[4] < 0)
		r = err_set(e, -EADDRINUSE, "cannot listen on this machine");
	a->canary.port = r < 0 ? 0 : port_of(fds[0]);
	a->canary.has_metadata = fds[3] >= 0;
	a->canary.pid = r < 0 ? -1 : fork();
	if (a->canary.pid == 0)
		sit(fds, a->mark, a->canary.memory);
	for (int i = 0; i < SOCKETS; i++)
		close_fdp(&fds[i]);
	return r < 0 ? r : check(a, e);
}

void canary_stop(struct attack *a)
{
	if (a->canary.pid > 0) {
		(void)kill(a->canary.pid, SIGKILL);
		(void)waitpid(a->canary.pid, NULL, 0);
	}
	a->canary.pid = 0;
	if (a->canary.memory && a->canary.memory != MAP_FAILED)
		(void)munmap(a->canary.memory, sizeof *a->canary.memory);
	a->canary.memory = NULL;
}
