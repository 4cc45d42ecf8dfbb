#include "guest/grant.h"

#include <dirent.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum {
	MOMENT_MS = 1000,
	SOCKET_TYPE_BITS = 0xf,
	PATH_SIZE = 64,
};

/* ---- sockets ---- */

static bool is_datagram(const struct seccomp_data *call)
{
	int family = (int)call->args[0], type = (int)call->args[1] & SOCKET_TYPE_BITS;
	int protocol = (int)call->args[2];

	return (family == AF_INET || family == AF_INET6) && type == SOCK_DGRAM &&
	       (protocol == 0 || protocol == IPPROTO_UDP);
}

static void note_thread(struct grant_moment *m, uint32_t thread, int64_t now_ms)
{
	uint64_t bit = UINT64_C(1) << thread % 64, *word = &m->threads[thread % GRANT_THREADS / 64];

	if (now_ms - m->began_ms >= MOMENT_MS) {
		memset(m->threads, 0, sizeof m->threads);
		m->began_ms = now_ms;
		m->n_threads = 0;
	}
	m->n_threads += !(*word & bit);
	*word |= bit;
}

/* The one that nobody has asked for longest makes room: there are no more networks than places. */
static struct grant_moment *moment_of(struct grants *g, uint64_t network)
{
	struct grant_moment *oldest = g->inside;

	if (network == 0 || !g->inside)
		return &g->moment;
	for (int i = 0; i < NEST_MAX_NETWORKS; i++) {
		if (g->inside[i].network == network)
			return &g->inside[i];
		if (g->inside[i].began_ms < oldest->began_ms)
			oldest = &g->inside[i];
	}
	*oldest = (struct grant_moment){ .network = network };
	return oldest;
}

static int64_t most_of(const struct grant_count *count, bool of_datagrams)
{
	if (count->network)
		return GRANT_MAX_INSIDE;
	return of_datagrams ? GRANT_MAX_DATAGRAM : GRANT_MAX_RARE;
}

int grant_socket(struct grants *g, uint32_t thread, const struct seccomp_data *call,
	const struct grant_count *count, int64_t now_ms)
{
	struct grant_moment *m = moment_of(g, count->network);

	note_thread(m, thread, now_ms);
	return count->sockets + m->n_threads > most_of(count, is_datagram(call)) ? -ENOBUFS : 0;
}

/* "sockets: used 17" begins it. */
static int64_t count_in(int fd)
{
	static const char head[] = "sockets: used ";
	char text[64];
	ssize_t n = pread(fd, text, sizeof text, 0);
	struct str rest = str_make(text, n < 0 ? 0 : (size_t)n), line;
	int64_t count;

	if (!str_split(&rest, '\n', &line) || !str_has_prefix(line, str_of(head)) ||
		str_to_int(str_from(line, strlen(head)), 0, INT32_MAX, &count) < 0)
		return INT32_MAX; /* as if it had too many */
	return count;
}

/* In the network of who asks: while it waits for the answer, it stays there. The kernel makes these
 * files for each network, with numbers that no other has. */
static struct grant_count count_of(const struct grants *g, uint32_t thread)
{
	struct grant_count count = { .network = UINT64_MAX };
	cleanup_close int fd = -EBADF;
	char path[PATH_SIZE];
	struct stat own, its;

	if (g->nest.place_fd < 0)
		return (struct grant_count){ .sockets = count_in(g->sockets_fd) };
	(void)snprintf(path, sizeof path, "/proc/%" PRIu32 "/net/sockstat", thread);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	count.sockets = count_in(fd);
	if (fd >= 0 && fstat(fd, &its) == 0 && fstat(g->sockets_fd, &own) == 0)
		count.network = its.st_ino == own.st_ino ? 0 : its.st_ino;
	return count;
}

/* ---- filters ---- */

/* Of one thread; 0: it has ended. */
static int64_t filters_of(const char *status_path)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(16 << 10);
	static const char name[] = "\nSeccomp_filters:";
	const char *at;
	struct str rest, line;
	int64_t n = 0;

	if (file_read(AT_FDCWD, status_path, &text, NULL) < 0)
		return 0;
	at = strstr(buf_str(&text).p, name);
	if (!at)
		return 0;
	rest = str_of(at + strlen(name));
	if (str_split(&rest, '\n', &line))
		(void)str_to_int(str_trim(line), 0, INT32_MAX, &n);
	return n;
}

static int64_t filters_of_process(const struct grants *g, const char *pid)
{
	char path[PATH_SIZE];
	struct dirent *entry;
	int64_t n = 0;
	DIR *dir;

	(void)snprintf(path, sizeof path, "/proc/%.12s/task", pid);
	dir = opendir(path);
	while (dir && n <= GRANT_MAX_FILTERS && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof path, "/proc/%.12s/task/%.12s/status", pid,
			entry->d_name);
		n += MAX(filters_of(path) - g->own_filters, INT64_C(0));
	}
	if (dir)
		(void)closedir(dir);
	return n;
}

/* Those that processes share are counted for each, so there may be fewer. */
static int64_t count_filters(const struct grants *g)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	int64_t n = 0;

	while (dir && n <= GRANT_MAX_FILTERS && (entry = readdir(dir)))
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
			n += filters_of_process(g, entry->d_name);
	if (dir)
		(void)closedir(dir);
	return n;
}

/* All are looked at only when so many have been granted that there could be too many. */
static int grant_filter(struct grants *g)
{
	if (g->filters >= GRANT_MAX_FILTERS)
		g->filters = count_filters(g);
	if (g->filters >= GRANT_MAX_FILTERS)
		return -ENOMEM;
	g->filters++;
	return 0;
}

/* ---- calls ---- */

/* Errors wait in a socket beside what it was sent. A resolver does not go on when they are refused,
 * so the rest is told that it hears of them, and does not. */
bool grant_errors(const struct grant_count *count)
{
	return count->sockets < most_of(count, false);
}

/* *ret_made: whether the kernel makes the call that is answered with 0. */
static int decide(struct grants *g, const struct seccomp_notif *asked, bool *ret_made)
{
	struct grant_count count;

	*ret_made = true;
	if (asked->data.nr != SYS_setsockopt && asked->data.nr != SYS_socket)
		return grant_filter(g);
	count = count_of(g, asked->pid);
	if (asked->data.nr == SYS_socket)
		return grant_socket(g, asked->pid, &asked->data, &count, loop_now_ms(g->io.loop));
	*ret_made = grant_errors(&count);
	return 0;
}

/* One for each time that the kernel says that there is one: then it never waits. */
static void on_call(void *arg, uint32_t events)
{
	union {
		struct seccomp_notif call;
		char room[512]; /* a newer kernel may have more to say */
	} u = { .room = { 0 } };
	struct seccomp_notif_resp answer = { 0 };
	struct grants *g = arg;
	bool made = false;
	int r;

	if (!(events & EPOLLIN)) {
		loop_io_remove(&g->io);
		return;
	}
	if (ioctl(g->asked_fd, SECCOMP_IOCTL_NOTIF_RECV, &u.call) < 0)
		return; /* whoever asked has ended */
	if (u.call.data.nr == SYS_mount) {
		r = nest_mount(&g->nest, g->asked_fd, &u.call, loop_now_ms(g->io.loop));
		if (r >= 0)
			return; /* another process answers */
	} else {
		r = decide(g, &u.call, &made);
	}
	answer.id = u.call.id;
	answer.error = r;
	answer.flags = r == 0 && made ? SECCOMP_USER_NOTIF_FLAG_CONTINUE : 0;
	(void)ioctl(g->asked_fd, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

int grants_take(struct grants *g, struct loop *loop, int asked_fd, int place_fd, struct err *e)
{
	g->asked_fd = asked_fd;
	g->nest.place_fd = place_fd;
	if (place_fd >= 0)
		g->inside = XNEW_N(struct grant_moment, NEST_MAX_NETWORKS);
	g->sockets_fd = open("/proc/self/net/sockstat", O_RDONLY | O_CLOEXEC);
	if (g->sockets_fd < 0)
		return err_sys(e, -errno, "open /proc/self/net/sockstat");
	g->own_filters = (int)filters_of("/proc/self/status");
	return loop_io_add(loop, &g->io, asked_fd, EPOLLIN, on_call, g, e);
}

void grants_done(struct grants *g)
{
	loop_io_remove(&g->io);
	close_fdp(&g->asked_fd);
	close_fdp(&g->sockets_fd);
	close_fdp(&g->nest.place_fd);
	free(g->inside);
	g->inside = NULL;
}
