#include "warden/egress.h"
#include "warden/firewall.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum {
	BACKLOG = 1024,
};

/* Wildcard, since it must be at every sandbox's gateway, and each has its own. */
static int bind_port(int fd, int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };

	return bind(fd, (struct sockaddr *)&a, sizeof a) < 0 ? -errno : 0;
}

/* Another server of this host may have some of the ports. */
static int open_one(int type, int *ret_port, struct err *e)
{
	cleanup_close int fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int one = 1, r = -EADDRINUSE;

	if (fd < 0)
		return err_sys(e, -errno, "open a socket for redirected traffic");
	/* Only for streams: two datagram sockets would share the port with it. */
	if (type == SOCK_STREAM)
		(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	else
		(void)setsockopt(fd, SOL_IP, IP_PKTINFO, &one, sizeof one);
	for (int i = 0; r == -EADDRINUSE && i < FIREWALL_PORTS; i++) {
		*ret_port = FIREWALL_FIRST_PORT + i;
		r = bind_port(fd, *ret_port);
	}
	if (r >= 0 && type == SOCK_STREAM && listen(fd, BACKLOG) < 0)
		r = -errno;
	if (r < 0)
		return err_sys(e, r, "take a port from %d to %d", FIREWALL_FIRST_PORT,
			FIREWALL_FIRST_PORT + FIREWALL_PORTS - 1);
	return TAKE_FD(fd);
}

int egress_open(int ret_fds[WARDEN_EGRESS_FDS], int ret_ports[WARDEN_EGRESS_FDS], struct err *e)
{
	static const int types[WARDEN_EGRESS_FDS] = { [WARDEN_DNS_UDP] = SOCK_DGRAM,
		[WARDEN_DNS_TCP] = SOCK_STREAM,
		[WARDEN_PROXY] = SOCK_STREAM };

	for (int i = 0; i < WARDEN_EGRESS_FDS; i++) {
		int fd = open_one(types[i], &ret_ports[i], e);

		if (fd < 0) {
			while (i-- > 0)
				(void)close(TAKE_FD(ret_fds[i]));
			return fd;
		}
		ret_fds[i] = fd;
	}
	return 0;
}
