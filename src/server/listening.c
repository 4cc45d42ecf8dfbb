#include "server/listening.h"
#include "http/http.h"

#include <netinet/in.h>
#include <sys/socket.h>

enum {
	BACKLOG = 4096,
	FIRST_INHERITED_FD = 3, /* by the protocol of LISTEN_FDS */
	MAX_INHERITED = 2,
};

void listening_close(struct listening *l)
{
	close_fdp(&l->fd);
	close_fdp(&l->beside_fd);
	*l = (struct listening)LISTENING_NONE;
}

struct listening listening_take(struct listening *l)
{
	struct listening taken = *l;

	*l = (struct listening)LISTENING_NONE;
	return taken;
}

void listening_keep_open(const struct listening *l, bool keep)
{
	const int fds[] = { l->fd, l->beside_fd };

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			(void)fcntl(fds[i], F_SETFD, keep ? 0 : FD_CLOEXEC);
}

/* ---- opening ---- */

/* The port of a socket on 127.0.0.1; 0: it is not there. */
static uint16_t loopback_port(int fd)
{
	struct sockaddr_storage addr = { 0 };
	socklen_t size = sizeof addr;
	const struct sockaddr_in *in = (const void *)&addr;

	if (getsockname(fd, (struct sockaddr *)&addr, &size) < 0 || addr.ss_family != AF_INET ||
		ntohl(in->sin_addr.s_addr) != INADDR_LOOPBACK)
		return 0;
	return ntohs(in->sin_port);
}

static void open_beside(struct listening *l)
{
	uint16_t port = loopback_port(l->fd);
	char address[32];
	struct err e = { 0 };

	if (!port)
		return;
	(void)snprintf(address, sizeof address, "[::1]:%u", (unsigned)port);
	l->beside_fd = http_listen(address, &e);
	if (l->beside_fd >= 0)
		return;
	if (l->beside_fd == -EADDRINUSE)
		log_warn("listen.half",
			"address=%s means=\"another program has it: who asks for a name below "
			"localhost may reach that one\"",
			address);
	else
		log_debug("listen.half", "err=%s", log_quote(str_of(e.msg)));
	l->beside_fd = -EBADF;
}

int listening_open(struct listening *l, const char *address, struct err *e)
{
	if (l->fd < 0)
		l->fd = http_listen(address, e);
	if (l->fd < 0) {
		int r = l->fd;

		l->fd = -EBADF;
		return r;
	}
	if (l->beside_fd < 0)
		open_beside(l);
	return 0;
}

/* ---- inheriting ---- */

static int inherit(int from, struct err *e)
{
	int listens = 0;
	socklen_t size = sizeof listens;
	cleanup_close int fd = fcntl(from, F_DUPFD_CLOEXEC, FIRST_INHERITED_FD + MAX_INHERITED);

	if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) < 0 || !listens ||
		listen(fd, BACKLOG) < 0)
		return err_set(e, -EINVAL, "LISTEN_FDS: descriptor %d is no listening socket",
			from);
	(void)close(from);
	return TAKE_FD(fd);
}

int listening_inherit(struct listening *ret, struct err *e)
{
	const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
	struct listening l = LISTENING_NONE;
	int64_t number = 0, n = 0;

	*ret = l;
	if (!pid || !count || str_to_int(str_of(pid), 1, INT32_MAX, &number) < 0 ||
		number != getpid() || str_to_int(str_of(count), 0, INT32_MAX, &n) < 0 || n == 0)
		return 0;
	if (n > MAX_INHERITED)
		return err_set(e, -EINVAL,
			"LISTEN_FDS: at most %d sockets are served (127.0.0.1 and ::1), %d were "
			"passed",
			MAX_INHERITED, (int)n);
	(void)unsetenv("LISTEN_PID");
	(void)unsetenv("LISTEN_FDS");
	(void)unsetenv("LISTEN_FDNAMES");
	l.fd = inherit(FIRST_INHERITED_FD, e);
	if (l.fd >= 0 && n > 1)
		l.beside_fd = inherit(FIRST_INHERITED_FD + 1, e);
	if (l.fd < 0 || (n > 1 && l.beside_fd < 0)) {
		listening_close(&l);
		return -EINVAL;
	}
	/* The address that the server names is that of the first. */
	if (n > 1 && !loopback_port(l.fd) && loopback_port(l.beside_fd))
		l = (struct listening){ l.beside_fd, l.fd };
	*ret = l;
	return 0;
}
