/* What the kernel shows in /proc and /sys: switches of the host, its secrets, other processes. */
#include "attack/attack.h"

#include <dirent.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

enum {
	KCMP_FILE_KIND = 0,
	INIT_FDS = 16,
	ID_BLOCK = 65536, /* what one sandbox has, and what the host uses for itself */
};

/* ---- switches ---- */

static void write_paths(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	(void)scene;
	for (const char *const *path = a->paths; *path; path++)
		judge_open(f, *path, O_WRONLY);
}

static bool look_for_agent(const char *path, const struct stat *st, void *arg)
{
	const char *name = strrchr(path, '/');

	(void)st;
	if (name &&
		(strcmp(name, "/release_agent") == 0 || strcmp(name, "/notify_on_release") == 0))
		judge_open(arg, path, O_WRONLY);
	return ((struct finding *)arg)->verdict != ESCAPED;
}

/* The one of the own cgroup, and one that could be mounted. */
/* Who may mount inside is told what is wrong with it, and gets none all the same. */
static void judge_tree(struct finding *f, int result)
{
	if (result < 0 && (errno == EINVAL || errno == EBUSY) && is_inner(f->scene))
		contained(f, "a cgroup tree is not mounted: %s", strerrordesc_np(errno));
	else
		judge_call(f, result, "mount a cgroup tree");
}

static void release_agent(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const char *const options[] = { "memory", "rdma", "none,name=atoll-probe" };
	char dir[] = "/tmp/atoll-probe-XXXXXX";

	(void)a;
	(void)scene;
	(void)walk(&(struct walk){ .root = "/sys/fs/cgroup", .look = look_for_agent }, f);
	if (!mkdtemp(dir)) {
		inconclusive(f, "no directory to mount on: %s", strerrordesc_np(errno));
		return;
	}
	for (size_t i = 0; scene->changes_files && i < ARRAY_SIZE(options); i++)
		judge_tree(f, mount("none", dir, "cgroup", 0, options[i]));
	(void)rmdir(dir);
}

static bool look_for_writable(const char *path, const struct stat *st, void *arg)
{
	struct finding *f = arg;

	if (S_ISREG(st->st_mode) && st->st_mode & 0222 && access(path, F_OK) == 0)
		judge_open(f, path, O_WRONLY);
	return f->verdict != ESCAPED;
}

static bool is_process(const char *path)
{
	return path[6] >= '0' && path[6] <= '9';
}

/* What belongs to processes is writable by them, and is another attempt's. */
static bool look_for_machine_wide(const char *path, const struct stat *st, void *arg)
{
	return is_process(path) || look_for_writable(path, st, arg);
}

static void write_all_proc(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	int seen = walk(&(struct walk){ .root = "/proc", .look = look_for_machine_wide }, f);

	(void)a;
	(void)scene;
	if (f->verdict == UNTRIED && seen > 0)
		refused(f, "none of %d files has a write bit", seen);
}

static void write_all_sys(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	int seen = walk(&(struct walk){ .root = "/sys", .look = look_for_writable }, f);

	(void)a;
	(void)scene;
	if (f->verdict == UNTRIED && seen > 0)
		refused(f, "none of %d files has a write bit", seen);
}

/* ---- secrets ---- */

static void read_path(const char *path, struct finding *f)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	char bytes[64];
	ssize_t n;

	if (fd < 0) {
		judge_path_error(f, errno, path);
		return;
	}
	n = read(fd, bytes, sizeof bytes);
	if (n > 0)
		given_by_kernel(f, "%s can be read", path);
	else if (n == 0)
		refused(f, "%s is empty here", path);
	else
		refused_with(f, errno, "%s", path);
	(void)close(fd);
}

static void read_secrets(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	(void)scene;
	for (const char *const *path = a->paths; *path; path++)
		read_path(*path, f);
}

/* Zeroes instead of addresses are what the kernel shows to those who may not know them. */
static void read_symbols(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(64 << 20);
	int r = file_read(AT_FDCWD, "/proc/kallsyms", &text, NULL);

	(void)a;
	(void)scene;
	if (r < 0)
		judge_path_error(f, -r, "/proc/kallsyms");
	else if (text.n == 0)
		refused(f, "/proc/kallsyms is empty here");
	else if (strspn(text.p, "0") >= 16)
		refused(f, "/proc/kallsyms shows no address");
	else
		escaped(f, "/proc/kallsyms shows addresses: %.16s", text.p);
}

/* ---- PID 1, which serves the API of the sandbox ---- */

static void open_init(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	char path[64], link[256];

	(void)scene;
	for (const char *const *file = a->paths; *file; file++)
		read_path(*file, f);
	judge_open(f, "/proc/1/mem", O_RDONLY);
	judge_open(f, "/proc/1/mem", O_RDWR);
	/* Root may count its descriptors, but not learn what they are, nor open them. */
	for (int i = 0; i < INIT_FDS; i++) {
		(void)snprintf(path, sizeof path, "/proc/1/fd/%d", i);
		if (readlink(path, link, sizeof link) >= 0)
			given_by_kernel(f, "%s says what it is", path);
		else if (errno != ENOENT) /* there is such a descriptor */
			judge_open(f, path, O_RDONLY);
	}
}

/* Through its links one would come out wherever it stands: that must be our own root. */
static void follow_init(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const char *const links[] = { "/proc/1/root", "/proc/1/cwd", "/proc/1/root/.." };
	struct stat own, its;

	(void)a;
	(void)scene;
	if (stat("/", &own) < 0)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
		if (stat(links[i], &its) < 0)
			refused_with(f, errno, "%s", links[i]);
		else if (its.st_dev == own.st_dev && its.st_ino == own.st_ino)
			contained(f, "%s is the sandbox's own root", links[i]);
		else
			escaped(f, "%s is another directory than our root", links[i]);
	}
}

static void trace_init(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	char byte = 0;
	/* Nothing is ever mapped there: who may read or write gets EFAULT. */
	struct iovec to = { &byte, 1 }, from = { (void *)8, 1 };
	int64_t r;

	(void)a;
	(void)scene;
	r = ptrace(PTRACE_SEIZE, 1, NULL, NULL);
	judge_call(f, r, "ptrace of PID 1");
	if (r >= 0)
		(void)ptrace(PTRACE_DETACH, 1, NULL, NULL);
	r = syscall(SYS_process_vm_readv, 1, &to, 1, &from, 1, 0);
	judge_call(f, r, "reading PID 1's memory");
	r = syscall(SYS_process_vm_writev, 1, &to, 1, &from, 1, 0);
	judge_call(f, r, "writing PID 1's memory");
	r = syscall(SYS_kcmp, 1, 1, KCMP_FILE_KIND, 0, 0);
	judge_call(f, r, "kcmp with PID 1");
}

/* The API's own socket would be worth having. */
static void steal_descriptors(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	int pid_fd = (int)syscall(SYS_pidfd_open, 1, 0);

	(void)a;
	(void)scene;
	if (pid_fd < 0) {
		judge_call(f, -1, "pidfd_open");
		return;
	}
	for (int i = 0; i < INIT_FDS; i++)
		judge_call(f, syscall(SYS_pidfd_getfd, pid_fd, i, 0), "pidfd_getfd of PID 1");
	(void)close(pid_fd);
}

/* ---- other processes ---- */

/* Host and neighbour each have a process whose name is the beginning of the mark. */
static bool has_marked_name(const char *pid, const struct scene *scene)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	char path[300];

	(void)snprintf(path, sizeof path, "/proc/%s/comm", pid);
	return scene->mark[0] && file_read(AT_FDCWD, path, &text, NULL) >= 0 &&
	       strncmp(buf_str(&text).p, scene->mark, MARK_COMM) == 0;
}

static bool is_ours(const char *pid)
{
	char path[300], own[64], its[64];
	ssize_t n = readlink("/proc/self/ns/pid", own, sizeof own - 1), m;

	(void)snprintf(path, sizeof path, "/proc/%s/ns/pid", pid);
	m = readlink(path, its, sizeof its - 1);
	return m < 0 || (n == m && memcmp(own, its, (size_t)n) == 0);
}

static void find_processes(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	int n = 0;

	(void)a;
	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
			continue;
		n++;
		if (!is_ours(entry->d_name))
			given_by_kernel(f, "process %s is of another process namespace",
				entry->d_name);
		if (has_marked_name(entry->d_name, scene))
			escaped(f, "process %s is the host's or the neighbour's", entry->d_name);
	}
	if (dir)
		(void)closedir(dir);
	if (n > 0)
		refused(f, "%d processes are seen, none of them from outside", n);
}

/* One that is known to be there, and whose name is the mark's. */
static void signal_known(const struct scene *scene, struct finding *f)
{
	char text[16];
	int r;

	if (!scene->host_pid) {
		inconclusive(f, "no process of the host is known");
		return;
	}
	r = kill(scene->host_pid, 0);
	(void)snprintf(text, sizeof text, "%d", (int)scene->host_pid);
	if ((r == 0 || errno == EPERM) && has_marked_name(text, scene))
		escaped(f, "process %s of the host is there for signals", text);
	else if (r == 0 || errno == EPERM)
		contained(f, "process %s is another here than on the host", text);
	else
		refused_with(f, errno, "signal process %s of the host", text);
}

static void signal_outside(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	char text[64];
	int reached = 0;
	struct stat st;

	(void)a;
	signal_known(scene, f);
	/* Who can be signalled but not seen is not of this sandbox. */
	for (pid_t pid = 2; pid < 70000; pid++) {
		if (kill(pid, 0) < 0 && errno != EPERM)
			continue;
		(void)snprintf(text, sizeof text, "/proc/%d", (int)pid);
		if (stat(text, &st) < 0 && kill(pid, 0) == 0)
			escaped(f, "process %d can be signalled and is not ours", (int)pid);
		reached++;
	}
	refused(f, "of 70000 process ids %d answer, and all of them are the sandbox's own",
		reached);
}

/* ---- who we are outside ---- */

static void read_map(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	int64_t n[3] = { 0 }; /* first inside, first outside, how many */
	struct str rest, word;

	if (file_read(AT_FDCWD, a->detail, &text, NULL) < 0)
		return;
	rest = buf_str(&text);
	for (size_t i = 0; i < ARRAY_SIZE(n); i++)
		if (!next_word(&rest, &word) || str_to_int(word, 0, UINT32_MAX, &n[i]) < 0)
			return;
	if (n[1] < ID_BLOCK && n[2] <= ID_BLOCK && is_inner(scene))
		contained(f,
			"%" PRId64 " ids are those of the namespace around it, where root owns no "
			"device",
			n[2]);
	else if (n[1] < ID_BLOCK || n[2] > ID_BLOCK || next_word(&rest, &word))
		given_by_kernel(f,
			"id %" PRId64 " inside is %" PRId64 " outside, and %" PRId64 " more", n[0],
			n[1], n[2] - 1);
	else
		contained(f,
			"%" PRId64 " ids from %" PRId64 " inside are those from %" PRId64
			" outside, nobody there",
			n[2], n[0], n[1]);
}

enum {
	MOUNTING = 21, /* CAP_SYS_ADMIN */
};

static void hold_capabilities(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const struct {
		const char *name;
		int bit;
	} powers[] = { { "sys_admin", 21 }, { "sys_module", 16 }, { "sys_rawio", 17 },
		{ "sys_ptrace", 19 }, { "net_admin", 12 }, { "dac_read_search", 2 },
		{ "sys_boot", 22 }, { "sys_time", 25 }, { "syslog", 34 }, { "bpf", 39 },
		{ "perfmon", 38 }, { "sys_resource", 24 }, { "mac_admin", 33 },
		{ "linux_immutable", 9 }, { "checkpoint_restore", 40 } };
	CLEANUP(buf_done) struct buf text = BUF_INIT(64 << 10);
	const char *line;
	uint64_t held;

	(void)a;
	if (file_read(AT_FDCWD, "/proc/self/status", &text, NULL) < 0)
		return;
	line = strstr(buf_str(&text).p, "CapBnd:");
	if (!line)
		return;
	held = strtoull(line + strlen("CapBnd:"), NULL, 16);
	for (size_t i = 0; i < ARRAY_SIZE(powers); i++)
		if (held >> powers[i].bit & 1 && powers[i].bit == MOUNTING && is_inner(scene))
			contained(f, "%s is within reach, for what is mounted inside",
				powers[i].name);
		else if (held >> powers[i].bit & 1)
			escaped(f, "%s is within reach (bounding set %" PRIx64 ")", powers[i].name,
				held);
	refused(f, "the bounding set is %" PRIx64, held);
}

/* ---- what others do ---- */

static bool has_entries(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	bool found = false;

	while (dir && !found && (entry = readdir(dir)))
		found = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
	if (dir)
		(void)closedir(dir);
	return found;
}

static void look_at_others(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	(void)scene;
	for (const char *const *path = a->paths; *path; path++) {
		CLEANUP(buf_done) struct buf text = BUF_INIT(4 << 20);
		int r = file_read(AT_FDCWD, *path, &text, NULL);

		if (r == -EISDIR ? has_entries(*path) : r >= 0 && text.n > 0)
			given_by_kernel(f, "%s tells of the host and of neighbours", *path);
		else if (r >= 0 || r == -EISDIR)
			refused(f, "%s is empty", *path);
		else
			judge_path_error(f, -r, *path);
	}
}

static const char *const others[] = { "/sys/block", "/sys/class/block", "/sys/dev/block",
	"/sys/devices/virtual/block", "/sys/devices/virtual/bdi", "/sys/fs/ext4", "/sys/fs/xfs",
	"/sys/fs/btrfs", "/sys/kernel/slab", "/sys/block/loop0/loop/backing_file",
	"/proc/diskstats", "/proc/partitions", "/proc/mdstat", "/proc/swaps", "/proc/locks",
	"/proc/fs", "/proc/pressure", "/proc/interrupts", NULL };
static const char *const secrets[] = { "/proc/kcore", "/proc/keys", "/proc/timer_list",
	"/proc/sched_debug", "/proc/kmsg", "/proc/vmcore", "/proc/latency_stats",
	"/sys/firmware/acpi/tables/DSDT", "/sys/kernel/debug/tracing/trace",
	"/sys/kernel/tracing/trace", "/sys/kernel/vmcoreinfo", NULL };
static const char *const symbols[] = { "/proc/kallsyms", NULL };
static const char *const of_init[] = { "/proc/1/environ", "/proc/1/maps", "/proc/1/auxv",
	"/proc/1/pagemap", "/proc/1/syscall", "/proc/1/stack", NULL };
static const int by_nobody[] = { ESRCH, 0 };
static const char *const core_pattern[] = { "/proc/sys/kernel/core_pattern",
	"/proc/sys/kernel/core_pipe_limit", "/proc/sys/fs/suid_dumpable", NULL };
static const char *const uevent[] = { "/sys/kernel/uevent_helper", "/proc/sys/kernel/hotplug",
	"/sys/devices/virtual/mem/null/uevent", NULL };
static const char *const modprobe[] = { "/proc/sys/kernel/modprobe",
	"/proc/sys/kernel/modules_disabled", "/proc/sys/kernel/usermodehelper/inheritable",
	"/proc/sys/kernel/usermodehelper/bset", NULL };
static const char *const binfmt[] = { "/proc/sys/fs/binfmt_misc/register",
	"/proc/sys/fs/binfmt_misc/status", NULL };
static const char *const sysrq[] = { "/proc/sysrq-trigger", "/proc/sys/kernel/sysrq", NULL };
static const char *const power[] = { "/sys/power/state", "/sys/power/mem_sleep",
	"/proc/sys/vm/drop_caches", "/proc/sys/kernel/panic", "/proc/sys/vm/overcommit_memory",
	"/proc/sys/kernel/randomize_va_space", "/proc/sys/net/ipv4/ip_forward",
	"/proc/sys/kernel/ns_last_pid", "/proc/sys/kernel/yama/ptrace_scope", "/proc/mtrr",
	"/proc/acpi/wakeup", "/proc/irq/default_smp_affinity", NULL };

static const struct attempt attempts[] = {
	{ "release-agent", "set a cgroup's release_agent", release_agent, by_rights_or_read_only,
		NULL, NULL },
	{ "core-pattern", "set the program that is run for core dumps", write_paths,
		by_rights_or_read_only, core_pattern, NULL },
	{ "uevent-helper", "set the program that is run for devices", write_paths,
		by_rights_or_read_only, uevent, NULL },
	{ "modprobe", "set the program that is run for modules", write_paths,
		by_rights_or_read_only, modprobe, NULL },
	{ "binfmt-misc", "register an interpreter for all of the host", write_paths,
		by_rights_or_read_only, binfmt, NULL },
	{ "sysrq", "press the magic key", write_paths, by_rights_or_read_only, sysrq, NULL },
	{ "switches", "write other settings of the machine", write_paths, by_rights_or_read_only,
		power, NULL },
	{ "write-proc", "write anything in /proc that is not a process's", write_all_proc,
		by_rights_or_read_only, NULL, NULL },
	{ "write-sys", "write anything in /sys", write_all_sys, by_rights_or_read_only, NULL,
		NULL },
	{ "secrets", "read what /proc and /sys know of the machine", read_secrets, by_rights,
		secrets, NULL },
	{ "others", "see the disks of the host and of neighbours, and how busy they are",
		look_at_others, by_rights, others, NULL },
	{ "symbols", "read addresses of the kernel", read_symbols, by_rights, symbols, NULL },
	{ "init-files", "look into PID 1: memory, environment, descriptors", open_init, by_rights,
		of_init, NULL },
	{ "init-links", "leave by PID 1's root or working directory", follow_init, by_rights, NULL,
		NULL },
	{ "init-trace", "trace PID 1, read and write its memory", trace_init, by_filter, NULL,
		NULL },
	{ "init-descriptors", "take descriptors of PID 1", steal_descriptors, by_filter, NULL,
		NULL },
	{ "processes", "see processes of the host or of a neighbour", find_processes, NULL, NULL,
		NULL },
	{ "signals", "signal processes outside", signal_outside, by_nobody, NULL, NULL },
	{ "uid-map", "be somebody on the host", read_map, NULL, NULL, "/proc/self/uid_map" },
	{ "gid-map", "be in a group of the host", read_map, NULL, NULL, "/proc/self/gid_map" },
	{ "capabilities", "hold a capability that reaches beyond", hold_capabilities, NULL, NULL,
		NULL },
};
FAMILY(proc, attempts);
