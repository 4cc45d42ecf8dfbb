#include "guest/cover.h"
#include "guest/gauge.h"
#include "guest/seen.h"

#include "test.h"

static cpu_set_t set_of(const char *bits)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (size_t i = 0; bits[i]; i++)
		if (bits[i] == 'x')
			CPU_SET(i, &set);
	return set;
}

TEST(processors_are_taken_in_turn_by_number)
{
	static const struct {
		const char *allowed;
		int64_t wanted;
		uint32_t number;
		const char *chosen;
	} cases[] = {
		{ "xx", 2, 0, "xx" },
		{ "xx", 1, 0, "x." },
		{ "xx", 1, 1, ".x" },
		{ "xx", 1, 2, "x." },
		{ "xx", 8, 1, "xx" },
		{ "xxxx", 3, 1, "xx.x" }, /* from the fourth on, and round */
		{ ".x.xx", 2, 0, ".x.x" },
		{ ".x.xx", 2, 1, ".x..x" },
		{ "....", 2, 3, "...." },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		cpu_set_t allowed = set_of(cases[i].allowed), want = set_of(cases[i].chosen), got;

		ASSERT_EQ(seen_choose(&allowed, cases[i].wanted, cases[i].number, &got),
			CPU_COUNT(&want));
		ASSERT(CPU_EQUAL(&got, &want));
	}
}

TEST(processors_are_listed_as_the_kernel_does)
{
	static const struct {
		const char *set, *text;
	} cases[] = { { "x", "0\n" }, { "xx", "0-1\n" }, { ".x.xx", "1,3-4\n" },
		{ "xxx..x", "0-2,5\n" }, { "", "\n" } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(buf_done) struct buf out = BUF_INIT(100);
		cpu_set_t set = set_of(cases[i].set);

		seen_list_cpus(&set, &out);
		ASSERT_STR(buf_str(&out).p, cases[i].text);
	}
}

TEST(cpuinfo_has_each_processor_once)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(4096);
	cpu_set_t set = set_of(".x.x");

	seen_write_cpuinfo(
		STR("processor\t: 0\nmodel name\t: A: B\nsiblings\t: 64\ncore id\t\t: 9\n"
		    "cpu cores\t: 32\npower management:\n\nprocessor\t: 1\nmodel na"),
		&set, &out);
	ASSERT_STR(buf_str(&out).p, "processor\t: 1\nmodel name\t: A: B\nsiblings\t: 2\ncore "
				    "id\t\t: 0\ncpu cores\t: 2\n"
				    "power management:\n\n"
				    "processor\t: 3\nmodel name\t: A: B\nsiblings\t: 2\ncore "
				    "id\t\t: 1\ncpu cores\t: 2\n"
				    "power management:\n\n");
}

static int64_t line_of(const struct buf *text, const char *name)
{
	const char *at = strstr(buf_str(text).p, name);
	int64_t n = -1;
	struct str rest, word;

	if (!at)
		return -1;
	rest = str_of(at + strlen(name));
	while (str_split(&rest, ' ', &word) && word.n == 0)
		;
	return str_to_int(word, 0, INT64_MAX, &n) < 0 ? -1 : n;
}

TEST(meminfo_speaks_of_both_hierarchies_alike)
{
	static const char *const stats[] = {
		"anon 104857600\nfile 52428800\nfile_mapped 4096\nfile_dirty 8192\nshmem 1048576\n"
		"inactive_file 41943040\nactive_file 9437184\nactive_anon 1\nslab_reclaimable 0\n",
		"cache 52428800\nrss 104857600\nmapped_file 4096\ndirty 8192\nshmem 1048576\n"
		"inactive_file 41943040\nactive_file 9437184\nactive_anon 1\n",
	};

	for (size_t i = 0; i < ARRAY_SIZE(stats); i++) {
		CLEANUP(buf_done) struct buf out = BUF_INIT(8192);

		seen_write_meminfo((int64_t)1 << 30, (int64_t)200 << 20, str_of(stats[i]), &out);
		ASSERT_EQ(line_of(&out, "MemTotal:"), 1 << 20);
		ASSERT_EQ(line_of(&out, "MemFree:"), 824 << 10);
		ASSERT_EQ(line_of(&out, "MemAvailable:"), (824 + 49) << 10);
		ASSERT_EQ(line_of(&out, "\nCached:"), 50 << 10);
		ASSERT_EQ(line_of(&out, "AnonPages:"), 100 << 10);
		ASSERT_EQ(line_of(&out, "Mapped:"), 4);
		ASSERT_EQ(line_of(&out, "Dirty:"), 8);
		ASSERT_EQ(line_of(&out, "SwapTotal:"), 0);
		ASSERT(strstr(buf_str(&out).p, "\nHugePages_Total:       0\n"));
	}
}

TEST(meminfo_is_as_long_whatever_is_used)
{
	CLEANUP(buf_done) struct buf a = BUF_INIT(8192), b = BUF_INIT(8192);

	seen_write_meminfo((int64_t)8 << 30, 0, STR(""), &a);
	seen_write_meminfo((int64_t)8 << 30, (int64_t)9 << 30, STR("cache 4294967296\n"), &b);
	ASSERT_EQ(a.n, b.n);
	ASSERT_EQ(line_of(&b, "MemFree:"), 0); /* more is used than there is: never negative */
	ASSERT_EQ(line_of(&b, "MemAvailable:"), 0);
}

TEST(a_cover_is_rewritten_whole)
{
	CLEANUP(covers_done) struct covers covers = COVERS_INIT;
	char dir[] = "/tmp/test-seen-XXXXXX";
	CLEANUP(buf_done) struct buf out = BUF_INIT(8192);
	cleanup_close int fd = -EBADF;
	struct err e = { 0 };

	ASSERT(mkdtemp(dir));
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ASSERT_EQ(covers_make(fd, &covers, &e), 0);
	ASSERT_EQ(cover_read(&covers, COVER_CPUINFO, &out, &e), 0);
	ASSERT(strstr(buf_str(&out).p, "rocessor"));
	ASSERT_EQ(cover_write(&covers, COVER_ONLINE, STR("0-15\n"), &e), 0);
	ASSERT_EQ(cover_write(&covers, COVER_ONLINE, STR("3\n"), &e), 0);
	buf_clear(&out);
	ASSERT_EQ(cover_read(&covers, COVER_ONLINE, &out, &e), 0);
	ASSERT_STR(buf_str(&out).p, "3\n");
	ASSERT_EQ(dir_remove_tree(AT_FDCWD, dir, &e), 0);
}

TEST(load_comes_to_what_runs_and_goes_again)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(256);
	struct seen_use use = { .running = 2, .processes = 7, .last_pid = 99 };
	struct seen_load load = { 0 };
	int64_t now_ms = 1000;

	seen_load_add(&load, 2, now_ms);
	ASSERT_EQ(load.parts[0], 0);
	seen_load_add(&load, 2, now_ms + SEEN_SAMPLE_MS - 1); /* not yet */
	ASSERT_EQ(load.parts[0], 0);
	for (int i = 0; i < 12; i++) /* a minute: 63 % of two */
		seen_load_add(&load, 2, now_ms += SEEN_SAMPLE_MS);
	seen_write_load(&load, &use, &out);
	ASSERT(str_has_prefix(buf_str(&out), STR("1.27 0.37 0.13 2/7 99 ")));
	seen_load_add(&load, 2, now_ms += 10 * 3600 * 1000); /* nobody asked meanwhile */
	ASSERT_EQ(load.parts[0], 2 * SEEN_LOAD_ONE);
	ASSERT_EQ(load.parts[2], 2 * SEEN_LOAD_ONE);
	for (int i = 0; i < 2000; i++)
		seen_load_add(&load, 0, now_ms += SEEN_SAMPLE_MS);
	ASSERT_EQ(load.parts[0] + load.parts[1] + load.parts[2], 0);
}

TEST(stat_shares_time_among_its_processors)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(4096);
	const struct seen_use use = { .user_us = 3000000,
		.system_us = 1000000,
		.elapsed_us = 10000000,
		.booted_s = 1700000000,
		.last_pid = 42 };
	cpu_set_t set = set_of(".x..x");

	seen_write_stat(&use, &set, &out);
	ASSERT(str_has_prefix(buf_str(&out),
		STR("cpu  300 0 100 1600 0 0 0 0 0 0\ncpu1 150 0 50 800 0 0 0 0 0 0\n"
		    "cpu4 150 0 50 800 0 0 0 0 0 0\nintr 0\nctxt 0\nbtime 1700000000\n"
		    "processes 42\nprocs_running 1\nprocs_blocked 0\nsoftirq 0 ")));
	ASSERT_EQ(out.n % 64, 0);
	ASSERT_EQ(buf_str(&out).p[out.n - 1], '\n');
}

TEST(texts_are_padded_to_a_length_that_lasts)
{
	static const size_t lengths[] = { 1, 2, 62, 63, 64, 65, 127, 128 };

	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		CLEANUP(buf_done) struct buf out = BUF_INIT(4096);

		for (size_t k = 1; k < lengths[i]; k++)
			(void)buf_addc(&out, 'x');
		(void)buf_addc(&out, '\n');
		seen_pad(&out);
		ASSERT_EQ(out.n, (lengths[i] + 63) / 64 * 64);
		ASSERT_EQ(buf_str(&out).p[out.n - 1], '\n');
		ASSERT_EQ(strchr(buf_str(&out).p, '\n') - buf_str(&out).p, (ptrdiff_t)out.n - 1);
	}
}
