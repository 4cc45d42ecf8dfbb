#include "egress/egress-internal.h"

#include "test.h"

struct rig {
	struct loop *loop;
	struct tunnel *tunnel;
	int left, right; /* the outer ends */
	bool over;
	char *scratch;
	struct loop_timer timer;
};

static void on_over(void *arg)
{
	struct rig *rig = arg;

	rig->over = true;
	rig->tunnel = tunnel_free(rig->tunnel);
	loop_stop(rig->loop);
}

static void on_pause(void *arg)
{
	struct rig *rig = arg;

	loop_stop(rig->loop);
}

static void rig_run(struct rig *rig, int64_t ms)
{
	loop_timer_set(&rig->timer, time_now_ms() + ms);
	(void)loop_run(rig->loop, NULL);
	loop_timer_cancel(&rig->timer);
}

static void rig_new(struct rig *rig)
{
	int a[2], b[2];

	*rig = (struct rig){ .scratch = xcalloc(1, SCRATCH_BYTES) };
	assert(loop_new(&rig->loop, NULL) == 0);
	assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, a) == 0);
	assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, b) == 0);
	rig->left = a[0];
	rig->right = b[0];
	loop_timer_init(&rig->timer, rig->loop, on_pause, rig);
	rig->tunnel = tunnel_new(rig->loop, rig->scratch, a[1], b[1], on_over, rig);
}

static void rig_done(struct rig *rig)
{
	rig->tunnel = tunnel_free(rig->tunnel);
	close_fdp(&rig->left);
	close_fdp(&rig->right);
	loop_timer_cancel(&rig->timer);
	rig->loop = loop_free(rig->loop);
	free(rig->scratch);
}

TEST(bytes_pass_both_ways_and_ends_are_passed_on)
{
	CLEANUP(rig_done) struct rig rig;
	char got[16];

	rig_new(&rig);
	ASSERT_EQ(send(rig.left, "up", 2, 0), 2);
	ASSERT_EQ(send(rig.right, "down", 4, 0), 4);
	rig_run(&rig, 200);
	ASSERT_EQ(recv(rig.right, got, sizeof got, 0), 2);
	ASSERT_EQ(recv(rig.left, got, sizeof got, 0), 4);
	ASSERT_EQ(shutdown(rig.left, SHUT_WR), 0);
	rig_run(&rig, 200);
	ASSERT_EQ(recv(rig.right, got, sizeof got, 0), 0);
	ASSERT(!rig.over);
	ASSERT_EQ(send(rig.right, "last", 4, 0), 4); /* the other direction goes on */
	rig_run(&rig, 200);
	ASSERT_EQ(recv(rig.left, got, sizeof got, 0), 4);
	ASSERT_EQ(shutdown(rig.right, SHUT_WR), 0);
	rig_run(&rig, 1000);
	ASSERT(rig.over);
	ASSERT_EQ(recv(rig.left, got, sizeof got, 0), 0);
}

TEST(who_does_not_read_is_not_buffered_for)
{
	CLEANUP(rig_done) struct rig rig;
	static char block[SCRATCH_BYTES];
	size_t sent = 0, got = 0;
	ssize_t n;

	rig_new(&rig);
	for (int i = 0; i < 64; i++) {
		while ((n = send(rig.left, block, sizeof block, MSG_DONTWAIT)) > 0)
			sent += (size_t)n;
		rig_run(&rig, 2);
	}
	ASSERT(sent > sizeof block && sent < (4u << 20)); /* what sockets hold, and one block */
	while (got < sent) {
		while ((n = recv(rig.right, block, sizeof block, MSG_DONTWAIT)) > 0)
			got += (size_t)n;
		rig_run(&rig, 2);
		ASSERT(!rig.over);
	}
	ASSERT_EQ(got, sent);
}

TEST(what_breaks_on_one_side_breaks_on_the_other)
{
	CLEANUP(rig_done) struct rig rig;
	char got[16];

	rig_new(&rig);
	close_fdp(&rig.right);
	rig.right = -EBADF;
	ASSERT_EQ(send(rig.left, "lost", 4, MSG_NOSIGNAL), 4);
	rig_run(&rig, 1000);
	ASSERT(rig.over);
	ASSERT(recv(rig.left, got, sizeof got, MSG_DONTWAIT) <= 0);
}
