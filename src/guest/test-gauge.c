#include "guest/ending.h"
#include "guest/gauge.h"

#include "test.h"

#include <signal.h>
#include <sys/mman.h>

/* A meter that says what it is told. */
static int meter(const char *text)
{
	int fd = memfd_create("meter", MFD_CLOEXEC);

	(void)fd_write_all(fd, text, strlen(text));
	return fd;
}

static void say(int fd, const char *text)
{
	(void)!ftruncate(fd, 0);
	(void)!pwrite(fd, text, strlen(text), 0);
}

TEST(numbers_are_found_by_their_whole_name)
{
	struct str text = STR("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");

	ASSERT_EQ(gauge_number(text, STR("oom_kill")), 3);
	ASSERT_EQ(gauge_number(text, STR("oom")), 0);
	ASSERT_EQ(gauge_number(STR("max"), STR("max")), 0);
	ASSERT_EQ(gauge_number(STR_NONE, STR("max")), 0);
}

TEST(each_kill_is_told_to_one_process)
{
	struct gauges g;

	gauges_init(&g);
	ASSERT(!gauges_blame_memory(&g, 0)); /* nobody counts here */
	g.meters[METER_MEMORY] = meter("oom_kill 2\n");
	ASSERT(gauges_blame_memory(&g, 0));
	ASSERT(gauges_blame_memory(&g, 0));
	ASSERT(!gauges_blame_memory(&g, 0));
	/* What happened before it was started is not its end. */
	say(g.meters[METER_MEMORY], "oom_kill 5\n");
	ASSERT(!gauges_blame_memory(&g, 5));
	say(g.meters[METER_MEMORY], "oom_kill 6\n");
	ASSERT(gauges_blame_memory(&g, 5));
	gauges_done(&g);
}

TEST(staying_at_a_limit_is_one_crossing)
{
	struct gauges g;

	gauges_init(&g);
	gauges_note_files(&g, true);
	gauges_note_files(&g, true);
	ASSERT_EQ(g.crossed[GAUGE_FILES], 1);
	gauges_note_files(&g, false);
	gauges_note_files(&g, true);
	ASSERT_EQ(g.crossed[GAUGE_FILES], 2);
}

TEST(the_metrics_of_both_kinds_of_hosts_are_read)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(4096);
	struct gauges g;
	struct jsonw w;

	gauges_init(&g);
	g.meters[METER_CPU] = meter("nr_periods 10\nnr_throttled 4\nthrottled_time 7000\n");
	g.meters[METER_PIDS] = meter("12\n");
	g.meters[METER_PIDS_EVENTS] = meter("max 9\n");
	jsonw_init(&w, &out);
	jsonw_object(&w, NULL);
	gauges_write(&g, &w);
	jsonw_end_object(&w);
	gauges_done(&g);
	ASSERT(strstr(out.p, "\"cpu_periods\":10,\"cpu_throttled\":4,\"cpu_throttled_us\":7,"));
	ASSERT(strstr(out.p, "\"processes\":12,\"processes_refused\":9,"));
	ASSERT(strstr(out.p, "\"crossed\":{\"disk\":0,"));
}

TEST(an_end_for_want_of_memory_says_so)
{
	struct ending ending;

	ASSERT(ending_is_kill(SIGKILL));
	ASSERT(ending_is_kill((128 + SIGKILL) << 8)); /* a shell's word for it */
	ASSERT(!ending_is_kill(SIGTERM));
	ASSERT(!ending_is_kill(1 << 8));
	ending_from_status(SIGKILL, &ending);
	ASSERT_STR(ending.error, "signal: killed");
	ending_blame_memory(&ending, 512);
	ASSERT_STR(ending.status, "signal: killed");
	ASSERT_STR(ending.error, "out of memory: the sandbox's limit of 512 MiB was reached");
}
