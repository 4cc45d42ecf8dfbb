/* From a cloned process to a sealed sandbox, in three parts: what no template changes (done while
 * nobody waits), the root file system (usually guessed right and done early as well), and the name.
 *
 * Until the pivot the host's file system is visible, which is why devices can be cloned from it and
 * a dynamically linked build can start. Everything is mounted detached and moved into place, so
 * there is no scratch directory and nothing that a failure could leave behind. */
#include "guest/boot.h"
#include "guest/boot-wire.h"
#include "guest/engine.h"
#include "guest/inside.h"
#include "guest/mounts.h"
#include "guest/nest.h"
#include "guest/seal.h"
#include "guest/seccomp.h"
#include "guest/seen.h"
#include "guest/shm.h"
#include "guest/uptime.h"
#include "guest/view.h"
#include "guest/volumes.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define HOSTNAME "atoll"

enum {
	LISTEN_FD = 4, /* where the listening socket lives while the guest waits for START */
	FIRST_METER_FD = LISTEN_FD + 1,
	FIRST_COVER_FD = FIRST_METER_FD + GUEST_METERS,
	UPTIME_FD = FIRST_COVER_FD + COVER_FILES,
	USE_FD,
	PLACE_FD,                                      /* of nest.h */
	KEPT_FDS = 1 + GUEST_METERS + COVER_FILES + 3, /* from LISTEN_FD on */
	OUT_OF_THE_WAY = 64,
	PROC_PART = 0,
};

/* What is mounted besides the root, parents first. */
static const struct part {
	const char *type, *target;
	struct mount_option options[MOUNT_MAX_OPTIONS];
	unsigned attributes;
	bool optional;
} parts[] = {
	[PROC_PART] = { "proc", "/proc", { { 0 } }, MOUNT_PLAIN, false },
	{ "sysfs", "/sys", { { 0 } }, MOUNT_PLAIN | MOUNT_ATTR_RDONLY, false },
	{ "cgroup2", "/sys/fs/cgroup", { { 0 } }, MOUNT_PLAIN | MOUNT_ATTR_RDONLY, true },
	{ "tmpfs", "/dev", { { "mode", "0755" } }, MOUNT_ATTR_NOSUID, false },
	/* The host has some thousands of terminals for all sandboxes together. */
	{ "devpts", "/dev/pts",
		{ { "mode", "0620" }, { "ptmxmode", "0666" }, { "gid", "5" },
			{ "max", MOUNT_MAX_TERMINALS } },
		MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, false },
	{ "mqueue", "/dev/mqueue", { { 0 } }, MOUNT_PLAIN, true },
};

/* Detached mounts, waiting for a root to be put into. */
struct prepared {
	int parts[ARRAY_SIZE(parts)];
	int devices[SEAL_DEVICES];
	struct view view;
	int uptime_fd, use_fd;
};

static void close_prepared(struct prepared *p)
{
	view_done(&p->view);
	close_fdp(&p->uptime_fd);
	close_fdp(&p->use_fd);
	for (size_t i = 0; i < ARRAY_SIZE(p->parts); i++)
		close_fdp(&p->parts[i]);
	for (size_t i = 0; i < SEAL_DEVICES; i++)
		close_fdp(&p->devices[i]);
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
	for (size_t i = 0; i < SEAL_DEVICES; i++) {
		cleanup_close int fd = openat(dev_fd, seal_devices[i] + strlen("/dev/"),
			O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);

		if (fd < 0)
			return err_sys(e, -errno, "make %s", seal_devices[i]);
	}
	return 0;
}

/* Read-only for the node itself: its times are the host's. What is written to the device is not
 * concerned by that. */
static int clone_device(const char *path, int *ret, struct err *e)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
					       MOUNT_ATTR_NOEXEC };

	*ret = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (*ret < 0)
		return err_sys(e, -errno, "clone %s", path);
	if (mount_setattr(*ret, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
		return err_sys(e, -errno, "make %s read-only", path);
	return 0;
}

static int prepare_mounts(struct prepared *p, struct err *e)
{
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		r = mount_make(parts[i].type, parts[i].options, parts[i].attributes, &p->parts[i],
			e);
		if (r < 0 && !parts[i].optional)
			return r;
		if (r >= 0 && strcmp(parts[i].type, "cgroup2") == 0) {
			/* Who has no limits there is counted all the same. */
			p->use_fd = openat(p->parts[i], "cpu.stat", O_RDONLY | O_CLOEXEC);
			if (!shows_memory_limit(p->parts[i]))
				(void)close(TAKE_FD(p->parts[i]));
		}
		if (r >= 0 && strcmp(parts[i].type, "tmpfs") == 0) {
			r = fill_dev(p->parts[i], e);
			if (r < 0)
				return r;
		}
	}
	/* A user namespace may not make device nodes, but it may show the host's harmless ones. */
	for (size_t i = 0; i < SEAL_DEVICES; i++) {
		r = clone_device(seal_devices[i], &p->devices[i], e);
		if (r < 0)
			return r;
	}
	return 0;
}

/* What an ordinary user may do on a normal machine: ping, and serve on any port. And bounds for
 * what the kernel keeps for a network without charging it: options of a socket, connections that
 * are over, packets that are not whole. Kernels without these settings work all the same.
 *
 * Through the sandbox's own /proc: in the host's, each network has an entry of the same name, and
 * with thousands of sandboxes the kernel looks at thousands of them for every file. */
static void set_up_network(int proc_fd)
{
	static const struct {
		const char *path, *value;
	} settings[] = { { "sys/net/ipv4/ping_group_range", "0 65535" },
		{ "sys/net/ipv4/ip_unprivileged_port_start", "0" },
		{ "sys/net/core/optmem_max", "4096" }, { "sys/net/core/tstamp_allow_data", "0" },
		{ "sys/net/ipv4/tcp_max_tw_buckets", "16384" },
		{ "sys/net/ipv4/ipfrag_low_thresh", "786432" },
		{ "sys/net/ipv4/ipfrag_high_thresh", "1048576" },
		{ "sys/net/ipv6/ip6frag_low_thresh", "786432" },
		{ "sys/net/ipv6/ip6frag_high_thresh", "1048576" } };

	for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
		(void)file_write(proc_fd, settings[i].path, str_of(settings[i].value), NULL);
}

static int prepare(struct prepared *p, struct err *e)
{
	int r;

	(void)prctl(PR_SET_NAME, "atoll-guest", 0, 0, 0); /* executed from memory, it has none */
	p->uptime_fd = uptime_prepare();
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
	r = prepare_mounts(p, e);
	if (r >= 0)
		r = view_make(&p->view, e);
	if (r < 0)
		return r;
	set_up_network(p->parts[PROC_PART]);
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
		r = mount_put(p->parts[i], parts[i].target, e);
	}
	for (size_t i = 0; r >= 0 && i < SEAL_DEVICES; i++)
		r = mount_put(p->devices[i], seal_devices[i], e);
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

/* Leaves 0-2 on the sandbox's own /dev/null, the warden's socket, the listening socket, the meters
 * the covers and what follows them, the last three as they come in `fds`. Moved twice, since source
 * and target numbers may overlap. */
static int close_others(const int fds[KEPT_FDS], struct err *e)
{
	int null_fd, high[KEPT_FDS];

	for (int i = 0; i < KEPT_FDS; i++)
		high[i] = fds[i] < 0 ? -EBADF : fcntl(fds[i], F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
	for (int i = 0; i < KEPT_FDS; i++)
		if (fds[i] < 0)
			(void)close(LISTEN_FD + i);
		else if (high[i] < 0 || dup3(high[i], LISTEN_FD + i, O_CLOEXEC) < 0)
			return err_sys(e, -errno, "move the listening socket");
	if (close_range(LISTEN_FD + KEPT_FDS, ~0U, 0) < 0)
		return err_sys(e, -errno, "close_range");
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null_fd < 0)
		return err_sys(e, -errno, "open /dev/null");
	for (int fd = 0; fd <= 2; fd++)
		(void)dup2(null_fd, fd);
	(void)close(null_fd);
	return 0;
}

static int put_fuse(const int *fds, const struct guest_boot *message, struct err *e)
{
	return message->has_fuse ? nest_put_fuse(fds[GUEST_ROOT_FDS + message->n_groups], e) : 0;
}

static int put_others(const int *fds, const struct guest_boot *message, struct err *e)
{
	const int *volumes = fds + GUEST_ROOT_FDS + message->n_groups + message->has_fuse;
	int r = volumes_put("/", volumes, message, e);

	if (r >= 0)
		r = shm_limit(message->shm_bytes, e);
	return r >= 0 && message->is_nested ? nest_limit(e) : r;
}

/* From the host's view to the sandbox's. The descriptors in `fds` are closed on the way. */
static int seal(const int *fds, const struct guest_boot *message, const struct prepared *p,
	int *ret_asked_fd, struct err *e)
{
	const struct seccomp_kind kind = { .has_volumes = message->n_mounts > 0,
		.is_nested = message->is_nested };
	const int *groups = message->n_groups ? fds + GUEST_ROOT_FDS : NULL;
	int kept[KEPT_FDS], place_fd = -EBADF, r = enter_root(fds[0], p, e);

	if (r >= 0)
		r = put_others(fds, message, e);
	if (r >= 0)
		r = seal_kernel_files(&p->view, groups, e);
	if (r >= 0)
		r = put_fuse(fds, message, e);
	if (r >= 0 && message->is_nested)
		r = nest_enter(&place_fd, e);
	memcpy(kept, fds + 1, (1 + GUEST_METERS) * sizeof *kept);
	memcpy(kept + FIRST_COVER_FD - LISTEN_FD, p->view.covers.fds, sizeof p->view.covers.fds);
	kept[UPTIME_FD - LISTEN_FD] = p->uptime_fd;
	kept[USE_FD - LISTEN_FD] = p->use_fd;
	kept[PLACE_FD - LISTEN_FD] = place_fd;
	if (r >= 0)
		r = close_others(kept, e);
	if (r < 0)
		return r;
	seal_limits();
	return seal_self(&kind, ret_asked_fd, e);
}

static int wait_for_root(struct boot *ret, struct err *e)
{
	struct prepared p;
	struct guest_boot message;
	int fds[FD_MAX_PASS], r;
	cpu_set_t cpus;

	memset(&p, 0xff, sizeof p); /* all -1: nothing open */
	p.view = (struct view)VIEW_INIT;
	r = prepare(&p, e);
	if (r >= 0) {
		boot_answer(0, "");
		r = boot_receive(GUEST_ROOT, &message, fds, e);
	}
	if (r >= 0 && message.engine != WARDEN_LOCAL) {
		close_prepared(&p);
		r = view_unstage(e);
		seen_take_cpus(message.cpus, &cpus);
		return r < 0 ? r : engine_run(fds, &message, e);
	}
	if (r >= 0)
		r = seal(fds, &message, &p, &ret->asked_fd,
			e); /* closes all, or the process ends */
	else
		close_prepared(&p);
	if (r < 0)
		return r;
	ret->expected_memory_mb = message.memory_mb;
	ret->expected_cpus = message.cpus;
	return 0;
}

static bool is_warden(int fd)
{
	int type = 0;
	socklen_t n = sizeof type;

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 && type == SOCK_SEQPACKET;
}

enum boot_place boot_place(int argc, char *const argv[])
{
	bool nested = argc == 4 && strcmp(argv[3], ENGINE_NESTED) == 0;
	bool inside = (argc == 3 || nested) && strcmp(argv[1], "--inside") == 0;

	if (getpid() != 1)
		return BOOT_NOWHERE;
	if (argc == 1 && is_warden(WARDEN_GUEST_FD))
		return BOOT_SLOT;
	if (inside && strcmp(argv[2], "gvisor") == 0 && is_warden(STDIN_FILENO))
		return nested ? BOOT_GVISOR_NESTED : BOOT_GVISOR;
	if (inside && strcmp(argv[2], "container") == 0 && is_warden(WARDEN_GUEST_FD))
		return BOOT_CONTAINER;
	return BOOT_NOWHERE;
}

/* Tells the warden of a failure, unless it has gone. */
static int fail(int r, const struct err *why)
{
	if (r < 0 && r != -ECANCELED)
		boot_answer(r, why->msg);
	return r;
}

int boot_prepare(enum boot_place place, struct boot *ret, struct err *e)
{
	struct err mine = { 0 }, *why = e ? e : &mine;
	struct boot b = BOOT_INIT;
	int r;

	b.warden_fd = WARDEN_GUEST_FD;
	if (place == BOOT_SLOT) {
		(void)fcntl(WARDEN_GUEST_FD, F_SETFD, FD_CLOEXEC);
		r = wait_for_root(&b, why);
		b.listen_fd = LISTEN_FD;
		for (int i = 0; i < COVER_FILES; i++)
			b.covers.fds[i] = FIRST_COVER_FD + i;
		b.uptime_fd = fcntl(UPTIME_FD, F_GETFD) < 0 ? -EBADF : UPTIME_FD;
		b.use_fd = fcntl(USE_FD, F_GETFD) < 0 ? -EBADF : USE_FD;
		b.place_fd = fcntl(PLACE_FD, F_GETFD) < 0 ? -EBADF : PLACE_FD;
		for (int i = 0; i < GUEST_METERS; i++)
			b.meters[i] = FIRST_METER_FD + i;
	} else {
		r = inside_prepare(place, &b, why);
	}
	if (r < 0)
		return fail(r, why);
	*ret = b;
	return 0;
}

int boot_wait(struct boot *b, struct err *e)
{
	struct err mine = { 0 }, *why = e ? e : &mine;
	struct guest_boot message;
	int fds[FD_MAX_PASS], r;

	boot_answer(0, "");
	r = boot_receive(GUEST_START, &message, fds, why);
	if (r < 0)
		return fail(r, why);
	b->settings_fd = fds[0];
	memcpy(b->id, message.id, sizeof b->id);
	return 0;
}

void boot_ready(struct boot *b, int code, const char *msg)
{
	if (b->warden_fd < 0)
		return;
	boot_answer(code, msg);
	(void)close(TAKE_FD(b->warden_fd));
}

void boot_done(struct boot *b)
{
	close_fdp(&b->listen_fd);
	close_fdp(&b->dial_fd);
	close_fdp(&b->asked_fd);
	close_fdp(&b->settings_fd);
	covers_done(&b->covers);
	close_fdp(&b->uptime_fd);
	close_fdp(&b->use_fd);
	close_fdp(&b->place_fd);
	for (int i = 0; i < GUEST_METERS; i++)
		close_fdp(&b->meters[i]);
	close_fdp(&b->warden_fd);
	*b = (struct boot)BOOT_INIT;
}
