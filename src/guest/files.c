/* GET /files, and what both directions check first. */
#include "guest/files.h"

#include "guest/accept.h"
#include "guest/auth.h"
#include "guest/mime.h"
#include "guest/pack.h"
#include "guest/path.h"
#include "guest/range.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

enum {
	READ_PIECE = 64 << 10
};

bool files_admit(struct guest *g, struct http_exchange *x, const char *operation,
	struct user *ret_user, struct str *ret_path)
{
	struct str username = http_query_value(x, "username");
	struct err e = { 0 };
	struct auth_claim claim = {
		.given_token = http_header(x, "X-Access-Token"),
		.signature = http_query_value(x, "signature"),
		.expiration = http_query_value(x, "signature_expiration"),
		.path = http_query_value(x, "path"),
		.user = username,
		.operation = operation,
	};
	int r = auth_file_check(g->settings.token, &claim, time_wall_us() / 1000000, &e);

	if (r < 0) {
		reply_fail(x, r == -EINVAL ? 400 : 401, "%s", e.msg);
		return false;
	}
	if (guest_find_user(g, username, ret_user, &e) < 0) {
		struct str name = username.p ? username : str_of(g->settings.default_user);

		reply_fail(x, 401, "error looking up user '%.*s': user: unknown user %.*s",
			STR_ARG(name), STR_ARG(name));
		return false;
	}
	*ret_path = claim.path;
	return true;
}

/* ---- files without a size, such as those of /proc: read until they end ---- */

struct reading {
	struct transfer transfer;
	struct http_exchange *x;
	int fd;
	char piece[READ_PIECE];
};

static void reading_free(struct reading *r)
{
	list_remove(&r->transfer.node);
	(void)close(r->fd);
	free(r);
}

static void reading_cancel(struct transfer *t)
{
	reading_free(container_of(t, struct reading, transfer));
}

static void reading_gone(void *arg)
{
	struct reading *r = arg;

	http_abort(r->x);
	reading_free(r);
}

/* Until the piece is full or the file at its end: /proc gives a page at a time. */
static ssize_t read_piece(struct reading *r)
{
	size_t at = 0;

	while (at < sizeof r->piece) {
		ssize_t n = read(r->fd, r->piece + at, sizeof r->piece - at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno != EAGAIN || at == 0))
			return -errno;
		if (n <= 0)
			break;
		at += (size_t)n;
	}
	return (ssize_t)at;
}

static void reading_pump(void *arg)
{
	struct reading *r = arg;
	bool more = true;

	while (more) {
		ssize_t n = read_piece(r);

		if (n > 0) {
			more = http_write(r->x, str_make(r->piece, (size_t)n));
			continue;
		}
		/* An error in the middle cuts: the client must not take it for the end. */
		if (n < 0 && n != -EAGAIN)
			http_abort(r->x);
		else
			http_end(r->x);
		reading_free(r);
		return;
	}
}

static void send_by_reading(struct guest *g, struct http_exchange *x, int take_fd, const char *type)
{
	struct reading *r = XNEW(struct reading);
	ssize_t n;

	r->x = x;
	r->fd = take_fd;
	transfer_add(g, &r->transfer, reading_cancel);
	n = read_piece(r);
	if (n == -EAGAIN)
		n = 0;
	if (n < 0) {
		reply_fail(x, 500, "error reading file: %s", strerror((int)-n));
		reading_free(r);
	} else if (n < READ_PIECE) { /* whole: most of /proc, and files that are just empty */
		http_reply(x, 200, type, str_make(r->piece, (size_t)n));
		reading_free(r);
	} else {
		http_begin(x, 200, type, -1);
		http_on_gone(x, reading_gone, r);
		http_on_drain(x, reading_pump, r);
		if (http_write(x, str_make(r->piece, (size_t)n)))
			reading_pump(r);
	}
}

/* ---- regular files ---- */

static void add_disposition(struct http_exchange *x, const char *path)
{
	CLEANUP(buf_done) struct buf value = BUF_INIT(8192);

	mime_disposition(path_base(path), &value);
	if (!value.failed)
		http_add_header(x, "Content-Disposition", buf_str(&value));
}

/* What the file was when it was looked at: another content has another one. */
struct validators {
	char modified[64], tag[64];
};

static void read_validators(const struct stat *st, struct validators *ret)
{
	range_http_date(st->st_mtim.tv_sec, ret->modified);
	(void)snprintf(ret->tag, sizeof ret->tag, "\"%jx-%jx-%jx\"", (uintmax_t)st->st_ino,
		(uintmax_t)st->st_mtim.tv_sec * 1000000000 + (uintmax_t)st->st_mtim.tv_nsec,
		(uintmax_t)st->st_size);
}

static void send_part(struct http_exchange *x, int take_fd, int64_t size, const char *type,
	const struct validators *now)
{
	struct range range = { .length = size };
	char text[64];
	struct str if_range = http_header(x, "If-Range");
	bool by_tag = if_range.n && if_range.p[0] == '"';
	enum range_result found = range_choose(http_header(x, "Range"), if_range,
		by_tag ? now->tag : now->modified, size, &range);

	http_add_header(x, "Accept-Ranges", STR("bytes"));
	if (found == RANGE_IMPOSSIBLE) {
		(void)close(take_fd);
		(void)snprintf(text, sizeof text, "bytes */%" PRId64, size);
		http_add_header(x, "Content-Range", str_of(text));
		reply_fail(x, 416, "range not satisfiable");
		return;
	}
	if (found == RANGE_PART) {
		(void)snprintf(text, sizeof text, "bytes %" PRId64 "-%" PRId64 "/%" PRId64,
			range.offset, range.offset + range.length - 1, size);
		http_add_header(x, "Content-Range", str_of(text));
	}
	http_begin(x, found == RANGE_PART ? 206 : 200, type, range.length);
	http_take_file(x, take_fd, range.offset, range.length);
}

static bool is_unchanged(struct http_exchange *x, const struct stat *st,
	const struct validators *now)
{
	struct str if_none_match = http_header(x, "If-None-Match");

	if (if_none_match.n)
		return str_is(if_none_match, now->tag);
	return range_not_modified(http_header(x, "If-Modified-Since"), st->st_mtim.tv_sec);
}

static void send_file(struct guest *g, struct http_exchange *x, int take_fd, const struct stat *st,
	const char *type)
{
	struct str accepted = http_header(x, "Accept-Encoding");
	/* A part is one of the plain bytes: who may have those, gets it. */
	bool is_packed = accept_choose(accepted) == ACCEPT_GZIP &&
			 !(http_header(x, "Range").n && accept_plain(accepted));
	struct validators now;

	read_validators(st, &now);
	if (st->st_size > 0) {
		http_add_header(x, "Last-Modified", str_of(now.modified));
		if (!is_packed)
			http_add_header(x, "ETag", str_of(now.tag));
	}
	if (st->st_size > 0 && is_unchanged(x, st, &now)) {
		(void)close(take_fd);
		http_reply(x, 304, NULL, STR_NONE);
	} else if (is_packed) {
		pack_send(g, x, take_fd, type);
	} else if (st->st_size > 0) {
		send_part(x, take_fd, st->st_size, type, &now);
	} else {
		send_by_reading(g, x, take_fd, type);
	}
}

/* For programs that must tell one failure from another: the server, for its own clients. */
void files_say_errno(struct http_exchange *x, int r)
{
	const char *name = strerrorname_np(-r);

	if (name)
		http_add_header(x, "Atoll-Errno", str_of(name));
}

static void fail_open(struct http_exchange *x, const char *path, int r)
{
	files_say_errno(x, r);
	if (r == -ENOENT || r == -ENOTDIR)
		reply_fail(x, 404, "path '%s' does not exist", path);
	else if (r == -EISDIR)
		reply_fail(x, 400, "path '%s' is a directory", path);
	else if (r == -EINVAL)
		reply_fail(x, 400, "path '%s' is not a regular file", path);
	else
		reply_fail(x, 500, "error opening file '%s': %s", path, strerror(-r));
}

/* What sysfs and its like state is the room of an attribute, not what is in it. */
static bool has_true_size(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) < 0 ||
	       (fs.f_type != SYSFS_MAGIC && fs.f_type != CGROUP_SUPER_MAGIC &&
		       fs.f_type != CGROUP2_SUPER_MAGIC);
}

/* An open regular file, or -errno. A size of 0: it is to be read to its end. */
static int open_regular(const char *path, struct stat *st)
{
	cleanup_close int fd = -EBADF;

	/* Looked at before it is opened: opening a device or a pipe may do things. */
	if (stat(path, st) < 0)
		return -errno;
	if (S_ISDIR(st->st_mode))
		return -EISDIR;
	if (!S_ISREG(st->st_mode))
		return -EINVAL;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, st) < 0)
		return -errno;
	if (!S_ISREG(st->st_mode)) /* another one meanwhile */
		return -EINVAL;
	if (!has_true_size(fd))
		st->st_size = 0;
	return TAKE_FD(fd);
}

void files_get(struct guest *g, struct http_exchange *x)
{
	struct err e = { 0 };
	char path[PATH_MAX];
	struct str wanted;
	struct user user;
	struct stat st;
	int fd;

	if (!files_admit(g, x, "read", &user, &wanted))
		return;
	if (guest_resolve(g, &user, wanted, path, &e) < 0) {
		reply_fail(x, 400, "error expanding and resolving path '%.*s': %s", STR_ARG(wanted),
			e.msg);
		return;
	}
	fd = open_regular(path, &st);
	if (fd < 0) {
		fail_open(x, path, fd);
		return;
	}
	if (accept_choose(http_header(x, "Accept-Encoding")) == ACCEPT_NOTHING) {
		(void)close(fd);
		reply_fail(x, 406, "error parsing Accept-Encoding: no acceptable encoding found");
		return;
	}
	http_add_header(x, "Vary", STR("Accept-Encoding"));
	add_disposition(x, path);
	send_file(g, x, fd, &st, mime_of(path_base(path)));
}
