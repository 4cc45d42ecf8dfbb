#include "attack/attack.h"

#include "test.h"

TEST(the_heaviest_verdict_is_kept_with_its_evidence)
{
	struct finding f = { 0 };

	refused(&f, "first");
	refused(&f, "second");
	ASSERT_EQ(f.verdict, REFUSED);
	ASSERT_STR(f.evidence, "first");
	escaped(&f, "out by %s", "the door");
	contained(&f, "third");
	ASSERT_EQ(f.verdict, ESCAPED);
	ASSERT_STR(f.evidence, "out by the door");
	ASSERT_EQ(f.tries, 4);
}

/* Only an outright refusal is one: any other error means that the kernel looked at the call. */
TEST(a_call_is_judged_by_its_errno)
{
	static const struct {
		int64_t result;
		int error;
		enum verdict verdict;
	} cases[] = { { -1, EPERM, REFUSED }, { -1, EACCES, REFUSED }, { -1, ENOSYS, REFUSED },
		{ -1, EAFNOSUPPORT, REFUSED }, { -1, EROFS, REFUSED }, { -1, EINVAL, ESCAPED },
		{ -1, EFAULT, ESCAPED }, { -1, ENOENT, ESCAPED }, { -1, EBADF, ESCAPED },
		{ 0, 0, ESCAPED }, { 3, EPERM, ESCAPED } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct finding f = { 0 };

		errno = cases[i].error;
		judge_call(&f, cases[i].result, "it");
		if (f.verdict != cases[i].verdict)
			TEST_FAIL("errno %d: %s", cases[i].error, f.evidence);
	}
}

TEST(what_opens_has_escaped)
{
	struct finding f = { 0 };

	judge_open(&f, "/nonexistent-atoll-probe", O_RDONLY);
	ASSERT_EQ(f.verdict, REFUSED);
	judge_open(&f, "/dev/null", O_WRONLY);
	ASSERT_EQ(f.verdict, ESCAPED);
	ASSERT_STR(f.evidence, "/dev/null can be opened for writing");
}

TEST(what_a_kernel_of_its_own_gives_is_contained)
{
	struct finding f = { .own_kernel = true };

	judge_open(&f, "/dev/null", O_WRONLY);
	ASSERT_EQ(f.verdict, CONTAINED);
	ASSERT_STR(f.evidence, "/dev/null can be opened for writing (of a kernel of its own)");
	/* What comes from elsewhere is an escape whoever the kernel is. */
	escaped(&f, "the neighbour answers");
	ASSERT_EQ(f.verdict, ESCAPED);
}

static int exit_with(void *arg)
{
	return *(int *)arg;
}

TEST(a_child_says_how_it_ended)
{
	int status = 38;

	ASSERT_EQ(in_child(exit_with, &status), 38);
}

TEST(words_are_cut_at_any_blank)
{
	struct str rest = STR("  eth0\t00000000  x\n"), word;

	ASSERT(next_word(&rest, &word));
	ASSERT_BYTES(word, "eth0");
	ASSERT(next_word(&rest, &word));
	ASSERT_BYTES(word, "00000000");
	ASSERT(next_word(&rest, &word));
	ASSERT_BYTES(word, "x");
	ASSERT(!next_word(&rest, &word));
}

TEST(names_of_a_mark_fit_an_address)
{
	struct scene scene = { .mark = "abcdefghijklmnopqrstuvwxyz012345" };
	char name[64];

	mark_name(&scene, "neighbour", name);
	ASSERT_STR(name, "atoll-neighbour-abcdefghijklmnopqrstuvwxyz012345");
}
