/* Makes the kernel hold as much of one kind as it can get, up to BYTES, and says how it went:
 * "held N" when it got all, "stopped N: why" when the kernel refused more. When the memory limit
 * stops it, it is killed. Sizes are the least that the kernel takes for one.
 *
 * usage: hold KIND BYTES */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/net_tstamp.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

enum {
	PIECE = 60000,
};
static int64_t target, *held;    /* shared: a process is full when it has no descriptors left */
static int keep[2] = { -1, -1 }; /* what a kind goes on with, in this process */
static char piece[PIECE];

/* Each takes one more of its kind; bytes, or -1 with errno. */
static int64_t more_pipe(void)
{
	int p[2], n = 0, r;

	if (pipe2(p, O_NONBLOCK) < 0)
		return -1;
	while ((r = (int)write(p[1], piece, 4096)) > 0)
		n += r;
	return n;
}

static int64_t fill_pair(int type)
{
	int p[2];
	int64_t n = 0, r;

	if (socketpair(AF_UNIX, type | SOCK_NONBLOCK, 0, p) < 0)
		return -1;
	while ((r = send(p[1], piece, 4096, 0)) > 0)
		n += r;
	return n;
}
static int64_t more_stream(void)
{
	return fill_pair(SOCK_STREAM);
}
static int64_t more_dgram(void)
{
	return fill_pair(SOCK_DGRAM);
}

/* A file whose only reference is on its way through a socket. */
static int64_t more_flight(void)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} c = { .head = { CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec v = { piece, 1 };
	struct msghdr m = { .msg_iov = &v,
		.msg_iovlen = 1,
		.msg_control = c.room,
		.msg_controllen = sizeof c.room };
	int fd = eventfd(0, 0), r;

	if (fd < 0)
		return -1;
	memcpy(CMSG_DATA(&c.head), &fd, sizeof fd);
	if (keep[0] < 0 && socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, keep) < 0)
		return -1;
	r = (int)sendmsg(keep[1], &m, 0);
	if (r < 0 && errno == EAGAIN &&
		socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, keep) == 0)
		r = (int)sendmsg(keep[1], &m, 0);
	close(fd);
	return r < 0 ? -1 : 700;
}

static int64_t more_timerfd(void)
{
	return timerfd_create(CLOCK_MONOTONIC, 0) < 0 ? -1 : 300;
}
static int64_t more_timer(void)
{
	struct sigevent none = { .sigev_notify = SIGEV_NONE };
	timer_t t;

	return timer_create(CLOCK_MONOTONIC, &none, &t) < 0 ? -1 : 300;
}

static int64_t more_watch(void)
{
	static int n;
	char path[64];

	if (keep[0] < 0)
		keep[0] = inotify_init();
	snprintf(path, sizeof path, "/dev/shm/w%d", n++);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	return inotify_add_watch(keep[0], path, IN_ALL_EVENTS) < 0 ? -1 : 900;
}

static int64_t more_lock(void)
{
	static off_t at;
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 1 };

	/* Neighbours would become one, and long lists are slow. */
	if (keep[0] < 0 || at % 1024 == 0)
		keep[0] = open("/dev/shm", O_TMPFILE | O_RDWR, 0600);
	at += 2;
	return keep[0] < 0 || fcntl(keep[0], F_SETLK, &l) < 0 ? -1 : 180;
}

static int64_t more_tables(void)
{
	static char *at, *end;
	volatile char c;

	if (at == end) {
		at = mmap(NULL, (size_t)64 << 30, PROT_READ,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (at == MAP_FAILED)
			return -1;
		madvise(at, (size_t)64 << 30, MADV_NOHUGEPAGE);
		end = at + ((size_t)64 << 30);
	}
	c = *at; /* the zero page, in a table of its own */
	(void)c;
	at += 2 << 20;
	return 4096;
}

static int64_t more_memory_file(void)
{
	int fd = memfd_create("x", 0);

	return fd < 0 || ftruncate(fd, 1 << 20) < 0 || write(fd, piece, sizeof piece) < 0 ? -1
											  : PIECE;
}

static int64_t more_attribute(void)
{
	static int n;
	char name[32];

	if (keep[0] < 0 || n % 64 == 0)
		keep[0] = open("/dev/shm", O_TMPFILE | O_RDWR, 0600);
	snprintf(name, sizeof name, "user.a%d", n++);
	return fsetxattr(keep[0], name, piece, PIECE, 0) < 0 ? -1 : PIECE;
}

static int64_t more_signal(void)
{
	union sigval v = { 0 };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return sigqueue(getpid(), SIGRTMIN, v) < 0 ? -1 : 80;
}

static int64_t more_semaphores(void)
{
	return semget(IPC_PRIVATE, 250, 0600) < 0 ? -1 : 250 * 64;
}
static int64_t more_messages(void)
{
	struct {
		long type;
		char text[8000];
	} m = { 1, "" };
	int q = msgget(IPC_PRIVATE, 0600);
	int64_t n = 0;

	while (q >= 0 && msgsnd(q, &m, sizeof m.text, IPC_NOWAIT) == 0)
		n += sizeof m.text;
	return q < 0 ? -1 : n;
}

static int64_t more_queue(void)
{
	static int n;
	struct mq_attr a = { .mq_maxmsg = 10, .mq_msgsize = 8192 };
	char name[32];
	mqd_t q;

	snprintf(name, sizeof name, "/hold%d", n++);
	q = mq_open(name, O_CREAT | O_RDWR, 0600, &a);
	if (q == (mqd_t)-1) {
		errno = errno == EMFILE ? ENOSPC : errno; /* of all the user's */
		return -1;
	}
	for (int i = 0; i < 10; i++)
		mq_send(q, piece, 8192, 0);
	return 10 * 8192;
}

static int64_t more_terminal(void)
{
	int fd = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
	int64_t n = 20000, r; /* of its line discipline */

	if (fd < 0 || grantpt(fd) < 0 || unlockpt(fd) < 0)
		return -1;
	while ((r = write(fd, piece, 4096)) > 0)
		n += r;
	return n;
}

static int64_t more_corked(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
		.sin_port = htons(9),
		.sin_addr = { htonl(INADDR_LOOPBACK) } };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (fd < 0)
		return -1;
	return sendto(fd, piece, sizeof piece, MSG_MORE, (void *)&to, sizeof to) < 0 ? -1 : PIECE;
}

static int64_t more_echoes(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int fd = socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
	char echo[PIECE] = { 8 };

	if (fd < 0)
		return -1;
	for (int i = 0; i < 3; i++)
		sendto(fd, echo, sizeof echo, 0, (void *)&to, sizeof to);
	return 3 * PIECE;
}

static int64_t more_groups(void)
{
	static uint32_t group = 0xe8000000;
	struct ip_mreqn m = { .imr_ifindex = 1 };
	/* A stream joins none. */
	int fd = socket(AF_INET, SOCK_DGRAM, 0), n = 0;

	for (; fd >= 0 && n < 100; n++) {
		m.imr_multiaddr.s_addr = htonl(group++);
		if (setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof m) < 0)
			break;
	}
	return fd < 0 || n == 0 ? -1 : n * 200;
}

/* Keys of connections to others, of which one is enough for each address. */
static int64_t more_signatures(void)
{
	struct tcp_md5sig key = { .tcpm_keylen = 8 };
	struct sockaddr_in *to = (void *)&key.tcpm_addr;
	int fd = socket(AF_INET, SOCK_STREAM, 0), n = 0;

	to->sin_family = AF_INET;
	for (; fd >= 0; n++) {
		to->sin_addr.s_addr = htonl(0x0b000000 + (uint32_t)n);
		if (setsockopt(fd, IPPROTO_TCP, TCP_MD5SIG, &key, sizeof key) < 0)
			break;
	}
	return n == 0 ? -1 : n * 136;
}

/* Of what the socket has not been asked for yet; nothing is ENOMSG. */
static int64_t waits_in(int fd)
{
	uint32_t held[SK_MEMINFO_VARS] = { 0 };
	socklen_t size = sizeof held;

	if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, held, &size) == 0 &&
		held[SK_MEMINFO_RMEM_ALLOC] > 0)
		return held[SK_MEMINFO_RMEM_ALLOC];
	errno = ENOMSG;
	return -1;
}

/* What is sent comes back, with the time at which it went; asked for in either way that there is.
 */
static int64_t more_times(void)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(uint32_t))];
	} c = { .head = { CMSG_LEN(sizeof(uint32_t)), SOL_SOCKET, SO_TIMESTAMPING } };
	uint32_t want = SOF_TIMESTAMPING_TX_SOFTWARE, all = want | SOF_TIMESTAMPING_SOFTWARE;
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	struct iovec v = { piece, PIECE };
	struct msghdr m = { .msg_name = &to,
		.msg_namelen = sizeof to,
		.msg_iov = &v,
		.msg_iovlen = 1,
		.msg_control = c.room,
		.msg_controllen = sizeof c.room };
	socklen_t size = sizeof to;
	int fd;

	if (keep[0] < 0) {
		keep[0] = socket(AF_INET, SOCK_DGRAM, 0);
		bind(keep[0], (void *)&to, sizeof to);
	}
	getsockname(keep[0], (void *)&to, &size);
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (keep[0] < 0 || fd < 0)
		return -1;
	memcpy(CMSG_DATA(&c.head), &want, sizeof want);
	setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &all, sizeof all);
	for (int i = 0; i < 4; i++) {
		sendmsg(fd, &m, MSG_DONTWAIT);
		while (recv(keep[0], piece, PIECE, MSG_DONTWAIT) > 0)
			;
	}
	return waits_in(fd);
}

/* Where nobody listens, each datagram is answered by an error. */
static int64_t more_errors(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
		.sin_port = htons(9),
		.sin_addr = { htonl(INADDR_LOOPBACK) } };
	int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1;

	if (fd < 0)
		return -1;
	setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof on);
	for (int i = 0; i < 300; i++)
		sendto(fd, piece, 1000, 0, (void *)&to, sizeof to);
	return waits_in(fd);
}

static const struct {
	const char *name;
	int64_t (*more)(void);
} kinds[] = { { "pipes", more_pipe }, { "unix-streams", more_stream },
	{ "unix-datagrams", more_dgram }, { "files-in-flight", more_flight },
	{ "timerfds", more_timerfd }, { "timers", more_timer }, { "inotify", more_watch },
	{ "locks", more_lock }, { "page-tables", more_tables },
	{ "memory-files", more_memory_file }, { "attributes", more_attribute },
	{ "signals", more_signal }, { "semaphores", more_semaphores },
	{ "messages", more_messages }, { "queues", more_queue }, { "terminals", more_terminal },
	{ "corked", more_corked }, { "echoes", more_echoes }, { "groups", more_groups },
	{ "signatures", more_signatures }, { "times", more_times }, { "errors", more_errors } };

/* In process after process, for as long as it is only descriptors that a process lacks. */
static int take(int64_t (*more)(void))
{
	pid_t pid, self;
	int status;

	while (*held < target) {
		int64_t n = more();

		if (n > 0) {
			*held += n;
			continue;
		}
		if (n < 0 && errno != EMFILE)
			return errno;
		self = getpid();
		pid = fork();
		if (pid == 0) {
			/* One that is killed for memory takes all with it. */
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() != self)
				raise(SIGKILL);
			close_range(3, ~0U, 0); /* the parent keeps them */
			keep[0] = keep[1] = -1;
			continue;
		}
		if (pid < 0)
			return errno;
		waitpid(pid, &status, 0);
		if (WIFSIGNALED(status))
			raise(WTERMSIG(status));
		exit(WEXITSTATUS(status));
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct rlimit files;
	int error = EINVAL;

	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	target = argc == 3 ? atoll(argv[2]) : 0;
	held = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (size_t i = 0; argc == 3 && i < sizeof kinds / sizeof kinds[0]; i++)
		if (strcmp(argv[1], kinds[i].name) == 0)
			error = take(kinds[i].more);
	if (error == 0)
		printf("held %lld\n", (long long)*held);
	else
		printf("stopped %lld: %s\n", (long long)*held, strerror(error));
	return 0;
}
