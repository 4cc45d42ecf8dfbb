/* The requests table, on both databases. */
#include "api/api-internal.h"

#include "scratch.h"
#include "test.h"

enum {
	NOW_US = 1000000000,
};

static const uint8_t key[SHA256_SIZE] = { 7 };

struct found {
	size_t n;
	struct once_row v[4];
	char answers[4][64];
};

static void add(void *arg, const struct once_row *row, struct str answer)
{
	struct found *found = arg;

	(void)snprintf(found->answers[found->n], sizeof found->answers[0], "%.*s", STR_ARG(answer));
	found->v[found->n++] = *row;
}

static void stop(void *arg, int r, const struct err *e)
{
	struct scratch *s = arg;

	(void)r, (void)e;
	loop_stop(s->loop);
}

static void insert(struct scratch *s, const char *name, uint8_t body, int64_t asked_us)
{
	struct once_row row = { .team_id = "t", .body = { body }, .asked_us = asked_us };

	(void)snprintf(row.name, sizeof row.name, "%s", name);
	once_row_insert(s->store, &row, asked_us - 100, stop, s);
	(void)loop_run(s->loop, NULL);
}

static int nothing(struct store_tx *tx, void *arg, struct err *e)
{
	(void)tx, (void)arg, (void)e;
	return 0;
}

/* As the next server does. */
static int load(struct scratch *s, int64_t from_us, const uint8_t with[SHA256_SIZE],
	struct found *ret, struct err *e)
{
	int r;

	store_run(s->store, nothing, stop, s); /* behind what is under way */
	(void)loop_run(s->loop, NULL);
	r = scratch_open(s, e);
	*ret = (struct found){ 0 };
	return r < 0 ? r : once_rows_load(s->store, with, from_us, add, ret, e);
}

TEST(a_request_is_known_before_it_is_done_and_with_its_answer)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct found found;
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	insert(&s, "a", 1, NOW_US);
	insert(&s, "b", 2, NOW_US + 1);
	insert(&s, "c", 3, NOW_US + 2);
	once_row_answer(s.store, key, "b", 201, STR("{\"token\":\"secret\"}"));
	once_row_remove(s.store, "c");
	ASSERT_EQ(load(&s, NOW_US, key, &found, &e), 0);
	ASSERT_EQ(found.n, 2);
	ASSERT_STR(found.v[0].name, "a");
	ASSERT_EQ(found.v[0].status, 0);
	ASSERT_EQ(found.v[0].body[0], 1);
	ASSERT_EQ(found.v[0].asked_us, NOW_US);
	ASSERT_STR(found.v[1].name, "b");
	ASSERT_STR(found.v[1].team_id, "t");
	ASSERT_EQ(found.v[1].status, 201);
	ASSERT_STR(found.answers[1], "{\"token\":\"secret\"}");
}

TEST(an_answer_does_not_open_with_another_seed)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	const uint8_t other[SHA256_SIZE] = { 8 };
	struct found found;
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	insert(&s, "a", 1, NOW_US);
	once_row_answer(s.store, key, "a", 201, STR("x"));
	ASSERT_EQ(load(&s, NOW_US, other, &found, &e), 0);
	ASSERT_EQ(found.n, 1);
	ASSERT_EQ(found.v[0].status, 0);
	ASSERT_STR(found.answers[0], "");
}

TEST(a_key_that_is_used_anew_is_another_request)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct found found;
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	insert(&s, "a", 1, NOW_US);
	once_row_answer(s.store, key, "a", 201, STR("x"));
	insert(&s, "a", 2, NOW_US + 50);
	ASSERT_EQ(load(&s, NOW_US, key, &found, &e), 0);
	ASSERT_EQ(found.n, 1);
	ASSERT_EQ(found.v[0].status, 0);
	ASSERT_EQ(found.v[0].body[0], 2);
}

TEST(those_whose_time_is_up_go_with_the_next_and_at_start)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct found found;
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	insert(&s, "a", 1, NOW_US);
	insert(&s, "b", 1, NOW_US + 101);
	insert(&s, "c", 1, NOW_US + 150);
	ASSERT_EQ(load(&s, 0, key, &found, &e), 0);
	ASSERT_EQ(found.n, 2);
	ASSERT_STR(found.v[0].name, "b");
	ASSERT_EQ(load(&s, NOW_US + 120, key, &found, &e), 0);
	ASSERT_EQ(found.n, 1);
	ASSERT_EQ(load(&s, 0, key, &found, &e), 0);
	ASSERT_EQ(found.n, 1);
	ASSERT_STR(found.v[0].name, "c");
}
