#include "limit/limit.h"
#include "runtime/retry.h"
#include "runtime/runtime-internal.h"

#include "test.h"

/* ---- the breaker alone, by a clock of ours ---- */

static const struct err broken = { -EIO, "the engine did not start" };

static void fail_times(struct breaker *b, int64_t now_ms, int n)
{
	for (int i = 0; i < n; i++)
		(void)breaker_note(b, now_ms, -EIO, true, &broken);
}

TEST(enough_failures_open_it_and_it_says_why)
{
	struct runtime_breaker seen;
	struct breaker b = { 0 };
	struct err e = { 0 };

	fail_times(&b, 100000, BREAKER_FAILURES - 1);
	ASSERT_EQ(breaker_admit(&b, 100000, &e), 0);
	ASSERT(breaker_note(&b, 100000, -EIO, true, &broken));
	ASSERT_EQ(breaker_admit(&b, 100001, &e), -EHOSTDOWN);
	ASSERT(strstr(e.msg, "the engine did not start"));
	breaker_look(&b, 100001, &seen);
	ASSERT_EQ(seen.state, RUNTIME_BREAKER_OPEN);
	ASSERT_EQ(seen.failures, BREAKER_FAILURES);
	ASSERT_EQ(seen.refused, 1);
	ASSERT_EQ(seen.retry_s, BREAKER_OPEN_MS / 1000);
	ASSERT_STR(seen.why.msg, broken.msg);
}

TEST(one_that_fails_every_third_time_stays_in_use)
{
	struct breaker b = { 0 };

	for (int i = 0; i < 3000; i++) {
		ASSERT_EQ(breaker_admit(&b, 100000 + i * 10, NULL), 0);
		(void)breaker_note(&b, 100000 + i * 10, i % 3 ? 0 : -EIO, true, &broken);
	}
}

TEST(failures_that_lie_far_apart_do_not_add_up)
{
	struct breaker b = { 0 };

	for (int i = 0; i < 50; i++) {
		fail_times(&b, (int64_t)i * 1000 * BREAKER_WINDOW_S, BREAKER_FAILURES - 1);
		ASSERT_EQ(b.state, RUNTIME_BREAKER_CLOSED);
	}
}

TEST(what_the_caller_did_wrong_does_not_count)
{
	struct breaker b = { 0 };

	for (int i = 0; i < 100; i++)
		ASSERT(!breaker_note(&b, 5000, -ENOENT, false, &broken));
	ASSERT_EQ(breaker_admit(&b, 5000, NULL), 0);
}

TEST(after_its_time_one_try_decides)
{
	struct breaker b = { 0 };
	int64_t now = 50000;

	fail_times(&b, now, BREAKER_FAILURES);
	now += BREAKER_OPEN_MS;
	ASSERT_EQ(breaker_admit(&b, now, NULL), 0);
	ASSERT_EQ(b.state, RUNTIME_BREAKER_HALF_OPEN);
	ASSERT_EQ(breaker_admit(&b, now, NULL), -EHOSTDOWN); /* the others wait for its end */
	ASSERT(breaker_note(&b, now + 10, 0, false, NULL));
	ASSERT_EQ(b.state, RUNTIME_BREAKER_CLOSED);
	fail_times(&b, now + 20, BREAKER_FAILURES - 1); /* what was before is forgotten */
	ASSERT_EQ(b.state, RUNTIME_BREAKER_CLOSED);
}

TEST(tries_that_fail_come_less_and_less_often)
{
	struct breaker b = { 0 };
	int64_t now = 50000, waits[6];

	fail_times(&b, now, BREAKER_FAILURES);
	for (size_t i = 0; i < ARRAY_SIZE(waits); i++) {
		waits[i] = b.until_ms - now;
		now = b.until_ms;
		ASSERT_EQ(breaker_admit(&b, now - 1, NULL), -EHOSTDOWN);
		ASSERT_EQ(breaker_admit(&b, now, NULL), 0);
		ASSERT(breaker_note(&b, now, -EIO, true, &broken));
	}
	ASSERT_EQ(waits[0], 5000);
	ASSERT_EQ(waits[1], 10000);
	ASSERT_EQ(waits[2], 20000);
	ASSERT_EQ(waits[4], BREAKER_MAX_OPEN_MS);
	ASSERT_EQ(waits[5], BREAKER_MAX_OPEN_MS);
}

TEST(a_try_that_the_caller_spoilt_leaves_the_next_one_to_decide)
{
	struct breaker b = { 0 };
	int64_t now = 50000 + BREAKER_OPEN_MS;

	fail_times(&b, 50000, BREAKER_FAILURES);
	ASSERT_EQ(breaker_admit(&b, now, NULL), 0);
	ASSERT(!breaker_note(&b, now, -ENOENT, false, &broken));
	ASSERT_EQ(breaker_admit(&b, now, NULL), 0);
	ASSERT(breaker_note(&b, now, 0, false, NULL));
}

TEST(a_try_that_never_ends_is_not_waited_for_for_ever)
{
	struct breaker b = { 0 };
	int64_t now = 50000 + BREAKER_OPEN_MS;

	fail_times(&b, 50000, BREAKER_FAILURES);
	ASSERT_EQ(breaker_admit(&b, now, NULL), 0);
	ASSERT_EQ(breaker_admit(&b, now + BREAKER_PROBE_MS - 1, NULL), -EHOSTDOWN);
	ASSERT_EQ(breaker_admit(&b, now + BREAKER_PROBE_MS, NULL), 0);
}

TEST(answers_from_before_it_opened_do_not_open_or_close_it)
{
	struct breaker b = { 0 };

	fail_times(&b, 50000, BREAKER_FAILURES);
	ASSERT(!breaker_note(&b, 50001, 0, false, NULL));
	ASSERT(!breaker_note(&b, 50001, -EIO, true, &broken));
	ASSERT_EQ(b.state, RUNTIME_BREAKER_OPEN);
}

/* ---- pauses ---- */

TEST(pauses_grow_from_a_second_to_ten)
{
	static const struct {
		int attempt;
		int64_t least, most;
	} cases[] = { { 1, 750, 1250 }, { 2, 2250, 3750 }, { 3, 6750, 10000 }, { 4, 7500, 10000 },
		{ 40, 7500, 10000 } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		for (uint64_t random = 0; random < 20000; random += 7) {
			int64_t ms = retry_delay_ms(cases[i].attempt, RETRY_FIRST_MS, random);

			ASSERT(ms >= cases[i].least && ms <= cases[i].most);
		}
}

TEST(only_what_may_pass_is_tried_again)
{
	static const int never[] = { -EINVAL, -ENOENT, -EDQUOT, -ERANGE, -EOPNOTSUPP, -ESTALE,
		-ENOTDIR, -E2BIG };
	static const int passing[] = { -EAGAIN, -EIO, -ETIMEDOUT, -ENOMEM, -ECONNREFUSED,
		-ECONNABORTED, -EMFILE };

	for (size_t i = 0; i < ARRAY_SIZE(never); i++)
		ASSERT_EQ(runtime_fault_of(never[i]), RUNTIME_FAULT_REQUEST);
	for (size_t i = 0; i < ARRAY_SIZE(passing); i++)
		ASSERT_EQ(runtime_fault_of(passing[i]), RUNTIME_FAULT_PASSING);
	ASSERT_EQ(runtime_fault_of(-ENOSPC), RUNTIME_FAULT_LASTING);
	ASSERT_EQ(runtime_fault_of(0), RUNTIME_FAULT_NONE);
	ASSERT_EQ(runtime_fault_of(12), RUNTIME_FAULT_NONE);
}

/* ---- a runtime that fails as it is told to ---- */

struct fake {
	struct runtime base;
	int fails, code; /* so many creations fail, with this */
	int asked;
	struct loop_task task;
	done_fn done;
	void *arg;
};

static void fake_answer(void *arg)
{
	struct fake *fake = arg;
	struct err e = { 0 };

	if (fake->asked <= fake->fails)
		(void)err_set(&e, fake->code, "as it was told to");
	fake->done(fake->arg, e.code, &e);
}

static void fake_create(struct runtime *rt, const struct runtime_spec *spec, done_fn done,
	void *arg)
{
	struct fake *fake = container_of(rt, struct fake, base);

	(void)spec;
	fake->asked++;
	fake->done = done;
	fake->arg = arg;
	loop_defer(rt->loop, &fake->task, fake_answer, fake);
}

static const struct runtime_ops fake_ops = { .name = "fake", .create = fake_create };

struct rig {
	struct fake fake;
	struct loop *loop;
	struct limit_set limits;
	const char *image;
	int told, last_attempt, r, states; /* states: changes of the breaker */
	bool was_last;
	struct err e;
};

static void rig_ask(void *arg, done_fn done, void *done_arg)
{
	struct rig *rig = arg;
	struct runtime_spec spec = { .id = "i",
		.template_name = "t",
		.image = rig->image,
		.limits = &rig->limits };

	runtime_create(&rig->fake.base, &spec, done, done_arg);
}

static void rig_failed(void *arg, int attempt, int64_t again_ms, const struct err *e)
{
	struct rig *rig = arg;

	(void)e;
	rig->told++;
	rig->last_attempt = attempt;
	rig->was_last = again_ms < 0;
}

static void rig_done(void *arg, int r, const struct err *e)
{
	struct rig *rig = arg;

	rig->r = r;
	if (r < 0)
		rig->e = *e;
	loop_stop(rig->loop);
}

static void rig_breaker(void *arg, const struct runtime *rt)
{
	struct rig *rig = arg;

	(void)rt;
	rig->states++;
}

static int rig_run(struct rig *rig, int64_t deadline_ms)
{
	struct runtime_tries tries = { .ask = rig_ask,
		.failed = rig_failed,
		.done = rig_done,
		.arg = rig,
		.first_ms = 1,
		.deadline_ms = deadline_ms };

	rig->fake.asked = rig->told = 0;
	runtime_try(&rig->fake.base, &tries);
	return loop_run(rig->loop, NULL);
}

static int rig_begin(struct rig *rig, int fails, int code)
{
	*rig = (struct rig){ .fake = { .base.ops = &fake_ops, .fails = fails, .code = code } };
	if (loop_new(&rig->loop, NULL) < 0)
		return -1;
	rig->fake.base.loop = rig->loop;
	runtime_on_breaker(&rig->fake.base, rig_breaker, rig);
	return 0;
}

static void rig_end(struct rig *rig)
{
	rig->loop = loop_free(rig->loop);
}

TEST(what_fails_for_a_moment_is_made_in_the_end)
{
	CLEANUP(rig_end) struct rig rig;

	ASSERT_EQ(rig_begin(&rig, 2, -EAGAIN), 0);
	ASSERT_EQ(rig_run(&rig, 0), 0);
	ASSERT_EQ(rig.r, 0);
	ASSERT_EQ(rig.fake.asked, 3);
	ASSERT_EQ(rig.told, 2);
	ASSERT(!rig.was_last);
}

TEST(three_attempts_are_all)
{
	CLEANUP(rig_end) struct rig rig;

	ASSERT_EQ(rig_begin(&rig, 9, -EIO), 0);
	ASSERT_EQ(rig_run(&rig, 0), 0);
	ASSERT_EQ(rig.r, -EIO);
	ASSERT_EQ(rig.fake.asked, RETRY_ATTEMPTS);
	ASSERT_EQ(rig.last_attempt, RETRY_ATTEMPTS);
	ASSERT(rig.was_last);
	ASSERT_STR(rig.e.msg, "as it was told to");
}

TEST(the_callers_own_fault_is_told_at_once)
{
	CLEANUP(rig_end) struct rig rig;

	ASSERT_EQ(rig_begin(&rig, 9, -ENOENT), 0);
	ASSERT_EQ(rig_run(&rig, 0), 0);
	ASSERT_EQ(rig.r, -ENOENT);
	ASSERT_EQ(rig.fake.asked, 1);
}

TEST(nothing_is_tried_past_the_deadline)
{
	CLEANUP(rig_end) struct rig rig;

	ASSERT_EQ(rig_begin(&rig, 9, -EIO), 0);
	ASSERT_EQ(rig_run(&rig, loop_now_ms(rig.loop) + 1), 0);
	ASSERT_EQ(rig.r, -EIO);
	ASSERT(rig.fake.asked < RETRY_ATTEMPTS);
	ASSERT(rig.was_last);
}

TEST(while_the_breaker_is_open_nothing_is_asked)
{
	CLEANUP(rig_end) struct rig rig;
	struct runtime_set set = { { &rig.fake.base }, 1 };
	struct runtime_breaker seen;

	ASSERT_EQ(rig_begin(&rig, 99, -EIO), 0);
	ASSERT_EQ(rig_run(&rig, 0), 0);
	ASSERT_EQ(rig_run(&rig, 0), 0); /* its second attempt is the fifth failure */
	ASSERT_EQ(rig.fake.asked, 2);
	ASSERT_EQ(rig.r, -EHOSTDOWN);
	ASSERT(strstr(rig.e.msg, "runtime 'fake'"));
	ASSERT_EQ(rig.states, 1);
	ASSERT_EQ(rig_run(&rig, 0), 0);
	ASSERT_EQ(rig.fake.asked, 0);
	ASSERT_EQ(rig.r, -EHOSTDOWN);
	runtime_breaker(&rig.fake.base, &seen);
	ASSERT_EQ(seen.state, RUNTIME_BREAKER_OPEN);
	ASSERT(runtime_retry_s(&set) >= 4);
}

TEST(a_saved_disk_that_never_starts_opens_it_for_nobody)
{
	CLEANUP(rig_end) struct rig rig;

	ASSERT_EQ(rig_begin(&rig, 99, -ETIMEDOUT), 0);
	rig.image = "s";
	for (int i = 0; i < BREAKER_FAILURES; i++) {
		ASSERT_EQ(rig_run(&rig, 0), 0);
		ASSERT_EQ(rig.r, -ETIMEDOUT);
	}
	ASSERT_EQ(rig.states, 0);
}

static void rig_stop(void *arg)
{
	struct rig *rig = arg;
	struct runtime_set set = { { &rig->fake.base }, 1 };

	runtime_stop_trying(&set);
}

TEST(who_waits_for_another_try_hears_when_the_server_stops)
{
	CLEANUP(rig_end) struct rig rig;
	struct runtime_tries tries;
	struct loop_timer timer;

	ASSERT_EQ(rig_begin(&rig, 9, -EIO), 0);
	tries = (struct runtime_tries){ .ask = rig_ask, .done = rig_done, .arg = &rig };
	runtime_try(&rig.fake.base, &tries); /* the next would be in a second */
	loop_timer_init(&timer, rig.loop, rig_stop, &rig);
	loop_timer_set(&timer, loop_now_ms(rig.loop) + 5);
	ASSERT_EQ(loop_run(rig.loop, NULL), 0);
	ASSERT_EQ(rig.r, -EIO);
	ASSERT_EQ(rig.fake.asked, 1);
}
