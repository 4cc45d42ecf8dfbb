#include "warden/test-harness.h"

#include <dirent.h>
#include <ftw.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

enum {
	ANSWER_MS = 15000,
};

static void child_exec(const struct harness *h, int fd, const char *network, int pool)
{
	char pool_text[16];

	(void)snprintf(pool_text, sizeof pool_text, "%d", pool);
	if (fd == WARDEN_CONTROL_FD)
		(void)fcntl(fd, F_SETFD, 0);
	else
		(void)dup2(fd, WARDEN_CONTROL_FD);
	(void)execl(getenv("ATOLL_WARDEN"), "atoll-warden", "--data", h->dir, "--server-uid", "0",
		"--network", network, "--pool", pool_text, "--disk-mb", "64", "--guest",
		getenv("ATOLL_PROBE_GUEST"), "--pool-template", "empty",
		getenv("WARDEN_DEBUG") ? "--debug" : (char *)NULL, (char *)NULL);
	_exit(127);
}

int harness_start_warden(struct harness *h, const char *network, int pool, struct err *e)
{
	struct warden_reply ready = { 0 };
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, -errno, "socketpair");
	h->warden = fork();
	if (h->warden == 0)
		child_exec(h, pair[1], network, pool);
	(void)close(pair[1]);
	h->fd = pair[0];
	r = harness_receive(h, &ready, NULL);
	if (r < 0 || ready.kind != WARDEN_READY)
		return err_set(e, -EPROTO, "the warden did not say that it is ready");
	if (ready.e.code < 0)
		return err_set(e, ready.e.code, "%s", ready.e.msg);
	return 0;
}

int harness_start(struct harness *h, const char *network, int pool, struct err *e)
{
	char path[128];

	*h = (struct harness){ .fd = -EBADF };
	if (geteuid() != 0 || !getenv("ATOLL_WARDEN") || !getenv("ATOLL_PROBE_GUEST"))
		return err_set(e, -EPERM, "needs root, ATOLL_WARDEN and ATOLL_PROBE_GUEST");
	(void)snprintf(h->dir, sizeof h->dir, "/tmp/atoll-warden-test-XXXXXX");
	if (!mkdtemp(h->dir))
		return err_sys(e, -errno, "mkdtemp");
	(void)chmod(h->dir, 0755);
	(void)snprintf(path, sizeof path, "%s/templates/empty/rootfs/etc", h->dir);
	for (char *p = path + strlen(h->dir) + 1; p; p = strchr(p + 1, '/')) {
		char *slash = strchr(p + 1, '/');

		if (slash)
			*slash = '\0';
		(void)mkdir(path, 0755);
		if (slash)
			*slash = '/';
	}
	return harness_start_warden(h, network, pool, e);
}

void harness_kill_warden(struct harness *h)
{
	(void)kill(h->warden, SIGKILL);
	(void)waitpid(h->warden, NULL, 0);
	(void)close(TAKE_FD(h->fd));
	h->warden = 0;
}

void harness_stop_warden(struct harness *h)
{
	if (h->warden <= 0)
		return;
	(void)close(TAKE_FD(h->fd));
	(void)waitpid(h->warden, NULL, 0);
	h->warden = 0;
}

void harness_stop(struct harness *h)
{
	harness_stop_warden(h);
	if (h->dir[0])
		(void)dir_remove_tree(AT_FDCWD, h->dir, NULL);
}

struct warden_request harness_request(struct harness *h, enum warden_op op, const char *id)
{
	struct warden_request q = { .version = WARDEN_VERSION, .op = op, .tag = ++h->tag };

	(void)snprintf(q.id, sizeof q.id, "%s", id);
	if (op == WARDEN_CREATE) {
		(void)snprintf(q.template_name, sizeof q.template_name, "empty");
		q.memory_bytes = 128 << 20;
		q.disk_bytes = 64 << 20;
		q.cpu_percent = 100;
		q.max_pids = 64;
	}
	return q;
}

int harness_send(struct harness *h, const struct warden_request *q, int fd)
{
	return fd_send(h->fd, q, sizeof *q, &fd, fd >= 0 ? 1 : 0);
}

int harness_receive(struct harness *h, struct warden_reply *ret, int *ret_fd)
{
	struct pollfd p = { .fd = h->fd, .events = POLLIN };
	int fds[FD_MAX_PASS], n_fds = 0;
	ssize_t n;

	if (poll(&p, 1, ANSWER_MS) != 1)
		return -ETIMEDOUT;
	n = fd_recv(h->fd, ret, sizeof *ret, fds, &n_fds);
	for (int i = ret_fd ? 1 : 0; i < n_fds; i++)
		(void)close(fds[i]);
	if (ret_fd)
		*ret_fd = n_fds ? fds[0] : -EBADF;
	return n == sizeof *ret ? 0 : -EPIPE;
}

int harness_ask(struct harness *h, const struct warden_request *q, int fd, struct warden_reply *ret)
{
	int r = harness_send(h, q, fd);

	while (r >= 0) {
		r = harness_receive(h, ret, NULL);
		if (r >= 0 && ret->kind == WARDEN_REPLY && ret->tag == q->tag)
			return ret->e.code;
	}
	return r;
}

int harness_settings(void)
{
	int fd = memfd_create("settings", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	(void)fd_write_all(fd, "{}", 2);
	(void)fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
	(void)lseek(fd, 0, SEEK_SET);
	return fd;
}

int harness_create(struct harness *h, const char *id)
{
	struct warden_request q = harness_request(h, WARDEN_CREATE, id);
	cleanup_close int fd = harness_settings();
	struct warden_reply reply = { 0 };
	int r = harness_ask(h, &q, fd, &reply);

	if (r < 0)
		printf("# create %s: %s\n", id, reply.e.msg);
	return r;
}

int harness_destroy(struct harness *h, const char *id)
{
	struct warden_request q = harness_request(h, WARDEN_DESTROY, id);
	struct warden_reply reply = { 0 };

	return harness_ask(h, &q, -EBADF, &reply);
}

const char *harness_inside(struct harness *h, const char *id, const char *command)
{
	static char answer[1 << 16];
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	size_t got = 0;
	ssize_t n;

	answer[0] = '\0';
	(void)snprintf(a.sun_path, sizeof a.sun_path, "%s/run/%s/guest.sock", h->dir, id);
	if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
		return answer;
	if (fd_write_all(fd, command, strlen(command)) < 0)
		return answer;
	while (got < sizeof answer - 1 && (n = read(fd, answer + got, sizeof answer - 1 - got)) > 0)
		got += (size_t)n;
	answer[got] = '\0';
	return answer;
}

static int counted;
static int count_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	counted += !strstr(path, "/blank-");
	return 0;
}

static int count_tree(const char *path)
{
	counted = 0;
	(void)nftw(path, count_one, 16, FTW_PHYS);
	return counted;
}

/* Directories with a name below `path`, here "atoll", at any depth. */
static int count_cgroups(void)
{
	static const char *const roots[] = { "/sys/fs/cgroup/atoll", "/sys/fs/cgroup/unified/atoll",
		"/sys/fs/cgroup/memory/atoll", "/sys/fs/cgroup/cpu/atoll", "/sys/fs/cgroup/pids/atoll" };
	int n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
		DIR *dir = opendir(roots[i]);
		struct dirent *entry;

		while (dir && (entry = readdir(dir)))
			if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
				char path[512];
				struct stat st;

				(void)snprintf(path, sizeof path, "%s/%s", roots[i], entry->d_name);
				if (stat(path, &st) == 0)
					n += (int)st.st_nlink - 2;
			}
		if (dir)
			(void)closedir(dir);
	}
	return n;
}

static int count_lines(const char *path)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(1 << 20);
	int n = 0;

	(void)file_read(AT_FDCWD, path, &text, NULL);
	for (size_t i = 0; i < text.n; i++)
		n += text.p[i] == '\n';
	return n;
}

/* Guests are told by their uid: outside, they are nobody else's. */
static int count_processes(void)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	int n = 0;

	while (dir && (entry = readdir(dir))) {
		char path[300];
		struct stat st;

		(void)snprintf(path, sizeof path, "/proc/%s/task", entry->d_name);
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9') {
			CLEANUP(buf_done) struct buf text = BUF_INIT(8192);

			(void)snprintf(path, sizeof path, "/proc/%s/uid_map", entry->d_name);
			if (stat(path, &st) == 0 && file_read(AT_FDCWD, path, &text, NULL) >= 0)
				n += strstr(buf_str(&text).p, " 18") != NULL;
		}
	}
	if (dir)
		(void)closedir(dir);
	return n;
}

struct census census_take(const struct harness *h)
{
	struct if_nameindex *links = if_nameindex();
	struct census c = { .processes = count_processes(), .mounts = count_lines("/proc/self/mounts"),
		.cgroups = count_cgroups() };

	for (struct if_nameindex *i = links; i && i->if_index; i++)
		c.links += strncmp(i->if_name, "atoll", 5) == 0;
	if_freenameindex(links);
	for (int i = 0; i < 64; i++) {
		char path[64];

		(void)snprintf(path, sizeof path, "/sys/block/loop%d/loop/backing_file", i);
		c.loops += access(path, F_OK) == 0;
	}
	if (h->dir[0])
		c.files = count_tree(h->dir);
	return c;
}

int census_wait(const struct harness *h, const struct census *before)
{
	struct census now = { 0 };

	for (int i = 0; i < 100; i++) {
		now = census_take(h);
		if (memcmp(&now, before, sizeof now) == 0)
			return 0;
		(void)usleep(50000);
	}
	printf("# left: processes %d->%d mounts %d->%d cgroups %d->%d links %d->%d loops %d->%d files"
	       " %d->%d\n",
		before->processes, now.processes, before->mounts, now.mounts, before->cgroups,
		now.cgroups, before->links, now.links, before->loops, now.loops, before->files,
		now.files);
	return -1;
}
