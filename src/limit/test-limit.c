#include "limit/limit.h"
#include "test.h"

static struct limit_set template_of(int64_t memory_mb)
{
	struct limit_set set = { .v = { [LIMIT_MEMORY] = memory_mb } };

	limit_set_default(&set);
	return set;
}

TEST(what_a_template_does_not_say_has_a_default)
{
	struct limit_set set = template_of(512);

	for (size_t i = 0; i < LIMIT_KINDS; i++)
		ASSERT(set.v[i] > 0);
	ASSERT_EQ(set.v[LIMIT_MEMORY], 512);
	ASSERT_EQ(set.v[LIMIT_SHM], 256);
	ASSERT_EQ(set.v[LIMIT_CPU], 2);
}

TEST(what_is_asked_for_goes_before_the_template)
{
	struct limit_set t = template_of(1024), asked = { .v = { [LIMIT_MEMORY] = 256 } }, got;
	struct limit_choice choice = { .template = &t, .asked = &asked };

	ASSERT_EQ(limit_choose(&choice, &got, NULL), 0);
	ASSERT_EQ(got.v[LIMIT_MEMORY], 256);
	ASSERT_EQ(got.v[LIMIT_SHM], 128); /* nobody asked for more than half of the memory */
	ASSERT_EQ(got.v[LIMIT_DISK], t.v[LIMIT_DISK]);
}

TEST(what_is_above_the_ceiling_is_refused_by_name)
{
	struct limit_set t = template_of(1024), asked = { .v = { [LIMIT_PROCESSES] = 200 } },
			 ceilings = { .v = { [LIMIT_PROCESSES] = 100 } }, got = { .v = { 7 } };
	struct limit_choice choice = { &t, &asked, &ceilings };
	struct err e = { 0 };

	ASSERT_EQ(limit_choose(&choice, &got, &e), -ERANGE);
	ASSERT_EQ(got.v[0], 7);
	ASSERT_STR(e.msg, "limits.processes: 200 is above the ceiling of your team, 100 processes");
}

TEST(more_files_than_a_disk_can_hold_are_refused)
{
	struct limit_set t = template_of(1024),
			 asked = { .v = { [LIMIT_INODES] = 1000000, [LIMIT_DISK] = 64 } }, got;
	struct limit_choice choice = { .template = &t, .asked = &asked };

	ASSERT_EQ(limit_choose(&choice, &got, NULL), -ERANGE);
	asked.v[LIMIT_DISK] = 512;
	ASSERT_EQ(limit_choose(&choice, &got, NULL), 0);
}

TEST(the_template_follows_a_lower_ceiling)
{
	struct limit_set t = template_of(1024), ceilings = { .v = { [LIMIT_MEMORY] = 512 } }, got;
	struct limit_choice choice = { .template = &t, .ceilings = &ceilings };

	ASSERT_EQ(limit_choose(&choice, &got, NULL), 0);
	ASSERT_EQ(got.v[LIMIT_MEMORY], 512);
	ASSERT_EQ(got.v[LIMIT_SHM], 256);
}

TEST(a_large_template_raises_the_usual_ceiling)
{
	struct limit_set t = template_of(64 << 10), asked = { .v = { [LIMIT_MEMORY] = 60000 } },
			 got;
	struct limit_choice choice = { .template = &t, .asked = &asked };

	ASSERT_EQ(limit_choose(&choice, &got, NULL), 0);
	asked.v[LIMIT_MEMORY] = (64 << 10) + 1;
	ASSERT_EQ(limit_choose(&choice, &got, NULL), -ERANGE);
}

TEST(shared_memory_is_part_of_the_memory)
{
	struct limit_set t = template_of(1024), got,
			 asked = { .v = { [LIMIT_MEMORY] = 256, [LIMIT_SHM] = 300 } };
	struct limit_choice choice = { .template = &t, .asked = &asked };

	ASSERT_EQ(limit_choose(&choice, &got, NULL), -ERANGE);
	asked.v[LIMIT_SHM] = 200;
	ASSERT_EQ(limit_choose(&choice, &got, NULL), 0);
	ASSERT_EQ(got.v[LIMIT_SHM], 200);
}

TEST(a_set_that_was_written_is_read_again)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	struct limit_set t = template_of(1024), got;
	struct jsonw w;

	jsonw_init(&w, &text);
	limit_set_write(&w, NULL, &t);
	limit_set_parse(buf_str(&text), &got);
	ASSERT(memcmp(&t, &got, sizeof t) == 0);
	limit_set_parse(STR("{\"memoryMB\":\"much\"}"), &got);
	ASSERT_EQ(got.v[LIMIT_MEMORY], 0);
}
