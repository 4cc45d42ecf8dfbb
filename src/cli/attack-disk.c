/* What a sandbox does to its own disk, against all others. One makes tens of thousands of files
 * that are open and have no name, which the kernel must remove one by one; then its disk is copied,
 * and then it ends, while other sandboxes are made. They must not notice. */
#include "cli/attack.h"

#include <poll.h>
#include <sys/socket.h>

enum {
	FILES = 30000,
	OUTPUT_MAX = 1 << 20,
	BEFORE = 5, /* made in peace, to compare with */
	MOST = 40,  /* made meanwhile */
	COPY_S = 120,
	SLOW_MS = 3000,
	SLOW_TIMES = 20, /* what nobody can take for a busy machine */
};

static const char row[] = "disk.orphans",
		  title[] = "keep others waiting by files without a name, on a disk that is copied "
			    "and removed";

/* How long the slowest of them took; -errno. */
static int64_t make_some(struct attack *a, int n, int until_fd, int *ret_made, struct err *e)
{
	struct pollfd p = { .fd = until_fd, .events = POLLIN };
	int64_t slowest = 0;

	for (int i = 0; i < n && (until_fd < 0 || poll(&p, 1, 0) == 0); i++) {
		struct target made = { 0 };
		int64_t from_ms = time_now_ms();
		int r = attack_create(a, "{\"templateID\":\"base\",\"timeout\":60}", &made, e);

		if (r < 0)
			return r;
		slowest = MAX(slowest, time_now_ms() - from_ms);
		++*ret_made;
		(void)cli_sandbox_remove(a->cli, made.id, e);
	}
	return slowest;
}

/* The request is on its way when this returns; the descriptor becomes readable with its answer. */
static int begin(struct attack *a, const char *method, const char *path, struct err *e)
{
	const char *text = arena_printf(a->cli->arena,
		"%s %s HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %s\r\nContent-Type: "
		"application/json\r\nContent-Length: 2\r\n\r\n{}",
		method, path, a->cli->config.api_key);

	return attack_dial(a, str_of(text), e);
}

/* The copy is there for nobody: it goes when its name is told. */
static void remove_copy(struct attack *a, int fd)
{
	static const char member[] = "\"snapshotID\":\"";
	const struct timeval wait = { .tv_sec = COPY_S };
	struct attack_answer answer = { 0 };
	struct err e = { 0 };
	char text[4096] = "", *id = NULL;
	size_t n = 0;
	ssize_t got = 1;

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
	while (!id && got > 0 && n < sizeof text - 1) {
		got = recv(fd, text + n, sizeof text - 1 - n, 0);
		n += got > 0 ? (size_t)got : 0;
		id = memmem(text, n, "\"names\"", 7) ? strstr(text, member) : NULL;
	}
	if (!id)
		return;
	id += strlen(member);
	id[strcspn(id, ":\"")] = '\0';
	(void)attack_fetch(a, NULL,
		&(struct attack_request){ "DELETE",
			arena_printf(a->cli->arena, "/templates/%s", id), NULL, STR_NONE },
		&answer, &e);
}

static int fill(struct attack *a, const struct target *target, struct err *e)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX);
	int r = attack_inside_prepare(a, target, e);

	if (r >= 0)
		r = attack_shell(a, target, "user",
			arena_printf(a->cli->arena, "cd; /tmp/atoll-probe --orphans %d", FILES),
			&out, e);
	return r > 0 ? err_set(e, -EIO, "the files cannot be made: %.*s", STR_ARG(buf_str(&out)))
		     : r;
}

static void judge(struct attack *a, int made, int64_t before_ms, int64_t slowest_ms,
	const struct err *e)
{
	if (slowest_ms < 0)
		attack_say(a, row, "client", ATTACK_INCONCLUSIVE, title, "%s", e->msg);
	else
		attack_say(a, row, "client",
			slowest_ms > MAX((int64_t)SLOW_MS, before_ms * SLOW_TIMES)
				? ATTACK_ESCAPED
				: ATTACK_CONTAINED,
			title,
			"%d files; the slowest of %d others was made in %" PRId64
			" ms, before that in %" PRId64 " ms",
			FILES, made, slowest_ms, before_ms);
}

void attack_disk(struct attack *a)
{
	struct target hostile = { 0 };
	struct err e = { 0 };
	int64_t before_ms = -1, copied_ms = -1, ended_ms = -1;
	int unused = 0, made = 0,
	    r = attack_create_local(a, "{\"templateID\":\"base\",\"timeout\":300}", &hostile, &e);

	if (r >= 0)
		r = fill(a, &hostile, &e);
	if (r >= 0)
		before_ms = make_some(a, BEFORE, -EBADF, &unused, &e);
	if (before_ms >= 0) {
		cleanup_close int fd = begin(a, "POST",
			arena_printf(a->cli->arena, "/sandboxes/%s/snapshots", hostile.id), &e);

		copied_ms = fd < 0 ? fd : make_some(a, MOST, fd, &made, &e);
		if (fd >= 0)
			remove_copy(a, fd);
	}
	if (copied_ms >= 0) {
		cleanup_close int fd = begin(a, "DELETE",
			arena_printf(a->cli->arena, "/sandboxes/%s", hostile.id), &e);

		ended_ms = fd < 0 ? fd : make_some(a, MOST / 2, -EBADF, &made, &e);
	}
	judge(a, made, before_ms, MIN(copied_ms, ended_ms) < 0 ? -1 : MAX(copied_ms, ended_ms), &e);
	if (hostile.id[0])
		(void)cli_sandbox_remove(a->cli, hostile.id, &e);
}
