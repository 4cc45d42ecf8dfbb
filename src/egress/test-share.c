/* Who gets how much, when many want it: sandboxes of one team against another's. */
#include "egress/egress-internal.h"

#include "test.h"

enum {
	GREEDY = 300, /* sandboxes of the first team; those of others come behind */
	TEAMS = 4,
	MAX_FLOWS = 8192,
};

struct rig {
	struct loop *loop;
	struct egress *egress;
	char id[16], team_id[16];
	size_t used;
};

/* 10.0.TEAM+NUMBER is sandbox NUMBER of its team. */
static bool find(void *arg, uint32_t address, struct egress_sandbox *ret)
{
	struct rig *rig = arg;

	(void)snprintf(rig->id, sizeof rig->id, "s%x", address & 0xffffff);
	(void)snprintf(rig->team_id, sizeof rig->team_id, "t%u", address >> 16 & 0xff);
	*ret = (struct egress_sandbox){ .id = rig->id, .team_id = rig->team_id };
	return true;
}

static struct tenant *sandbox(struct rig *rig, unsigned team, unsigned number)
{
	return tenant_find(rig->egress, 10u << 24 | team << 16 | number);
}

static void rig_new(struct rig *rig)
{
	struct egress_config config = { .find = find, .find_arg = rig };

	*rig = (struct rig){ 0 };
	assert(loop_new(&rig->loop, NULL) == 0);
	config.loop = rig->loop;
	assert(egress_new(&config, &rig->egress, NULL) == 0);
}

static void rig_done(struct rig *rig)
{
	rig->egress = egress_free(rig->egress);
	rig->loop = loop_free(rig->loop);
}

/* As many as it gets, of so many sandboxes in turn. */
static size_t take_all(struct rig *rig, unsigned team, unsigned sandboxes, size_t max)
{
	size_t before = rig->used, last;

	do {
		last = rig->used;
		for (unsigned i = 0; i < sandboxes; i++)
			rig->used += tenant_take(sandbox(rig, team, i), SHARE_FLOWS, rig->used, max)
					     ? 1
					     : 0;
	} while (rig->used > last);
	return rig->used - before;
}

static void give_back_all(struct rig *rig, unsigned team, unsigned sandboxes)
{
	for (unsigned i = 0; i < sandboxes; i++) {
		struct tenant *t = sandbox(rig, team, i);

		while (t->in_use[SHARE_FLOWS] > 0) {
			tenant_give_back(t, SHARE_FLOWS);
			rig->used--;
		}
	}
}

TEST(one_sandbox_alone_has_its_own_limit)
{
	CLEANUP(rig_done) struct rig rig;

	rig_new(&rig);
	ASSERT_EQ(take_all(&rig, 0, 1, MAX_FLOWS), 512);
	give_back_all(&rig, 0, 1);
	ASSERT_EQ(rig.used, 0);
}

TEST(a_team_of_many_leaves_the_others_theirs)
{
	CLEANUP(rig_done) struct rig rig;
	size_t got[TEAMS];

	rig_new(&rig);
	for (unsigned i = 0; i < TEAMS; i++)
		got[i] = take_all(&rig, i, GREEDY, MAX_FLOWS);
	ASSERT_EQ(got[0], MAX_FLOWS * 3 / 4);
	for (size_t i = 1; i < TEAMS; i++)
		ASSERT(got[i] >= got[i - 1] / 4);
	ASSERT(got[TEAMS - 1] >= 64);
	for (unsigned i = 0; i < TEAMS; i++)
		give_back_all(&rig, i, GREEDY);
	ASSERT_EQ(rig.used, 0);
}

/* It did not have to give anything back for the others to get even: what it has ends, and the next
 * is theirs. */
TEST(who_has_much_gets_the_next_one_last)
{
	CLEANUP(rig_done) struct rig rig;
	struct tenant *greedy;

	rig_new(&rig);
	(void)take_all(&rig, 0, GREEDY, MAX_FLOWS);
	(void)take_all(&rig, 1, GREEDY, MAX_FLOWS);
	greedy = sandbox(&rig, 0, 0);
	for (int i = 0; i < 10; i++) {
		tenant_give_back(greedy, SHARE_FLOWS);
		rig.used--;
	}
	ASSERT(!tenant_take(greedy, SHARE_FLOWS, rig.used, MAX_FLOWS));
	ASSERT(take_all(&rig, 1, GREEDY, MAX_FLOWS) >= 5);
	give_back_all(&rig, 0, GREEDY);
	give_back_all(&rig, 1, GREEDY);
}

TEST(shares_of_one_kind_are_not_those_of_another)
{
	CLEANUP(rig_done) struct rig rig;

	rig_new(&rig);
	(void)take_all(&rig, 0, GREEDY, MAX_FLOWS);
	ASSERT(tenant_take(sandbox(&rig, 0, 0), SHARE_LOOKUPS, 0, 1024));
	tenant_give_back(sandbox(&rig, 0, 0), SHARE_LOOKUPS);
	give_back_all(&rig, 0, GREEDY);
}

TEST(a_team_has_one_rate_however_many_ask)
{
	CLEANUP(rig_done) struct rig rig;
	size_t n = 0;

	rig_new(&rig);
	for (unsigned i = 0; i < GREEDY; i++)
		while (tenant_may(sandbox(&rig, 0, i), RATE_QUESTIONS))
			n++;
	ASSERT(n >= 4000 && n < 8000); /* the burst, and what time adds meanwhile */
	n = 0;
	while (tenant_may(sandbox(&rig, 1, 0), RATE_QUESTIONS))
		n++;
	ASSERT(n >= 400 && n < 800);
}

TEST(a_team_is_gone_with_its_last_sandbox)
{
	CLEANUP(rig_done) struct rig rig;

	rig_new(&rig);
	(void)sandbox(&rig, 0, 0);
	(void)sandbox(&rig, 0, 1);
	(void)sandbox(&rig, 1, 0);
	ASSERT_EQ(rig.egress->teams.n, 2);
	tenant_forget(sandbox(&rig, 0, 0));
	ASSERT_EQ(rig.egress->teams.n, 2);
	tenant_forget(sandbox(&rig, 0, 1));
	ASSERT_EQ(rig.egress->teams.n, 1);
}
