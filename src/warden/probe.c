/* What this host can, for `atoll doctor`: one line per check, id, verdict, text and fix between
 * tabs. */
#include "base/chroot.h"
#include "warden/copy.h"
#include "warden/leftover.h"
#include "warden/loopdev.h"
#include "warden/pool.h"
#include "warden/run.h"
#include "warden/warden.h"

#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/wait.h>

struct check {
	const char *id;
	int (*run)(const struct options *options, struct err *e);
	bool optional; /* without it Atoll works, but worse */
	const char *fine, *fix;
};

/* Runs `work` in a process of its own, so that namespaces it enters are not ours. */
static int in_child(int (*work)(struct err *e), struct err *e)
{
	struct err *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;
	int r;

	if (shared == MAP_FAILED)
		return err_sys(e, -errno, "mmap");
	pid = fork();
	if (pid == 0) {
		(void)work(shared);
		_exit(0);
	}
	if (pid < 0)
		(void)err_sys(shared, -errno, "fork");
	else
		(void)waitpid(pid, NULL, 0);
	r = shared->code;
	if (r < 0 && e)
		*e = *shared;
	(void)munmap(shared, sizeof *shared);
	return r;
}

static int check_root(const struct options *options, struct err *e)
{
	(void)options;
	return geteuid() == 0 ? 0 : err_set(e, -EPERM, "not started by root");
}

static int check_chroot(const struct options *options, struct err *e)
{
	(void)options;
	if (geteuid() != 0)
		return err_set(e, -EPERM, "not started by root");
	return root_is_changed() ? err_set(e, -EPERM,
					   "this is a chroot: the kernel makes no user namespaces "
					   "in one")
				 : 0;
}

static int enter_namespaces(struct err *e)
{
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
		    CLONE_NEWUTS | CLONE_NEWCGROUP) < 0)
		return err_sys(e, -errno, "make namespaces");
	return 0;
}

static int check_namespaces(const struct options *options, struct err *e)
{
	(void)options;
	return in_child(enter_namespaces, e);
}

static int check_overlay(const struct options *options, struct err *e)
{
	cleanup_close int fs = fsopen("overlay", FSOPEN_CLOEXEC);

	(void)options;
	return fs < 0 ? err_sys(e, -errno, "overlay file system") : 0;
}

/* A child lends its user namespace; the data directory's own file system is what must be mappable.
 */
static int idmap_with(pid_t pid, const char *dir, struct err *e)
{
	cleanup_close int user = -EBADF, tree = -EBADF;
	char path[64];
	int r;

	(void)snprintf(path, sizeof path, "/proc/%d/uid_map", (int)pid);
	r = file_write(AT_FDCWD, path, STR("0 1879048192 65536"), e);
	(void)snprintf(path, sizeof path, "/proc/%d/gid_map", (int)pid);
	if (r >= 0)
		r = file_write(AT_FDCWD, path, STR("0 1879048192 65536"), e);
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
	user = open(path, O_RDONLY | O_CLOEXEC);
	tree = open_tree(AT_FDCWD, dir, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (user < 0 || tree < 0)
		return err_sys(e, -errno, "clone %s", dir);
	return rootfs_idmap(tree, user, e);
}

static int check_idmap(const struct options *options, struct err *e)
{
	int ready[2], r;
	char byte;
	pid_t pid;

	if (pipe2(ready, O_CLOEXEC) < 0)
		return err_sys(e, -errno, "pipe");
	pid = fork();
	if (pid == 0) {
		(void)close(ready[0]);
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		if (unshare(CLONE_NEWUSER) == 0 && fd_write_all(ready[1], "", 1) >= 0)
			(void)pause();
		_exit(0);
	}
	(void)close(ready[1]);
	r = pid < 0 ? err_sys(e, -errno, "fork") : 0;
	if (r >= 0 && read(ready[0], &byte, 1) != 1)
		r = err_set(e, -EPERM, "no user namespace");
	if (r >= 0)
		r = idmap_with(pid, options->data_dir ? options->data_dir : "/var", e);
	(void)close(ready[0]);
	if (pid > 0) {
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
	}
	return r;
}

static int check_loop(const struct options *options, struct err *e)
{
	cleanup_close int fd = loopdev_open();

	(void)options;
	if (fd < 0)
		return err_set(e, -ENODEV,
			"no loop devices: sandboxes and volumes get no disk limit");
	return run_finds("mkfs.ext4") ? 0 : err_set(e, -ENOENT, "no mkfs.ext4");
}

/* The data directory may be on a file system that needs no pool. */
static int check_copies(const struct options *options, struct err *e)
{
	cleanup_close int dir = open(options->data_dir ? options->data_dir : "/var",
		O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (dir >= 0 && copy_is_cheap_in(dir))
		return 0;
	r = pool_check(e);
	return r < 0 ? err_wrap(e, r, "snapshots and forks copy whole disks") : 0;
}

static int check_cgroup(const struct options *options, struct err *e)
{
	struct cgroups cg = CGROUPS_INIT;
	int r = cgroups_open(&cg, "probe", e);

	(void)options;
	cgroups_close(&cg);
	return r;
}

/* With few, some sandboxes can leave the others none. */
static int check_pids(const struct options *options, struct err *e)
{
	const int64_t usual = 4096, enough = 64;
	int64_t n = cgroups_all_pids() / usual;

	(void)options;
	return n >= enough ? 0
			   : err_set(e, -EMFILE,
				     "all sandboxes together may have %" PRId64
				     " processes and threads, and one has up to %" PRId64,
				     cgroups_all_pids(), usual);
}

static int check_nft(const struct options *options, struct err *e)
{
	static const char *const argv[] = { "nft", "-c", "-f", "-", NULL };
	CLEANUP(buf_done) struct buf rules = BUF_INIT(65536);
	cleanup_free struct firewall *fw = XNEW(struct firewall);
	int r = net_rules(true, &rules);

	(void)options;
	(void)snprintf(fw->table, sizeof fw->table, "atoll_probe");
	fw->counts_nothing = true; /* which is a check of its own */
	for (int i = 0; i < WARDEN_EGRESS_FDS; i++)
		fw->ports[i] = FIREWALL_FIRST_PORT + i;
	firewall_text(fw, false, &rules);
	return r < 0 ? r : run_program(argv, buf_str(&rules), AT_FDCWD, e);
}

static int check_connlimit(const struct options *options, struct err *e)
{
	int r = firewall_can_count(e);

	(void)options;
	return r < 0 ? err_wrap(e, r, "the kernel cannot count a sandbox's connections") : 0;
}

/* Both ends in one throw-away namespace. */
static int make_veth(struct err *e)
{
	struct network net;
	int number, r = net_parse("10.199.0.0/16", &net, e);

	if (r >= 0 && unshare(CLONE_NEWNET) < 0)
		r = err_sys(e, -errno, "make a network namespace");
	return r < 0 ? r : net_try(&net, &number, e);
}

static int check_veth(const struct options *options, struct err *e)
{
	(void)options;
	return in_child(make_veth, e);
}

static int check_seccomp(const struct options *options, struct err *e)
{
	uint32_t action = SECCOMP_RET_ERRNO;

	(void)options;
	if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) < 0)
		return err_sys(e, -errno, "system call filters");
	return 0;
}

static int exec_from_memory(struct err *e)
{
	int file = open("/bin/true", O_RDONLY | O_CLOEXEC),
	    memory = memfd_create("probe", MFD_CLOEXEC);
	char name[] = "true", *argv[] = { name, NULL };

	(void)err_sys(e, -ENOEXEC, "execute a program from memory");
	while (file >= 0 && memory >= 0 && sendfile(memory, file, NULL, 1 << 20) > 0)
		;
	if (fcntl(memory, F_GETFD) >= 0) {
		/* Success leaves no trace here but the exit status, so the claim is withdrawn
		 * first. */
		struct err claim = *e;

		*e = (struct err){ 0 };
		(void)syscall(SYS_execveat, memory, "", argv, NULL, AT_EMPTY_PATH);
		*e = claim;
	}
	return -ENOEXEC;
}

static int check_memfd(const struct options *options, struct err *e)
{
	(void)options;
	return in_child(exec_from_memory, e);
}

/* Not only there: it starts. Whether it can run a sandbox is known when it is asked to. */
static int check_program(const char *program, struct err *e)
{
	const char *const argv[] = { program, "--version", NULL };

	return run_program(argv, STR_NONE, AT_FDCWD, e);
}

static int check_runsc(const struct options *options, struct err *e)
{
	(void)options;
	return check_program("runsc", e);
}

static int check_runc(const struct options *options, struct err *e)
{
	(void)options;
	return check_program("runc", e);
}

static int check_crun(const struct options *options, struct err *e)
{
	(void)options;
	return check_program("crun", e);
}

static const struct check checks[] = {
	{ "root", check_root, false, "started by root", "run as root, or use another runtime" },
	{ "chroot", check_chroot, false, "the root directory is the mount namespace's own",
		"serve outside of the chroot, or enter the tree by pivot_root (docs/operations.md "
		"shows how) or with systemd-nspawn" },
	{ "namespaces", check_namespaces, false, "user and all other namespaces work",
		"sudo atoll doctor --fix, or sysctl user.max_user_namespaces=65536; a container "
		"needs "
		"--privileged" },
	{ "overlay", check_overlay, false, "overlay file system works", "modprobe overlay" },
	{ "idmap", check_idmap, false, "the data directory's file system takes idmapped mounts",
		"put the data directory on ext4, XFS or btrfs with a kernel of 5.19 or later" },
	{ "loop", check_loop, true, "loop devices and mkfs.ext4 are there",
		"modprobe loop; apt-get install e2fsprogs" },
	{ "copies", check_copies, true, "disks are copied by reference",
		"apt-get install xfsprogs; modprobe xfs; or put the data directory on XFS or "
		"btrfs" },
	{ "cgroup", check_cgroup, false, "memory, cpu and pids limits work",
		"mount cgroup2 on /sys/fs/cgroup with the memory, cpu and pids controllers" },
	{ "pids", check_pids, true, "there are process numbers for many sandboxes",
		"sudo atoll doctor --fix, or sysctl kernel.pid_max=4194304 "
		"kernel.threads-max=4194304" },
	{ "nft", check_nft, false, "nftables with NAT works",
		"apt-get install nftables; modprobe nf_tables; or serve with --network none" },
	{ "connlimit", check_connlimit, true, "the connections of a sandbox can be limited",
		"modprobe nft_connlimit; or use a kernel with CONFIG_NFT_CONNLIMIT" },
	{ "veth", check_veth, false, "virtual network interfaces work",
		"modprobe veth; or serve with --network none" },
	{ "seccomp", check_seccomp, false, "system call filters work",
		"use a kernel with CONFIG_SECCOMP_FILTER" },
	{ "memfd", check_memfd, false, "programs run from memory",
		"sudo atoll doctor --fix, or sysctl vm.memfd_noexec=0" },
	{ "gvisor", check_runsc, true, "runsc is there: the runtime 'gvisor' can be asked for",
		"apt-get install runsc" },
	{ "runc", check_runc, true, "runc is there: the runtime 'runc' can be asked for",
		"apt-get install runc" },
	{ "crun", check_crun, true, "crun is there: the runtime 'crun' can be asked for",
		"apt-get install crun" },
};

int probe_host(const struct options *options)
{
	int failed = 0;

	for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
		const struct check *c = &checks[i];
		struct err e = { 0 };
		int r = c->run(options, &e);

		failed += r < 0 && !c->optional;
		printf("%s\t%s\t%s\t%s\n", c->id,
			r >= 0        ? "ok"
			: c->optional ? "warn"
				      : "fail",
			r >= 0 ? c->fine : e.msg, r >= 0 ? "" : c->fix);
	}
	leftovers_tell();
	return failed ? 1 : 0;
}
