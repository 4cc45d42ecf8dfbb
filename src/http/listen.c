/* Addresses. Names are not resolved here, except the one that always means this machine. */
#include "http/http-internal.h"

#include <arpa/inet.h>
#include <sys/stat.h>
#include <sys/un.h>

enum {
	BACKLOG = 4096
};

static int listen_on(int family, const void *address, socklen_t size, const char *text,
	struct err *e)
{
	cleanup_close int fd = -EBADF;
	int on = 1, off = 0;

	fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(e, -errno, "socket for %s", text);
	if (family != AF_UNIX)
		(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (family == AF_INET6) /* ":3000" means both kinds of addresses */
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
	if (bind(fd, address, size) < 0)
		return err_sys(e, -errno, "bind %s", text);
	if (listen(fd, BACKLOG) < 0)
		return err_sys(e, -errno, "listen on %s", text);
	return TAKE_FD(fd);
}

/* A socket file that nobody answers on is left over from a process that was killed. */
static void remove_stale(const struct sockaddr_un *address, socklen_t size)
{
	cleanup_close int fd = -EBADF;
	struct stat st;

	if (lstat(address->sun_path, &st) < 0 || !S_ISSOCK(st.st_mode))
		return;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && connect(fd, (const struct sockaddr *)address, size) < 0 &&
		errno == ECONNREFUSED)
		(void)unlink(address->sun_path);
}

static int listen_unix(struct str path, const char *text, struct err *e)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	if (path.n == 0 || path.n >= sizeof address.sun_path)
		return err_set(e, -ENAMETOOLONG, "%s: a socket path has 1 to %zu characters", text,
			sizeof address.sun_path - 1);
	memcpy(address.sun_path, path.p, path.n);
	remove_stale(&address, sizeof address);
	return listen_on(AF_UNIX, &address, sizeof address, text, e);
}

static int listen_any(uint16_t port, const char *text, struct err *e)
{
	struct sockaddr_in6 any6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	struct sockaddr_in any4 = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = listen_on(AF_INET6, &any6, sizeof any6, text, NULL);

	if (fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL) /* a kernel without IPv6 */
		return listen_on(AF_INET, &any4, sizeof any4, text, e);
	return fd < 0 ? err_sys(e, fd, "listen on %s", text) : fd;
}

static int listen_host(struct str host, uint16_t port, const char *text, struct err *e)
{
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	struct sockaddr_in in4 = { .sin_family = AF_INET, .sin_port = htons(port) };
	char name[INET6_ADDRSTRLEN];

	if (str_is(host, "localhost"))
		host = STR("127.0.0.1");
	if (host.n >= sizeof name)
		return err_set(e, -EINVAL, "%s: not an address", text);
	memcpy(name, host.p, host.n);
	name[host.n] = '\0';
	if (inet_pton(AF_INET, name, &in4.sin_addr) == 1)
		return listen_on(AF_INET, &in4, sizeof in4, text, e);
	if (name[0] == '[' && host.n > 2 && name[host.n - 1] == ']') {
		name[host.n - 1] = '\0';
		if (inet_pton(AF_INET6, name + 1, &in6.sin6_addr) == 1)
			return listen_on(AF_INET6, &in6, sizeof in6, text, e);
	}
	return err_set(e, -EINVAL, "%s: not an address", text);
}

int http_listen(const char *address, struct err *e)
{
	struct str text = str_of(address);
	size_t colon = text.n;
	int64_t port;

	if (str_has_prefix(text, STR("unix:")))
		return listen_unix(str_from(text, 5), address, e);
	while (colon > 0 && text.p[colon - 1] != ':')
		colon--;
	if (colon == 0 || str_to_int(str_from(text, colon), 0, 65535, &port) < 0)
		return err_set(e, -EINVAL, "%s: expected HOST:PORT or unix:PATH", address);
	if (colon == 1)
		return listen_any((uint16_t)port, address, e);
	return listen_host(str_make(text.p, colon - 1), (uint16_t)port, address, e);
}
