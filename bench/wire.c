#include "wire.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

int wire_dial(struct wire *w, const char *host, int port, struct err *e)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int one = 1;

	w->from = w->to = 0;
	w->fd = -EBADF;
	if (inet_pton(AF_INET, host, &to.sin_addr) != 1)
		return err_set(e, -EINVAL, "'%s' is no IPv4 address", host);
	w->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (w->fd < 0)
		return err_sys(e, -errno, "socket");
	(void)setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (connect(w->fd, (struct sockaddr *)&to, sizeof to) < 0)
		return err_sys(e, -errno, "connect to %s:%d", host, port);
	return 0;
}

void wire_done(struct wire *w)
{
	if (w->fd >= 0)
		(void)close(w->fd);
	w->fd = -EBADF;
}

int wire_send(struct wire *w, struct str text, struct err *e)
{
	int r = fd_write_all(w->fd, text.p, text.n);

	return r < 0 ? err_sys(e, r, "send") : 0;
}

int wire_send_bytes(struct wire *w, int64_t count, struct err *e)
{
	static char block[256 << 10];

	for (int64_t left = count; left > 0;) {
		size_t n = (size_t)MIN(left, (int64_t)sizeof block);
		int r = wire_send(w, str_make(block, n), e);

		if (r < 0)
			return r;
		left -= (int64_t)n;
	}
	return 0;
}

static int fill(struct wire *w, struct err *e)
{
	ssize_t n;

	if (w->from == w->to)
		w->from = w->to = 0;
	if (w->to == sizeof w->room)
		return err_set(e, -EPROTO, "an answer's line is too long");
	n = read(w->fd, w->room + w->to, sizeof w->room - w->to);
	if (n < 0)
		return err_sys(e, -errno, "receive");
	if (n == 0)
		return err_set(e, -EPROTO, "the server closed the connection inside an answer");
	w->to += (size_t)n;
	return 0;
}

/* A line without its CRLF; good until the next call. */
static int take_line(struct wire *w, struct str *ret, struct err *e)
{
	for (;;) {
		char *start = w->room + w->from;
		char *end = memchr(start, '\n', w->to - w->from);
		int r;

		if (end && end > start) {
			*ret = str_make(start, (size_t)(end - start) - 1);
			w->from += (size_t)(end - start) + 1;
			return 0;
		}
		r = fill(w, e);
		if (r < 0)
			return r;
	}
}

static int take_bytes(struct wire *w, int64_t count, struct wire_answer *a, struct err *e)
{
	while (count > 0) {
		size_t n = (size_t)MIN(count, (int64_t)(w->to - w->from));
		int64_t room = (int64_t)sizeof a->body - 1 - a->body_bytes;
		int r;

		if (n > 0) {
			if (room > 0)
				memcpy(a->body + a->body_bytes, w->room + w->from,
					(size_t)MIN(room, (int64_t)n));
			a->body_bytes += (int64_t)n;
			w->from += n;
			count -= (int64_t)n;
			continue;
		}
		r = fill(w, e);
		if (r < 0)
			return r;
	}
	return 0;
}

static int take_chunks(struct wire *w, struct wire_answer *a, struct err *e)
{
	struct str line;
	int64_t size;
	char *end;
	int r;

	for (;;) {
		r = take_line(w, &line, e);
		if (r < 0)
			return r;
		size = strtoll(line.p, &end, 16); /* the line's CRLF still stands behind it */
		if (line.n == 0 || end != line.p + line.n || size < 0)
			return err_set(e, -EPROTO, "bad chunk size '%.*s'", STR_ARG(line));
		r = take_bytes(w, size, a, e);
		if (r < 0)
			return r;
		r = take_line(w, &line, e);
		if (r < 0 || size == 0)
			return r;
	}
}

static bool header_is(struct str line, const char *name, struct str *value)
{
	ptrdiff_t colon = str_find(line, ':');

	if (colon < 0 || !str_eq_nocase(str_make(line.p, (size_t)colon), str_of(name)))
		return false;
	*value = str_trim(str_from(line, (size_t)colon + 1));
	return true;
}

/* ret_length: -1 means chunked. */
static int take_head(struct wire *w, int *ret_status, int64_t *ret_length, struct err *e)
{
	struct str line, value;
	int64_t status;
	int r = take_line(w, &line, e);

	if (r < 0)
		return r;
	if (line.n < 12 || str_to_int(str_make(line.p + 9, 3), 100, 599, &status) < 0)
		return err_set(e, -EPROTO, "bad status line '%.*s'", STR_ARG(line));
	*ret_status = (int)status;
	*ret_length = 0;
	for (;;) {
		r = take_line(w, &line, e);
		if (r < 0 || line.n == 0)
			return r;
		if (header_is(line, "transfer-encoding", &value))
			*ret_length = -1;
		else if (header_is(line, "content-length", &value) &&
			 str_to_int(value, 0, INT64_MAX, ret_length) < 0)
			return err_set(e, -EPROTO, "bad length '%.*s'", STR_ARG(value));
	}
}

int wire_receive(struct wire *w, struct wire_answer *ret, struct err *e)
{
	int64_t length = 0;
	int r = take_head(w, &ret->status, &length, e);

	ret->body_bytes = 0;
	if (r < 0)
		return r;
	if (length < 0)
		r = take_chunks(w, ret, e);
	else if (ret->status != 204)
		r = take_bytes(w, length, ret, e);
	ret->body[MIN(ret->body_bytes, (int64_t)sizeof ret->body - 1)] = '\0';
	return r;
}
