/* Ways out by the file system itself: a chroot within, files with power. */
#include "attack/attack.h"

#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>

enum {
	CLIMB = 64,
	OTHER_ROOT = 201, /* exit status: no errno is that large */
};

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* The oldest of all: a root below, a descriptor above it, and up. */
static int break_chroot(void *arg)
{
	char dir[] = "/tmp/atoll-probe-XXXXXX";
	struct stat before, after;
	int above;

	(void)arg;
	if (!mkdtemp(dir) || stat("/", &before) < 0)
		return EIO;
	above = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (chroot(dir) < 0) {
		int error = errno;

		(void)rmdir(dir);
		return error;
	}
	(void)!fchdir(above);
	for (int i = 0; i < CLIMB; i++)
		(void)!chdir("..");
	if (chroot(".") < 0 || stat("/", &after) < 0)
		return EIO;
	(void)rmdir(dir);
	return is_same(&before, &after) ? 0 : OTHER_ROOT;
}

static void leave_by_chroot(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	int r = in_child(break_chroot, NULL);

	(void)a;
	(void)scene;
	if (r == 0)
		contained(f, "chroot can be left, and ends in the sandbox's own root");
	else if (r == OTHER_ROOT)
		escaped(f, "chroot was left for another root");
	else if (r > 0)
		refused_with(f, r, "chroot");
	else
		inconclusive(f, "the one that tried was ended by signal %d", -r);
}

/* ".." of the root, and the kernel's magic links: the host's secret must not be behind any. */
static void read_secret(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const char *const starts[] = { "", "/..", "/../../../../../../..", "/proc/self/root",
		"/proc/self/root/../..", "/proc/1/root", "/proc/1/cwd",
		"/proc/self/cwd/../../../../..", "/proc/thread-self/root",
		"/proc/1/root/proc/1/root", "/dev/fd/../../../.." };

	(void)a;
	for (size_t i = 0; scene->secret_path && i < ARRAY_SIZE(starts); i++) {
		CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
		char path[512];
		struct stat st;
		int r;

		if (starts[i][0] && stat(starts[i], &st) < 0) {
			refused_with(f, errno, "%s", starts[i]);
			continue;
		}
		(void)snprintf(path, sizeof path, "%s%s", starts[i], scene->secret_path);
		r = file_read(AT_FDCWD, path, &text, NULL);
		if (r == -ENOENT) /* the way leads somewhere, and there the host's file is not */
			refused(f, "%s of the host is not there", path);
		else if (r < 0)
			refused_with(f, -r, "%s", path);
		else if (strstr(buf_str(&text).p, scene->mark))
			escaped(f, "%s is the host's file", path);
		else
			contained(f, "%s is another file than the host's", path);
	}
}

/* ---- files with power ---- */

static int copy_self(const char *path)
{
	CLEANUP(buf_done) struct buf bytes = BUF_INIT(64 << 20);
	cleanup_close int fd = -EBADF;

	if (file_read(AT_FDCWD, "/proc/self/exe", &bytes, NULL) < 0)
		return -EIO;
	(void)unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
	return fd < 0 ? -errno : fd_write_all(fd, bytes.p, bytes.n);
}

static int give_all_capabilities(const char *path)
{
	struct vfs_cap_data all = { .magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE };

	for (int i = 0; i < VFS_CAP_U32_2; i++)
		all.data[i].permitted = UINT32_MAX;
	return setxattr(path, "security.capability", &all, sizeof all, 0) < 0 ? -errno : 0;
}

/* The copy says by its exit status what it holds (see --power in main.c); an errno: it is not run.
 */
static int power_of(const char *path)
{
	union {
		const char *in;
		char *out;
	} program = { .in = path };
	char flag[] = "--power", *const argv[] = { program.out, flag, NULL };
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		(void)execv(path, argv);
		_exit(errno);
	}
	(void)waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void judge_power(struct finding *f, int power, const char *how)
{
	if (power == HAS_POWER && is_inner(f->scene))
		contained(f, "a program %s holds sys_admin, for what is mounted inside", how);
	else if (power == HAS_POWER)
		escaped(f, "a program %s holds sys_admin", how);
	else if (power == HAS_NONE)
		contained(f, "a program %s has no capability that reaches beyond", how);
	else if (power > 0)
		refused_with(f, power, "run a program %s", how);
	else
		inconclusive(f, "a program %s did not say what it holds", how);
}

static void run_with_capabilities(const struct attempt *a, const struct scene *scene,
	struct finding *f)
{
	const char *path = "/tmp/atoll-probe-capable";
	int r;

	(void)a;
	if (!scene->changes_files)
		return;
	r = copy_self(path);
	if (r < 0) {
		inconclusive(f, "the program cannot be copied: %s", strerrordesc_np(-r));
		return;
	}
	r = give_all_capabilities(path);
	if (r < 0)
		refused_with(f, -r, "give a file all capabilities");
	else
		judge_power(f, power_of(path), "with all capabilities");
	(void)unlink(path);
}

static void run_set_user_id(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	const char *path = "/tmp/atoll-probe-setuid";
	int r;

	(void)a;
	if (!scene->changes_files)
		return;
	r = copy_self(path);
	if (r == 0 && chmod(path, 06755) < 0)
		r = -errno;
	if (r < 0)
		inconclusive(f, "no set-user-id program can be made: %s", strerrordesc_np(-r));
	else
		judge_power(f, power_of(path), "with set-user-id");
	(void)unlink(path);
}

static const struct attempt attempts[] = {
	{ "chroot", "leave the root by a chroot within", leave_by_chroot, by_filter, NULL, NULL },
	{ "secret", "read a file of the host by .. and magic links", read_secret, by_rights, NULL,
		NULL },
	{ "capabilities", "gain power by a program with file capabilities", run_with_capabilities,
		by_rights, NULL, NULL },
	{ "set-user-id", "gain power by a set-user-id program", run_set_user_id, by_rights, NULL,
		NULL },
};
FAMILY(files, attempts);
