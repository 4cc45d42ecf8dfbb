/* Whatever can be shared by name rather than by address. */
#include "attack/attack.h"

#include <mqueue.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static int dial(const char *path, size_t n)
{
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct sockaddr_un to = { .sun_family = AF_UNIX };

	if (n >= sizeof to.sun_path)
		return -ENAMETOOLONG;
	memcpy(to.sun_path, path, n);
	if (fd < 0 || connect(fd, (void *)&to,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
		return -errno;
	return 0;
}

static void abstract_sockets(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const char *const who[] = { "host", "neighbour" };

	(void)a;
	for (size_t i = 0; scene->mark[0] && i < ARRAY_SIZE(who); i++) {
		char name[65] = "";
		int r;

		mark_name(scene, who[i], name + 1);
		r = dial(name, 1 + strlen(name + 1));
		if (r == 0)
			escaped(f, "the abstract socket @%s of the %s can be reached", name + 1,
				who[i]);
		else
			refused_with(f, -r, "@%s", name + 1);
	}
}

static void listed_sockets(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4 << 20);

	(void)a;
	if (file_read(AT_FDCWD, "/proc/net/unix", &text, NULL) < 0)
		refused(f, "/proc/net/unix cannot be read");
	else if (scene->mark[0] && strstr(buf_str(&text).p, scene->mark))
		escaped(f, "/proc/net/unix lists sockets of host or neighbour");
	else if (strstr(buf_str(&text).p, "guest.sock") || strstr(buf_str(&text).p, "docker.sock"))
		given_by_kernel(f, "/proc/net/unix lists the host's sockets");
	else
		refused(f, "/proc/net/unix lists nothing from outside");
}

static void known_sockets(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const char *const paths[] = { "/run/docker.sock", "/var/run/docker.sock",
		"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/podman/podman.sock",
		"/run/systemd/private", "/run/systemd/notify", "/run/systemd/journal/stdout",
		"/run/dbus/system_bus_socket", "/run/snapd.socket", "/run/udev/control",
		"/run/atoll/guest.sock" };

	(void)a;
	(void)scene;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		int r = dial(paths[i], strlen(paths[i]));

		if (r == 0)
			escaped(f, "%s answers", paths[i]);
		else
			refused_with(f, -r, "%s", paths[i]);
	}
}

static bool look_for_socket(const char *path, const struct stat *st, void *arg)
{
	struct finding *f = arg;

	if (S_ISSOCK(st->st_mode) && dial(path, strlen(path)) == 0)
		escaped(f, "%s is somebody's socket, and answers", path);
	return f->verdict != ESCAPED;
}

static void find_sockets(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const char *const skip[] = { "/proc", "/sys", NULL };
	int seen = walk(&(struct walk){ .root = "/", .skip = skip, .look = look_for_socket }, f);

	(void)a;
	(void)scene;
	if (seen > 0)
		refused(f, "none of %d files is a socket that answers", seen);
}

/* ---- memory and queues ---- */

key_t mark_key(const struct scene *scene)
{
	uint32_t key = 2166136261u;

	for (const char *p = scene->mark; *p; p++)
		key = (key ^ (uint8_t)*p) * 16777619u;
	return (key_t)(key | 1);
}

static void shared_memory(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	char path[80];
	struct stat st;

	(void)a;
	if (!scene->mark[0])
		return;
	if (shmget(mark_key(scene), 0, 0) >= 0)
		escaped(f, "shared memory of the neighbour is there");
	else
		refused_with(f, errno, "System V memory of the neighbour");
	(void)snprintf(path, sizeof path, "/dev/shm/%s", scene->mark);
	if (stat(path, &st) == 0)
		escaped(f, "%s of the neighbour is there", path);
	else
		refused_with(f, errno, "%s", path);
}

static void queues(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	char name[80];
	mqd_t queue;

	(void)a;
	if (!scene->mark[0])
		return;
	(void)snprintf(name, sizeof name, "/%s", scene->mark);
	queue = mq_open(name, O_RDONLY);
	if (queue == (mqd_t)-1) {
		refused_with(f, errno, "message queue of the neighbour");
		return;
	}
	escaped(f, "the neighbour's message queue opens");
	(void)mq_close(queue);
}

static const struct attempt attempts[] = {
	{ "abstract", "reach abstract sockets of host and neighbour", abstract_sockets, NULL },
	{ "listed", "see sockets of host and neighbour", listed_sockets, NULL },
	{ "control", "reach control sockets: docker, containerd, systemd, dbus", known_sockets,
		NULL },
	{ "sockets", "reach any socket that lies in the file system", find_sockets, NULL },
	{ "memory", "share memory with a neighbour", shared_memory, NULL },
	{ "queues", "share message queues with a neighbour", queues, NULL },
};
FAMILY(neighbours, attempts);
