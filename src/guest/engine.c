#include "guest/engine.h"
#include "guest/engine-child.h"
#include "guest/mounts.h"
#include "guest/volumes.h"

#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum {
	CONFIG_MAX_BYTES = 64 << 10,
	WORDS_BYTES = 4096,
};

static const char *const program_names[] = {
	[WARDEN_LOCAL] = NULL,
	[WARDEN_GVISOR] = "runsc",
	[WARDEN_RUNC] = "runc",
	[WARDEN_CRUN] = "crun",
};

/* ---- the bundle ---- */

static const struct mount_option no_options[MOUNT_MAX_OPTIONS];

static int put_new(const char *type, const struct mount_option options[MOUNT_MAX_OPTIONS],
	unsigned attributes, const char *path, struct err *e)
{
	cleanup_close int fd = -EBADF;
	int r = mount_make(type, options, attributes, &fd, e);

	return r < 0 ? r : mount_put(fd, path, e);
}

static int put_in(int mount_fd, const char *path, struct err *e)
{
	if (mkdir(path, 0755) < 0)
		return err_sys(e, -errno, "make %s", path);
	return mount_put(mount_fd, path, e);
}

/* The engine follows links of a path that it is given, and around it is still the host's tree: what
 * it is told to show comes from a place of ours, and only if that is a directory of the sandbox's.
 */
static int put_tmp(struct err *e)
{
	cleanup_close int root = open(ENGINE_ROOT, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_close int dir = -EBADF, fd = -EBADF;

	if (root < 0)
		return err_sys(e, -errno, "open the root");
	if (mkdirat(root, "tmp", 0755) == 0 && fchmodat(root, "tmp", 01777, 0) < 0)
		return err_sys(e, -errno, "make /tmp of the sandbox");
	dir = openat(root, "tmp", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0 && (errno == ENOTDIR || errno == ELOOP))
		return err_set(e, -ENOTDIR, "/tmp is a file or a link, gVisor needs a directory");
	if (dir < 0)
		return err_sys(e, -errno, "open /tmp of the sandbox");
	fd = open_tree(dir, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE);
	if (fd < 0)
		return err_sys(e, -errno, "clone /tmp of the sandbox");
	return put_in(fd, ENGINE_TMP, e);
}

/* Its cgroups, for the second guest to show. */
static int put_groups(const int *fds, uint32_t n, struct err *e)
{
	int r = 0;

	if (mkdir(ENGINE_GROUPS_PLACE, 0755) < 0)
		return err_sys(e, -errno, "make " ENGINE_GROUPS_PLACE);
	for (uint32_t i = 0; r >= 0 && i < n; i++) {
		char path[64];

		(void)snprintf(path, sizeof path, ENGINE_GROUPS_PLACE "/%s", engine_groups[i]);
		r = put_in(fds[i], path, e);
	}
	return r;
}

static int copy_program(int from, struct err *e)
{
	cleanup_close int to = open(ENGINE_PROGRAM, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0555);
	struct stat st;
	off_t at = 0;

	if (to < 0 || fstat(from, &st) < 0)
		return err_sys(e, -errno, "make a copy of the guest");
	while (at < st.st_size) {
		ssize_t n = sendfile(to, from, &at, (size_t)(st.st_size - at));

		if (n <= 0)
			return err_sys(e, n < 0 ? -errno : -EIO, "copy the guest");
	}
	return 0;
}

static int write_config(const struct guest_boot *m, struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(CONFIG_MAX_BYTES);

	engine_config(m, &text);
	return file_replace(AT_FDCWD, ENGINE_PLACE "/config.json", buf_str(&text), 0444, e);
}

/* What some versions stumble over, taken out of their sight. */
static int hide_host(enum warden_engine engine, struct err *e)
{
	int r = 0;

	/* runsc takes a network namespace that shows this file for the host's, as it once was. */
	if (engine == WARDEN_GVISOR && access("/proc/sys/net/core/rmem_default", F_OK) == 0)
		r = put_new("tmpfs", no_options, MOUNT_PLAIN, "/proc/sys/net/core", e);
	/* crun refuses hosts that have both kinds of cgroups; it is told to use none at all. */
	if (engine == WARDEN_CRUN && access("/sys/fs/cgroup", F_OK) == 0)
		r = put_new("tmpfs", no_options, MOUNT_PLAIN, "/sys/fs/cgroup", e);
	return r;
}

/* An engine would follow a link there, or stumble over it. */
static int check_places(struct err *e)
{
	static const char *const places[] = { "proc", "sys", "dev" };
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		char path[64];

		(void)snprintf(path, sizeof path, ENGINE_ROOT "/%s", places[i]);
		if (lstat(path, &st) == 0 && !S_ISDIR(st.st_mode))
			return err_set(e, -ENOTDIR, "/%s of the template is no directory",
				places[i]);
	}
	return 0;
}

static int make_bundle(const int *fds, const struct guest_boot *m, struct err *e)
{
	static const struct mount_option readable[MOUNT_MAX_OPTIONS] = { { "mode", "0755" } };
	enum warden_engine engine = (enum warden_engine)m->engine;
	int r = put_new("proc", no_options, MOUNT_PLAIN, "/proc", e);

	if (r >= 0)
		r = put_new("tmpfs", readable, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, ENGINE_PLACE,
			e);
	if (r >= 0)
		r = put_in(fds[0], ENGINE_ROOT, e);
	if (r >= 0)
		r = check_places(e);
	if (r >= 0)
		r = volumes_put(ENGINE_ROOT, fds + GUEST_ENGINE_FDS + m->n_groups, m, e);
	if (r >= 0 && engine != WARDEN_GVISOR)
		r = put_groups(fds + GUEST_ENGINE_FDS, m->n_groups, e);
	if (r >= 0 && engine == WARDEN_GVISOR)
		r = put_tmp(e);
	if (r >= 0 && engine == WARDEN_GVISOR)
		r = put_in(fds[1], ENGINE_DOOR_PLACE, e);
	if (r >= 0)
		r = copy_program(fds[2], e);
	if (r >= 0)
		r = write_config(m, e);
	return r < 0 ? r : hide_host(engine, e);
}

/* ---- its process ---- */

/* The end of what it says, on one line. */
struct words {
	char text[WORDS_BYTES];
	size_t n;
};

static void hear(int fd, struct words *w)
{
	size_t keep = sizeof w->text / 2;
	ssize_t n;

	if (w->n > keep) {
		memmove(w->text, w->text + w->n - keep, keep);
		w->n = keep;
	}
	n = read(fd, w->text + w->n, sizeof w->text - 1 - w->n);
	if (n > 0)
		w->n += (size_t)n;
}

static void tell_end(const char *name, int status, struct words *w)
{
	struct err e = { 0 };
	size_t from;

	while (w->n > 0 && (unsigned char)w->text[w->n - 1] <= ' ')
		w->n--;
	w->text[w->n] = '\0';
	for (size_t i = 0; i < w->n; i++)
		if ((unsigned char)w->text[i] < ' ')
			w->text[i] = ' ';
	/* The cause comes last in what these programs say. */
	from = w->n > 180 ? w->n - 180 : 0;
	(void)err_set(&e, -EIO, "%s ended with status %d%s%s", name,
		WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), w->n ? ": " : "",
		w->text + from);
	(void)send(WARDEN_GUEST_FD, &e, sizeof e, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Reaps what is left to PID 1. True: the engine was among it. */
static bool reap(pid_t engine, int *ret_status)
{
	bool ended = false;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == engine) {
			ended = true;
			*ret_status = status;
		}
	return ended;
}

/* What the engine says is read for as long as it lives, or it would wait for us some day. */
static _Noreturn void watch(const char *name, pid_t engine, int words_fd, int signal_fd)
{
	struct pollfd fds[] = { { signal_fd, POLLIN, 0 }, { words_fd, POLLIN, 0 } };
	struct signalfd_siginfo info;
	struct words words = { .n = 0 };
	int status = 0;

	(void)fd_set_nonblock(words_fd, true);
	for (;;) {
		(void)poll(fds, ARRAY_SIZE(fds), -1);
		if (fds[1].revents & POLLIN)
			hear(words_fd, &words);
		else if (fds[1].revents)
			fds[1].fd = -1;
		if (fds[0].revents && read(signal_fd, &info, sizeof info) > 0 &&
			reap(engine, &status))
			break;
	}
	hear(words_fd, &words);
	tell_end(name, status, &words);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static int start(const int *fds, const struct guest_boot *m, struct err *e)
{
	struct engine_child child = { .name = program_names[m->engine],
		.engine = (enum warden_engine)m->engine,
		.listen_fd = fds[1] };
	int words[2], signal_fd;
	sigset_t set;
	pid_t pid;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signal_fd < 0 || pipe2(words, O_CLOEXEC) < 0)
		return err_sys(e, -errno, "watch %s", child.name);
	child.words_fd = words[1];
	pid = fork();
	if (pid == 0)
		engine_child_main(&child);
	if (pid < 0)
		return err_sys(e, -errno, "fork");
	(void)close(words[1]);
	/* From here on it is the engine that keeps these. */
	for (int i = 0; i < GUEST_ENGINE_FDS + (int)(m->n_groups + m->n_mounts); i++)
		(void)close(fds[i]);
	watch(child.name, pid, words[0], signal_fd);
}

int engine_run(const int *fds, const struct guest_boot *message, struct err *e)
{
	int r = make_bundle(fds, message, e);

	return r < 0 ? err_wrap(e, r, "make the bundle") : start(fds, message, e);
}
