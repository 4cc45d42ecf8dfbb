#include "runtime/runtime-internal.h"

#include "test.h"

static int freed;

static struct runtime *count_free(struct runtime *rt)
{
	(void)rt;
	freed++;
	return NULL;
}

static const struct runtime_ops first_ops = { .name = "first", .free = count_free };
static const struct runtime_ops second_ops = { .name = "second", .free = count_free };
static struct runtime first = { .ops = &first_ops }, second = { .ops = &second_ops };

TEST(a_runtime_is_found_by_its_name)
{
	struct runtime_set set = { { &first, &second }, 2 };
	struct err e = { 0 };

	ASSERT(runtime_find(&set, STR("second"), &e) == &second);
	ASSERT(runtime_find(&set, STR("first"), &e) == &first);
	ASSERT_EQ(e.code, 0);
}

TEST(no_name_is_the_first)
{
	struct runtime_set set = { { &first, &second }, 2 };

	ASSERT(runtime_find(&set, STR_NONE, NULL) == &first);
}

TEST(an_unknown_name_is_answered_with_the_known_ones)
{
	struct runtime_set set = { { &first, &second }, 2 };
	struct err e = { 0 };

	ASSERT(!runtime_find(&set, STR("sec"), &e));
	ASSERT_EQ(e.code, -EINVAL);
	ASSERT_STR(e.msg, "unknown runtime 'sec': there are 'first', 'second'");
	ASSERT(!runtime_find(&set, STR("secondary"), &e));
}

TEST(all_are_freed)
{
	struct runtime_set set = { { &first, &second }, 2 };

	freed = 0;
	runtime_set_free(&set);
	ASSERT_EQ(freed, 2);
	ASSERT_EQ(set.n, 0);
}
