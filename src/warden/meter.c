#include "warden/meter.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mount.h>

/* Which controller has the file, and what it is called in the unified and in the old hierarchy. */
static const struct meter {
	enum cgroup_controller controller;
	const char *unified, *legacy;
} meters[GUEST_METERS] = {
	[METER_MEMORY] = { CGROUP_MEMORY, "memory.events", "memory.oom_control" },
	[METER_CPU] = { CGROUP_CPU, "cpu.stat", "cpu.stat" },
	[METER_PIDS] = { CGROUP_PIDS, "pids.current", "pids.current" },
	[METER_PIDS_EVENTS] = { CGROUP_PIDS, "pids.events", "pids.events" },
};

static const enum guest_meter meter_of[WARDEN_LIMITS] = {
	[WARDEN_LIMIT_MEMORY] = METER_MEMORY,
	[WARDEN_LIMIT_PIDS] = METER_PIDS_EVENTS,
};

static int open_file(const struct cgroups *cg, const char *key, const struct meter *m,
	struct err *e)
{
	const char *file = cg->unified_limits ? m->unified : m->legacy;
	char name[96];
	int fd;

	(void)snprintf(name, sizeof name, "%s/%s", key, file);
	fd = openat(cg->unified_limits ? cg->unified_fd : cg->legacy_fd[m->controller], name,
		O_RDONLY | O_CLOEXEC);
	return fd < 0 ? err_sys(e, -errno, "open %s", file) : fd;
}

int meters_open(const struct cgroups *cg, const char *key, int fds[GUEST_METERS], struct err *e)
{
	for (int i = 0; i < GUEST_METERS; i++)
		fds[i] = -EBADF;
	for (int i = 0; i < GUEST_METERS; i++) {
		fds[i] = open_file(cg, key, &meters[i], e);
		if (fds[i] < 0) {
			int r = fds[i];

			meters_close(fds);
			return r;
		}
	}
	return 0;
}

void meters_close(int fds[GUEST_METERS])
{
	for (int i = 0; i < GUEST_METERS; i++)
		close_fdp(&fds[i]);
}

static int clone_group(const struct cgroups *cg, const char *key, enum cgroup_controller controller,
	int *ret, struct err *e)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
					       MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC };
	cleanup_close int fd = open_tree(cg->legacy_fd[controller], key,
		OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);

	if (fd < 0 || mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
		return err_sys(e, -errno, "show the sandbox its cgroup");
	*ret = TAKE_FD(fd);
	return 0;
}

int groups_clone(const struct cgroups *cg, const char *key, int fds[GUEST_GROUPS], int *ret_n,
	struct err *e)
{
	static const enum cgroup_controller controllers[GUEST_GROUPS] = {
		[GROUP_MEMORY] = CGROUP_MEMORY,
		[GROUP_CPU] = CGROUP_CPU,
	};
	int n = 0, r = 0;

	for (; !cg->unified_limits && r >= 0 && n < GUEST_GROUPS; n += r >= 0)
		r = clone_group(cg, key, controllers[n], &fds[n], e);
	while (r < 0 && n > 0)
		(void)close(fds[--n]);
	if (r >= 0)
		*ret_n = n;
	return r;
}

/* The old hierarchy tells of memory by an eventfd, which it keeps until either is gone. */
static int watch_old_memory(const struct cgroups *cg, const char *key, struct err *e)
{
	cleanup_close int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), file = -EBADF;
	char name[96], text[32];
	int r;

	if (event < 0)
		return err_sys(e, -errno, "eventfd");
	file = open_file(cg, key, &meters[METER_MEMORY], e);
	if (file < 0)
		return file;
	(void)snprintf(name, sizeof name, "%s/cgroup.event_control", key);
	(void)snprintf(text, sizeof text, "%d %d", event, file);
	r = file_write(cg->legacy_fd[CGROUP_MEMORY], name, str_of(text), e);
	return r < 0 ? r : TAKE_FD(event);
}

int meter_watch(const struct cgroups *cg, const char *key, enum warden_limit limit,
	uint32_t *ret_events, struct err *e)
{
	bool by_event = limit == WARDEN_LIMIT_MEMORY && !cg->unified_limits;

	*ret_events = by_event ? EPOLLIN : EPOLLPRI;
	return by_event ? watch_old_memory(cg, key, e)
			: open_file(cg, key, &meters[meter_of[limit]], e);
}

int64_t meter_parse(struct str text, enum warden_limit limit)
{
	struct str wanted = limit == WARDEN_LIMIT_MEMORY ? STR("oom_kill") : STR("max"), line, word;
	int64_t count = 0;

	while (str_split(&text, '\n', &line))
		if (str_split(&line, ' ', &word) && str_eq(word, wanted))
			(void)str_to_int(line, 0, INT64_MAX, &count);
	return count;
}

int64_t meter_read(const struct cgroups *cg, const char *key, enum warden_limit limit, int watch_fd)
{
	cleanup_close int own = -EBADF;
	char text[512];
	uint64_t seen;
	ssize_t n;

	if (limit == WARDEN_LIMIT_MEMORY && !cg->unified_limits) {
		(void)!read(watch_fd, &seen, sizeof seen);
		own = open_file(cg, key, &meters[METER_MEMORY], NULL);
		watch_fd = own;
	}
	n = watch_fd < 0 ? -1 : pread(watch_fd, text, sizeof text, 0);
	return n < 0 ? 0 : meter_parse(str_make(text, (size_t)n), limit);
}
