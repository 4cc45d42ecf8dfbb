/* Devices of the host: those that are there, and those that one might make. */
#include "attack/attack.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

struct node {
	const char *name;
	mode_t type;
	unsigned major, minor;
};

static void open_paths(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	(void)scene;
	for (const char *const *path = a->paths; *path; path++)
		judge_open(f, *path, O_RDONLY);
}

/* Made in one directory and opened: both must work for an escape. */
static void make_node(const struct node *node, const char *dir, struct finding *f)
{
	char path[128];
	int fd;

	if (access(dir, F_OK) < 0) /* a small template may lack one; not all of them */
		return;
	(void)snprintf(path, sizeof path, "%s/atoll-probe-%s", dir, node->name);
	(void)unlink(path);
	if (mknod(path, node->type | 0666, makedev(node->major, node->minor)) < 0) {
		refused_with(f, errno, "mknod %s", path);
		return;
	}
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0)
		given_by_kernel(f, "%s (%u:%u) was made and opened", path, node->major,
			node->minor);
	else
		contained(f, "%s was made but does not open: %s", path, strerrordesc_np(errno));
	if (fd >= 0)
		(void)close(fd);
	(void)unlink(path);
}

static void make_nodes(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const char *const dirs[] = { "/tmp", "/dev", "/dev/shm", "/var/tmp", "/run" };
	static const struct node nodes[] = {
		{ "mem", S_IFCHR, 1, 1 },
		{ "kmsg", S_IFCHR, 1, 11 },
		{ "fuse", S_IFCHR, 10, 229 },
		{ "loop-control", S_IFCHR, 10, 237 },
		{ "loop0", S_IFBLK, 7, 0 },
		{ "sda", S_IFBLK, 8, 0 },
		{ "vda", S_IFBLK, 254, 0 },
		{ "nvme", S_IFBLK, 259, 0 },
		{ "tun", S_IFCHR, 10, 200 },
	};

	(void)a;
	(void)scene;
	for (size_t d = 0; d < ARRAY_SIZE(dirs); d++)
		for (size_t i = 0; i < ARRAY_SIZE(nodes); i++)
			make_node(&nodes[i], dirs[d], f);
}

/* null, zero, full, random, urandom, tty, ptmx; and terminals of the sandbox's own. */
static bool is_harmless(const struct stat *st)
{
	static const unsigned known[][2] = { { 1, 3 }, { 1, 5 }, { 1, 7 }, { 1, 8 }, { 1, 9 },
		{ 5, 0 }, { 5, 2 } };
	unsigned major_number = major(st->st_rdev), minor_number = minor(st->st_rdev);

	if (!S_ISCHR(st->st_mode))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (known[i][0] == major_number && known[i][1] == minor_number)
			return true;
	return major_number >= 136 && major_number <= 143;
}

static bool look_at(const char *path, const struct stat *st, void *arg)
{
	struct finding *f = arg;

	if (!(S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode)) || is_harmless(st))
		return true;
	if (strstr(path, "watchdog")) /* opening one is a promise to go on */
		return true;
	judge_open(f, path, O_RDONLY);
	return f->verdict != ESCAPED;
}

static void list_devices(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	int seen = walk(&(struct walk){ .root = "/dev", .only_special = true, .look = look_at }, f);

	(void)a;
	(void)scene;
	if (f->verdict == UNTRIED && seen > 0)
		refused(f, "/dev holds null, zero, full, random, urandom, tty and own terminals");
}

/* Brought by the template, outside of /dev. */
static void find_planted(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const char *const skip[] = { "/proc", "/sys", "/dev", NULL };
	int seen = walk(&(struct walk){ .root = "/",
				.skip = skip,
				.only_special = true,
				.look = look_at },
		f);

	(void)a;
	(void)scene;
	if (f->verdict == UNTRIED && seen > 0)
		refused(f, "none of %d files outside of /dev is a device", seen);
}

/* The nodes that are shown are the host's own: using them is fine, changing them is not. */
static void change_nodes(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const char *const nodes[] = { "/dev/null", "/dev/zero", "/dev/full", "/dev/random",
		"/dev/urandom", "/dev/tty", "/proc/kcore", "/proc/keys" };

	(void)a;
	(void)scene;
	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++) {
		struct stat st;

		if (stat(nodes[i], &st) < 0 || !S_ISCHR(st.st_mode))
			continue;
		if (utimensat(AT_FDCWD, nodes[i], NULL, 0) == 0)
			given_by_kernel(f, "the time of %s can be set", nodes[i]);
		else
			refused_with(f, errno, "touch %s", nodes[i]);
		if (chmod(nodes[i], st.st_mode & 07777) == 0)
			given_by_kernel(f, "the mode of %s can be set", nodes[i]);
		else
			refused_with(f, errno, "chmod %s", nodes[i]);
	}
}

static const char *const memory[] = { "/dev/mem", "/dev/kmem", "/dev/port", NULL };
static const char *const log_device[] = { "/dev/kmsg", "/proc/kmsg", NULL };
static const char *const fuse[] = { "/dev/fuse", "/dev/cuse", NULL };
static const char *const loops[] = { "/dev/loop-control", "/dev/loop0", "/dev/loop1", "/dev/loop7",
	NULL };
static const char *const disks[] = { "/dev/sda", "/dev/vda", "/dev/xvda", "/dev/nvme0",
	"/dev/nvme0n1", "/dev/mapper/control", "/dev/md0", "/dev/sr0", "/dev/root", NULL };
static const char *const others[] = { "/dev/kvm", "/dev/vhost-net", "/dev/vhost-vsock",
	"/dev/vsock", "/dev/net/tun", "/dev/uinput", "/dev/input/event0", "/dev/dri/card0",
	"/dev/cpu/0/msr", "/dev/userfaultfd", "/dev/snapshot", "/dev/console", "/dev/tty0",
	"/dev/tty1", "/dev/ttyS0", "/dev/vcs", "/dev/rtc0", "/dev/hwrng", "/dev/autofs",
	"/dev/btrfs-control", "/dev/vfio/vfio", "/dev/udmabuf", NULL };

static const struct attempt attempts[] = {
	{ "memory", "open the machine's memory: /dev/mem, /dev/kmem, /dev/port", open_paths,
		by_rights, memory, NULL },
	{ "kmsg", "open the kernel's log: /dev/kmsg, /proc/kmsg", open_paths, by_rights, log_device,
		NULL },
	{ "fuse", "open /dev/fuse", open_paths, by_rights, fuse, NULL },
	{ "loop", "open loop devices, where other sandboxes' disks are", open_paths, by_rights,
		loops, NULL },
	{ "disks", "open the host's disks", open_paths, by_rights, disks, NULL },
	{ "others", "open kvm, tun, consoles, msr and other devices", open_paths, by_rights, others,
		NULL },
	{ "mknod", "make device nodes and open them", make_nodes, by_rights, NULL, NULL },
	{ "planted", "open devices that lie outside of /dev", find_planted, by_rights, NULL, NULL },
	{ "nodes", "change the host's own nodes that are shown", change_nodes,
		by_rights_or_read_only, NULL, NULL },
	{ "listed", "open any device that /dev holds", list_devices, by_rights, NULL, NULL },
};
FAMILY(devices, attempts);
