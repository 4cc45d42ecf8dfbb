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
	int r;

	(void)a;
	r = file_read(AT_FDCWD, "/proc/net/unix", &text, NULL);
	if (r < 0)
		judge_path_error(f, -r, "/proc/net/unix");
	else if (scene->mark[0] && strstr(buf_str(&text).p, scene->mark))
		escaped(f, "/proc/net/unix lists sockets of host or neighbour");
	else if (strstr(buf_str(&text).p, "guest.sock") || strstr(buf_str(&text).p, "docker.sock"))
		given_by_kernel(f, "/proc/net/unix lists the host's sockets");
	else
		refused(f, "/proc/net/unix lists nothing from outside");
}

/* One that is known to answer: it lies beside the secret. */
static void planted_socket(const struct scene *scene, struct finding *f)
{
	static const char *const starts[] = { "", "/proc/1/root", "/proc/self/root/.." };
	const char *slash = scene->secret_path ? strrchr(scene->secret_path, '/') : NULL;

	for (size_t i = 0; slash && i < ARRAY_SIZE(starts); i++) {
		char path[256];
		int r;

		(void)snprintf(path, sizeof path, "%s%.*s/control", starts[i],
			(int)(slash - scene->secret_path), scene->secret_path);
		r = dial(path, strlen(path));
		if (r == 0)
			escaped(f, "%s of the host answers", path);
		else if (r == -ENOENT)
			refused(f, "%s of the host is not there", path);
		else
			refused_with(f, -r, "%s", path);
	}
}

static void known_sockets(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	for (const char *const *path = a->paths; *path; path++) {
		int r = dial(*path, strlen(*path));

		if (r == 0)
			escaped(f, "%s answers", *path);
		else
			judge_path_error(f, -r, *path);
	}
	planted_socket(scene, f);
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
	/* A socket only answers through a mount, and nothing is mounted in /usr: see mounts.listed.
	 */
	static const char *const skip[] = { "/proc", "/sys", "/usr", NULL };
	int seen = walk(&(struct walk){ .root = "/",
				.skip = skip,
				.only_special = true,
				.look = look_for_socket },
		f);

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

/* The neighbour has it (it would not have started without), and here nothing has that name. */
static void judge_nothing(struct finding *f, const char *what)
{
	if (errno == ENOSYS)
		absent(f, "%s: this kernel has none", what);
	else
		refused_with(f, errno, "%s", what);
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
		judge_nothing(f, "System V memory of the neighbour");
	(void)snprintf(path, sizeof path, "/dev/shm/%s", scene->mark);
	if (stat(path, &st) == 0)
		escaped(f, "%s of the neighbour is there", path);
	else
		judge_nothing(f, path);
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
		judge_nothing(f, "message queue of the neighbour");
		return;
	}
	escaped(f, "the neighbour's message queue opens");
	(void)mq_close(queue);
}

static const int by_nobody[] = { ECONNREFUSED, 0 }, as_nothing[] = { ENOENT, 0 };
static const char *const unix_table[] = { "/proc/net/unix", NULL };
static const char *const control[] = { "/run/docker.sock", "/var/run/docker.sock",
	"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/podman/podman.sock",
	"/run/systemd/private", "/run/systemd/notify", "/run/systemd/journal/stdout",
	"/run/dbus/system_bus_socket", "/run/snapd.socket", "/run/udev/control",
	"/run/atoll/guest.sock", NULL };

static const struct attempt attempts[] = {
	{ "abstract", "reach abstract sockets of host and neighbour", abstract_sockets, by_nobody,
		NULL, NULL },
	{ "listed", "see sockets of host and neighbour", listed_sockets, by_rights, unix_table,
		NULL },
	{ "control", "reach control sockets: docker, containerd, systemd, dbus", known_sockets,
		by_rights, control, NULL },
	{ "sockets", "reach any socket that lies in the file system", find_sockets, NULL, NULL,
		NULL },
	{ "memory", "share memory with a neighbour", shared_memory, as_nothing, NULL, NULL },
	{ "queues", "share message queues with a neighbour", queues, as_nothing, NULL, NULL },
};
FAMILY(neighbours, attempts);
