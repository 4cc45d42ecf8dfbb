#include "warden/freezer.h"

#include <sched.h>

enum {
	LOOKS_AT_ONCE = 64, /* it takes less than 0.1 ms, as a rule */
	LOOK_AGAIN_US = 50,
	WAIT_US = 20 * 1000,
	WAITS = 5, /* looks at which nothing has moved */
	MAX_THREADS = 1 << 16,
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

/* What is to be the same at the next look: how often those that wait have begun to. */
struct waiters {
	int64_t n, sum;
};

/* "voluntary_ctxt_switches:\t12" */
static int64_t switches_of(const char *status)
{
	static const char name[] = "\nvoluntary_ctxt_switches:";
	const char *at = strstr(status, name);
	struct str rest = str_of(at ? at + strlen(name) : ""), line;
	int64_t n = 0;

	if (str_split(&rest, '\n', &line))
		(void)str_to_int(str_trim(line), 0, INT64_MAX, &n);
	return n;
}

/* False: it runs. One that has ended is no obstacle. */
static bool look_at(struct str thread, struct waiters *w)
{
	static const char name[] = "\nState:\t";
	CLEANUP(buf_done) struct buf text = BUF_INIT(16 << 10);
	char path[64];
	const char *at;

	(void)snprintf(path, sizeof path, "/proc/%.*s/status", STR_ARG(thread));
	if (file_read(AT_FDCWD, path, &text, NULL) < 0)
		return true;
	at = strstr(buf_str(&text).p, name);
	if (!at || at[strlen(name)] == 'R')
		return false;
	if (at[strlen(name)] == 'D') {
		w->n++;
		w->sum += switches_of(buf_str(&text).p);
	}
	return true;
}

/* False: one runs, or there are too many to tell. */
static bool find_waiters(const struct cgroups *cg, const char *key, struct waiters *ret)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(1 << 20);
	bool unified = cg->unified_fd >= 0;
	struct waiters w = { 0 };
	struct str rest, line;
	char path[64];
	int n = 0;

	(void)snprintf(path, sizeof path, "%s/%s", key, unified ? "cgroup.threads" : "tasks");
	if (file_read(unified ? cg->unified_fd : cg->legacy_fd[CGROUP_FREEZER], path, &text, NULL) <
		0)
		return false;
	rest = buf_str(&text);
	while (str_split(&rest, '\n', &line))
		if (line.n && (n++ >= MAX_THREADS || !look_at(line, &w)))
			return false;
	*ret = w;
	return true;
}

int freezer_await_served(const struct freezer *f, const struct cgroups *cg, const char *key,
	int64_t deadline_ms)
{
	struct waiters last = { 0 }, now;
	int same = 0;

	while (!freezer_is_still(f) && same < WAITS) {
		if (time_now_ms() > deadline_ms)
			return -EBUSY;
		(void)usleep(WAIT_US);
		if (!find_waiters(cg, key, &now))
			now = (struct waiters){ 0 };
		same = now.n > 0 && now.n == last.n && now.sum == last.sum ? same + 1 : 0;
		last = now;
	}
	return 0;
}
