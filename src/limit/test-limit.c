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
			 got = { .v = { 7 } };
	struct limit_ceilings ceilings = { .v = { [LIMIT_PROCESSES] = 100 } };
	struct limit_choice choice = { &t, &asked, &ceilings, false };
	struct err e = { 0 };

	ASSERT_EQ(limit_choose(&choice, &got, &e), -ERANGE);
	ASSERT_EQ(got.v[0], 7);
	ASSERT_STR(e.msg, "limits.processes: 200 is above the ceiling of your team, 100 processes");
	choice.by_key = true;
	ASSERT_EQ(limit_choose(&choice, &got, &e), -ERANGE);
	ASSERT_STR(e.msg, "max_pids: 200 is above the ceiling of your team, 100 processes");
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
	struct limit_ceilings ceilings = { .v = { [LIMIT_MEMORY] = 512 } };
	struct limit_set t = template_of(1024), got;
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

TEST(ceilings_that_were_written_are_read_again)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	struct limit_ceilings all = { 0 }, got;
	struct jsonw w;

	for (size_t i = 0; i < LIMIT_ALL_KINDS; i++)
		all.v[i] = 2000 + (int64_t)i;
	all.v[LIMIT_CPU] = 3;
	jsonw_init(&w, &text);
	limit_ceilings_write(&w, NULL, &all);
	limit_ceilings_parse(buf_str(&text), &got);
	ASSERT(memcmp(&all, &got, sizeof all) == 0);
	/* What was written before there were those of a team. */
	limit_ceilings_parse(STR("{\"memoryMB\":512}"), &got);
	ASSERT_EQ(got.v[LIMIT_MEMORY], 512);
	ASSERT_EQ(got.v[LIMIT_SNAPSHOTS], 0);
}

TEST(an_operators_list_is_read_or_says_what_is_wrong)
{
	static const char *const bad[] = { "memoryMB", "memoryMB=", "memoryMB=much", "memoryMB=1",
		"memory=512", "=5", "memoryMB=512,,cpuCount=2", "memoryMB=512;cpuCount=2",
		"snapshots=0", "memoryMB=99999999999999999999" };
	struct limit_ceilings c = { 0 };
	struct limit_set set = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(limit_ceilings_parse_list(STR("memoryMB=512, snapshots=3"), &c, &e), 0);
	ASSERT_EQ(c.v[LIMIT_MEMORY], 512);
	ASSERT_EQ(c.v[LIMIT_SNAPSHOTS], 3);
	ASSERT_EQ(c.v[LIMIT_CPU], 0);
	ASSERT_EQ(limit_ceilings_parse_list(STR(""), &c, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ASSERT_EQ(limit_ceilings_parse_list(str_of(bad[i]), &c, &e), -EINVAL);
	ASSERT_EQ(limit_set_parse_list(STR("cpuCount=4"), &set, &e), 0);
	ASSERT_EQ(set.v[LIMIT_CPU], 4);
	/* A sandbox has no snapshots. */
	ASSERT_EQ(limit_set_parse_list(STR("snapshots=4"), &set, &e), -EINVAL);
}

static void say_two(void *arg, const char *team_id, struct limit_ceilings *ret)
{
	(void)arg;
	if (strcmp(team_id, "t1") == 0)
		ret->v[LIMIT_SNAPSHOTS] = 2;
}

TEST(a_team_has_its_own_ceiling_or_the_servers_or_the_usual_one)
{
	struct limit_ceilings own = { .v = { [LIMIT_VOLUMES] = 5 } },
			      server = { .v = { [LIMIT_VOLUMES] = 6, [LIMIT_SNAPSHOTS] = 7 } };
	struct limit_teams teams = { say_two, NULL }, nobody = { 0 };

	limit_ceilings_add(&own, &server);
	ASSERT_EQ(limit_ceiling(&own, LIMIT_VOLUMES), 5);
	ASSERT_EQ(limit_ceiling(&own, LIMIT_SNAPSHOTS), 7);
	ASSERT_EQ(limit_ceiling(&own, LIMIT_VOLUME_SIZE), 20480);
	ASSERT_EQ(limit_ceiling(&own, LIMIT_MEMORY), 8192);
	ASSERT_EQ(limit_team_ceiling(&teams, "t1", LIMIT_SNAPSHOTS), 2);
	ASSERT_EQ(limit_team_ceiling(&teams, "t2", LIMIT_SNAPSHOTS), 1000);
	ASSERT_EQ(limit_team_ceiling(&nobody, "t1", LIMIT_SNAPSHOTS), 1000);
}

static int change(struct limit_ceilings *c, const char *json)
{
	struct arena *arena = arena_new(64 << 10);
	struct limit_ceilings_change in;
	int r = json_decode(arena, str_of(json), &limit_change_shape, &in, NULL);

	if (r >= 0)
		r = limit_ceilings_change(c, &in, NULL);
	(void)arena_free(arena);
	return r;
}

TEST(ceilings_are_changed_one_by_one_or_not_at_all)
{
	struct limit_ceilings c = { .v = { [LIMIT_CPU] = 4, [LIMIT_MEMORY] = 512 } };

	ASSERT_EQ(change(&c, "{\"memoryMB\": 1024, \"cpuCount\": null, \"snapshots\": 9}"), 0);
	ASSERT_EQ(c.v[LIMIT_MEMORY], 1024);
	ASSERT_EQ(c.v[LIMIT_CPU], 0);
	ASSERT_EQ(c.v[LIMIT_SNAPSHOTS], 9);
	ASSERT_EQ(change(&c, "{}"), 0);
	ASSERT_EQ(change(&c, "{\"memoryMB\": 2048, \"snapshots\": 0}"), -EINVAL);
	ASSERT_EQ(change(&c, "{\"memoryMB\": \"2048\"}"), -EINVAL);
	ASSERT_EQ(change(&c, "{\"memoryMB\": 2048.5}"), -EINVAL);
	ASSERT_EQ(change(&c, "{\"memory\": 2048}"), -EINVAL);
	ASSERT_EQ(c.v[LIMIT_MEMORY], 1024);
	ASSERT_EQ(c.v[LIMIT_SNAPSHOTS], 9);
}

TEST(a_quota_is_read_from_json_and_from_a_list)
{
	struct limit_quota q = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(limit_quota_parse(STR("{\"sandboxes\":5,\"disk_mb\":null}"), &q, &e), 0);
	ASSERT_EQ(q.v[LIMIT_QUOTA_SANDBOXES], 5);
	ASSERT_EQ(q.v[LIMIT_QUOTA_DISK], 0);
	ASSERT(limit_quota_parse(STR("{\"sandboxes\":0}"), &q, &e) < 0);
	ASSERT(limit_quota_parse(STR("{\"boxes\":1}"), &q, &e) < 0);
	ASSERT_EQ(limit_quota_parse_list(STR("per_minute=60,memory_mb=4096"), &q, &e), 0);
	ASSERT_EQ(q.v[LIMIT_QUOTA_PER_MINUTE], 60);
	ASSERT_EQ(q.v[LIMIT_QUOTA_MEMORY], 4096);
	ASSERT_EQ(q.v[LIMIT_QUOTA_SANDBOXES], 0);
	ASSERT(limit_quota_parse_list(STR("per_minute"), &q, &e) < 0);
	ASSERT(limit_quota_parse_list(STR("sandboxes=4001"), &q, &e) < 0);
	ASSERT(limit_quota_parse_list(STR("x=1"), &q, &e) < 0);
	ASSERT_EQ(q.v[LIMIT_QUOTA_PER_MINUTE], 60); /* left alone */
}
