#include "base/base.h"

#include <sys/socket.h>
#include <sys/stat.h>

int fd_write_all(int fd, const void *p, size_t n)
{
	const char *from = p;

	while (n) {
		ssize_t done = write(fd, from, n);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -errno;
		from += done;
		n -= (size_t)done;
	}
	return 0;
}

int fd_read_all(int fd, struct buf *out)
{
	for (;;) {
		/* One byte beyond the ceiling is asked for, to tell "full" from "too much". */
		size_t room = MIN((size_t)65536, out->max - out->n);
		char spare, *to = room ? buf_reserve(out, room) : &spare;
		ssize_t got;

		if (!to)
			return -ENOBUFS;
		got = read(fd, to, room ? room : 1);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			return buf_add(out, "", 0);
		if (!room)
			return -ENOBUFS;
		out->n += (size_t)got;
		out->p[out->n] = '\0';
	}
}

int fd_set_nonblock(int fd, bool on)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) < 0)
		return -errno;
	return 0;
}

int file_read(int dir_fd, const char *name, struct buf *out, struct err *e)
{
	cleanup_close int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	int r;

	if (fd < 0)
		return err_sys(e, -errno, "open %s", name);
	r = fd_read_all(fd, out);
	return r < 0 ? err_sys(e, r, "read %s", name) : 0;
}

int file_write(int dir_fd, const char *name, struct str text, struct err *e)
{
	cleanup_close int fd = openat(dir_fd, name, O_WRONLY | O_CLOEXEC);
	int r;

	if (fd < 0)
		return err_sys(e, -errno, "open %s", name);
	r = fd_write_all(fd, text.p, text.n);
	return r < 0 ? err_sys(e, r, "write '%.*s' to %s", STR_ARG(text), name) : 0;
}

int file_create(int dir_fd, const char *name, struct str text, mode_t mode, struct err *e)
{
	cleanup_close int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	int r;

	if (fd < 0)
		return err_sys(e, -errno, "create %s", name);
	r = fd_write_all(fd, text.p, text.n);
	if (r >= 0 && fchmod(fd, mode) < 0)
		r = -errno;
	if (r >= 0)
		return 0;
	(void)unlinkat(dir_fd, name, 0);
	return err_sys(e, r, "write %s", name);
}

int file_replace(int dir_fd, const char *name, struct str text, mode_t mode, struct err *e)
{
	char temp[300];
	int r;

	if (snprintf(temp, sizeof temp, "%s.new", name) >= (int)sizeof temp)
		return err_sys(e, -ENAMETOOLONG, "write %s", name);
	(void)unlinkat(dir_fd, temp, 0);
	r = file_create(dir_fd, temp, text, mode, e);
	if (r < 0)
		return r;
	if (renameat(dir_fd, temp, dir_fd, name) < 0) {
		r = -errno;
		(void)unlinkat(dir_fd, temp, 0);
		return err_sys(e, r, "write %s", name);
	}
	return 0;
}

int file_open_own(int dir_fd, const char *name, uid_t owner, struct err *e)
{
	cleanup_close int fd =
		openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 && errno != ELOOP)
		return err_sys(e, -errno, "open %s", name);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != owner ||
		st.st_nlink != 1)
		return err_set(e, -EPERM, "%s is not a plain file of user %u's alone", name,
			(unsigned)owner);
	return TAKE_FD(fd);
}

int dir_make(int dir_fd, const char *name, mode_t mode, struct err *e)
{
	if (mkdirat(dir_fd, name, mode) < 0 && errno != EEXIST)
		return err_sys(e, -errno, "make directory %s", name);
	return 0;
}

int fd_send(int sock, const void *p, size_t n, const int *fds, int n_fds)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * FD_MAX_PASS)] = { 0 };
	union {
		const void *in;
		void *out;
	} bytes = { .in = p };
	struct iovec iov = { .iov_base = bytes.out, .iov_len = n };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	assert(n_fds >= 0 && n_fds <= FD_MAX_PASS);
	if (n_fds) {
		struct cmsghdr *c;

		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n_fds);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n_fds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)n_fds);
	}
	for (;;) {
		ssize_t sent = sendmsg(sock, &msg, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		return sent < 0 ? -errno : 0;
	}
}

static int collect_fds(struct msghdr *msg, int fds[FD_MAX_PASS])
{
	int n = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			if (n < FD_MAX_PASS)
				fds[n++] = fd;
			else
				(void)close(fd);
		}
	}
	return n;
}

ssize_t fd_recv(int sock, void *p, size_t n, int fds[FD_MAX_PASS], int *ret_n)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * FD_MAX_PASS)];
	struct iovec iov = { .iov_base = p, .iov_len = n };
	struct msghdr msg = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof control };
	ssize_t got;
	int n_fds;

	do
		got = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	n_fds = collect_fds(&msg, fds);
	if (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		while (n_fds)
			(void)close(fds[--n_fds]);
		return -EMSGSIZE;
	}
	*ret_n = n_fds;
	return got;
}
