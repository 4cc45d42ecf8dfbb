/* What the kernel holds for TCP and charges to nobody: who has too much of it ends, and nobody
 * else. Needs root. */
#include "warden/harness.h"

#include "test.h"

#define START(h)                                                        \
	CLEANUP(harness_stop) struct harness h = { .fd = -EBADF };      \
	do {                                                            \
		struct err start_e = { 0 };                             \
		if (harness_start(&(h), "none", 1, &start_e) == -EPERM) \
			TEST_SKIP("needs root and a built warden");     \
		if (start_e.code < 0)                                   \
			TEST_FAIL("start: %s", start_e.msg);            \
	} while (0)

/* The end of a sandbox as the server is told of it; 0: none within 15 s. */
static int end_of(struct harness *h, const char *id, struct err *ret)
{
	struct warden_reply reply = { 0 };

	while (harness_receive(h, &reply) >= 0)
		if (reply.kind == WARDEN_EXITED && strcmp(reply.id, id) == 0) {
			*ret = reply.e;
			return reply.e.code;
		}
	return 0;
}

TEST(who_fills_connections_that_nobody_accepts_ends)
{
	struct err why = { 0 };

	START(h);
	ASSERT_EQ(harness_create(&h, "taker"), 0);
	ASSERT_EQ(harness_create(&h, "other"), 0);
	ASSERT_STR(harness_inside(&h, "other", "strand 10"), "0");
	(void)harness_inside(&h, "taker", "strand 3000"); /* which may end before it answers */
	ASSERT_EQ(end_of(&h, "taker", &why), -ENOMEM);
	ASSERT(strstr(why.msg, "had not accepted"));
	ASSERT_STR(harness_inside(&h, "other", "write /etc/mine x"), "0");
	ASSERT_EQ(harness_count(&h, WARDEN_LIST, NULL), 1);
}
