/* test.h - the smallest harness that is enough: TEST(name) { ... }, asserts that return, TAP out.
 * Asserts return from the test function, so cleanup attributes run and a failing test does not
 * drown in leak reports. Each test program includes this file exactly once. */
#pragma once

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct test_case {
	const char *name;
	void (*run)(void);
	struct test_case *next;
};

static struct test_case *test_first, **test_last = &test_first;
static bool test_failed;
static const char *test_skip_reason;

#define TEST(id)                                                          \
	static void test_##id(void);                                      \
	__attribute__((constructor)) static void test_register_##id(void) \
	{                                                                 \
		static struct test_case self = { #id, test_##id, NULL };  \
		*test_last = &self;                                       \
		test_last = &self.next;                                   \
	}                                                                 \
	static void test_##id(void)

#define TEST_FAIL(...)                                   \
	do {                                             \
		printf("# %s:%d: ", __FILE__, __LINE__); \
		printf(__VA_ARGS__);                     \
		printf("\n");                            \
		test_failed = true;                      \
		return;                                  \
	} while (0)

#define TEST_SKIP(reason)                    \
	do {                                 \
		test_skip_reason = (reason); \
		return;                      \
	} while (0)

#define ASSERT(cond)                                      \
	do {                                              \
		if (!(cond))                              \
			TEST_FAIL("not true: %s", #cond); \
	} while (0)

#define ASSERT_EQ(got, want)                                                                \
	do {                                                                                \
		int64_t got_ = (int64_t)(got), want_ = (int64_t)(want);                     \
		if (got_ != want_)                                                          \
			TEST_FAIL("%s: got %" PRId64 ", want %" PRId64, #got, got_, want_); \
	} while (0)

#define ASSERT_STR(got, want)                                                                      \
	do {                                                                                       \
		const char *got_ = (got), *want_ = (want);                                         \
		if (!got_ || strcmp(got_, want_) != 0)                                             \
			TEST_FAIL("%s: got '%s', want '%s'", #got, got_ ? got_ : "(null)", want_); \
	} while (0)

/* Compares a struct str (or anything with .p and .n) with a literal. */
#define ASSERT_BYTES(got, want)                                                    \
	do {                                                                       \
		const char *want_ = (want);                                        \
		if ((got).n != strlen(want_) ||                                    \
			memcmp((got).p ? (got).p : "", want_, (got).n) != 0)       \
			TEST_FAIL("%s: got '%.*s', want '%s'", #got, (int)(got).n, \
				(got).p ? (got).p : "", want_);                    \
	} while (0)

int main(void)
{
	int n = 0, failures = 0;

	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	for (struct test_case *t = test_first; t; t = t->next)
		n++;
	printf("1..%d\n", n);
	n = 0;
	for (struct test_case *t = test_first; t; t = t->next) {
		test_failed = false;
		test_skip_reason = NULL;
		t->run();
		failures += test_failed;
		printf("%sok %d - %s%s%s\n", test_failed ? "not " : "", ++n, t->name,
			test_skip_reason ? " # SKIP " : "",
			test_skip_reason ? test_skip_reason : "");
	}
	return failures != 0;
}
