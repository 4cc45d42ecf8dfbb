#include "edge/edge-internal.h"

#include "test.h"

enum {
	SANDBOXES = 1000, /* each search tries them all */
};

/* How many searches a client gets through, one after the other. */
static int search_all(struct tries *tries, const char *peer, int64_t now_ms)
{
	int n = 0;

	for (; n < 10000 && tries_may(tries, str_of(peer), now_ms); n++)
		tries_count(tries, str_of(peer), SANDBOXES);
	return n;
}

TEST(one_client_has_a_part_and_time_gives_it_more)
{
	struct tries tries;

	tries_init(&tries, 0);
	ASSERT_EQ(search_all(&tries, "192.0.2.1:1000", 0), 50);
	ASSERT_EQ(search_all(&tries, "192.0.2.1:1001", 0), 0); /* by another connection */
	ASSERT_EQ(search_all(&tries, "192.0.2.1:1000", 1000), 25);
	ASSERT_EQ(search_all(&tries, "192.0.2.1:1000", 100000), 50);
}

TEST(all_clients_together_have_an_end)
{
	struct tries tries;
	int n = 0;

	tries_init(&tries, 0);
	for (int i = 0; i < 1000; i++) {
		char peer[32];

		(void)snprintf(peer, sizeof peer, "192.0.2.%d:1000", i);
		n += search_all(&tries, peer, 0);
	}
	ASSERT_EQ(n, 200);
	ASSERT_EQ(search_all(&tries, "[2001:db8::1]:1000", 0), 0);
	ASSERT(search_all(&tries, "[2001:db8::1]:1000", 1000) > 0);
}

TEST(one_client_leaves_most_others_theirs)
{
	struct tries tries;
	int n = 0;

	tries_init(&tries, 0);
	(void)search_all(&tries, "192.0.2.1:1000", 0);
	for (int i = 2; i < 22; i++) {
		char peer[32];

		(void)snprintf(peer, sizeof peer, "192.0.2.%d:1000", i);
		n += tries_may(&tries, str_of(peer), 0) ? 1 : 0;
	}
	ASSERT(n > 10); /* one in 64 has the same place */
}

TEST(what_took_long_is_paid_for)
{
	struct tries tries;

	tries_init(&tries, 0);
	ASSERT(tries_may(&tries, STR("192.0.2.1:1"), 0));
	tries_count(&tries, STR("192.0.2.1:1"), 100000);
	ASSERT(!tries_may(&tries, STR("192.0.2.1:1"), 1000));
	ASSERT(tries_may(&tries, STR("192.0.2.1:1"), 2100));
}
