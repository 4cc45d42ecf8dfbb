/* Which processors: time is limited by a quota, which lets all of them be used in turn, but a
 * program that asks how many it has counts those that it may run on. So the sandbox runs on as many
 * as its limit says. They keep the numbers that the host gives them: who is told by the kernel that
 * it runs on number 5 finds 5 in every list. */
#include "guest/seen.h"
#include "warden/proto.h"

#include <time.h>

enum {
	TEXT_BYTES = 256 << 10,
	STAT_BYTES = 16 << 10,
	KIB = 1024,
	LOOK_MS = 1000,    /* how old it is at most */
	LIVELY_MS = 10000, /* for so long after a command has started; then as old as samples are */
	SOON_MS = 1000,    /* it is not written anew for a command that follows another */
};

/* ---- processors ---- */

int seen_choose(const cpu_set_t *allowed, int64_t wanted, uint32_t number, cpu_set_t *ret)
{
	int64_t n = CPU_COUNT(allowed), first = n ? (int64_t)number * wanted % n : 0, place = 0;

	CPU_ZERO(ret);
	for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, allowed) && (place++ - first + n) % n < wanted)
			CPU_SET(cpu, ret);
	return CPU_COUNT(ret);
}

void seen_list_cpus(const cpu_set_t *cpus, struct buf *out)
{
	const char *comma = "";

	for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		size_t last = cpu;

		if (!CPU_ISSET(cpu, cpus))
			continue;
		while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cpus))
			last++;
		(void)buf_printf(out, "%s%zu", comma, cpu);
		if (last > cpu)
			(void)buf_printf(out, "-%zu", last);
		cpu = last;
		comma = ",";
	}
	(void)buf_addc(out, '\n');
}

/* A number that is this processor's own, or counts them; false: any other line. */
static bool write_own(struct str key, int64_t cpu, int64_t place, int64_t n, struct buf *out)
{
	const struct {
		const char *key;
		int64_t value;
	} own[] = { { "processor", cpu }, { "core id", place }, { "apicid", cpu },
		{ "initial apicid", cpu }, { "siblings", n }, { "cpu cores", n } };
	struct str name = key;

	while (name.n && (name.p[name.n - 1] == '\t' || name.p[name.n - 1] == ' '))
		name.n--;
	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		if (str_is(name, own[i].key)) {
			(void)buf_printf(out, "%.*s: %" PRId64 "\n", STR_ARG(key), own[i].value);
			return true;
		}
	return false;
}

void seen_write_cpuinfo(struct str host, const cpu_set_t *cpus, struct buf *out)
{
	int64_t n = CPU_COUNT(cpus), place = 0;

	for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		struct str rest = host, line;

		if (!CPU_ISSET(cpu, cpus))
			continue;
		while (str_split(&rest, '\n', &line) && line.n) {
			struct str key = line;

			(void)str_split(&line, ':', &key);
			if (!write_own(key, (int64_t)cpu, place, n, out))
				(void)buf_printf(out, "%.*s:%.*s\n", STR_ARG(key), STR_ARG(line));
		}
		(void)buf_addc(out, '\n');
		place++;
	}
}

/* Its own in the order of sandboxes, which its block of host users tells. */
static uint32_t own_number(void)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	struct str rest, word;
	int64_t id[2] = { 0 };
	int n = 0;

	if (file_read(AT_FDCWD, "/proc/self/uid_map", &text, NULL) < 0)
		return 0;
	rest = buf_str(&text);
	while (n < 2 && str_split(&rest, ' ', &word))
		if (word.n)
			(void)str_to_int(word, 0, UINT32_MAX, &id[n++]);
	return id[1] < WARDEN_FIRST_UID ? 0
					: (uint32_t)((id[1] - WARDEN_FIRST_UID) / WARDEN_UID_BLOCK);
}

void seen_take_cpus(int64_t cpu_count, cpu_set_t *ret)
{
	cpu_set_t allowed;

	CPU_ZERO(ret);
	if (sched_getaffinity(0, sizeof allowed, &allowed) < 0)
		return;
	(void)seen_choose(&allowed, cpu_count ? cpu_count : CPU_SETSIZE, own_number(), ret);
	if (!CPU_EQUAL(ret, &allowed) && sched_setaffinity(0, sizeof *ret, ret) < 0)
		*ret = allowed;
}

/* Up to the highest: who keeps something for each possible processor finds room for all numbers. */
static void list_possible(const cpu_set_t *cpus, struct buf *out)
{
	cpu_set_t possible;
	size_t last = 0;

	CPU_ZERO(&possible);
	for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, cpus))
			last = cpu;
	for (size_t cpu = 0; cpu <= last; cpu++)
		CPU_SET(cpu, &possible);
	seen_list_cpus(&possible, out);
}

static void write_cpus(const struct seen *s)
{
	CLEANUP(buf_done) struct buf host = BUF_INIT(STAT_BYTES), out = BUF_INIT(TEXT_BYTES);

	seen_list_cpus(&s->cpus, &out);
	(void)cover_write(&s->covers, COVER_ONLINE, buf_str(&out), NULL);
	buf_clear(&out);
	list_possible(&s->cpus, &out);
	(void)cover_write(&s->covers, COVER_POSSIBLE, buf_str(&out), NULL);
	buf_clear(&out);
	if (cover_read(&s->covers, COVER_CPUINFO, &host, NULL) < 0)
		return;
	seen_write_cpuinfo(buf_str(&host), &s->cpus, &out);
	(void)cover_write(&s->covers, COVER_CPUINFO, buf_str(&out), NULL);
}

/* ---- memory ---- */

static bool read_either(const char *unified, const char *old, struct buf *out)
{
	buf_clear(out);
	return file_read(AT_FDCWD, unified, out, NULL) >= 0 ||
	       file_read(AT_FDCWD, old, out, NULL) >= 0;
}

/* The unified hierarchy's name, or the old one's. */
static int64_t either(struct str stat, struct str unified, struct str old)
{
	int64_t n = gauge_number(stat, unified);

	return n ? n : gauge_number(stat, old);
}

static void write_line(struct buf *out, const char *name, int64_t bytes)
{
	(void)buf_printf(out, "%-15s %8" PRId64 " kB\n", name, MAX(bytes, 0) / KIB);
}

void seen_write_meminfo(int64_t total, int64_t used, struct str stat, struct buf *out)
{
	int64_t active_anon = gauge_number(stat, STR("active_anon")),
		inactive_anon = gauge_number(stat, STR("inactive_anon")),
		active_file = gauge_number(stat, STR("active_file")),
		inactive_file = gauge_number(stat, STR("inactive_file")),
		slab = gauge_number(stat, STR("slab_reclaimable")),
		slab_kept = gauge_number(stat, STR("slab_unreclaimable")),
		left = MAX(total - used, 0);
	const struct {
		const char *name;
		int64_t bytes;
	} lines[] = {
		{ "MemTotal:", total },
		{ "MemFree:", left },
		{ "MemAvailable:", MIN(left + active_file + inactive_file + slab, total) },
		{ "Buffers:", 0 },
		{ "Cached:", either(stat, STR("file"), STR("cache")) },
		{ "SwapCached:", 0 },
		{ "Active:", active_anon + active_file },
		{ "Inactive:", inactive_anon + inactive_file },
		{ "Active(anon):", active_anon },
		{ "Inactive(anon):", inactive_anon },
		{ "Active(file):", active_file },
		{ "Inactive(file):", inactive_file },
		{ "Unevictable:", gauge_number(stat, STR("unevictable")) },
		{ "Mlocked:", 0 },
		{ "SwapTotal:", 0 },
		{ "SwapFree:", 0 },
		{ "Dirty:", either(stat, STR("file_dirty"), STR("dirty")) },
		{ "Writeback:", either(stat, STR("file_writeback"), STR("writeback")) },
		{ "AnonPages:", either(stat, STR("anon"), STR("rss")) },
		{ "Mapped:", either(stat, STR("file_mapped"), STR("mapped_file")) },
		{ "Shmem:", gauge_number(stat, STR("shmem")) },
		{ "KReclaimable:", slab },
		{ "Slab:", slab + slab_kept },
		{ "SReclaimable:", slab },
		{ "SUnreclaim:", slab_kept },
		{ "KernelStack:", gauge_number(stat, STR("kernel_stack")) },
		{ "PageTables:", gauge_number(stat, STR("pagetables")) },
		{ "CommitLimit:", total },
		{ "Committed_AS:", used },
		{ "HugePages_Total:", -1 },
		{ "Hugepagesize:", (int64_t)2048 * KIB },
	};

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		if (lines[i].bytes >= 0)
			write_line(out, lines[i].name, lines[i].bytes);
		else /* these are pages */
			(void)buf_printf(out,
				"HugePages_Total:       0\nHugePages_Free:        0\n"
				"HugePages_Rsvd:        0\nHugePages_Surp:        0\n");
}

static void write_memory(const struct seen *s)
{
	CLEANUP(buf_done) struct buf stat = BUF_INIT(STAT_BYTES), out = BUF_INIT(TEXT_BYTES);
	struct str rest, line = STR("");
	int64_t used = s->sample.memory_bytes;

	if (read_either("/sys/fs/cgroup/memory.current",
		    "/sys/fs/cgroup/memory/memory.usage_in_bytes", &stat)) {
		rest = buf_str(&stat);
		(void)str_split(&rest, '\n', &line);
		(void)str_to_int(line, 0, INT64_MAX, &used);
	}
	(void)read_either("/sys/fs/cgroup/memory.stat", "/sys/fs/cgroup/memory/memory.stat", &stat);
	seen_write_meminfo(s->memory_bytes, used, buf_str(&stat), &out);
	(void)cover_write(&s->covers, COVER_MEMINFO, buf_str(&out), NULL);
}

/* ---- use ---- */

static int64_t boot_us(void)
{
	struct timespec now;

	if (clock_gettime(CLOCK_BOOTTIME, &now) < 0)
		return 0;
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void write_use(struct seen *s)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(TEXT_BYTES);
	struct seen_use use = { .elapsed_us = boot_us() - s->began_us,
		.booted_s = s->booted_s,
		.running = s->sample.running,
		.processes = s->gauges ? gauges_processes(s->gauges) : 0,
		.last_pid = MAX(s->sample.last_pid, 1) };

	/* Where no cgroup tells, the sum of all processes does, as of the last sample. */
	if (!s->gauges || !gauges_cpu_use(s->gauges, &use.user_us, &use.system_us))
		use.user_us = s->sample.cpu_us;
	seen_write_stat(&use, &s->cpus, &out);
	(void)cover_write(&s->covers, COVER_STAT, buf_str(&out), NULL);
	buf_clear(&out);
	seen_write_load(&s->load, &use, &out);
	(void)cover_write(&s->covers, COVER_LOADAVG, buf_str(&out), NULL);
}

static bool is_covered(const struct seen *s)
{
	return s->covers.fds[COVER_MEMINFO] >= 0;
}

static void write_all(struct seen *s)
{
	if (!is_covered(s))
		return;
	s->written_ms = time_now_ms();
	write_memory(s);
	write_use(s);
}

static void look(void *arg)
{
	struct seen *s = arg;
	int64_t now_ms = loop_now_ms(s->loop);

	write_all(s);
	if (now_ms < s->lively_until_ms)
		loop_timer_set(&s->timer, now_ms + LOOK_MS);
}

static void write_soon(void *arg)
{
	write_all(arg);
}

/* Who reads cannot be known: to watch a file keeps a killed guest alive for 8 to 20 ms, in which
 * the kernel waits for everybody who may still look at the watch. */
void seen_soon(struct seen *s)
{
	int64_t now_ms;

	if (!s->loop)
		return;
	now_ms = time_now_ms();
	s->lively_until_ms = now_ms + LIVELY_MS;
	if (!loop_timer_is_set(&s->timer))
		loop_timer_set(&s->timer, now_ms + LOOK_MS);
	if (now_ms - s->written_ms >= SOON_MS)
		loop_defer(s->loop, &s->soon, write_soon, s);
}

void seen_sample(struct seen *s, const struct metrics *m)
{
	int64_t last_pid = MAX(s->sample.last_pid, m->last_pid);

	s->sample = *m;
	s->sample.last_pid = last_pid;
	seen_load_add(&s->load, m->running, time_now_ms());
	write_all(s);
}

void seen_watch(struct seen *s, struct loop *loop, const struct gauges *gauges)
{
	if (!is_covered(s))
		return;
	s->loop = loop;
	s->gauges = gauges;
	loop_timer_init(&s->timer, loop, look, s);
}

/* ---- the whole ---- */

static void take_cpus(struct seen *s, int64_t cpu_count)
{
	s->cpu_count = cpu_count;
	seen_take_cpus(cpu_count, &s->cpus);
	if (is_covered(s))
		write_cpus(s);
}

static void take_memory(struct seen *s, int64_t memory_mb)
{
	int64_t pages = sysconf(_SC_PHYS_PAGES);

	s->memory_bytes = memory_mb ? memory_mb << 20 : pages * sysconf(_SC_PAGESIZE);
	if (is_covered(s))
		write_memory(s);
}

void seen_prepare(struct seen *s, struct covers *take_covers, int64_t memory_mb, int64_t cpu_count)
{
	s->covers = *take_covers;
	*take_covers = (struct covers)COVERS_INIT;
	if (sched_getaffinity(0, sizeof s->allowed, &s->allowed) < 0)
		CPU_ZERO(&s->allowed);
	take_cpus(s, cpu_count);
	take_memory(s, memory_mb);
}

void seen_start(struct seen *s, int64_t memory_mb, int64_t cpu_count, bool has_own_time)
{
	static const enum cover_file lasting[] = { COVER_CPUINFO, COVER_ONLINE, COVER_POSSIBLE };

	s->began_us = boot_us();
	s->booted_s = (time_wall_us() - (has_own_time ? 0 : s->began_us)) / 1000000;
	if (cpu_count != s->cpu_count) {
		(void)sched_setaffinity(0, sizeof s->allowed, &s->allowed);
		take_cpus(s, cpu_count);
	}
	if (memory_mb << 20 != s->memory_bytes)
		take_memory(s, memory_mb);
	for (size_t i = 0; i < ARRAY_SIZE(lasting); i++) /* these will not change */
		if (s->covers.fds[lasting[i]] >= 0)
			(void)close(TAKE_FD(s->covers.fds[lasting[i]]));
	if (is_covered(s))
		write_use(s);
}

void seen_done(struct seen *s)
{
	loop_timer_cancel(&s->timer);
	loop_task_cancel(&s->soon);
	covers_done(&s->covers);
	*s = (struct seen)SEEN_INIT;
}
