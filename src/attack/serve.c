/* The neighbour: it has everything that another sandbox might want to get at, and writes down what
 * arrives. */
#include "attack/attack.h"

#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
	LIFE_MS = 900 * 1000,
	DATAGRAM_MAX = 512,
};

static int listen_on(int type)
{
	cleanup_close int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
	struct sockaddr_in all = { .sin_family = AF_INET, .sin_port = htons(NEIGHBOUR_PORT) };
	const int on = 1;

	if (fd < 0)
		return -errno;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(fd, (void *)&all, sizeof all) < 0 || (type == SOCK_STREAM && listen(fd, 16) < 0))
		return -errno;
	return TAKE_FD(fd);
}

static int listen_abstract(const struct scene *scene)
{
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	char text[64];

	mark_name(scene, "neighbour", text);
	memcpy(name.sun_path + 1, text, strlen(text));
	if (fd < 0 ||
		bind(fd, (void *)&name,
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(text))) <
			0 ||
		listen(fd, 16) < 0)
		return -errno;
	return TAKE_FD(fd);
}

/* What is shared by name; where the kernel has no such kind, nobody can share it. */
static int leave_things(const struct scene *scene)
{
	char name[80];
	mqd_t queue;
	int r;

	if (shmget(mark_key(scene), 4096, IPC_CREAT | 0666) < 0 && errno != ENOSYS)
		return -errno;
	(void)snprintf(name, sizeof name, "/dev/shm/%s", scene->mark);
	r = file_replace(AT_FDCWD, name, str_of(scene->mark), 0666, NULL);
	if (r < 0)
		return r;
	(void)snprintf(name, sizeof name, "/%s", scene->mark);
	queue = mq_open(name, O_RDWR | O_CREAT, 0666, NULL);
	if (queue == (mqd_t)-1)
		return errno == ENOSYS ? 0 : -errno;
	(void)mq_close(queue);
	return 0;
}

static void greet(int listener, const struct scene *scene)
{
	cleanup_close int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd >= 0)
		(void)!send(fd, scene->mark, strlen(scene->mark), MSG_NOSIGNAL);
}

static void hear(int fd, int log, const struct scene *scene)
{
	struct sockaddr_storage from;
	socklen_t size = sizeof from;
	char text[DATAGRAM_MAX];
	ssize_t n = recvfrom(fd, text, sizeof text, 0, (void *)&from, &size);

	if (n <= 0)
		return;
	(void)fd_write_all(log, text, (size_t)n);
	(void)fd_write_all(log, "\n", 1);
	(void)sendto(fd, scene->mark, strlen(scene->mark), 0, (void *)&from, size);
}

static _Noreturn void serve(const struct scene *scene, int tcp, int udp, int abstract, int log)
{
	int64_t until_ms = time_now_ms() + LIFE_MS;
	struct pollfd p[] = { { .fd = tcp, .events = POLLIN }, { .fd = udp, .events = POLLIN },
		{ .fd = abstract, .events = POLLIN } };
	char name[MARK_COMM + 1];

	(void)snprintf(name, sizeof name, "%.*s", MARK_COMM, scene->mark);
	(void)prctl(PR_SET_NAME, name);
	while (time_now_ms() < until_ms && poll(p, ARRAY_SIZE(p), 1000) >= 0) {
		if (p[0].revents)
			greet(tcp, scene);
		if (p[1].revents)
			hear(udp, log, scene);
		if (p[2].revents)
			greet(abstract, scene);
	}
	_exit(0);
}

int serve_start(const struct scene *scene)
{
	int tcp = listen_on(SOCK_STREAM), udp = listen_on(SOCK_DGRAM),
	    abstract = listen_abstract(scene);
	int log = open(HEARD_PATH, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	pid_t pid;
	int r;

	if (tcp < 0 || udp < 0 || abstract < 0 || log < 0 || null_fd < 0)
		return -EIO;
	r = leave_things(scene);
	if (r < 0)
		return r;
	pid = fork();
	if (pid == 0) {
		(void)setsid();
		for (int fd = 0; fd < 3; fd++)
			(void)dup2(null_fd, fd);
		serve(scene, tcp, udp, abstract, log);
	}
	return pid < 0 ? -errno : 0;
}
