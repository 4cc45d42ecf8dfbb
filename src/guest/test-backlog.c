#include "guest/backlog.h"

#include "test.h"

static void fill(struct backlog *b, size_t n_events, size_t size)
{
	cleanup_free char *bytes = xcalloc(1, size);

	for (size_t i = 0; i < n_events; i++)
		(void)backlog_add(b, OUTPUT_STDOUT, str_make(bytes, size));
}

TEST(events_are_read_back_in_order_from_any_place)
{
	struct backlog_pool pool; /* outlives what borrows it */
	CLEANUP(backlog_unrefp) struct backlog *b = NULL;
	struct backlog_chunk *at = NULL;
	struct backlog_event event;

	backlog_pool_init(&pool, BACKLOG_POOL_MAX_BYTES);
	b = backlog_new(&pool);
	ASSERT_EQ(backlog_first(b), 1);
	ASSERT(!backlog_read(b, 1, &at, &event));
	ASSERT_EQ(backlog_add(b, OUTPUT_STDOUT, STR("one")), 1);
	ASSERT_EQ(backlog_add(b, OUTPUT_STDERR, STR("two")), 2);
	ASSERT_EQ(backlog_add(b, OUTPUT_PTY, STR("")), 3);
	backlog_hold(b);
	for (uint64_t seq = 2; seq < 4; seq++) {
		ASSERT(backlog_read(b, seq, &at, &event));
		ASSERT_EQ(event.seq, seq);
	}
	ASSERT_EQ(event.kind, OUTPUT_PTY);
	ASSERT(!backlog_read(b, 4, &at, &event));
	at = NULL;
	ASSERT(backlog_read(b, 1, &at, &event));
	ASSERT(str_is(event.bytes, "one"));
	backlog_release(b);
}

TEST(the_oldest_give_way_and_numbers_go_on)
{
	struct backlog_pool pool; /* outlives what borrows it */
	CLEANUP(backlog_unrefp) struct backlog *b = NULL;

	backlog_pool_init(&pool, BACKLOG_POOL_MAX_BYTES);
	b = backlog_new(&pool);
	fill(b, 1000, 32 << 10);
	ASSERT_EQ(backlog_next(b), 1001);
	ASSERT_EQ(backlog_first(b), 1001 - 31); /* the 32nd has no room beside what keeping costs */
	ASSERT(pool.used_bytes <= BACKLOG_MAX_BYTES);
	b = backlog_unref(b);
	ASSERT_EQ(pool.used_bytes, 0);
}

TEST(of_all_the_one_that_was_quiet_longest_gives_way)
{
	struct backlog_pool pool;
	struct backlog *b[3];

	backlog_pool_init(&pool, 100 << 10);
	for (size_t i = 0; i < ARRAY_SIZE(b); i++)
		b[i] = backlog_new(&pool);
	fill(b[0], 4, 10 << 10);
	fill(b[1], 4, 10 << 10);
	fill(b[0], 1, 10 << 10);
	fill(b[2], 4, 10 << 10); /* 130 KiB by now: b[1] is the quietest */
	ASSERT_EQ(backlog_first(b[0]), 1);
	ASSERT(backlog_first(b[1]) > 1);
	ASSERT_EQ(backlog_first(b[2]), 1);
	ASSERT(pool.used_bytes <= pool.max_bytes);
	for (size_t i = 0; i < ARRAY_SIZE(b); i++)
		(void)backlog_unref(b[i]);
	ASSERT_EQ(pool.used_bytes, 0);
	ASSERT(list_empty(&pool.droppable));
}

TEST(what_is_being_read_stays_and_the_ceiling_holds)
{
	struct backlog_pool pool;
	struct backlog *read, *other;

	backlog_pool_init(&pool, 100 << 10);
	read = backlog_new(&pool);
	other = backlog_new(&pool);
	fill(read, 8, 10 << 10);
	backlog_hold(read);
	backlog_hold(read);
	fill(other, 100, 10 << 10);
	ASSERT_EQ(backlog_first(read), 1);
	ASSERT_EQ(backlog_first(other), 100); /* room for one beside what is read */
	fill(other, 1, 30 << 10);
	ASSERT_EQ(backlog_first(other),
		102); /* for this one there was none: nothing older is left */
	backlog_release(read);
	fill(other, 2, 30 << 10);
	ASSERT_EQ(backlog_first(read), 1);
	backlog_release(read);
	fill(other, 2, 30 << 10);
	ASSERT(backlog_first(read) > 1);
	ASSERT_EQ(backlog_first(other), 104);
	ASSERT(pool.used_bytes <= pool.max_bytes);
	(void)backlog_unref(read);
	(void)backlog_unref(other);
	ASSERT_EQ(pool.used_bytes, 0);
}

TEST(a_pool_without_room_only_counts)
{
	struct backlog_pool pool; /* outlives what borrows it */
	CLEANUP(backlog_unrefp) struct backlog *b = NULL;

	backlog_pool_init(&pool, 0);
	b = backlog_new(&pool);
	fill(b, 5, 1);
	ASSERT_EQ(backlog_next(b), 6);
	ASSERT_EQ(backlog_first(b), 6);
	ASSERT_EQ(pool.used_bytes, 0);
}
