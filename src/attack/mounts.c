/* What is mounted: nothing of the host, nothing writable that should not be, and no word of where
 * on the host it lies. */
#include "attack/attack.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

enum {
	PROC_MAGIC = 0x9fa0,
	SYSFS_MAGIC = 0x62656572,
	TMPFS_MAGIC_NUMBER = 0x01021994,
	DEVPTS_MAGIC = 0x1cd1,
};

struct mount_line {
	struct str root, target, options, type, source, super;
};

/* "36 35 98:0 /root /target rw,noatime master:1 - type source super" */
static bool parse_line(struct str line, struct mount_line *ret)
{
	struct str field;
	bool rest = false;

	for (int i = 0; str_split(&line, ' ', &field); i++) {
		if (i == 3)
			ret->root = field;
		else if (i == 4)
			ret->target = field;
		else if (i == 5)
			ret->options = field;
		else if (str_is(field, "-")) {
			rest = true;
			break;
		}
	}
	return rest && str_split(&line, ' ', &ret->type) && str_split(&line, ' ', &ret->source) &&
	       str_split(&line, ' ', &ret->super);
}

/* The harmless devices are the host's, each mounted alone, and they cover files of /proc. */
static bool is_expected(const struct mount_line *m)
{
	static const char *const types[] = { "overlay", "proc", "sysfs", "tmpfs", "devpts",
		"mqueue", "cgroup2", "cgroup" };
	static const char *const nodes[] = { "/null", "/zero", "/full", "/random", "/urandom",
		"/tty" };

	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (str_is(m->type, types[i]))
			return true;
	for (size_t i = 0; str_is(m->type, "devtmpfs") && i < ARRAY_SIZE(nodes); i++)
		if (str_is(m->root, nodes[i]))
			return true;
	return false;
}

static void list_mounts(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4 << 20);
	struct str rest, line;
	int n = 0;

	(void)a;
	(void)scene;
	if (file_read(AT_FDCWD, "/proc/self/mountinfo", &text, NULL) < 0)
		return;
	rest = buf_str(&text);
	while (str_split(&rest, '\n', &line)) {
		struct mount_line m = { 0 };

		if (!parse_line(line, &m))
			continue;
		n++;
		if (!is_expected(&m))
			given_by_kernel(f, "a %.*s of the host is mounted on %.*s", STR_ARG(m.type),
				STR_ARG(m.target));
	}
	if (n > 0)
		refused(f, "%d mounts, all of them the sandbox's own", n);
}

/* Where the server keeps its data is nobody's business inside. */
static void judge_text(const struct scene *scene, const char *file, const char *text,
	struct finding *f)
{
	if (scene->n_paths == 0)
		inconclusive(f, "no directory of the host is known");
	for (size_t i = 0; i < scene->n_paths; i++)
		if (strstr(text, scene->paths[i]))
			escaped(f, "%s names %s of the host", file, scene->paths[i]);
	refused(f, "%s names no directory of the host", file);
}

static void read_host_paths(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	for (const char *const *file = a->paths; *file; file++) {
		CLEANUP(buf_done) struct buf text = BUF_INIT(4 << 20);
		int r = file_read(AT_FDCWD, *file, &text, NULL);

		if (r < 0)
			judge_path_error(f, -r, *file);
		else
			judge_text(scene, *file, buf_str(&text).p, f);
	}
}

static void check_place(const char *path, int64_t magic, bool must_be_read_only, struct finding *f)
{
	struct statvfs flags;
	struct statfs fs;

	if (statfs(path, &fs) < 0 || statvfs(path, &flags) < 0)
		refused_with(f, errno, "%s", path); /* which is none, but a kernel may not tell */
	else if ((int64_t)fs.f_type != magic)
		escaped(f, "%s is a file system of another kind (%" PRIx64 ")", path,
			(uint64_t)fs.f_type);
	else if (must_be_read_only && !(flags.f_flag & ST_RDONLY))
		given_by_kernel(f, "%s can be written", path);
	else
		refused(f, "%s is what it should be", path);
}

/* A hostile template may hold symbolic links in these places. */
static void check_places(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	(void)a;
	(void)scene;
	check_place("/proc", PROC_MAGIC, false, f);
	check_place("/proc/sys", PROC_MAGIC, true, f);
	check_place("/sys/devices/system", SYSFS_MAGIC, true, f);
	check_place("/dev", TMPFS_MAGIC_NUMBER, false, f);
	check_place("/dev/pts", DEVPTS_MAGIC, false, f);
}

static void check_null(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	cleanup_close int fd = open("/dev/null", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	(void)a;
	(void)scene;
	if (fd < 0 || fstat(fd, &st) < 0)
		inconclusive(f, "/dev/null: %s", strerrordesc_np(errno));
	else if (!S_ISCHR(st.st_mode) || st.st_rdev != 0x103)
		escaped(f, "/dev/null is something else");
	else
		refused(f,
			"/dev/null is the null device, and what covers files of /proc is it, too");
}

/* With flags that contradict each other: who may take a mount away is told so, and nothing is. */
static void uncover(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const char *const covered[] = { "/proc/kcore", "/proc/sys", "/proc/keys",
		"/proc/meminfo", "/sys/firmware", "/sys", "/proc", "/dev" };

	(void)a;
	(void)scene;
	for (size_t i = 0; i < ARRAY_SIZE(covered); i++) {
		char what[64];

		(void)snprintf(what, sizeof what, "umount %s", covered[i]);
		judge_call(f, umount2(covered[i], MNT_EXPIRE | MNT_FORCE), what);
	}
}

/* As it is mounted already: where this works, so would leaving out that it is read-only. */
static void remount(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const char *const fixed[] = { "/sys", "/proc/sys", "/proc/sysrq-trigger", "/proc",
		"/proc/meminfo" };

	(void)a;
	(void)scene;
	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++) {
		struct statvfs now = { 0 };
		char what[64];

		(void)statvfs(fixed[i], &now);
		(void)snprintf(what, sizeof what, "remount %s", fixed[i]);
		judge_call(f,
			mount("none", fixed[i], NULL,
				MS_REMOUNT | MS_BIND | MS_RELATIME |
					(now.f_flag &
						(MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)),
				NULL),
			what);
	}
}

static const char *const telling[] = { "/proc/self/mountinfo", "/proc/self/mounts",
	"/proc/self/cgroup", "/proc/1/cgroup", "/proc/1/mountinfo", "/proc/self/maps",
	"/proc/swaps", "/proc/locks", "/proc/1/cmdline", NULL };

static const struct attempt attempts[] = {
	{ "listed", "find a mount of the host", list_mounts, NULL, NULL, NULL },
	{ "paths", "learn where on the host the sandbox lies", read_host_paths, by_rights, telling,
		NULL },
	{ "places", "have something else in the place of /proc, /sys, /dev, /dev/pts", check_places,
		NULL, NULL, NULL },
	{ "null", "have something else in the place of /dev/null", check_null, NULL, NULL, NULL },
	{ "uncover", "take away what covers the kernel's files", uncover, by_filter, NULL, NULL,
		true },
	{ "remount", "make the kernel's files writable", remount, by_filter, NULL, NULL, true },
};
FAMILY(mounts, attempts);
