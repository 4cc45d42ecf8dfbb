/* Cgroups that another server made: looked at, and nothing is made or removed by looking. */
#include "warden/cgroup.h"

#include <dirent.h>

enum {
	PROCESSES_BYTES = 4 << 20,
};

/* The unified one is the last of both lists. */
static int *place_of(struct cgroups *cg, size_t i)
{
	return i < CGROUP_CONTROLLERS ? &cg->legacy_fd[i] : &cg->unified_fd;
}

int cgroups_open_found(struct cgroups *cg, const char *instance, struct err *e)
{
	int n = 0, r = cgroups_find_roots(cg, e);
	char path[320];

	if (r < 0)
		return r;
	(void)snprintf(cg->instance, sizeof cg->instance, "%s", instance);
	for (size_t i = 0; i <= CGROUP_CONTROLLERS; i++) {
		if (!cg->roots[i][0])
			continue;
		(void)snprintf(path, sizeof path, "%s/atoll/%s", cg->roots[i], instance);
		*place_of(cg, i) = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		n += *place_of(cg, i) >= 0;
	}
	return n ? 0 : err_set(e, -ENOENT, "there are no cgroups of %s", instance);
}

void cgroups_close_found(struct cgroups *cg)
{
	for (size_t i = 0; i <= CGROUP_CONTROLLERS; i++)
		close_fdp(place_of(cg, i));
	*cg = (struct cgroups)CGROUPS_INIT;
}

int cgroups_each_instance(void (*fn)(void *arg, const char *instance), void *arg, struct err *e)
{
	struct cgroups cg = CGROUPS_INIT;
	int r = cgroups_find_roots(&cg, e);

	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(cg.roots); i++) {
		struct dirent *entry;
		char path[300];
		DIR *dir;

		(void)snprintf(path, sizeof path, "%s/atoll", cg.roots[i]);
		dir = cg.roots[i][0] ? opendir(path) : NULL;
		while (dir && (entry = readdir(dir)))
			if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
				fn(arg, entry->d_name);
		if (dir)
			(void)closedir(dir);
	}
	return r;
}

void cgroup_each_process(const struct cgroups *cg, const char *key,
	void (*fn)(void *arg, pid_t pid), void *arg)
{
	char name[64];

	(void)snprintf(name, sizeof name, "%s/cgroup.procs", key);
	for (size_t i = 0; i <= CGROUP_CONTROLLERS; i++) {
		CLEANUP(buf_done) struct buf text = BUF_INIT(PROCESSES_BYTES);
		int fd = cgroups_dir(cg, i);
		struct str rest, line;
		int64_t pid;

		if (fd < 0 || file_read(fd, name, &text, NULL) < 0)
			continue;
		rest = buf_str(&text);
		while (str_split(&rest, '\n', &line))
			if (str_to_int(line, 0, INT32_MAX, &pid) == 0)
				fn(arg, (pid_t)pid);
	}
}
