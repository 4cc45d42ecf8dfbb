#include "warden/cgroup.h"

#include <dirent.h>
#include <mntent.h>
#include <sys/stat.h>

enum {
	CPU_PERIOD_US = 100000,
	SOCKETS_SHARE = 8, /* of the memory, beside it */
	PIDS_SHARE = 16,   /* of all that there are for sandboxes */
	PIDS_FEW = 512,    /* so many everybody gets */
};

static const char *const controller_names[CGROUP_CONTROLLERS] = { "memory", "cpu", "pids",
	"freezer" };

static void close_stream(FILE **file)
{
	if (*file)
		(void)endmntent(*file);
}

/* Whether a list of controllers, as the kernel writes it, has all that limits need. */
static bool has_all(const struct buf *list)
{
	int found = 0;

	for (size_t i = 0; i < CGROUP_LIMITS; i++) {
		struct str rest = buf_str(list), word;

		while (str_split(&rest, ' ', &word)) {
			while (word.n && word.p[word.n - 1] == '\n')
				word.n--;
			found += str_is(word, controller_names[i]);
		}
	}
	return found == CGROUP_LIMITS;
}

static bool unified_has_all(const char *root)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	char path[300];

	(void)snprintf(path, sizeof path, "%s/cgroup.controllers", root);
	return file_read(AT_FDCWD, path, &text, NULL) >= 0 && has_all(&text);
}

/* Fills roots[]: old hierarchies by controller, the unified one last. */
int cgroups_find_roots(struct cgroups *cg, struct err *e)
{
	CLEANUP(close_stream) FILE *mounts = setmntent("/proc/self/mounts", "re");
	struct mntent *m;

	if (!mounts)
		return err_sys(e, -errno, "open /proc/self/mounts");
	while ((m = getmntent(mounts))) {
		if (strlen(m->mnt_dir) >= sizeof cg->roots[0])
			continue;
		if (strcmp(m->mnt_type, "cgroup2") == 0)
			(void)snprintf(cg->roots[CGROUP_CONTROLLERS], sizeof cg->roots[0], "%s",
				m->mnt_dir);
		for (size_t i = 0; i < CGROUP_CONTROLLERS && strcmp(m->mnt_type, "cgroup") == 0;
			i++)
			if (hasmntopt(m, controller_names[i]))
				(void)snprintf(cg->roots[i], sizeof cg->roots[0], "%s", m->mnt_dir);
	}
	return 0;
}

/* The unified hierarchy hands controllers down one level at a time. */
static int enable_controllers(int dir_fd, struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	int r = file_read(dir_fd, "cgroup.subtree_control", &text, e);

	if (r < 0)
		return r;
	if (has_all(&text))
		return 0;
	return file_write(dir_fd, "cgroup.subtree_control", STR("+memory +cpu +pids"), e);
}

static int open_dir(int at, const char *name, int *ret, struct err *e)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return err_sys(e, -errno, "open %s", name);
	*ret = fd;
	return 0;
}

static int open_child(int parent, const char *name, bool hand_down, int *ret, struct err *e)
{
	cleanup_close int fd = -EBADF;
	int r = dir_make(parent, name, 0755, e);

	if (r >= 0)
		r = open_dir(parent, name, &fd, e);
	if (r >= 0 && hand_down)
		r = enable_controllers(fd, e);
	if (r < 0)
		return r;
	*ret = TAKE_FD(fd);
	return 0;
}

static int open_instance(const char *root, const char *instance, bool hand_down, int *ret,
	struct err *e)
{
	cleanup_close int root_fd = -EBADF, atoll_fd = -EBADF;
	int r = open_dir(AT_FDCWD, root, &root_fd, e);

	if (r >= 0 && hand_down)
		r = enable_controllers(root_fd, e);
	if (r >= 0)
		r = open_child(root_fd, "atoll", hand_down, &atoll_fd, e);
	if (r >= 0)
		r = open_child(atoll_fd, instance, hand_down, ret, e);
	return r < 0 ? err_wrap(e, r, "cgroups in %s", root) : 0;
}

static int64_t read_number(const char *path)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(64);
	struct str rest, line = STR("");
	int64_t n = INT32_MAX;

	if (file_read(AT_FDCWD, path, &text, NULL) >= 0) {
		rest = buf_str(&text);
		(void)str_split(&rest, '\n', &line);
		(void)str_to_int(line, 1, INT32_MAX, &n);
	}
	return n;
}

/* Three quarters of what the kernel takes. */
int64_t cgroups_all_pids(void)
{
	int64_t pids = read_number("/proc/sys/kernel/pid_max"),
		threads = read_number("/proc/sys/kernel/threads-max");

	return MIN(pids, threads) / 4 * 3;
}

static int limit_all(struct cgroups *cg, struct err *e)
{
	char path[300], text[24];

	cg->all_pids = cgroups_all_pids();

	(void)snprintf(path, sizeof path, "%s/atoll/pids.max",
		cg->roots[cg->unified_limits ? CGROUP_CONTROLLERS : CGROUP_PIDS]);
	(void)snprintf(text, sizeof text, "%" PRId64, cg->all_pids);
	return file_write(AT_FDCWD, path, str_of(text), e);
}

int cgroups_open(struct cgroups *cg, const char *instance, struct err *e)
{
	const char *unified = cg->roots[CGROUP_CONTROLLERS];
	int r = cgroups_find_roots(cg, e);

	if (r < 0)
		return r;
	(void)snprintf(cg->instance, sizeof cg->instance, "%s", instance);
	cg->unified_limits = unified[0] && unified_has_all(unified);
	if (unified[0])
		r = open_instance(unified, instance, cg->unified_limits, &cg->unified_fd, e);
	else if (cg->roots[CGROUP_FREEZER][0])
		r = open_instance(cg->roots[CGROUP_FREEZER], instance, false,
			&cg->legacy_fd[CGROUP_FREEZER], e);
	for (size_t i = 0; r >= 0 && !cg->unified_limits && i < CGROUP_LIMITS; i++) {
		if (!cg->roots[i][0])
			r = err_set(e, -ENODEV,
				"this host has no '%s' cgroup controller: mount cgroup2 on "
				"/sys/fs/cgroup, or"
				" boot with cgroup_enable=%s",
				controller_names[i], controller_names[i]);
		else
			r = open_instance(cg->roots[i], instance, false, &cg->legacy_fd[i], e);
	}
	return r < 0 ? r : limit_all(cg, e);
}

/* Not while something is left in it. */
static void remove_instance(const char *root, const char *instance)
{
	char path[320];

	(void)snprintf(path, sizeof path, "%s/atoll/%s", root, instance);
	(void)rmdir(path);
	(void)snprintf(path, sizeof path, "%s/atoll", root);
	(void)rmdir(path);
}

void cgroups_close(struct cgroups *cg)
{
	close_fdp(&cg->unified_fd);
	for (size_t i = 0; i < CGROUP_CONTROLLERS; i++)
		close_fdp(&cg->legacy_fd[i]);
	for (size_t i = 0; i < ARRAY_SIZE(cg->roots) && cg->instance[0]; i++)
		if (cg->roots[i][0])
			remove_instance(cg->roots[i], cg->instance);
	*cg = (struct cgroups)CGROUPS_INIT;
}

void cgroups_remove_found(const struct cgroups *cg)
{
	for (size_t i = 0; i < ARRAY_SIZE(cg->roots); i++)
		if (cg->roots[i][0])
			remove_instance(cg->roots[i], cg->instance);
}

/* In one that was removed there is nothing, whatever the descriptor of it still answers. */
bool cgroups_are_there(const struct cgroups *cg)
{
	for (size_t i = 0; i < CGROUP_HIERARCHIES; i++) {
		int fd = cgroups_dir(cg, i);

		if (fd >= 0 && faccessat(fd, "cgroup.procs", F_OK, 0) < 0)
			return false;
	}
	return true;
}

int cgroups_dir(const struct cgroups *cg, size_t i)
{
	return i < CGROUP_CONTROLLERS ? cg->legacy_fd[i] : cg->unified_fd;
}

int cgroup_make(const struct cgroups *cg, const char *key, struct err *e)
{
	for (size_t i = 0; i <= CGROUP_CONTROLLERS; i++) {
		int fd = cgroups_dir(cg, i);

		/* Two controllers may share one hierarchy (cpu,cpuacct): then it exists already. */
		if (fd >= 0 && mkdirat(fd, key, 0755) < 0 && errno != EEXIST)
			return err_sys(e, -errno, "make cgroup %s", key);
	}
	return 0;
}

int cgroup_open_unified(const struct cgroups *cg, const char *key, int *ret, struct err *e)
{
	*ret = -EBADF;
	return cg->unified_fd < 0 ? 0 : open_dir(cg->unified_fd, key, ret, e);
}

int cgroup_open_legacy(const struct cgroups *cg, const char *key, int fds[CGROUP_CONTROLLERS],
	int *ret_n, struct err *e)
{
	char name[64];
	int n = 0;

	(void)snprintf(name, sizeof name, "%s/cgroup.procs", key);
	for (size_t i = 0; i < CGROUP_CONTROLLERS; i++) {
		if (cg->legacy_fd[i] < 0)
			continue;
		fds[n] = openat(cg->legacy_fd[i], name, O_WRONLY | O_CLOEXEC);
		if (fds[n] < 0) {
			int r = err_sys(e, -errno, "open %s", name);

			while (n > 0)
				(void)close(fds[--n]);
			return r;
		}
		n++;
	}
	*ret_n = n;
	return 0;
}

/* The caller's path in an old hierarchy: the line `number:controllers:path`. */
static bool find_own(struct str text, const char *controller, struct str *ret_path)
{
	struct str line, number, names, name;

	while (str_split(&text, '\n', &line)) {
		if (!str_split(&line, ':', &number) || !str_split(&line, ':', &names))
			continue;
		while (str_split(&names, ',', &name))
			if (str_is(name, controller)) {
				*ret_path = line;
				return true;
			}
	}
	return false;
}

int cgroup_open_own(const struct cgroups *cg, struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(65536);
	char name[4096];
	struct str path;
	int fd, r;

	if (cg->legacy_fd[CGROUP_PIDS] < 0)
		return err_set(e, -EOPNOTSUPP, "no old cgroup hierarchy is used");
	r = file_read(AT_FDCWD, "/proc/self/cgroup", &text, e);
	if (r < 0)
		return r;
	if (!find_own(buf_str(&text), controller_names[CGROUP_PIDS], &path) ||
		snprintf(name, sizeof name, "%s%.*s/cgroup.procs", cg->roots[CGROUP_PIDS],
			STR_ARG(path)) >= (int)sizeof name)
		return err_set(e, -EOPNOTSUPP, "this process's own cgroup is not found");
	fd = open(name, O_WRONLY | O_CLOEXEC);
	return fd < 0 ? err_sys(e, -errno, "open %s", name) : fd;
}

static int write_value(int fd, const char *key, const char *file, const char *value, struct err *e)
{
	char name[96];

	(void)snprintf(name, sizeof name, "%s/%s", key, file);
	return file_write(fd, name, str_of(value), e);
}

/* What waits in sockets is part of a unified hierarchy's memory. In the old one it has a counter of
 * its own, which counts nothing until it is limited. */
static void limit_sockets(int legacy, const char *key, uint64_t memory_bytes)
{
	char text[24];

	(void)snprintf(text, sizeof text, "%" PRIu64, memory_bytes / SOCKETS_SHARE);
	(void)write_value(legacy, key, "memory.kmem.tcp.limit_in_bytes", text, NULL);
}

static int limit_memory(const struct cgroups *cg, const char *key, uint64_t bytes, struct err *e)
{
	int legacy = cg->legacy_fd[CGROUP_MEMORY], r;
	char text[24];

	(void)snprintf(text, sizeof text, "%" PRIu64, bytes);
	if (cg->unified_limits) {
		(void)write_value(cg->unified_fd, key, "memory.swap.max", "0", NULL);
		return write_value(cg->unified_fd, key, "memory.max", text, e);
	}
	r = write_value(legacy, key, "memory.limit_in_bytes", text, e);
	/* Memory plus swap may not be below memory, so raising one needs the other raised first. */
	if (write_value(legacy, key, "memory.memsw.limit_in_bytes", text, NULL) >= 0 && r < 0)
		r = write_value(legacy, key, "memory.limit_in_bytes", text, e);
	(void)write_value(legacy, key, "memory.swappiness", "0", NULL);
	limit_sockets(legacy, key, bytes);
	return r;
}

static int limit_cpu(const struct cgroups *cg, const char *key, uint32_t percent, struct err *e)
{
	uint64_t quota_us = (uint64_t)percent * CPU_PERIOD_US / 100;
	char text[48];

	if (cg->unified_limits) {
		(void)snprintf(text, sizeof text, "%" PRIu64 " %d", quota_us, CPU_PERIOD_US);
		return write_value(cg->unified_fd, key, "cpu.max", text, e);
	}
	(void)snprintf(text, sizeof text, "%" PRIu64, quota_us);
	return write_value(cg->legacy_fd[CGROUP_CPU], key, "cpu.cfs_quota_us", text, e);
}

uint32_t cgroups_pids_of_one(int64_t all, uint32_t wanted)
{
	int64_t share = MAX(all / PIDS_SHARE, (int64_t)PIDS_FEW);

	return (uint32_t)MIN((int64_t)wanted, share);
}

static int limit_pids(const struct cgroups *cg, const char *key, uint32_t max, struct err *e)
{
	char text[24];

	(void)snprintf(text, sizeof text, "%" PRIu32, cgroups_pids_of_one(cg->all_pids, max));
	return write_value(cg->unified_limits ? cg->unified_fd : cg->legacy_fd[CGROUP_PIDS], key,
		"pids.max", text, e);
}

int cgroup_limit(const struct cgroups *cg, const char *key, const struct limits *want,
	struct limits *now, struct err *e)
{
	int r = 0;

	if (want->memory_bytes != now->memory_bytes)
		r = limit_memory(cg, key, want->memory_bytes, e);
	if (r >= 0 && want->cpu_percent != now->cpu_percent)
		r = limit_cpu(cg, key, want->cpu_percent, e);
	if (r >= 0 && want->max_pids != now->max_pids)
		r = limit_pids(cg, key, want->max_pids, e);
	if (r >= 0)
		*now = *want;
	return r;
}

bool cgroup_kill(const struct cgroups *cg, const char *key)
{
	return cg->unified_fd >= 0 &&
	       write_value(cg->unified_fd, key, "cgroup.kill", "1", NULL) >= 0;
}

/* A line `counter N` of a file; 0 where there is none. */
static int64_t read_counter(int fd, const char *key, const char *file, struct str counter)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(16384);
	struct str rest, line, word;
	int64_t count = 0;
	char name[96];

	(void)snprintf(name, sizeof name, "%s/%s", key, file);
	if (fd < 0 || file_read(fd, name, &text, NULL) < 0)
		return 0;
	rest = buf_str(&text);
	while (str_split(&rest, '\n', &line))
		if (str_split(&line, ' ', &word) && str_eq(word, counter))
			(void)str_to_int(line, 0, INT64_MAX, &count);
	return count;
}

static int64_t memory_counter(const struct cgroups *cg, const char *key, const char *file,
	struct str counter)
{
	return read_counter(cg->unified_limits ? cg->unified_fd : cg->legacy_fd[CGROUP_MEMORY], key,
		file, counter);
}

int64_t cgroup_cpu_us(const struct cgroups *cg, const char *key)
{
	return read_counter(cg->unified_fd, key, "cpu.stat", STR("usage_usec"));
}

int64_t cgroup_oom_kills(const struct cgroups *cg, const char *key)
{
	return memory_counter(cg, key, cg->unified_limits ? "memory.events" : "memory.oom_control",
		STR("oom_kill"));
}

int64_t cgroup_dirty_bytes(const struct cgroups *cg, const char *key)
{
	bool unified = cg->unified_limits;

	return memory_counter(cg, key, "memory.stat", unified ? STR("file_dirty") : STR("dirty")) +
	       memory_counter(cg, key, "memory.stat",
		       unified ? STR("file_writeback") : STR("writeback"));
}

int cgroup_remove(const struct cgroups *cg, const char *key)
{
	int r = 0;

	for (size_t i = 0; i <= CGROUP_CONTROLLERS; i++) {
		int fd = cgroups_dir(cg, i);

		if (fd >= 0 && unlinkat(fd, key, AT_REMOVEDIR) < 0 && errno != ENOENT)
			r = -EBUSY;
	}
	return r;
}

bool cgroup_holds(const struct cgroups *cg, const char *key, pid_t pid)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(65536);
	char path[64], wanted[128];
	struct str rest, line;

	(void)snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
	(void)snprintf(wanted, sizeof wanted, ":/atoll/%s/%s", cg->instance, key);
	if (file_read(AT_FDCWD, path, &text, NULL) < 0)
		return false;
	rest = buf_str(&text);
	while (str_split(&rest, '\n', &line))
		if (line.n > strlen(wanted) &&
			str_is(str_from(line, line.n - strlen(wanted)), wanted))
			return true;
	return false;
}

void cgroup_each(const struct cgroups *cg, void (*fn)(void *arg, const char *key), void *arg)
{
	for (size_t i = 0; i <= CGROUP_CONTROLLERS; i++) {
		int fd = cgroups_dir(cg, i) < 0 ? -EBADF
						: openat(cgroups_dir(cg, i), ".",
							  O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		DIR *dir = fd < 0 ? NULL : fdopendir(fd);
		struct dirent *entry;

		while (dir && (entry = readdir(dir)))
			if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
				fn(arg, entry->d_name);
		if (dir)
			(void)closedir(dir);
	}
}
