#include "sandbox/health.h"

#include "test.h"

TEST(one_that_answers_is_well)
{
	struct vital v = { 0 };

	ASSERT(vital_note(&v, 1000, VITAL_HEARD));
	ASSERT_EQ(v.health, SANDBOX_HEALTHY);
	ASSERT_EQ(v.changed_ms, 1000);
	ASSERT(!vital_note(&v, 6000, VITAL_HEARD));
	ASSERT_EQ(v.heard_ms, 6000);
	ASSERT_EQ(v.changed_ms, 1000);
}

TEST(three_silences_in_a_row_make_it_unresponsive)
{
	struct vital v = { 0 };

	(void)vital_note(&v, 1000, VITAL_HEARD);
	ASSERT(!vital_note(&v, 6000, VITAL_SILENT));
	ASSERT(!vital_note(&v, 11000, VITAL_SILENT));
	ASSERT_EQ(v.health, SANDBOX_HEALTHY);
	ASSERT(vital_note(&v, 16000, VITAL_SILENT));
	ASSERT_EQ(v.health, SANDBOX_UNRESPONSIVE);
	ASSERT_EQ(v.heard_ms, 1000);
	ASSERT(!vital_note(&v, 21000, VITAL_SILENT));
	ASSERT_EQ(v.changed_ms, 16000); /* since then, however often it is asked again */
	ASSERT(vital_note(&v, 26000, VITAL_HEARD));
	ASSERT_EQ(v.health, SANDBOX_HEALTHY);
}

TEST(an_answer_in_between_starts_the_count_again)
{
	struct vital v = { 0 };

	for (int i = 0; i < 50; i++)
		(void)vital_note(&v, i * 5000, i % 3 == 2 ? VITAL_HEARD : VITAL_SILENT);
	ASSERT_EQ(v.health, SANDBOX_HEALTHY);
}

TEST(one_that_refuses_is_dead_and_not_only_silent)
{
	struct vital v = { 0 };

	(void)vital_note(&v, 1000, VITAL_HEARD);
	for (int i = 0; i < VITAL_MISSES; i++)
		(void)vital_note(&v, 2000 + i, VITAL_REFUSED);
	ASSERT_EQ(v.health, SANDBOX_DEAD);
}

TEST(one_that_was_never_heard_is_found_too)
{
	struct vital v = { 0 };

	for (int i = 0; i < VITAL_MISSES; i++)
		(void)vital_note(&v, 2000 + i, VITAL_SILENT);
	ASSERT_EQ(v.health, SANDBOX_UNRESPONSIVE);
	ASSERT_EQ(v.heard_ms, 0);
}

TEST(who_is_in_use_is_not_idle)
{
	struct idle idle = { .used_ms = 1000 };

	ASSERT_EQ(idle_look(&idle, 6000, false, 0), 5000);
	ASSERT_EQ(idle_look(&idle, 11000, true, 0), 0);
	ASSERT_EQ(idle_look(&idle, 16000, false, 0), 5000);
}

TEST(who_sends_is_in_use_but_the_noise_of_an_interface_is_not)
{
	struct idle idle = { .used_ms = 0 };

	ASSERT_EQ(idle_look(&idle, 5000, false, 500), 5000);
	ASSERT_EQ(idle_look(&idle, 10000, false, 500 + IDLE_NOISE_BYTES), 10000);
	ASSERT_EQ(idle_look(&idle, 15000, false, 501 + 2 * IDLE_NOISE_BYTES), 0);
	ASSERT_EQ(idle_look(&idle, 20000, false, 501 + 2 * IDLE_NOISE_BYTES), 5000);
	ASSERT_EQ(idle_look(&idle, 25000, false, 0), 10000); /* booted anew: it counts from zero */
}

TEST(each_end_has_an_origin)
{
	ASSERT_STR(sandbox_origin("user"), "user");
	ASSERT_STR(sandbox_origin("timeout"), "user");
	ASSERT_STR(sandbox_origin("agent"), "agent");
	ASSERT_STR(sandbox_origin("memory"), "agent");
	ASSERT_STR(sandbox_origin("infrastructure"), "infrastructure");
}
