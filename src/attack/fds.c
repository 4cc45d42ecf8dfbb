/* What a program is born with, and the runtime's own program behind it. */
#include "attack/attack.h"

#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>

/* ---- descriptors ---- */

static bool is_harmless(const char *link)
{
	static const char *const starts[] = { "pipe:[", "/dev/null", "/dev/pts/",
		"anon_inode:[eventfd" };

	for (size_t i = 0; i < ARRAY_SIZE(starts); i++)
		if (strncmp(link, starts[i], strlen(starts[i])) == 0)
			return true;
	return false;
}

static void list_descriptors(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	int n = 0;

	(void)a;
	(void)scene;
	while (dir && (entry = readdir(dir))) {
		char path[300], link[PATH_MAX];
		ssize_t size;
		int64_t fd;

		if (str_to_int(str_of(entry->d_name), 0, INT32_MAX, &fd) < 0 || fd == dirfd(dir))
			continue;
		(void)snprintf(path, sizeof path, "/proc/self/fd/%d", (int)fd);
		size = readlink(path, link, sizeof link - 1);
		n++;
		if (size < 0) {
			inconclusive(f, "%s cannot be read: %s", path, strerrordesc_np(errno));
			continue;
		}
		link[size] = '\0';
		if (fd > 2 || !is_harmless(link))
			escaped(f, "descriptor %d was inherited: %.160s", (int)fd, link);
	}
	if (dir)
		(void)closedir(dir);
	if (n > 0)
		refused(f, "%d descriptors, all of them pipes, null or the own terminal", n);
}

/* ---- the working directory ---- */

/* Up to where ".." ends: that must be our root, whatever the directory was. */
static void climb(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	struct stat root, top = { 0 }, last = { 0 };
	char cwd[PATH_MAX];
	int fd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);

	(void)a;
	(void)scene;
	if (stat("/", &root) < 0 || fd < 0)
		return;
	for (int i = 0; i < 256; i++) {
		int up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);

		if (up < 0 || fstat(up, &top) < 0)
			break;
		(void)close(fd);
		fd = up;
		if (top.st_dev == last.st_dev && top.st_ino == last.st_ino)
			break;
		last = top;
	}
	(void)close(fd);
	if (top.st_dev != root.st_dev || top.st_ino != root.st_ino)
		escaped(f, "above the working directory is another root");
	else if (!getcwd(cwd, sizeof cwd) || cwd[0] != '/')
		escaped(f, "the working directory lies outside of the root");
	else
		refused(f, "%.100s, and above it our own root", cwd);
}

/* ---- the runtime's own program ---- */

/* While it runs nobody may write it; afterwards only the seals stand in the way. */
static void judge_busy(int fd, const char *path, struct finding *f)
{
	enum {
		SEALED = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL
	};
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals >= 0 && (seals & SEALED) == SEALED)
		contained(f, "%s opens, runs, and is sealed against writing", path);
	else
		inconclusive(f, "%s only runs just now: whether it can be written later is open",
			path);
}

static void overwrite(const char *path, struct finding *f)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), again = -EBADF;
	char byte, by_fd[64];
	ssize_t n;

	if (fd < 0) {
		refused_with(f, errno, "%s", path);
		return;
	}
	(void)snprintf(by_fd, sizeof by_fd, "/proc/self/fd/%d", fd);
	again = open(by_fd, O_RDWR | O_CLOEXEC);
	if (again < 0) {
		if (errno == ETXTBSY)
			judge_busy(fd, path, f);
		else
			refused_with(f, errno, "%s, opened again for writing", path);
		(void)close(fd);
		return;
	}
	n = pread(fd, &byte, 1, 0);
	/* The byte that is there already: that it can be written is enough. */
	if (n == 1 && pwrite(again, &byte, 1, 0) == 1)
		escaped(f, "%s was written", path);
	else
		contained(f, "%s opens, but writing it is refused: %s", path,
			strerrordesc_np(errno));
	(void)close(again);
	(void)close(fd);
}

/* PID 1's program, and that of every process that was executed from memory or bears its name: such
 * is the runtime's. */
static void write_runtime(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;

	(void)a;
	(void)scene;
	overwrite("/proc/1/exe", f);
	while (dir && (entry = readdir(dir))) {
		char path[300], link[PATH_MAX];
		ssize_t n;

		(void)snprintf(path, sizeof path, "/proc/%s/exe", entry->d_name);
		n = readlink(path, link, sizeof link - 1);
		if (n < 0 && errno == EACCES) /* whoever it is hides it */
			overwrite(path, f);
		if (n <= 0)
			continue;
		link[n] = '\0';
		if (strncmp(link, "/memfd:", 7) == 0 || strstr(link, "atoll-guest"))
			overwrite(path, f);
	}
	if (dir)
		(void)closedir(dir);
}

static const struct attempt attempts[] = {
	{ "inherited", "find a descriptor that was leaked at the start", list_descriptors, NULL,
		NULL, NULL },
	{ "directory", "leave by the working directory", climb, NULL, NULL, NULL },
	{ "runtime", "write the runtime's own program through /proc/*/exe", write_runtime,
		by_rights, NULL, NULL },
};
FAMILY(fds, attempts);
