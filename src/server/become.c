#include "server/become.h"
#include "base/confine.h"
#include "server/block.h"
#include "server/calls.h"
#include "server/keep.h"
#include "warden/proto.h"

#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- becoming ---- */

static int take_along(int dir_fd, struct err *e)
{
	cleanup_close int tree =
		open_tree(dir_fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

	/* A slave, not private: what the host unmounts must not stay mounted here. */
	if (tree < 0 || unshare(CLONE_NEWNS) < 0 ||
		mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ||
		move_mount(tree, "", AT_FDCWD, STATE_DIR, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return err_sys(e, -errno, "take the state directory along");
	return 0;
}

/* What every process that worked as root has in common from here on. */
static int settle(struct err *e)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_sys(e, -errno, "give up new privileges");
	(void)umask(077);
	/* Root's own is closed to us, and libpq takes that for a fault when it looks for
	 * certificates there. */
	(void)setenv("HOME", STATE_DIR, 1);
	return calls_limit(e);
}

int become_server(int dir_fd, struct err *e)
{
	int r = take_along(dir_fd, e);

	if (r < 0)
		return r;
	r = block_enter(e);
	if (r < 0)
		return err_wrap(e, r, "give up root");
	if (setresuid(1, 1, 1) == 0) /* which even the root of its own block may no longer */
		return err_set(e, -EPERM, "root could not be given up");
	return settle(e);
}

static int become_user(int dir_fd, uid_t uid, gid_t gid, struct err *e)
{
	int r = take_along(dir_fd, e);

	if (r < 0)
		return r;
	if (uid != 0 && (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 ||
				setresuid(uid, uid, uid) < 0))
		return err_sys(e, -errno, "become user %u", (unsigned)uid);
	return settle(e);
}

static int become_owner(int dir_fd, struct err *e)
{
	struct stat st;

	if (fstat(dir_fd, &st) < 0)
		return err_sys(e, -errno, "look at the directory");
	if (st.st_uid == WARDEN_FIRST_UID || (st.st_uid == 0 && st.st_mode & (S_IWGRP | S_IWOTH)))
		return become_server(dir_fd, e);
	return become_user(dir_fd, st.st_uid, st.st_gid, e);
}

/* ---- a process that does ---- */

struct outcome { /* goes down a pipe as it is, and behind it what fn has left */
	int r;
	struct err e;
};

static _Noreturn void work(int out_fd, int dir_fd, become_fn fn, void *arg, void *ret, size_t size)
{
	struct outcome o = { 0 };
	pid_t parent = getppid();

	confine_memory();
	o.r = become_owner(dir_fd, &o.e);
	if (o.r >= 0 && keep_follow(parent) < 0)
		_exit(1);
	if (o.r >= 0 && chdir(STATE_DIR) < 0)
		o.r = err_sys(&o.e, -errno, "enter the directory");
	if (o.r >= 0)
		o.r = fn(arg, ret, &o.e);
	_exit(fd_write_all(out_fd, &o, sizeof o) < 0 || fd_write_all(out_fd, ret, size) < 0);
}

/* -EPROTO: it did not come to an end. */
static int read_outcome(int fd, void *ret, size_t size, struct err *e)
{
	CLEANUP(buf_done) struct buf bytes = BUF_INIT(sizeof(struct outcome) + size);
	struct outcome o;

	if (fd_read_all(fd, &bytes) < 0 || bytes.n != sizeof o + size)
		return err_set(e, -EPROTO, "the process that worked on it died");
	memcpy(&o, bytes.p, sizeof o);
	o.e.msg[sizeof o.e.msg - 1] = '\0';
	if (o.r < 0)
		return err_set(e, o.r, "%s", o.e.msg);
	memcpy(ret, bytes.p + sizeof o, size);
	return o.r;
}

int become_run(int dir_fd, become_fn fn, void *arg, void *ret, size_t size, struct err *e)
{
	cleanup_close int in = -EBADF;
	int pair[2], status, r;
	pid_t pid;

	if (pipe2(pair, O_CLOEXEC) < 0)
		return err_sys(e, -errno, "make a pipe");
	in = pair[0];
	pid = fork();
	if (pid == 0)
		work(pair[1], dir_fd, fn, arg, ret, size);
	(void)close(pair[1]);
	if (pid < 0)
		return err_sys(e, -errno, "start a process");
	r = read_outcome(in, ret, size, e);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return r;
}
