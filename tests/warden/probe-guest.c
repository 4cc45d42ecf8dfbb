/* A guest for tests: boots as the real one does, then does one simple thing per connection and says
 * what came of it. So a test can look at a sandbox from the inside with an empty template. */
#include "guest/boot.h"
#include "guest/seen.h"
#include "guest/uptime.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <linux/keyctl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum {
	MAX_OUT = 1 << 16,
};

static void say_result(struct buf *out, int64_t r)
{
	(void)buf_printf(out, "%" PRId64, r < 0 ? (int64_t)-errno : INT64_C(0));
}

static void do_read(const char *path, struct buf *out)
{
	struct err e = { 0 };

	if (file_read(AT_FDCWD, path, out, &e) < 0)
		(void)buf_printf(out, "%d", e.code);
}

/* PATH TEXT: creates it if it is not there. */
static void do_write(char *args, struct buf *out)
{
	char *text = strchr(args, ' ');
	cleanup_close int fd = -EBADF;

	if (text)
		*text++ = '\0';
	fd = open(args, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	say_result(out, fd < 0 ? -1 : write(fd, text ? text : "", text ? strlen(text) : 0));
}

/* TARGET PATH */
static void do_link(char *args, struct buf *out)
{
	char *path = strchr(args, ' ');

	if (path)
		*path++ = '\0';
	say_result(out, symlink(args, path ? path : ""));
}

static void do_list(const char *path, struct buf *out)
{
	DIR *dir = opendir(path);
	struct dirent *entry;

	if (!dir)
		say_result(out, -1);
	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			(void)buf_printf(out, "%s\n", entry->d_name);
	if (dir)
		(void)closedir(dir);
}

static void do_stat(const char *path, struct buf *out)
{
	struct stat st;

	if (stat(path, &st) < 0)
		say_result(out, -1);
	else
		(void)buf_printf(out, "%o %u %u", st.st_mode, st.st_uid, st.st_gid);
}

/* PATH MODE, in octal */
static void do_chmod(char *args, struct buf *out)
{
	char *mode = strchr(args, ' ');

	if (mode)
		*mode++ = '\0';
	say_result(out, chmod(args, mode ? (mode_t)strtol(mode, NULL, 8) : 0));
}

static void do_disk(const char *unused, struct buf *out)
{
	struct statvfs st;

	(void)unused;
	(void)statvfs("/", &st);
	(void)buf_printf(out, "%" PRIu64, (uint64_t)st.f_blocks * st.f_frsize >> 20);
}

/* Writes N MiB. */
/* So many MiB, and where to if not to /big. */
static void do_fill(const char *text, struct buf *out)
{
	static char block[1 << 20];
	struct str rest = str_of(text), word = STR_NONE;
	cleanup_close int fd = -EBADF;
	int64_t mib = 0;
	int r = 0;

	if (str_split(&rest, ' ', &word))
		(void)str_to_int(word, 1, 1 << 20, &mib);
	fd = open(rest.n ? rest.p : "/big", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	memset(block, 'x', sizeof block);
	while (r >= 0 && mib-- > 0)
		r = fd_write_all(fd, block, sizeof block);
	if (r >= 0 && fdatasync(fd) < 0)
		r = -errno;
	(void)buf_printf(out, "%d", r);
}

static void do_call(const char *name, struct buf *out)
{
	static const struct {
		const char *name;
		int64_t number, a, b;
	} calls[] = {
		{ "unshare-user", SYS_unshare, CLONE_NEWUSER, 0 },
		{ "unshare-files", SYS_unshare, CLONE_FILES, 0 },
		{ "clone-user", SYS_clone, CLONE_NEWUSER | SIGCHLD, 0 },
		{ "clone3", SYS_clone3, 0, 0 },
		{ "keyctl", SYS_keyctl, KEYCTL_GET_KEYRING_ID, 0 },
		{ "bpf", SYS_bpf, 0, 0 },
		{ "perf", SYS_perf_event_open, 0, 0 },
		{ "userfaultfd", SYS_userfaultfd, 0, 0 },
		{ "io-uring", SYS_io_uring_setup, 1, 0 },
		{ "setns", SYS_setns, 3, 0 },
		{ "mount", SYS_mount, 0, 0 },
		{ "unknown", 9999, 0, 0 },
		{ "x32-getpid", 0x40000000 | SYS_getpid, 0, 0 },
		{ "socket-inet", SYS_socket, AF_INET, SOCK_STREAM },
		{ "socket-alg", SYS_socket, AF_ALG, SOCK_SEQPACKET },
		{ "socket-vsock", SYS_socket, AF_VSOCK, SOCK_STREAM },
	};

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		if (strcmp(calls[i].name, name) == 0) {
			say_result(out,
				syscall(calls[i].number, calls[i].a, calls[i].b, 0, 0, 0, 0));
			return;
		}
	(void)buf_adds(out, "no such call");
}

/* How many processes can be had, up to N. */
static void do_fork(const char *text, struct buf *out)
{
	int64_t wanted = 0, got = 0;
	pid_t children[4096];

	(void)str_to_int(str_of(text), 1, ARRAY_SIZE(children), &wanted);
	while (got < wanted) {
		pid_t pid = fork();

		if (pid == 0) {
			(void)pause();
			_exit(0);
		}
		if (pid < 0)
			break;
		children[got++] = pid;
	}
	(void)buf_printf(out, "%" PRId64, got);
	while (got > 0) {
		(void)kill(children[--got], SIGKILL);
		(void)waitpid(children[got], NULL, 0);
	}
}

/* How a child ends that touches N MiB. */
static void do_alloc(const char *text, struct buf *out)
{
	int64_t mib = 0;
	int status = 0;
	pid_t pid;

	(void)str_to_int(str_of(text), 1, 1 << 20, &mib);
	pid = fork();
	if (pid == 0) {
		char *p = mmap(NULL, (size_t)mib << 20, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			_exit(2);
		memset(p, 1, (size_t)mib << 20);
		_exit(0);
	}
	(void)waitpid(pid, &status, 0);
	(void)buf_printf(out, "%d", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

/* ADDRESS PORT, within half a second. */
static void do_connect(char *args, struct buf *out)
{
	char *port = strchr(args, ' ');
	struct sockaddr_in a = { .sin_family = AF_INET };
	cleanup_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	int problem = ETIMEDOUT;
	socklen_t n = sizeof problem;
	int64_t number = 0;

	if (port)
		*port++ = '\0';
	(void)str_to_int(str_of(port), 1, 65535, &number);
	a.sin_port = htons((uint16_t)number);
	(void)inet_pton(AF_INET, args, &a.sin_addr);
	if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0 && errno != EINPROGRESS)
		problem = errno;
	else if (poll(&p, 1, 500) == 1)
		(void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &n);
	(void)buf_printf(out, "%d", -problem);
}

/* "6 PORT" or "4 PORT": a server on that loopback that greets and closes, in a child. */
static void do_listen(const char *args, struct buf *out)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_in v4 = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	bool six = args[0] == '6';
	int fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, r;
	int64_t port = 0;

	(void)str_to_int(str_from(str_of(args), 2), 1, 65535, &port);
	v4.sin_port = v6.sin6_port = htons((uint16_t)port);
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	r = six ? bind(fd, (struct sockaddr *)&v6, sizeof v6)
		: bind(fd, (struct sockaddr *)&v4, sizeof v4);
	if (r == 0)
		r = listen(fd, 8);
	say_result(out, r);
	if (r == 0 && fork() == 0) {
		/* The connection of this command must not stay open in the child. */
		(void)dup2(fd, 0);
		(void)close_range(1, ~0U, 0);
		for (;;) {
			int c = accept(0, NULL, NULL);

			(void)!write(c, "hello", 5);
			(void)close(c);
		}
	}
	(void)close(fd);
}

/* What children of this guest tell it without a word. */
static struct shared {
	_Atomic int64_t written, longest_pause_ms;
} * shared;

/* A child that wakes up every millisecond and remembers the longest time it did not. */
static void do_tick(const char *unused, struct buf *out)
{
	(void)unused;
	if (fork() == 0) {
		int64_t last_ms = time_now_ms();

		(void)close_range(0, ~0U, 0);
		for (;;) {
			int64_t now_ms;

			(void)usleep(1000);
			now_ms = time_now_ms();
			if (now_ms - last_ms > shared->longest_pause_ms)
				shared->longest_pause_ms = now_ms - last_ms;
			last_ms = now_ms;
		}
	}
	(void)buf_adds(out, "0");
}

static void do_pause(const char *unused, struct buf *out)
{
	(void)unused;
	(void)buf_printf(out, "%" PRId64, (int64_t)shared->longest_pause_ms);
}

enum {
	RECORD_SIZE = 1024,
};

static void fill_record(int64_t i, char record[RECORD_SIZE])
{
	memset(record, 'a' + (int)(i % 26), RECORD_SIZE);
	(void)snprintf(record, RECORD_SIZE, "%" PRId64, i);
}

/* A child that writes files DIR/0, DIR/1 ... one after the other, and one long file, for ever. */
static void do_scribble(const char *dir, struct buf *out)
{
	char path[256];

	(void)mkdir(dir, 0755);
	(void)buf_adds(out, "0");
	if (fork() != 0)
		return;
	(void)close_range(0, ~0U, 0);
	(void)snprintf(path, sizeof path, "%s/all", dir);
	for (int64_t i = 0;; i++) {
		char record[RECORD_SIZE];
		int all = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644), one;
		char name[300];

		(void)snprintf(name, sizeof name, "%s/%" PRId64, dir, i);
		one = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		fill_record(i, record);
		if (fd_write_all(one, record, sizeof record) < 0 ||
			fd_write_all(all, record, sizeof record) < 0)
			_exit(1);
		(void)close(one);
		(void)close(all);
		shared->written = i + 1;
		(void)usleep(500); /* or its small disk is full before a loaded host looks again */
	}
}

/* PATH: a child that takes whatever is handed to it there, and keeps it. */
static void do_keep(const char *path, struct buf *out)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
	say_result(out, bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || chmod(path, 0777) < 0
				? -1
				: listen(fd, 64));
	if (fork() != 0) {
		(void)close(fd);
		return;
	}
	(void)dup2(fd, STDIN_FILENO);
	(void)close_range(STDERR_FILENO, ~0U, 0);
	for (;;) {
		int fds[FD_MAX_PASS], n_fds = 0, c = accept(STDIN_FILENO, NULL, NULL);
		char byte;

		(void)fd_recv(c, &byte, 1, fds, &n_fds);
	}
}

static void give(const char *path, int given, struct buf *out)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int r;

	(void)snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
	r = connect(fd, (struct sockaddr *)&a, sizeof a);
	say_result(out, r < 0 ? r : fd_send(fd, "", 1, &given, 1));
}

/* PATH: hands a socket of its own network to who listens there. */
static void do_give_socket(const char *path, struct buf *out)
{
	cleanup_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	give(path, fd, out);
}

/* PATH: the same with a file of its disk. */
static void do_give_file(const char *path, struct buf *out)
{
	cleanup_close int fd = open("/given", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	give(path, fd, out);
}

/* N: a child that writes N KiB every few milliseconds, past the cache, to the same few MiB. */
static void do_drip(const char *text, struct buf *out)
{
	enum {
		LARGEST = 1 << 20,
		PAUSE_US = 5000,
	};
	static _Alignas(4096) char block[LARGEST];
	int fd = open("/drip", O_WRONLY | O_CREAT | O_DIRECT | O_CLOEXEC, 0644);
	int64_t kib = 0;

	(void)str_to_int(str_of(text), 4, LARGEST >> 10, &kib);
	say_result(out, fd);
	if (fork() != 0) {
		(void)close(fd);
		return;
	}
	(void)dup2(fd, STDIN_FILENO);
	(void)close_range(STDERR_FILENO, ~0U, 0);
	for (int64_t i = 0;; i = (i + 1) % 8) {
		(void)!pwrite(STDIN_FILENO, block, (size_t)kib << 10, i * (kib << 10));
		(void)usleep(PAUSE_US);
	}
}

/* N: so many connections that nobody accepts, each with as much as it takes, closed by who made
 * them. */
static void do_strand(const char *text, struct buf *out)
{
	enum {
		BACKLOG = 4000,
	};
	static const char block[16384];
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof a;
	int listen_fd = -EBADF; /* and those before: for as long as this guest lives */
	int64_t n = 0;

	(void)str_to_int(str_of(text), 1, 1 << 20, &n);
	for (int64_t i = 0; i < n; i++) {
		cleanup_close int fd =
			socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

		if (i % BACKLOG == 0) {
			a.sin_port = 0;
			listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
			(void)bind(listen_fd, (struct sockaddr *)&a, sizeof a);
			(void)listen(listen_fd, BACKLOG);
			(void)getsockname(listen_fd, (struct sockaddr *)&a, &size);
		}
		if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0 && errno != EINPROGRESS) {
			say_result(out, -1);
			return;
		}
		while (send(fd, block, sizeof block, MSG_NOSIGNAL) > 0)
			;
	}
	(void)buf_adds(out, "0");
}

static void do_written(const char *unused, struct buf *out)
{
	(void)unused;
	(void)buf_printf(out, "%" PRId64, (int64_t)shared->written);
}

/* DIR N: how many of the first N records are whole, in their own file and in the long one. */
static void do_verify(char *args, struct buf *out)
{
	char *count = strchr(args, ' '), path[256];
	cleanup_close int all = -EBADF;
	int64_t n = 0, good = 0;

	if (count)
		*count++ = '\0';
	(void)str_to_int(str_of(count), 0, INT64_MAX, &n);
	(void)snprintf(path, sizeof path, "%s/all", args);
	all = open(path, O_RDONLY | O_CLOEXEC);
	for (int64_t i = 0; i < n; i++) {
		char want[RECORD_SIZE], one[RECORD_SIZE], long_one[RECORD_SIZE];
		cleanup_close int fd = -EBADF;

		fill_record(i, want);
		(void)snprintf(path, sizeof path, "%s/%" PRId64, args, i);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		good += read(fd, one, sizeof one) == sizeof one &&
			read(all, long_one, sizeof long_one) == sizeof long_one &&
			memcmp(one, want, sizeof one) == 0 &&
			memcmp(long_one, want, sizeof want) == 0;
	}
	(void)buf_printf(out, "%" PRId64, good);
}

/* So many files that are open and have no name any more. */
static void do_orphans(char *args, struct buf *out)
{
	int64_t n = 0;

	(void)str_to_int(str_of(args), 1, 10000, &n);
	for (int64_t i = 0; i < n; i++) {
		int fd = open("/orphan", O_RDWR | O_CREAT | O_EXCL, 0600); /* for good */

		if (fd < 0 || write(fd, "x", 1) != 1 || unlink("/orphan") < 0) {
			(void)buf_printf(out, "%d", -errno);
			return;
		}
	}
	(void)buf_adds(out, "0");
}

/* COUNT BYTES: as many files of that size. */
static void do_litter(char *args, struct buf *out)
{
	static char block[1 << 20];
	char *size = strchr(args, ' '), path[64];
	int64_t n = 0, bytes = 0;
	int r = 0;

	if (size)
		*size++ = '\0';
	(void)str_to_int(str_of(args), 1, 1 << 20, &n);
	(void)str_to_int(str_of(size), 1, sizeof block, &bytes);
	memset(block, 'x', sizeof block);
	for (int64_t i = 0; r >= 0 && i < n; i++) {
		cleanup_close int fd = -EBADF;

		(void)snprintf(path, sizeof path, "/litter%" PRId64, i / 100);
		if (i % 100 == 0)
			(void)mkdir(path, 0755);
		(void)snprintf(path, sizeof path, "/litter%" PRId64 "/%" PRId64, i / 100, i);
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		r = fd_write_all(fd, block, (size_t)bytes);
	}
	(void)buf_printf(out, "%d", r);
}

static void act(char *line, struct buf *out)
{
	char *args = strchr(line, ' ');

	if (args)
		*args++ = '\0';
	else
		args = line + strlen(line);
	if (strcmp(line, "read") == 0)
		do_read(args, out);
	else if (strcmp(line, "write") == 0)
		do_write(args, out);
	else if (strcmp(line, "link") == 0)
		do_link(args, out);
	else if (strcmp(line, "list") == 0)
		do_list(args, out);
	else if (strcmp(line, "stat") == 0)
		do_stat(args, out);
	else if (strcmp(line, "chmod") == 0)
		do_chmod(args, out);
	else if (strcmp(line, "disk") == 0)
		do_disk(args, out);
	else if (strcmp(line, "fill") == 0)
		do_fill(args, out);
	else if (strcmp(line, "call") == 0)
		do_call(args, out);
	else if (strcmp(line, "fork") == 0)
		do_fork(args, out);
	else if (strcmp(line, "alloc") == 0)
		do_alloc(args, out);
	else if (strcmp(line, "connect") == 0)
		do_connect(args, out);
	else if (strcmp(line, "listen") == 0)
		do_listen(args, out);
	else if (strcmp(line, "tick") == 0)
		do_tick(args, out);
	else if (strcmp(line, "pause") == 0)
		do_pause(args, out);
	else if (strcmp(line, "scribble") == 0)
		do_scribble(args, out);
	else if (strcmp(line, "keep") == 0)
		do_keep(args, out);
	else if (strcmp(line, "give-socket") == 0)
		do_give_socket(args, out);
	else if (strcmp(line, "give-file") == 0)
		do_give_file(args, out);
	else if (strcmp(line, "drip") == 0)
		do_drip(args, out);
	else if (strcmp(line, "strand") == 0)
		do_strand(args, out);
	else if (strcmp(line, "written") == 0)
		do_written(args, out);
	else if (strcmp(line, "verify") == 0)
		do_verify(args, out);
	else if (strcmp(line, "litter") == 0)
		do_litter(args, out);
	else if (strcmp(line, "orphans") == 0)
		do_orphans(args, out);
	else if (strcmp(line, "exit") == 0)
		_exit(args[0] - '0');
	else
		(void)buf_adds(out, "unknown");
}

static void serve(int listen_fd)
{
	for (;;) {
		CLEANUP(buf_done) struct buf out = BUF_INIT(MAX_OUT);
		cleanup_close int c = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
		char line[512];
		ssize_t n = c < 0 ? -1 : read(c, line, sizeof line - 1);

		if (n <= 0)
			continue;
		line[n] = '\0';
		act(line, &out);
		(void)fd_write_all(c, buf_str(&out).p, out.n);
	}
}

int main(int argc, char *argv[])
{
	enum boot_place place = boot_place(argc, argv);
	struct boot boot = BOOT_INIT;
	struct seen seen = SEEN_INIT;
	struct err e = { 0 };

	if (place == BOOT_NOWHERE)
		return 2;
	if (boot_prepare(place, &boot, &e) < 0 || boot_wait(&boot, &e) < 0)
		return 1;
	close_fdp(&boot.asked_fd); /* what is asked for is not there */
	(void)fd_set_nonblock(boot.listen_fd, false);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		0);
	if (shared == MAP_FAILED)
		return 1;
	seen_prepare(&seen, &boot.covers, 0, 0);
	seen_start(&seen, 0, 0,
		uptime_start(TAKE_FD(boot.uptime_fd))); /* it has no limits of its own */
	boot_ready(&boot, 0, "");
	serve(boot.listen_fd);
	return 0;
}
