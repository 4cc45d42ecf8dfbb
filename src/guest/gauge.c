#include "guest/gauge.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum {
	NEAR_BYTES = 256 << 10, /* less than this is nothing: a file system keeps some for itself */
	ALL_MODE_BITS = 07777,
	CLEAR_SHARE = 100, /* a hundredth free again: the next time is another time */
};

void gauges_init(struct gauges *g)
{
	*g = (struct gauges){ .use_fd = -EBADF };
	for (int i = 0; i < GUEST_METERS; i++)
		g->meters[i] = -EBADF;
}

void gauges_done(struct gauges *g)
{
	for (int i = 0; i < GUEST_METERS; i++)
		close_fdp(&g->meters[i]);
	close_fdp(&g->use_fd);
	gauges_init(g);
}

int64_t gauge_number(struct str text, struct str name)
{
	struct str line, word;
	int64_t value = 0;

	while (str_split(&text, '\n', &line))
		if (str_split(&line, ' ', &word) && str_eq(word, name))
			(void)str_to_int(line, 0, INT64_MAX, &value);
	return value;
}

/* A meter's text in `out`; empty where there is none. */
static struct str read_meter(const struct gauges *g, enum guest_meter meter, char *out, size_t size)
{
	ssize_t n = g->meters[meter] < 0 ? 0 : pread(g->meters[meter], out, size, 0);

	return str_make(out, n < 0 ? 0 : (size_t)n);
}

int64_t gauges_oom_kills(const struct gauges *g)
{
	char text[512];

	return gauge_number(read_meter(g, METER_MEMORY, text, sizeof text), STR("oom_kill"));
}

bool gauges_cpu_use(const struct gauges *g, int64_t *ret_user_us, int64_t *ret_system_us)
{
	char text[1024];
	ssize_t n = g->use_fd < 0 ? 0 : pread(g->use_fd, text, sizeof text, 0);
	struct str stat = str_make(text, n < 0 ? 0 : (size_t)n);

	*ret_user_us = gauge_number(stat, STR("user_usec"));
	*ret_system_us = gauge_number(stat, STR("system_usec"));
	return *ret_user_us + *ret_system_us > 0;
}

int64_t gauges_processes(const struct gauges *g)
{
	char text[64];
	struct str pids = read_meter(g, METER_PIDS, text, sizeof text), line;
	int64_t n = 0;

	if (str_split(&pids, '\n', &line))
		(void)str_to_int(line, 0, INT64_MAX, &n);
	return n;
}

/* The kernel counts before it kills, so a process that died of it finds itself counted. A kill that
 * one process was told of is not another's. */
bool gauges_blame_memory(struct gauges *g, int64_t kills_before)
{
	int64_t kills = gauges_oom_kills(g);

	g->blamed = MAX(g->blamed, kills_before);
	if (kills <= g->blamed)
		return false;
	g->blamed++;
	return true;
}

static void note(struct gauges *g, enum gauge_kind kind, bool is_over, bool is_clear)
{
	if (is_over && !g->is_over[kind])
		g->crossed[kind]++;
	if (is_over || is_clear)
		g->is_over[kind] = is_over;
}

/* An overlay that is volatile writes nothing out when it is asked to, and says whether a write has
 * been lost since it was mounted. That the journal still works only shows when it is used: here for
 * what is in memory already, so that nothing is read. */
int gauges_check_disk(void)
{
	cleanup_close int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (root < 0 || fstat(root, &st) < 0 || (syncfs(root) < 0 && errno == EIO))
		return -EIO;
	if (fchmod(root, st.st_mode & ALL_MODE_BITS) < 0 &&
		(errno == EROFS || errno == EIO || errno == EUCLEAN))
		return -errno;
	return 0;
}

/* Another engine's root is its own business. */
void gauges_look_at_disk(struct gauges *g)
{
	if (g->meters[METER_MEMORY] >= 0 && !g->disk_failed)
		g->disk_failed = gauges_check_disk() < 0;
}

void gauges_look(struct gauges *g)
{
	struct statvfs s;

	if (statvfs("/", &s) == 0) {
		note(g, GAUGE_DISK,
			s.f_bavail * s.f_frsize<NEAR_BYTES, s.f_bavail> s.f_blocks / CLEAR_SHARE);
		note(g, GAUGE_INODES, s.f_files && s.f_favail == 0,
			s.f_favail > s.f_files / CLEAR_SHARE);
	}
	if (statvfs("/dev/shm", &s) == 0)
		note(g, GAUGE_SHM, s.f_blocks && s.f_bavail == 0,
			s.f_bavail > s.f_blocks / CLEAR_SHARE);
}

void gauges_note_files(struct gauges *g, bool is_over)
{
	note(g, GAUGE_FILES, is_over, !is_over);
}

static void write_kernel(const struct gauges *g, struct jsonw *w)
{
	char cpu[1024], text[512];
	struct str stat = read_meter(g, METER_CPU, cpu, sizeof cpu);
	int64_t throttled_us = gauge_number(stat, STR("throttled_usec"));

	if (!throttled_us) /* the old hierarchy counts in nanoseconds */
		throttled_us = gauge_number(stat, STR("throttled_time")) / 1000;
	jsonw_int(w, "cpu_periods", gauge_number(stat, STR("nr_periods")));
	jsonw_int(w, "cpu_throttled", gauge_number(stat, STR("nr_throttled")));
	jsonw_int(w, "cpu_throttled_us", throttled_us);
	jsonw_int(w, "oom_kills", gauges_oom_kills(g));
	jsonw_int(w, "processes", gauges_processes(g));
	jsonw_int(w, "processes_refused",
		gauge_number(read_meter(g, METER_PIDS_EVENTS, text, sizeof text), STR("max")));
}

void gauges_write(const struct gauges *g, struct jsonw *w)
{
	static const char *const names[] = {
		[GAUGE_DISK] = "disk",
		[GAUGE_INODES] = "inodes",
		[GAUGE_SHM] = "shm",
		[GAUGE_FILES] = "files",
	};
	struct statvfs s = { 0 };

	write_kernel(g, w);
	if (statvfs("/", &s) == 0) {
		jsonw_int(w, "inodes_used", (int64_t)(s.f_files - s.f_favail));
		jsonw_int(w, "inodes_total", (int64_t)s.f_files);
	}
	if (statvfs("/dev/shm", &s) == 0) {
		jsonw_int(w, "shm_used", (int64_t)((s.f_blocks - s.f_bavail) * s.f_frsize));
		jsonw_int(w, "shm_total", (int64_t)(s.f_blocks * s.f_frsize));
	}
	jsonw_int(w, "disk_failed", g->disk_failed);
	jsonw_object(w, "crossed");
	for (size_t i = 0; i < GAUGE_KINDS; i++)
		jsonw_int(w, names[i], g->crossed[i]);
	jsonw_end_object(w);
}
