#include "warden/freezer.h"

#include <sched.h>

enum {
	LOOKS_AT_ONCE = 64, /* it takes less than 0.1 ms, as a rule */
	LOOK_AGAIN_US = 50,
};

int freezer_open(const struct cgroups *cg, const char *key, struct freezer *ret, struct err *e)
{
	struct freezer f = FREEZER_INIT;
	int dir_fd = cg->unified_fd;
	char name[64];

	f.legacy = dir_fd < 0;
	if (f.legacy)
		dir_fd = cg->legacy_fd[CGROUP_FREEZER];
	if (dir_fd < 0)
		return err_set(e, -EOPNOTSUPP,
			"this host cannot stop a sandbox's processes: mount cgroup2 on "
			"/sys/fs/cgroup");
	(void)snprintf(name, sizeof name, "%s/%s", key,
		f.legacy ? "freezer.state" : "cgroup.freeze");
	f.order_fd = openat(dir_fd, name, O_RDWR | O_CLOEXEC);
	if (!f.legacy)
		(void)snprintf(name, sizeof name, "%s/cgroup.events", key);
	f.state_fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	if (f.order_fd < 0 || f.state_fd < 0) {
		int r = err_sys(e, -errno, "open %s", name);

		freezer_close(&f);
		return r;
	}
	*ret = f;
	return 0;
}

void freezer_close(struct freezer *f)
{
	close_fdp(&f->order_fd);
	close_fdp(&f->state_fd);
	*f = (struct freezer)FREEZER_INIT;
}

int freezer_order(const struct freezer *f, bool frozen)
{
	const char *unified = frozen ? "1" : "0", *legacy = frozen ? "FROZEN" : "THAWED";
	const char *text = f->legacy ? legacy : unified;

	return pwrite(f->order_fd, text, strlen(text), 0) < 0 ? -errno : 0;
}

static bool file_says(int fd, const char *text)
{
	char now[256];
	ssize_t n = pread(fd, now, sizeof now - 1, 0);

	if (n < 0)
		return false;
	now[n] = '\0';
	return strstr(now, text);
}

bool freezer_is_ordered(const struct freezer *f)
{
	/* The old one passes through FREEZING on its way to FROZEN. */
	return file_says(f->order_fd, f->legacy ? "FR" : "1");
}

bool freezer_is_still(const struct freezer *f)
{
	return file_says(f->state_fd, f->legacy ? "FROZEN" : "frozen 1");
}

int freezer_await(const struct freezer *f, int64_t deadline_ms)
{
	for (int looks = 0; !freezer_is_still(f); looks++) {
		if (looks < LOOKS_AT_ONCE)
			(void)sched_yield();
		else if (time_now_ms() > deadline_ms)
			return -EBUSY;
		else
			(void)usleep(LOOK_AGAIN_US);
	}
	return 0;
}
