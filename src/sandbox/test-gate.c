#include "sandbox/gate.h"

#include "test.h"

enum {
	MOST = 2,
	MANY = 10,
	PLACE_MS = 20,
};

struct visitor {
	struct gate_pass pass;
	int id;
	int *order, *n;
};

static void note(void *arg)
{
	struct visitor *v = arg;

	v->order[(*v->n)++] = v->id;
}

static void stop(void *arg)
{
	loop_stop(arg);
}

/* Turns of the loop, until nothing is left to do at once. */
static void turn(struct loop *loop, int64_t ms)
{
	struct loop_timer timer;

	loop_timer_init(&timer, loop, stop, loop);
	loop_timer_set(&timer, time_now_ms() + ms);
	(void)loop_run(loop, NULL);
}

struct rig {
	struct loop *loop;
	struct gate gate;
	struct visitor v[MANY];
	int order[MANY], n;
};

static int rig_init(struct rig *rig, int64_t place_ms)
{
	int r = loop_new(&rig->loop, NULL);

	if (r < 0)
		return r;
	gate_init(&rig->gate, rig->loop, MOST, MOST, place_ms);
	for (int i = 0; i < MANY; i++)
		rig->v[i] = (struct visitor){ .id = i, .order = rig->order, .n = &rig->n };
	return 0;
}

static void enter(struct rig *rig, int i, const char *team)
{
	gate_enter(&rig->gate, &rig->v[i].pass, team, note, &rig->v[i]);
}

static void rig_done(struct rig *rig)
{
	for (int i = 0; i < MANY; i++)
		gate_leave(&rig->v[i].pass);
	turn(rig->loop, 1);
	gate_done(&rig->gate);
	(void)loop_free(rig->loop);
}

TEST(who_finds_a_place_goes_in_at_once)
{
	CLEANUP(rig_done) struct rig rig = { 0 };

	ASSERT_EQ(rig_init(&rig, 60000), 0);
	for (int i = 0; i < MOST + 1; i++)
		enter(&rig, i, "one");
	ASSERT_EQ(rig.n, MOST);
	gate_leave(&rig.v[0].pass);
	turn(rig.loop, 1);
	ASSERT_EQ(rig.n, MOST + 1);
	ASSERT_EQ(rig.order[MOST], MOST);
}

TEST(teams_take_turns_and_a_teams_own_come_in_order)
{
	static const int expected[] = { 0, 1, 2, 6, 3, 7, 4, 5 };
	CLEANUP(rig_done) struct rig rig = { 0 };

	ASSERT_EQ(rig_init(&rig, 60000), 0);
	for (int i = 0; i < 6; i++)
		enter(&rig, i, "many");
	enter(&rig, 6, "few");
	enter(&rig, 7, "few");
	for (int i = 0; i < 6; i++) {
		ASSERT_EQ(rig.n, i + MOST);
		gate_leave(&rig.v[rig.order[i]].pass);
		turn(rig.loop, 1);
	}
	for (int i = 0; i < (int)ARRAY_SIZE(expected); i++)
		ASSERT_EQ(rig.order[i], expected[i]);
}

TEST(one_that_takes_long_keeps_nobody_out)
{
	CLEANUP(rig_done) struct rig rig = { 0 };

	ASSERT_EQ(rig_init(&rig, PLACE_MS), 0);
	for (int i = 0; i < MOST + 1; i++)
		enter(&rig, i, "slow");
	ASSERT_EQ(rig.n, MOST);
	for (int i = 0; i < 500 && rig.n == MOST; i++)
		turn(rig.loop, PLACE_MS);
	ASSERT_EQ(rig.n, MOST + 1);
}

TEST(one_that_waits_no_more_is_passed_over)
{
	CLEANUP(rig_done) struct rig rig = { 0 };

	ASSERT_EQ(rig_init(&rig, 60000), 0);
	for (int i = 0; i < MOST + 2; i++)
		enter(&rig, i, i == MOST ? "gone" : "stays");
	gate_leave(&rig.v[MOST].pass);
	gate_leave(&rig.v[0].pass);
	turn(rig.loop, 1);
	ASSERT_EQ(rig.n, MOST + 1);
	ASSERT_EQ(rig.order[MOST], MOST + 1);
}

TEST(one_team_has_few_places_however_many_there_are)
{
	CLEANUP(rig_done) struct rig rig = { 0 };

	ASSERT_EQ(rig_init(&rig, 60000), 0);
	rig.gate.most = MANY;
	for (int i = 0; i < MANY - 1; i++)
		enter(&rig, i, "many");
	ASSERT_EQ(rig.n, MOST);
	enter(&rig, MANY - 1, "one");
	ASSERT_EQ(rig.n, MOST + 1);
	ASSERT_EQ(rig.order[MOST], MANY - 1);
}
