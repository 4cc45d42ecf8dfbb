/* What namespaces inside could open: the kernel's files without what covers them, devices behind a
 * mount, cgroups, the settings of a network, memory that a network of one's own takes from
 * everybody. Where no namespaces can be made all of it is refused at once. */
#include "attack/attack.h"

#include <linux/netlink.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum {
	/* Exit statuses, beside those of nest(). */
	HELD = 0,
	LED_OUT = 210,
	LED_TO_HOST = 211, /* whatever kernel it is that answers */
	RACES = 400,
	MOST_NETWORKS = 128,
	FEW_NETWORKS = 80,
	MOST_USERS = 400,
	FEW_USERS = 300,
	MOST_SOCKETS = 1024,
	FEW_SOCKETS = 256,
};

static int told_fd = -1; /* what a child has seen */

__attribute__((format(printf, 1, 2))) static void tell(const char *fmt, ...)
{
	char text[EVIDENCE_SIZE];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (n > 0)
		(void)!write(told_fd, text, MIN((size_t)n, sizeof text - 1));
}

/* The child ends with HELD, LED_OUT, or one of nest()'s; what it tells is the evidence. */
static void try_inside(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	int (*const *work)(void *) = a->detail;
	char seen[EVIDENCE_SIZE] = "";
	int pair[2], status;
	ssize_t n;

	(void)scene;
	if (pipe2(pair, O_CLOEXEC | O_NONBLOCK) < 0)
		return;
	told_fd = pair[1];
	status = in_child(*work, NULL);
	n = read(pair[0], seen, sizeof seen - 1);
	seen[MAX(n, (ssize_t)0)] = '\0';
	(void)close(pair[0]);
	(void)close(pair[1]);
	if (status == NOT_NESTED)
		refused(f, "no nested user namespace");
	else if (status == HELD)
		contained(f, "%.200s", seen);
	else if (status == LED_TO_HOST)
		escaped(f, "%.200s", seen);
	else if (status == LED_OUT)
		given_by_kernel(f, "%.200s", seen);
	else if (is_own_kernel(f))
		absent(f, "this kernel makes no such namespaces (%d) %.180s", status, seen);
	else
		inconclusive(f, "it ended with %d: %.180s", status, seen);
}

/* What a kernel of the sandbox's own takes for it is the sandbox's memory, and all of it would end
 * the sandbox, with the attempts that come after. */
static void try_hoarding(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	if (is_own_kernel(f))
		absent(f, "nothing of the host's is taken by it");
	else
		try_inside(a, scene, f);
}

/* ---- the kernel's files ---- */

static const char *const hidden[] = { "diskstats", "interrupts", "kallsyms", "keys", "locks",
	"partitions", "swaps", "timer_list", "schedstat" };
static const char *const settings[] = { "sys/net/ipv4/ipfrag_high_thresh",
	"sys/net/ipv4/tcp_max_tw_buckets", "sys/net/core/somaxconn", "sys/kernel/core_pattern",
	"sys/vm/overcommit_memory", "sysrq-trigger" };

static bool can_read(const char *dir, const char *name)
{
	char path[128], byte;
	cleanup_close int fd = -EBADF;

	(void)snprintf(path, sizeof path, "%s/%s", dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && read(fd, &byte, 1) == 1;
}

/* Opening is enough: nothing is written. */
static bool can_write(const char *dir, const char *name)
{
	char path[128];
	cleanup_close int fd = -EBADF;

	(void)snprintf(path, sizeof path, "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd >= 0;
}

/* What lies over them is tried to be taken away first. */
static int look_at_proc(const char *dir)
{
	for (size_t i = 0; i < ARRAY_SIZE(hidden); i++) {
		char path[128];

		(void)snprintf(path, sizeof path, "%s/%s", dir, hidden[i]);
		if (umount2(path, MNT_DETACH) == 0 || can_read(dir, hidden[i])) {
			tell("%s/%s is the kernel's own", dir, hidden[i]);
			return LED_OUT;
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
		char path[128];

		(void)snprintf(path, sizeof path, "%s/sys", dir);
		(void)umount2(path, MNT_DETACH);
		(void)mount(NULL, path, NULL, MS_REMOUNT | MS_BIND, NULL);
		(void)mount(NULL, dir, NULL, MS_REMOUNT | MS_BIND, NULL);
		if (can_write(dir, settings[i])) {
			tell("%s/%s can be written", dir, settings[i]);
			return LED_OUT;
		}
	}
	return HELD;
}

/* In a child that is in the new process namespace. */
static int in_second(int (*work)(void))
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(work());
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return NEST_FAILED;
	return WIFEXITED(status) ? WEXITSTATUS(status) : NEST_FAILED;
}

static int mount_proc(void)
{
	if (mount("proc", "/tmp", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0) {
		tell("no /proc of its own: %s", strerrordesc_np(errno));
		return HELD;
	}
	if (look_at_proc("/tmp") != HELD)
		return LED_OUT;
	tell("a /proc of its own, covered as the sandbox's");
	return HELD;
}

static int own_proc(void *arg)
{
	int r = nest(CLONE_NEWPID);

	(void)arg;
	return r != 0 ? r : in_second(mount_proc);
}

static int uncover(void *arg)
{
	int r = nest(0);

	(void)arg;
	if (r != 0)
		return r;
	if (look_at_proc("/proc") != HELD)
		return LED_OUT;
	if (umount2("/proc", MNT_DETACH) == 0 || umount2("/sys", MNT_DETACH) == 0) {
		tell("/proc or /sys can be taken away");
		return LED_OUT;
	}
	tell("what covers /proc and /sys is locked");
	return HELD;
}

/* The type of a mount says something harmless when it is looked at, and "proc" when it counts. */
struct race {
	char type[8];
	volatile bool is_over;
};

static void *flip(void *arg)
{
	struct race *race = arg;

	while (!race->is_over) {
		memcpy(race->type, "tmpfs\0\0", 8);
		memcpy(race->type, "proc\0\0\0", 8);
	}
	return NULL;
}

static int race_types(void)
{
	static struct race race;
	int mounted = 0, r = HELD;
	pthread_t thread;

	if (pthread_create(&thread, NULL, flip, &race) != 0)
		return NEST_FAILED;
	for (int i = 0; i < RACES && r == HELD; i++) {
		if (mount("none", "/tmp", race.type, MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
			continue;
		mounted++;
		if (access("/tmp/self", F_OK) == 0)
			r = look_at_proc("/tmp");
		(void)umount2("/tmp", MNT_DETACH);
	}
	race.is_over = true;
	(void)pthread_join(thread, NULL);
	if (r == HELD)
		tell("%d of %d mounts worked, none a bare /proc", mounted, RACES);
	return r;
}

static int exchange_type(void *arg)
{
	int r = nest(CLONE_NEWPID);

	(void)arg;
	return r != 0 ? r : in_second(race_types);
}

/* ---- file systems ---- */

static int mount_others(void *arg)
{
	static const char *const types[] = { "devtmpfs", "debugfs", "tracefs", "securityfs", "bpf",
		"fusectl", "configfs", "pstore", "efivarfs", "hugetlbfs", "cpuset", "sysfs",
		"btrfs", "ext4", "xfs", "squashfs", "erofs", "nfs", "9p", "autofs", "fuseblk" };
	static const char *const sources[] = { "none", "/dev/vda", "/dev/sda", "/dev/loop0" };
	int r = nest(0), n = 0;

	(void)arg;
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(types); i++)
		for (size_t k = 0; k < ARRAY_SIZE(sources); k++, n++)
			if (mount(sources[k], "/tmp", types[i], MS_RDONLY, NULL) == 0) {
				tell("%s of %s can be mounted", types[i], sources[k]);
				return LED_TO_HOST;
			}
	if (r == 0)
		tell("%d file systems of the host, and none can be mounted", n);
	return r;
}

/* Its own limits, or those of others. */
static int rule_cgroups(void *arg)
{
	static const char *const mounts[][2] = { { "cgroup2", NULL }, { "cgroup", "memory" },
		{ "cgroup", "pids" }, { "cgroup", "cpu" }, { "cgroup", "devices" },
		{ "cgroup", "freezer" } };
	static const char *const files[] = { "cgroup.procs", "memory.max", "pids.max",
		"memory.limit_in_bytes", "release_agent", "notify_on_release", "devices.allow",
		"cgroup.freeze", "freezer.state", "cpu.cfs_quota_us" };
	int r = nest(CLONE_NEWCGROUP), n = 0;

	(void)arg;
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(mounts); i++) {
		if (mount("none", "/tmp", mounts[i][0], 0, mounts[i][1]) < 0)
			continue;
		n++;
		for (size_t k = 0; k < ARRAY_SIZE(files); k++)
			if (can_write("/tmp", files[k])) {
				tell("%s of %s can be written", files[k], mounts[i][0]);
				return LED_OUT;
			}
		if (mkdir("/tmp/atoll-probe", 0755) == 0) {
			(void)rmdir("/tmp/atoll-probe");
			tell("a cgroup can be made in %s", mounts[i][0]);
			return LED_OUT;
		}
		(void)umount2("/tmp", MNT_DETACH);
	}
	if (r == 0)
		tell("%d hierarchies can be mounted, and nothing be written there", n);
	return r;
}

/* What a file system of one's own calls root's is nobody's outside. */
static int give_power(void *arg)
{
	struct stat st;
	int r = nest(0);

	(void)arg;
	if (r != 0)
		return r;
	if (mount("none", "/tmp", "tmpfs", 0, NULL) < 0)
		return NEST_FAILED;
	if (mknod("/tmp/memory", S_IFCHR | 0666, 0x101) == 0 &&
		open("/tmp/memory", O_RDONLY) >= 0) {
		tell("a device was made and opened");
		return LED_OUT;
	}
	if (mknod("/tmp/disk", S_IFBLK | 0666, 0xfe00) == 0 && open("/tmp/disk", O_RDONLY) >= 0) {
		tell("a disk was made and opened");
		return LED_OUT;
	}
	if (stat("/proc/1/root", &st) == 0 && chroot("/proc/1/root/..") == 0 &&
		access("/.atoll-outside", F_OK) == 0) {
		tell("the root of PID 1 leads out");
		return LED_OUT;
	}
	tell("no device can be made or opened on a file system of its own");
	return HELD;
}

/* ---- what all of a host share ---- */

static int count_networks(void *arg)
{
	int r = nest(0), n = 0, fds[MOST_NETWORKS];

	(void)arg;
	if (r != 0)
		return r;
	while (n < MOST_NETWORKS && unshare(CLONE_NEWNET) == 0) {
		fds[n] = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
		if (fds[n] < 0)
			break;
		n++;
	}
	tell("%d networks, then: %s", n, strerrordesc_np(errno));
	return n > FEW_NETWORKS ? LED_OUT : HELD;
}

/* One each, held until all have been tried. */
static _Noreturn void hold_user(int told, int until)
{
	char word = unshare(CLONE_NEWUSER) == 0;

	(void)!write(told, &word, 1);
	(void)!read(until, &word, 1);
	_exit(0);
}

static int count_users(void *arg)
{
	int told[2], until[2], n = 0, r = nest(0);
	char word;

	(void)arg;
	if (r != 0)
		return r;
	if (pipe2(told, O_CLOEXEC) < 0 || pipe2(until, O_CLOEXEC) < 0)
		return NEST_FAILED;
	for (int i = 0; i < MOST_USERS; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			(void)close(until[1]);
			hold_user(told[1], until[0]);
		}
		if (pid < 0 || read(told[0], &word, 1) != 1 || !word)
			break;
		n++;
	}
	(void)close(until[1]);
	tell("%d user namespaces at once", n);
	return n > FEW_USERS ? LED_OUT : HELD;
}

/* Memory that is charged to nobody. */
static int count_sockets(void *arg)
{
	static const struct {
		int family, type, protocol;
	} kinds[] = { { AF_NETLINK, SOCK_RAW, NETLINK_ROUTE }, { AF_INET, SOCK_RAW, IPPROTO_ICMP },
		{ AF_PACKET, SOCK_RAW, 0 }, { AF_INET, SOCK_DGRAM, 0 } };
	int r = nest(0), n = 0, huge = 256 << 20, got = 0;
	socklen_t size = sizeof got;

	(void)arg;
	if (r != 0)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		for (int k = 0; k < MOST_SOCKETS; k++) {
			int fd = socket(kinds[i].family, kinds[i].type | SOCK_CLOEXEC,
				kinds[i].protocol);

			if (fd < 0)
				break;
			n++;
			(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &huge, sizeof huge);
			(void)getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &got, &size);
			if (got > 1 << 20) {
				tell("a socket has a buffer of %d bytes", got);
				return LED_OUT;
			}
		}
	tell("%d sockets in a network of its own, with buffers of %d bytes", n, got);
	return n > FEW_SOCKETS ? LED_OUT : HELD;
}

/* The old tables of packet filters: a wrong size is told only to who may set them. */
static int old_tables(void *arg)
{
	static const struct {
		int family, level, option;
	} tables[] = { { AF_INET, IPPROTO_IP, 64 }, { AF_INET6, IPPROTO_IPV6, 64 },
		{ AF_INET, IPPROTO_IP, 96 }, { AF_INET, IPPROTO_IP, 128 } };
	int r = nest(0);

	(void)arg;
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(tables); i++) {
		cleanup_close int fd =
			socket(tables[i].family, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
		char small = 0;

		if (fd >= 0 && (setsockopt(fd, tables[i].level, tables[i].option, &small, 1) == 0 ||
				       (errno != ENOPROTOOPT && errno != EPERM))) {
			tell("option %d of level %d: %s", tables[i].option, tables[i].level,
				strerrordesc_np(errno));
			return LED_OUT;
		}
	}
	if (r == 0)
		tell("a network of its own, and no tables of packet filters");
	return r;
}

static int (*const for_proc)(void *) = own_proc, (*const for_uncover)(void *) = uncover,
				  (*const for_types)(void *) = exchange_type,
				  (*const for_others)(void *) = mount_others,
				  (*const for_cgroups)(void *) = rule_cgroups,
				  (*const for_power)(void *) = give_power,
				  (*const for_networks)(void *) = count_networks,
				  (*const for_users)(void *) = count_users,
				  (*const for_sockets)(void *) = count_sockets,
				  (*const for_tables)(void *) = old_tables;

static const struct attempt attempts[] = {
	{ "proc", "see the kernel's files in a /proc of one's own", try_inside, NULL, NULL,
		&for_proc },
	{ "uncover", "take away what covers /proc and /sys, in namespaces of one's own", try_inside,
		NULL, NULL, &for_uncover },
	{ "types", "exchange the type of a mount after it was looked at", try_inside, NULL, NULL,
		&for_types },
	{ "file-systems", "mount the host's disks, and file systems that are root's", try_inside,
		NULL, NULL, &for_others },
	{ "cgroups", "rule cgroups", try_inside, NULL, NULL, &for_cgroups },
	{ "power", "make devices on a file system of one's own", try_inside, NULL, NULL,
		&for_power },
	{ "networks", "make networks without number", try_hoarding, NULL, NULL, &for_networks },
	{ "users", "make user namespaces without number", try_hoarding, NULL, NULL, &for_users },
	{ "sockets", "hold memory by sockets of a network of one's own", try_hoarding, NULL, NULL,
		&for_sockets },
	{ "tables", "set the old tables of packet filters", try_inside, NULL, NULL, &for_tables },
};
FAMILY(nested, attempts);
