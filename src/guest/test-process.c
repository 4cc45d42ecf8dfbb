/* What the table of processes does by itself. What needs a client is in tests/system/test_guest.py.
 */
#include "guest/process.h"
#include "guest/settings.h"

#include "test.h"

#include <signal.h>
#include <sys/wait.h>

enum {
	STRANGERS = 300,
};

struct crowd {
	struct loop *loop;
	struct process_table table;
	struct loop_timer timer;
	pid_t pids[STRANGERS];
	int turns;
};

static int count_left(const struct crowd *c)
{
	int n = 0;

	for (int i = 0; i < STRANGERS; i++) {
		siginfo_t info = { 0 };

		n += waitid(P_PID, (id_t)c->pids[i], &info, WEXITED | WNOWAIT) == 0;
	}
	return n;
}

static void look(void *arg)
{
	struct crowd *c = arg;

	if (count_left(c) == 0 || ++c->turns > 1000)
		loop_stop(c->loop);
	else
		loop_timer_set(&c->timer, loop_now_ms(c->loop) + 1);
}

TEST(a_crowd_that_ends_at_once_is_reaped_in_turns)
{
	struct settings settings = { 0 };
	struct gauges gauges;
	struct crowd c = { 0 };
	int left;

	gauges_init(&gauges);
	ASSERT_EQ(loop_new(&c.loop, NULL), 0);
	ASSERT_EQ(process_table_init(&c.table, c.loop, &gauges, &settings, NULL), 0);
	for (int i = 0; i < STRANGERS; i++) {
		c.pids[i] = fork();
		if (c.pids[i] == 0)
			_exit(0);
	}
	ASSERT_EQ(count_left(&c), STRANGERS); /* and all of them have ended now */
	process_table_reap(&c.table);
	left = count_left(&c);
	ASSERT(left > 0 && left < STRANGERS); /* others have their turn */
	loop_timer_init(&c.timer, c.loop, look, &c);
	loop_timer_set(&c.timer, loop_now_ms(c.loop));
	ASSERT_EQ(loop_run(c.loop, NULL), 0);
	ASSERT_EQ(count_left(&c), 0);
	process_table_done(&c.table);
	c.loop = loop_free(c.loop);
}
