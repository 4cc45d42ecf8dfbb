/* The bare floor under a sandbox: all namespaces, one overlay, a root of its own, exec of a static
 * program, its first byte back. No limits, no network beyond loopback, no store, no protocol: what
 * is above this line in the bench table is what those cost.
 *
 *   bench-floor ROOTFS SCRATCH-DIR HELLO-PROGRAM COUNT IDLE-MS
 *
 * Prints each sample in microseconds. The removal is not timed. */
#include "base/base.h"

#include <linux/mount.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

enum {
	FLOOR_NAMESPACES = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
			   CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP,
};

struct floor {
	const char *rootfs;
	int scratch_fd, hello_fd;
	int64_t round;
};

/* An overlay that is attached nowhere yet. */
static int overlay_make(const struct floor *f, struct err *e)
{
	char name[32], upper[64], work[64];
	cleanup_close int fs = (int)syscall(SYS_fsopen, "overlay", FSOPEN_CLOEXEC);
	int fd;

	(void)snprintf(name, sizeof name, "%" PRId64, f->round);
	(void)snprintf(upper, sizeof upper, "%s/upper", name);
	(void)snprintf(work, sizeof work, "%s/work", name);
	if (fs < 0 || mkdirat(f->scratch_fd, name, 0755) < 0 ||
		mkdirat(f->scratch_fd, upper, 0755) < 0 || mkdirat(f->scratch_fd, work, 0755) < 0)
		return err_sys(e, -errno, "prepare the overlay");
	if (syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "lowerdir", f->rootfs, 0) < 0 ||
		syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "upperdir", upper, 0) < 0 ||
		syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "workdir", work, 0) < 0 ||
		syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return err_sys(e, -errno, "make the overlay");
	fd = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, 0);
	return fd < 0 ? err_sys(e, -errno, "mount the overlay") : fd;
}

/* Between clone and exec: system calls only. `go_fd` ends when the identity is mapped. */
static _Noreturn void child(const struct floor *f, int root_fd, int go_fd, int out_fd)
{
	static const char *const argv[] = { "hello", NULL }, *const envp[] = { NULL };
	char byte;

	if (read(go_fd, &byte, 1) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		syscall(SYS_move_mount, root_fd, "", AT_FDCWD, "/mnt", MOVE_MOUNT_F_EMPTY_PATH) ==
			0 &&
		chdir("/mnt") == 0 && mount("proc", "proc", "proc", 0, NULL) == 0 &&
		syscall(SYS_pivot_root, ".", ".") == 0 && umount2(".", MNT_DETACH) == 0 &&
		dup2(out_fd, STDOUT_FILENO) >= 0)
		(void)syscall(SYS_execveat, f->hello_fd, "", argv, envp, AT_EMPTY_PATH);
	_exit(1);
}

static int map_identity(pid_t pid, struct err *e)
{
	static const char *const files[] = { "uid_map", "gid_map" };
	char path[64];

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		int r;

		(void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, files[i]);
		r = file_write(AT_FDCWD, path, STR("0 0 65536\n"), e);
		if (r < 0)
			return r;
	}
	return 0;
}

static int start_one(const struct floor *f, int out_fd, pid_t *ret_pid, struct err *e)
{
	struct clone_args args = { .flags = FLOOR_NAMESPACES, .exit_signal = SIGCHLD };
	cleanup_close int root_fd = overlay_make(f, e);
	int go[2], r;

	if (root_fd < 0)
		return root_fd;
	if (pipe2(go, O_CLOEXEC) < 0)
		return err_sys(e, -errno, "pipe");
	*ret_pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
	if (*ret_pid == 0) {
		(void)close(go[1]);
		child(f, root_fd, go[0], out_fd);
	}
	(void)close(go[0]);
	r = *ret_pid < 0 ? err_sys(e, -errno, "clone3") : map_identity(*ret_pid, e);
	(void)close(go[1]);
	return r;
}

static int measure_one(const struct floor *f, struct err *e)
{
	int64_t began_us = time_now_us();
	pid_t pid = -1;
	char byte = 0;
	int out[2], r, status;

	if (pipe2(out, O_CLOEXEC) < 0)
		return err_sys(e, -errno, "pipe");
	r = start_one(f, out[1], &pid, e);
	(void)close(out[1]);
	if (r >= 0 && read(out[0], &byte, 1) != 1)
		r = err_set(e, -EIO, "the program inside did not start");
	if (r >= 0)
		printf("%" PRId64 "\n", time_now_us() - began_us);
	(void)close(out[0]);
	if (pid > 0)
		(void)waitpid(pid, &status, 0);
	return r;
}

static int run(struct floor *f, char **argv, struct err *e)
{
	int64_t count, idle_ms;
	int r = 0;

	f->rootfs = argv[1];
	f->scratch_fd = open(argv[2], O_DIRECTORY | O_CLOEXEC);
	f->hello_fd = open(argv[3], O_RDONLY | O_CLOEXEC);
	if (f->scratch_fd < 0 || f->hello_fd < 0 || fchdir(f->scratch_fd) < 0)
		return err_sys(e, -errno, "open %s or %s", argv[2], argv[3]);
	if (str_to_int(str_of(argv[4]), 1, 1000000, &count) < 0 ||
		str_to_int(str_of(argv[5]), 0, 60000, &idle_ms) < 0)
		return err_set(e, -EINVAL, "bad number");
	for (f->round = 0; r >= 0 && f->round < count; f->round++) {
		struct timespec idle = { .tv_nsec = idle_ms * 1000000 };

		r = measure_one(f, e);
		(void)nanosleep(&idle, NULL);
	}
	return r;
}

int main(int argc, char **argv)
{
	struct floor f = { .scratch_fd = -EBADF, .hello_fd = -EBADF };
	struct err e = { 0 };

	if (argc != 6) {
		(void)fprintf(stderr,
			"usage: bench-floor ROOTFS SCRATCH-DIR HELLO COUNT IDLE-MS\n");
		return 2;
	}
	if (run(&f, argv, &e) < 0) {
		(void)fprintf(stderr, "bench-floor: %s\n", e.msg);
		return 1;
	}
	return 0;
}
