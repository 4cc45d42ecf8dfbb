/* The plain copy that a transfer through the edge is held against: takes a POST into a file, gives
 * the file for a GET, one connection after the other, nothing in between. Prints its port. */
#include "base/base.h"

#include <arpa/inet.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* Reads a head, and whatever of the body came with it. */
static int read_head(int fd, char *room, size_t size, size_t *ret_n, char **ret_body)
{
	size_t n = 0;

	while (n < size - 1) {
		ssize_t got = read(fd, room + n, size - 1 - n);

		if (got <= 0)
			return -EPIPE;
		n += (size_t)got;
		room[n] = '\0';
		*ret_body = memmem(room, n, "\r\n\r\n", 4);
		if (*ret_body) {
			*ret_body += 4;
			*ret_n = n;
			return 0;
		}
	}
	return -EMSGSIZE;
}

static int take_file(int fd, int file, struct str first, int64_t left)
{
	static char block[256 << 10];
	int r = fd_write_all(file, first.p, first.n);

	left -= (int64_t)first.n;
	while (r >= 0 && left > 0) {
		ssize_t n = read(fd, block, sizeof block);

		if (n <= 0)
			return -EPIPE;
		r = fd_write_all(file, block, (size_t)n);
		left -= n;
	}
	return r < 0 ? r : fd_write_all(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 38);
}

static int give_file(int fd, int file)
{
	struct stat st;
	char head[128];
	off_t at = 0;
	int n, r;

	if (fstat(file, &st) < 0)
		return -errno;
	n = snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %jd\r\n\r\n",
		(intmax_t)st.st_size);
	r = fd_write_all(fd, head, (size_t)n);
	while (r >= 0 && at < st.st_size)
		if (sendfile(fd, file, &at, (size_t)(st.st_size - at)) <= 0)
			return -EPIPE;
	return r;
}

static void serve_one(int fd, const char *path)
{
	static char room[64 << 10];
	cleanup_close int file = -EBADF;
	char *body, *length;
	size_t n;

	if (read_head(fd, room, sizeof room, &n, &body) < 0)
		return;
	if (room[0] == 'G') {
		file = open(path, O_RDONLY | O_CLOEXEC);
		(void)give_file(fd, file);
		return;
	}
	file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	length = strstr(room, "Content-Length: ");
	if (file >= 0 && length)
		(void)take_file(fd, file, str_make(body, n - (size_t)(body - room)),
			strtoll(length + 16, NULL, 10));
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof at;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (argc != 2 || listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) < 0 ||
		listen(listener, 4) < 0 ||
		getsockname(listener, (struct sockaddr *)&at, &size) < 0) {
		(void)fprintf(stderr, "usage: bench-peer FILE\n");
		return 2;
	}
	(void)printf("%d\n", ntohs(at.sin_port));
	(void)fflush(stdout);
	for (;;) {
		cleanup_close int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd >= 0)
			serve_one(fd, argv[1]);
	}
}
