#include "warden/harness.h"

#include "warden/run.h"

#include <dirent.h>
#include <ftw.h>
#include <linux/loop.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>

enum {
	ANSWER_MS = 15000,
	MAX_CHILDREN = 256,
	LOOP_MAJOR_NUMBER = 7,
};

static void child_exec(const struct harness *h, int fd, const char *network, int pool)
{
	const char *program = getenv("ATOLL_WARDEN"), *guest = getenv("ATOLL_PROBE_GUEST");
	char pool_text[16];

	if (!program || !guest)
		_exit(127);
	if (h->guest)
		guest = h->guest;
	(void)snprintf(pool_text, sizeof pool_text, "%d", pool);
	/* What it logs is of interest only to one who looks for a failure. */
	if (h->log)
		(void)dup2(open(h->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600),
			STDERR_FILENO);
	else if (!getenv("WARDEN_DEBUG"))
		(void)dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
	if (fd == WARDEN_CONTROL_FD)
		(void)fcntl(fd, F_SETFD, 0);
	else
		(void)dup2(fd, WARDEN_CONTROL_FD);
	(void)execl(program, "atoll-warden", "--data", h->dir, "--server-uid", "0", "--network",
		network, "--pool", pool_text, "--disk-mb", "64", "--guest", guest,
		"--pool-template", "empty", "--debug", h->option, (char *)NULL);
	_exit(127);
}

int harness_spawn_warden(struct harness *h, const char *network, int pool, struct err *e)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, -errno, "socketpair");
	h->warden = fork();
	if (h->warden == 0)
		child_exec(h, pair[1], network, pool);
	(void)close(pair[1]);
	h->fd = pair[0];
	return h->warden < 0 ? err_sys(e, -errno, "fork") : 0;
}

int harness_start_warden(struct harness *h, const char *network, int pool, struct err *e)
{
	struct warden_reply ready = { 0 };
	int r = harness_spawn_warden(h, network, pool, e);

	if (r >= 0)
		r = harness_receive(h, &ready);
	if (r < 0 || ready.kind != WARDEN_READY)
		return err_set(e, -EPROTO, "the warden did not say that it is ready");
	if (ready.e.code < 0)
		return err_set(e, ready.e.code, "%s", ready.e.msg);
	return 0;
}

static int mount_disk(const struct harness *h, struct err *e)
{
	char file[80];
	const char *const mkfs[] = { "mkfs.ext4", "-q", "-F", file, NULL };
	const char *const mount[] = { "mount", "-o", "loop", file, h->dir, NULL };
	cleanup_close int fd = -EBADF;
	int r;

	(void)snprintf(file, sizeof file, "%s.disk", h->dir);
	fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)h->disk_mib << 20) < 0)
		return err_sys(e, -errno, "make %s", file);
	r = run_program(mkfs, STR_NONE, AT_FDCWD, e);
	return r < 0 ? r : run_program(mount, STR_NONE, AT_FDCWD, e);
}

static void remove_disk(const struct harness *h)
{
	char file[80];
	const char *const umount[] = { "umount", "-l", h->dir, NULL };

	(void)snprintf(file, sizeof file, "%s.disk", h->dir);
	(void)run_program(umount, STR_NONE, AT_FDCWD, NULL);
	(void)unlink(file);
	(void)rmdir(h->dir);
}

int harness_make_dir(struct harness *h, struct err *e)
{
	char path[128];

	*h = (struct harness){ .option = h->option,
		.guest = h->guest,
		.log = h->log,
		.disk_mib = h->disk_mib,
		.fd = -EBADF };
	if (geteuid() != 0 || !getenv("ATOLL_WARDEN") || !getenv("ATOLL_PROBE_GUEST"))
		return err_set(e, -EPERM, "needs root, ATOLL_WARDEN and ATOLL_PROBE_GUEST");
	(void)snprintf(h->dir, sizeof h->dir, "/tmp/atoll-warden-test-XXXXXX");
	if (!mkdtemp(h->dir))
		return err_sys(e, -errno, "mkdtemp");
	if (h->disk_mib && mount_disk(h, e) < 0)
		return e->code;
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
	return 0;
}

int harness_start(struct harness *h, const char *network, int pool, struct err *e)
{
	int r = harness_make_dir(h, e);

	return r < 0 ? r : harness_start_warden(h, network, pool, e);
}

void harness_kill_warden(struct harness *h)
{
	(void)kill(h->warden, SIGKILL);
	(void)waitpid(h->warden, NULL, 0);
	(void)close(TAKE_FD(h->fd));
	h->warden = 0;
}

int harness_stop_warden(struct harness *h)
{
	int status = 0;

	if (h->warden <= 0)
		return 0;
	(void)close(TAKE_FD(h->fd));
	(void)waitpid(h->warden, &status, 0);
	h->warden = 0;
	return status;
}

void harness_stop_sandboxes(struct harness *h)
{
	struct warden_request q = harness_request(h, WARDEN_LIST, "");
	struct warden_reply reply = { 0 };
	char ids[64][WARDEN_ID_SIZE];
	size_t n = 0;

	if (harness_send(h, &q, -EBADF) < 0)
		return;
	/* Answers that a test has not waited for may come before. */
	while (harness_receive(h, &reply) >= 0 &&
		(reply.kind != WARDEN_REPLY || reply.tag != q.tag))
		if (reply.kind == WARDEN_LISTED && n < ARRAY_SIZE(ids))
			memcpy(ids[n++], reply.id, sizeof reply.id);
	while (n > 0)
		(void)harness_destroy(h, ids[--n]);
}

static bool has_sandboxes(const struct harness *h)
{
	char path[96];
	struct dirent *entry;
	bool found = false;
	DIR *dir;

	(void)snprintf(path, sizeof path, "%s/run", h->dir);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		found |= entry->d_name[0] != '.';
	if (dir)
		(void)closedir(dir);
	return found;
}

/* One that was being made when the test ended lives on: the next warden finds it. */
void harness_stop(struct harness *h)
{
	if (h->warden > 0)
		harness_stop_sandboxes(h);
	(void)harness_stop_warden(h);
	for (int i = 0; i < 3 && h->dir[0] && has_sandboxes(h); i++) {
		if (harness_start_warden(h, "none", 0, NULL) >= 0)
			harness_stop_sandboxes(h);
		(void)harness_stop_warden(h);
	}
	if (h->dir[0])
		(void)dir_remove_tree(AT_FDCWD, h->dir, NULL);
	if (h->dir[0] && h->disk_mib)
		remove_disk(h);
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

int harness_receive_two(struct harness *h, struct warden_reply *ret, int *ret_one, int *ret_two)
{
	struct pollfd p = { .fd = h->fd, .events = POLLIN };
	int fds[FD_MAX_PASS], n_fds = 0;
	ssize_t n;

	if (poll(&p, 1, ANSWER_MS) != 1)
		return -ETIMEDOUT;
	n = fd_recv(h->fd, ret, sizeof *ret, fds, &n_fds);
	*ret_one = n_fds > 0 ? fds[0] : -EBADF;
	*ret_two = n_fds > 1 ? fds[1] : -EBADF;
	return n == sizeof *ret ? 0 : -EPIPE;
}

int harness_receive(struct harness *h, struct warden_reply *ret)
{
	cleanup_close int one = -EBADF, two = -EBADF;

	return harness_receive_two(h, ret, &one, &two);
}

int harness_ask(struct harness *h, const struct warden_request *q, int fd, struct warden_reply *ret)
{
	int r = harness_send(h, q, fd);

	while (r >= 0) {
		r = harness_receive(h, ret);
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

int harness_create_from(struct harness *h, const char *id, const char *image)
{
	struct warden_request q = harness_request(h, WARDEN_CREATE, id);
	cleanup_close int fd = harness_settings();
	struct warden_reply reply = { 0 };
	int r;

	(void)snprintf(q.image_name, sizeof q.image_name, "%s", image);
	r = harness_ask(h, &q, fd, &reply);
	if (r < 0)
		printf("# create %s: %s\n", id, reply.e.msg);
	return r;
}

int harness_create(struct harness *h, const char *id)
{
	return harness_create_from(h, id, "");
}

int harness_do(struct harness *h, enum warden_op op, const char *id, const char *image)
{
	struct warden_request q = harness_request(h, op, id);
	struct warden_reply reply = { 0 };

	(void)snprintf(q.image_name, sizeof q.image_name, "%s", image);
	return harness_ask(h, &q, -EBADF, &reply);
}

int harness_destroy(struct harness *h, const char *id)
{
	return harness_do(h, WARDEN_DESTROY, id, "");
}

bool harness_has_pool(const struct harness *h)
{
	char path[128];

	(void)snprintf(path, sizeof path, "%s/images/pool.xfs", h->dir);
	return access(path, F_OK) == 0;
}

int harness_count(struct harness *h, enum warden_op op, int *ret_frozen)
{
	struct warden_request q = harness_request(h, op, "");
	struct warden_reply reply = { 0 };
	int n = 0, frozen = 0, r = harness_send(h, &q, -EBADF);

	while (r >= 0 && (r = harness_receive(h, &reply)) >= 0 && reply.kind != WARDEN_REPLY)
		if (reply.kind == WARDEN_LISTED) {
			n++;
			frozen += reply.is_frozen != 0;
		}
	if (ret_frozen)
		*ret_frozen = frozen;
	return r < 0 ? r : n;
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

/* A child of the warden of whose status `line` is one. */
static bool is_child(const struct harness *h, int64_t pid, const char *line)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	char path[64], parent[32];

	(void)snprintf(path, sizeof path, "/proc/%" PRId64 "/status", pid);
	(void)snprintf(parent, sizeof parent, "\nPPid:\t%d\n", (int)h->warden);
	return file_read(AT_FDCWD, path, &text, NULL) >= 0 && strstr(buf_str(&text).p, line) &&
	       strstr(buf_str(&text).p, parent);
}

static int find_children(const struct harness *h, const char *line, pid_t *ret, int max)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	int n = 0;

	while (dir && n < max && (entry = readdir(dir))) {
		int64_t pid;

		if (str_to_int(str_of(entry->d_name), 2, INT32_MAX, &pid) >= 0 &&
			is_child(h, pid, line))
			ret[n++] = (pid_t)pid;
	}
	if (dir)
		(void)closedir(dir);
	return n;
}

/* Signals all of them, if there is a signal; how many there are. */
static int signal_children(const struct harness *h, const char *line, int signo)
{
	pid_t pids[MAX_CHILDREN];
	int n = 0, found = find_children(h, line, pids, MAX_CHILDREN);

	for (int i = 0; i < found; i++)
		n += kill(pids[i], signo) == 0;
	return n;
}

#define WORKER_LINE "Name:\tatoll-worker\n"

int harness_workers(const struct harness *h, pid_t *ret, int max)
{
	return find_children(h, WORKER_LINE, ret, max);
}

int harness_signal_workers(const struct harness *h, int signo)
{
	return signal_children(h, WORKER_LINE, signo);
}

int harness_signal_makers(const struct harness *h, int signo)
{
	return signal_children(h, "Name:\tatoll-maker\n", signo);
}

int harness_zombies(const struct harness *h)
{
	return signal_children(h, "\nState:\tZ", 0);
}

static int counted;
static int count_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	counted += !strstr(path, "/blank-") && strcmp(path + ftw->base, "saved") != 0 &&
		   strcmp(path + ftw->base, ".ballast") != 0;
	return 0;
}

static int count_tree(const char *path)
{
	counted = 0;
	(void)nftw(path, count_one, 16, FTW_PHYS);
	return counted;
}

/* As the warden names it: other servers on this host are none of a test's business. */
static void instance_of(const struct harness *h, char ret[9])
{
	uint8_t digest[SHA256_SIZE];

	sha256(h->dir, strlen(h->dir), digest);
	hex_encode(digest, 4, ret);
}

static int count_cgroups(const char *instance)
{
	static const char *const roots[] = { "", "/unified", "/memory", "/cpu", "/pids" };
	int n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
		char path[128];
		struct stat st;

		(void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/atoll/%s", roots[i], instance);
		if (stat(path, &st) == 0)
			n += (int)st.st_nlink - 2;
	}
	return n;
}

/* Lines of a file that contain both texts. */
static int count_lines(const char *path, const char *one, const char *two)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(1 << 20);
	struct str rest, line;
	int n = 0;

	if (file_read(AT_FDCWD, path, &text, NULL) < 0)
		return 0;
	rest = buf_str(&text);
	while (str_split(&rest, '\n', &line)) {
		char copy[512];

		(void)snprintf(copy, sizeof copy, "%.*s", STR_ARG(line));
		n += strstr(copy, one) && strstr(copy, two);
	}
	return n;
}

static int count_processes(const char *instance)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	int n = 0;

	while (dir && (entry = readdir(dir))) {
		char path[300];

		if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
			continue;
		(void)snprintf(path, sizeof path, "/proc/%s/cgroup", entry->d_name);
		n += count_lines(path, "0::", instance);
	}
	if (dir)
		(void)closedir(dir);
	return n;
}

/* The file system of the file it holds, or 0. */
static dev_t loop_is_on(int number)
{
	struct loop_info64 info = { 0 };
	cleanup_close int fd = -EBADF;
	char path[32];

	(void)snprintf(path, sizeof path, "/dev/loop%d", number);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && ioctl(fd, LOOP_GET_STATUS64, &info) == 0 ? info.lo_device : 0;
}

/* Those with a file in the data directory: sandboxes' own, or the pool, and what lies in that. */
static int count_loops(const struct harness *h)
{
	dev_t pool = 0;
	int n = 0;

	for (int i = 0; i < 256; i++) {
		char path[64];

		(void)snprintf(path, sizeof path, "/sys/block/loop%d/loop/backing_file", i);
		n += count_lines(path, h->dir, "");
		if (count_lines(path, h->dir, "/pool.xfs"))
			pool = makedev(LOOP_MAJOR_NUMBER, (unsigned)i);
	}
	for (int i = 0; i < 256 && pool; i++)
		n += loop_is_on(i) == pool;
	return n;
}

struct census census_take(const struct harness *h)
{
	char instance[9];

	instance_of(h, instance);
	return (struct census){ .processes = count_processes(instance),
		.mounts = count_lines("/proc/self/mounts", h->dir, ""),
		.cgroups = count_cgroups(instance),
		/* 10.198.0.0/16, which only these tests use, as the kernel writes it. */
		.links = count_lines("/proc/net/route", "atoll", "C60A"),
		.loops = count_loops(h),
		.files = count_tree(h->dir) };
}

struct census census_at_rest(const struct harness *h)
{
	struct census now = census_take(h), last;
	int same = 0;

	for (int i = 0; i < 400 && same < 15; i++) {
		last = now;
		(void)usleep(50000);
		now = census_take(h);
		same = memcmp(&now, &last, sizeof now) == 0 ? same + 1 : 0;
	}
	return now;
}

int census_wait(const struct harness *h, const struct census *before)
{
	struct census now = { 0 };

	for (int i = 0; i < 400; i++) {
		now = census_take(h);
		if (memcmp(&now, before, sizeof now) == 0)
			return 0;
		(void)usleep(50000);
	}
	printf("# left: processes %d->%d mounts %d->%d cgroups %d->%d links %d->%d loops %d->%d "
	       "files"
	       " %d->%d\n",
		before->processes, now.processes, before->mounts, now.mounts, before->cgroups,
		now.cgroups, before->links, now.links, before->loops, now.loops, before->files,
		now.files);
	return -1;
}
