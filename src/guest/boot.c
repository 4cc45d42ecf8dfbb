/* From a cloned process to a sealed sandbox, in three parts: what no template changes (done while
 * nobody waits), the root file system (usually guessed right and done early as well), and the name.
 *
 * Until the pivot the host's file system is visible, which is why devices can be cloned from it and
 * a dynamically linked build can start. Everything is mounted detached and moved into place, so
 * there is no scratch directory and nothing that a failure could leave behind. */
#include "guest/boot.h"
#include "guest/seccomp.h"

#include <linux/capability.h>
#include <linux/openat2.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define HOSTNAME "atoll"

enum {
	LISTEN_FD = 4,      /* where the listening socket lives while the guest waits for START */
	NOFILE_SOFT = 1024, /* more breaks select(); programs that want more raise it themselves */
	PLAIN = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
};

/* What is mounted besides the root, parents first. */
static const struct part {
	const char *type, *target;
	struct {
		const char *key, *value;
	} options[3];
	unsigned attributes;
	bool optional;
} parts[] = {
	{ "proc", "/proc", { { 0 } }, PLAIN, false },
	{ "sysfs", "/sys", { { 0 } }, PLAIN | MOUNT_ATTR_RDONLY, false },
	{ "cgroup2", "/sys/fs/cgroup", { { 0 } }, PLAIN | MOUNT_ATTR_RDONLY, true },
	{ "tmpfs", "/dev", { { "mode", "0755" } }, MOUNT_ATTR_NOSUID, false },
	{ "devpts", "/dev/pts", { { "mode", "0620" }, { "ptmxmode", "0666" }, { "gid", "5" } },
		MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, false },
	{ "mqueue", "/dev/mqueue", { { 0 } }, PLAIN, true },
};

static const char *const devices[] = { "/dev/null", "/dev/zero", "/dev/full", "/dev/random",
	"/dev/urandom", "/dev/tty" };

/* Detached mounts, waiting for a root to be put into. */
struct prepared {
	int parts[ARRAY_SIZE(parts)];
	int devices[ARRAY_SIZE(devices)];
};

static void close_prepared(struct prepared *p)
{
	for (size_t i = 0; i < ARRAY_SIZE(p->parts); i++)
		close_fdp(&p->parts[i]);
	for (size_t i = 0; i < ARRAY_SIZE(p->devices); i++)
		close_fdp(&p->devices[i]);
}

static int mount_part(const struct part *part, int *ret, struct err *e)
{
	cleanup_close int fs = fsopen(part->type, FSOPEN_CLOEXEC);
	int fd;

	if (fs < 0)
		return err_sys(e, -errno, "open file system type %s", part->type);
	for (size_t i = 0; i < ARRAY_SIZE(part->options) && part->options[i].key; i++)
		if (fsconfig(fs, FSCONFIG_SET_STRING, part->options[i].key, part->options[i].value,
			    0) < 0)
			return err_sys(e, -errno, "%s option %s", part->type, part->options[i].key);
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return err_sys(e, -errno, "create %s", part->type);
	fd = fsmount(fs, FSMOUNT_CLOEXEC, part->attributes);
	if (fd < 0)
		return err_sys(e, -errno, "mount %s", part->type);
	*ret = fd;
	return 0;
}

/* On hosts whose limits sit in the old hierarchies a bare cgroup2 would only mislead programs that
 * size themselves by it. */
static bool shows_memory_limit(int cgroup_fd)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);

	return file_read(cgroup_fd, "cgroup.controllers", &text, NULL) >= 0 &&
	       strstr(buf_str(&text).p, "memory");
}

static int fill_dev(int dev_fd, struct err *e)
{
	static const struct {
		const char *name, *to;
	} links[] = { { "fd", "/proc/self/fd" }, { "stdin", "/proc/self/fd/0" },
		{ "stdout", "/proc/self/fd/1" }, { "stderr", "/proc/self/fd/2" },
		{ "ptmx", "pts/ptmx" } };
	static const char *const dirs[] = { "pts", "mqueue", "shm" };

	for (size_t i = 0; i < ARRAY_SIZE(links); i++)
		if (symlinkat(links[i].to, dev_fd, links[i].name) < 0)
			return err_sys(e, -errno, "link /dev/%s", links[i].name);
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		if (mkdirat(dev_fd, dirs[i], 0755) < 0)
			return err_sys(e, -errno, "make /dev/%s", dirs[i]);
	/* Shared memory needs no file system of its own: it is a tmpfs already, and a superblock
	 * less per sandbox. The memory limit bounds it. */
	if (fchmodat(dev_fd, "shm", 01777, 0) < 0)
		return err_sys(e, -errno, "open /dev/shm for all");
	for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
		cleanup_close int fd = openat(dev_fd, devices[i] + strlen("/dev/"),
			O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);

		if (fd < 0)
			return err_sys(e, -errno, "make %s", devices[i]);
	}
	return 0;
}

static int prepare_mounts(struct prepared *p, struct err *e)
{
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		r = mount_part(&parts[i], &p->parts[i], e);
		if (r < 0 && !parts[i].optional)
			return r;
		if (r >= 0 && strcmp(parts[i].type, "cgroup2") == 0 &&
			!shows_memory_limit(p->parts[i]))
			(void)close(TAKE_FD(p->parts[i]));
		if (r >= 0 && strcmp(parts[i].type, "tmpfs") == 0) {
			r = fill_dev(p->parts[i], e);
			if (r < 0)
				return r;
		}
	}
	/* A user namespace may not make device nodes, but it may show the host's harmless ones. */
	for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
		p->devices[i] =
			open_tree(AT_FDCWD, devices[i], OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
		if (p->devices[i] < 0)
			return err_sys(e, -errno, "clone %s", devices[i]);
	}
	return 0;
}

/* What an ordinary user may do on a normal machine: ping, and serve on any port. Kernels without
 * these settings work all the same. */
static void relax_network(void)
{
	(void)file_write(AT_FDCWD, "/proc/sys/net/ipv4/ping_group_range", STR("0 65535"), NULL);
	(void)file_write(AT_FDCWD, "/proc/sys/net/ipv4/ip_unprivileged_port_start", STR("0"), NULL);
}

static int prepare(struct prepared *p, struct err *e)
{
	(void)prctl(PR_SET_NAME, "atoll-guest", 0, 0, 0); /* executed from memory, it has none */
	/* Nothing inside may look into this process: it holds the socket of the API. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_sys(e, -errno, "PR_SET_DUMPABLE");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_sys(e, -errno, "make mounts private");
	/* Only now, in its final cgroups: the namespace's root is where it is made. */
	if (unshare(CLONE_NEWCGROUP) < 0)
		return err_sys(e, -errno, "make a cgroup namespace");
	if (sethostname(HOSTNAME, strlen(HOSTNAME)) < 0)
		return err_sys(e, -errno, "set the host name");
	relax_network();
	return prepare_mounts(p, e);
}

static int open_target(const char *path)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS };

	return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
}

static int put(int mount_fd, const char *path, struct err *e)
{
	cleanup_close int target = open_target(path);

	if (target < 0)
		return err_sys(e, -errno, "open %s", path);
	if (move_mount(mount_fd, "", target, "",
		    MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return err_sys(e, -errno, "mount on %s", path);
	return 0;
}

static int put_prepared(const struct prepared *p, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(parts); i++) {
		if (p->parts[i] < 0)
			continue;
		if (mkdir(parts[i].target, 0755) < 0 && errno != EEXIST)
			return err_sys(e, -errno, "make %s", parts[i].target);
		r = put(p->parts[i], parts[i].target, e);
	}
	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(devices); i++)
		r = put(p->devices[i], devices[i], e);
	return r;
}

static int enter_root(int root_fd, const struct prepared *p, struct err *e)
{
	int r;

	if (move_mount(root_fd, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return err_sys(e, -errno, "attach the root");
	if (fchdir(root_fd) < 0)
		return err_sys(e, -errno, "enter the root");
	if (syscall(SYS_pivot_root, ".", ".") < 0)
		return err_sys(e, -errno, "pivot_root");
	r = put_prepared(p, e);
	if (r < 0)
		return r;
	/* The host's tree lies over ours on the same spot: "." is the topmost, "/" is ours. */
	if (umount2(".", MNT_DETACH) < 0)
		return err_sys(e, -errno, "detach the host's tree");
	if (chdir("/") < 0)
		return err_sys(e, -errno, "chdir /");
	return 0;
}

#define EMPTY_DIR "/dev/.empty"

static int hide(const char *path, struct err *e)
{
	cleanup_close int cover = -EBADF;
	struct stat st;

	if (lstat(path, &st) < 0)
		return 0;
	cover = open_tree(AT_FDCWD, S_ISDIR(st.st_mode) ? EMPTY_DIR : "/dev/null",
		OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (cover < 0)
		return err_sys(e, -errno, "make a cover for %s", path);
	return put(cover, path, e);
}

static int freeze(const char *path, struct err *e)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY | PLAIN };
	cleanup_close int fd = -EBADF;
	struct stat st;

	if (lstat(path, &st) < 0)
		return 0;
	fd = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (fd < 0)
		return err_sys(e, -errno, "clone %s", path);
	if (mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
		return err_sys(e, -errno, "make %s read-only", path);
	return put(fd, path, e);
}

/* The kernel's own files that concern the whole machine. */
#define BOOT_ID "/proc/sys/kernel/random/boot_id"

/* A boot of its own: programs take this id for "the same boot as before", and the host's would
 * neither change with a fresh start of the sandbox nor differ between sandboxes. */
static int give_boot_id(struct err *e)
{
	static const char file[] = "/dev/.boot-id";
	cleanup_close int cover = -EBADF;
	uint8_t b[16];
	char text[40];
	int n, fd, r;

	random_bytes(b, sizeof b);
	b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
	b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
	n = snprintf(text, sizeof text,
		"%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x\n", b[0],
		b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
		b[14], b[15]);
	fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0444);
	if (fd < 0)
		return err_sys(e, -errno, "make %s", file);
	r = fd_write_all(fd, text, (size_t)n);
	(void)close(fd);
	if (r < 0)
		return err_sys(e, r, "write %s", file);
	cover = open_tree(AT_FDCWD, file, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (cover < 0)
		return err_sys(e, -errno, "clone %s", file);
	r = put(cover, BOOT_ID, e);
	(void)unlink(file); /* it lives on where it is mounted */
	return r;
}

static int mask_host(struct err *e)
{
	static const char *const hidden[] = { "/proc/acpi", "/proc/asound", "/proc/kallsyms",
		"/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug",
		"/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/firmware",
		"/sys/devices/virtual/powercap" };
	static const char *const frozen[] = { "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys",
		"/proc/sysrq-trigger" };
	int r = 0;

	if (mkdir(EMPTY_DIR, 0555) < 0)
		return err_sys(e, -errno, "make an empty directory");
	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(hidden); i++)
		r = hide(hidden[i], e);
	/* Deleted, it can never be filled; the covers keep it. */
	(void)rmdir(EMPTY_DIR);
	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(frozen); i++)
		r = freeze(frozen[i], e);
	return r;
}

/* Lowers only, so it never needs a privilege. */
static void set_limits(void)
{
	struct rlimit nofile, core;

	if (getrlimit(RLIMIT_NOFILE, &nofile) == 0) {
		nofile.rlim_cur = MIN(nofile.rlim_max, (rlim_t)NOFILE_SOFT);
		(void)setrlimit(RLIMIT_NOFILE, &nofile);
	}
	if (getrlimit(RLIMIT_CORE, &core) == 0) {
		core.rlim_cur = 0;
		(void)setrlimit(RLIMIT_CORE, &core);
	}
	(void)umask(022);
}

static const int kept_caps[] = { CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_KILL,
	CAP_SETGID, CAP_SETUID, CAP_SETPCAP, CAP_NET_BIND_SERVICE, CAP_NET_RAW, CAP_SYS_CHROOT,
	CAP_MKNOD, CAP_AUDIT_WRITE, CAP_SETFCAP };

static uint64_t kept_mask(void)
{
	uint64_t mask = 0;

	for (size_t i = 0; i < ARRAY_SIZE(kept_caps); i++)
		mask |= UINT64_C(1) << kept_caps[i];
	return mask;
}

static int bound_caps(struct err *e)
{
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (!(kept_mask() >> cap & 1) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return err_sys(e, -errno, "drop capability %d", cap);
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return err_sys(e, -errno, "clear ambient capabilities");
	return 0;
}

static int drop_caps(struct err *e)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };
	uint64_t mask = kept_mask();

	for (int i = 0; i < 2; i++)
		data[i].permitted = data[i].effective = (uint32_t)(mask >> 32 * i);
	if (syscall(SYS_capset, &head, data) < 0)
		return err_sys(e, -errno, "capset");
	return 0;
}

/* The filter goes on between the two halves of dropping: without no_new_privs the kernel wants
 * CAP_SYS_ADMIN for it. */
static int restrict_self(struct err *e)
{
	int r = bound_caps(e);

	if (r >= 0)
		r = seccomp_load(e);
	if (r >= 0)
		r = drop_caps(e);
	return r;
}

/* Leaves 0-2 on the sandbox's own /dev/null, the warden's socket, and the listening socket. */
static int close_others(int listen_fd, struct err *e)
{
	int null_fd;

	if (listen_fd != LISTEN_FD && dup3(listen_fd, LISTEN_FD, O_CLOEXEC) < 0)
		return err_sys(e, -errno, "move the listening socket");
	if (close_range(LISTEN_FD + 1, ~0U, 0) < 0)
		return err_sys(e, -errno, "close_range");
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null_fd < 0)
		return err_sys(e, -errno, "open /dev/null");
	for (int fd = 0; fd <= 2; fd++)
		(void)dup2(null_fd, fd);
	(void)close(null_fd);
	return 0;
}

/* One message of the warden with exactly the descriptors that belong to its step. */
static int receive(enum guest_step step, struct guest_boot *ret, int *fds, int n_fds, struct err *e)
{
	int got[FD_MAX_PASS], n = 0, r = 0;
	ssize_t size = fd_recv(WARDEN_GUEST_FD, ret, sizeof *ret, got, &n);

	if (size < 0)
		return err_sys(e, (int)size, "receive from the warden");
	if (size == 0)
		return err_set(e, -ECANCELED, "the warden has gone");
	if (size != sizeof *ret || ret->version != WARDEN_VERSION || ret->step != step ||
		n != n_fds || !memchr(ret->id, '\0', sizeof ret->id))
		r = err_set(e, -EPROTO, "unexpected message of %zd bytes and %d descriptors", size,
			n);
	for (int i = 0; i < n; i++) {
		if (r < 0)
			(void)close(got[i]);
		else
			fds[i] = got[i];
	}
	return r;
}

static void answer(int fd, int code, const char *msg)
{
	struct err e = { .code = code };

	(void)snprintf(e.msg, sizeof e.msg, "%s", msg);
	(void)send(fd, &e, sizeof e, MSG_NOSIGNAL);
}

/* From the host's view to the sandbox's. The descriptors in `fds` are closed on the way. */
static int seal(const int fds[GUEST_ROOT_FDS], const struct prepared *p, struct err *e)
{
	int r = enter_root(fds[0], p, e);

	if (r >= 0)
		r = mask_host(e);
	if (r >= 0)
		r = give_boot_id(e);
	if (r >= 0)
		r = close_others(fds[1], e);
	if (r < 0)
		return r;
	set_limits();
	return restrict_self(e);
}

static int wait_for_root(struct err *e)
{
	struct prepared p;
	struct guest_boot message;
	int fds[GUEST_ROOT_FDS] = { -EBADF, -EBADF }, r;

	memset(&p, 0xff, sizeof p); /* all -1: nothing open */
	r = prepare(&p, e);
	if (r >= 0) {
		answer(WARDEN_GUEST_FD, 0, "");
		r = receive(GUEST_ROOT, &message, fds, GUEST_ROOT_FDS, e);
	}
	if (r >= 0)
		r = seal(fds, &p, e); /* closes all, or the process ends */
	else
		close_prepared(&p);
	return r;
}

bool boot_is_wanted(void)
{
	int type = 0;
	socklen_t n = sizeof type;

	return getpid() == 1 && getsockopt(WARDEN_GUEST_FD, SOL_SOCKET, SO_TYPE, &type, &n) == 0 &&
	       type == SOCK_SEQPACKET;
}

/* Tells the warden of a failure, unless it has gone. */
static int fail(int r, const struct err *why)
{
	if (r < 0 && r != -ECANCELED)
		answer(WARDEN_GUEST_FD, r, why->msg);
	return r;
}

int boot_prepare(struct boot *ret, struct err *e)
{
	struct err mine = { 0 }, *why = e ? e : &mine;
	int r;

	(void)fcntl(WARDEN_GUEST_FD, F_SETFD, FD_CLOEXEC);
	r = wait_for_root(why);
	if (r < 0)
		return fail(r, why);
	*ret = (struct boot){ .listen_fd = LISTEN_FD,
		.settings_fd = -EBADF,
		.warden_fd = WARDEN_GUEST_FD };
	return 0;
}

int boot_wait(struct boot *b, struct err *e)
{
	struct err mine = { 0 }, *why = e ? e : &mine;
	struct guest_boot message;
	int r;

	answer(b->warden_fd, 0, "");
	r = receive(GUEST_START, &message, &b->settings_fd, GUEST_START_FDS, why);
	if (r < 0)
		return fail(r, why);
	memcpy(b->id, message.id, sizeof b->id);
	return 0;
}

void boot_ready(struct boot *b, int code, const char *msg)
{
	if (b->warden_fd < 0)
		return;
	answer(b->warden_fd, code, msg);
	(void)close(TAKE_FD(b->warden_fd));
}

void boot_done(struct boot *b)
{
	close_fdp(&b->listen_fd);
	close_fdp(&b->settings_fd);
	close_fdp(&b->warden_fd);
	*b = (struct boot)BOOT_INIT;
}
