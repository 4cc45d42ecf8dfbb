#include "guest/metrics.h"

#include "json/json.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum {
	PROC_FILE_BYTES = 4096,
	FILES_FEW = 64, /* no process is limited to less */
};

struct usage {
	int64_t cpu_us;
	int64_t memory_bytes;
	bool files_are_out; /* a process has as many open as it may */
	int64_t running, last_pid;
};

static bool read_text(int dir_fd, const char *name, struct buf *out)
{
	buf_clear(out);
	return file_read(dir_fd, name, out, NULL) == 0;
}

static int64_t nth_number(struct str text, int n)
{
	int64_t value = 0;
	struct str field = STR_NONE;

	while (n-- > 0)
		if (!str_split(&text, ' ', &field))
			return 0;
	if (field.n && field.p[field.n - 1] == '\n')
		field.n--;
	return str_to_int(field, 0, INT64_MAX, &value) < 0 ? 0 : value;
}

/* utime, stime, cutime, cstime: fields 14 to 17 of stat, counted behind the name, which may contain
 * anything, spaces and parentheses included. */
static int64_t cpu_of(struct str stat)
{
	const char *close = stat.n ? memrchr(stat.p, ')', stat.n) : NULL;
	int64_t ticks = 0;
	struct str rest;

	if (!close)
		return 0;
	rest = str_from(stat, (size_t)(close - stat.p) + 2);
	for (int field = 14; field <= 17; field++)
		ticks += nth_number(rest, field - 2);
	return ticks * (1000000 / sysconf(_SC_CLK_TCK));
}

/* The field behind the name: as of this moment it runs, or waits for a disk. */
static bool is_running(struct str stat)
{
	const char *close = stat.n ? memrchr(stat.p, ')', stat.n) : NULL;
	struct str rest = close ? str_from(stat, (size_t)(close - stat.p) + 2) : STR_NONE;

	return rest.n && (rest.p[0] == 'R' || rest.p[0] == 'D');
}

static int64_t rusage_us(int who)
{
	struct rusage u;

	if (getrusage(who, &u) < 0)
		return 0;
	return (int64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 + u.ru_utime.tv_usec +
	       u.ru_stime.tv_usec;
}

/* Our own time, and that of all who have ended, to the microsecond: /proc counts in hundredths of a
 * second, in which a sandbox at rest would use nothing. */
static int64_t own_cpu_us(void)
{
	return rusage_us(RUSAGE_SELF) + rusage_us(RUSAGE_CHILDREN);
}

/* The kernel tells how many files a process has open in the size of this directory; what it may
 * have is asked only where it matters. */
static bool files_are_out(int proc_fd, const char *pid, struct buf *text)
{
	static const struct str title = { "Max open files", 14 };
	struct str rest, line, word;
	int64_t soft = 0;
	struct stat st;
	char name[64];

	(void)snprintf(name, sizeof name, "%.16s/fd", pid);
	if (fstatat(proc_fd, name, &st, 0) < 0 || st.st_size < FILES_FEW)
		return false;
	(void)snprintf(name, sizeof name, "%.16s/limits", pid);
	rest = read_text(proc_fd, name, text) ? buf_str(text) : STR_NONE;
	while (str_split(&rest, '\n', &line))
		if (str_has_prefix(line, title))
			for (line = str_trim(str_from(line, title.n));
				!soft && str_split(&line, ' ', &word);)
				(void)str_to_int(word, 1, INT64_MAX, &soft);
	return soft && st.st_size >= soft;
}

static void add_process(int proc_fd, const char *pid, bool is_self, struct buf *text,
	struct usage *u)
{
	char name[64];

	(void)snprintf(name, sizeof name, "%.16s/stat", pid);
	if (is_self)
		u->cpu_us += own_cpu_us();
	else if (read_text(proc_fd, name, text)) {
		u->cpu_us += cpu_of(buf_str(text));
		u->running += is_running(buf_str(text));
	}
	(void)str_to_int(str_of(pid), u->last_pid, INT32_MAX, &u->last_pid);
	(void)snprintf(name, sizeof name, "%.16s/statm", pid);
	if (read_text(proc_fd, name, text)) {
		int64_t resident = nth_number(buf_str(text), 2),
			shared = nth_number(buf_str(text), 3);

		u->memory_bytes += MAX(resident - shared, 0) * sysconf(_SC_PAGESIZE);
	}
	u->files_are_out |= files_are_out(proc_fd, pid, text);
}

static struct usage measure(void)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(PROC_FILE_BYTES);
	struct usage u = { 0 };
	DIR *proc = opendir("/proc");
	struct dirent *d;
	char self[16];

	if (!proc)
		return u;
	(void)snprintf(self, sizeof self, "%d", getpid());
	while ((d = readdir(proc)))
		if (d->d_name[0] >= '1' && d->d_name[0] <= '9')
			add_process(dirfd(proc), d->d_name, strcmp(d->d_name, self) == 0, &text,
				&u);
	(void)closedir(proc);
	return u;
}

/* The sandbox's own cgroup, if it is shown inside: version 2, then 1. */
static bool cgroup_number(const char *v2, const char *v1, int64_t *ret)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(PROC_FILE_BYTES);

	if (!read_text(AT_FDCWD, v2, &text) && !read_text(AT_FDCWD, v1, &text))
		return false;
	*ret = nth_number(buf_str(&text), 1);
	return *ret > 0;
}

static int64_t cgroup_cache(void)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT((size_t)4 * PROC_FILE_BYTES);
	struct str rest, line;

	if (!read_text(AT_FDCWD, "/sys/fs/cgroup/memory.stat", &text) &&
		!read_text(AT_FDCWD, "/sys/fs/cgroup/memory/memory.stat", &text))
		return 0;
	rest = buf_str(&text);
	while (str_split(&rest, '\n', &line))
		if (str_has_prefix(line, STR("file ")) || str_has_prefix(line, STR("cache ")))
			return nth_number(line, 2);
	return 0;
}

void metrics_init(struct metrics *m)
{
	*m = (struct metrics){ .at_us = time_now_us() }; /* nothing was used before us */
}

/* Percent of all the sandbox's cores since the last question, in hundredths and rounded up: little
 * is not nothing. */
static double cpu_percent(struct metrics *m, int64_t cpu_us, int64_t cpu_count)
{
	int64_t now = time_now_us();
	int64_t span_us = (now - m->at_us) * cpu_count;
	/* Children that nobody waited for take their time with them: never below zero. */
	int64_t used_us = MAX(cpu_us - m->cpu_us, 0);
	int64_t hundredths = span_us > 0 ? (used_us * 10000 + span_us - 1) / span_us : 0;

	m->at_us = now;
	m->cpu_us = cpu_us;
	return (double)MIN(hundredths, 10000) / 100;
}

static int64_t memory_total(const struct settings *s)
{
	if (s->memory_mb)
		return s->memory_mb << 20;
	return sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}

void metrics_write(struct metrics *m, struct gauges *g, const struct settings *s, struct buf *out)
{
	int64_t cpus = s->cpu_count ? s->cpu_count : sysconf(_SC_NPROCESSORS_ONLN);
	int64_t total = memory_total(s), cache = cgroup_cache();
	struct usage u = measure();
	struct statvfs disk = { 0 };
	struct jsonw w;

	if (cgroup_number("/sys/fs/cgroup/memory.current",
		    "/sys/fs/cgroup/memory/memory.usage_in_bytes", &u.memory_bytes))
		u.memory_bytes = MAX(u.memory_bytes - cache, 0);
	m->memory_bytes = u.memory_bytes;
	m->running = u.running;
	m->last_pid = u.last_pid;
	(void)statvfs("/", &disk);
	gauges_look(g);
	gauges_look_at_disk(g);
	gauges_note_files(g, u.files_are_out);
	jsonw_init(&w, out);
	jsonw_object(&w, NULL);
	jsonw_int(&w, "ts", time_wall_us() / 1000000);
	jsonw_int(&w, "cpu_count", cpus);
	jsonw_num(&w, "cpu_used_pct", cpu_percent(m, u.cpu_us, cpus));
	jsonw_int(&w, "mem_total", total);
	jsonw_int(&w, "mem_used", u.memory_bytes);
	jsonw_int(&w, "mem_cache", cache);
	jsonw_int(&w, "mem_total_mib", total >> 20);
	jsonw_int(&w, "mem_used_mib", u.memory_bytes >> 20);
	jsonw_int(&w, "disk_used", (int64_t)((disk.f_blocks - disk.f_bavail) * disk.f_frsize));
	jsonw_int(&w, "disk_total", (int64_t)(disk.f_blocks * disk.f_frsize));
	gauges_write(g, &w);
	jsonw_int(&w, "activity", m->activity);
	jsonw_end_object(&w);
}
