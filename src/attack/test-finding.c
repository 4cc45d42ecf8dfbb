#include "attack/attack.h"

#include "test.h"

TEST(the_heaviest_verdict_is_kept_with_its_evidence)
{
	struct finding f = { 0 };

	absent(&f, "nothing there");
	refused(&f, "first");
	refused(&f, "second");
	ASSERT_EQ(f.verdict, REFUSED);
	ASSERT_STR(f.evidence, "first");
	inconclusive(&f, "not done");
	contained(&f, "third");
	ASSERT_EQ(f.verdict, INCONCLUSIVE);
	escaped(&f, "out by %s", "the door");
	ASSERT_EQ(f.verdict, ESCAPED);
	ASSERT_STR(f.evidence, "out by the door");
	ASSERT_EQ(f.tries, 6);
}

/* Only the errors that the attempt names are a refusal of it. */
TEST(what_fails_for_another_reason_is_inconclusive)
{
	struct finding f = { .right = by_rights };

	refused_with(&f, EACCES, "it");
	ASSERT_EQ(f.verdict, REFUSED);
	refused_with(&f, ENOMEM, "it");
	ASSERT_EQ(f.verdict, INCONCLUSIVE);
	ASSERT_STR(f.evidence, "it: Cannot allocate memory, which is no refusal");
}

/* Only what the filter says is a refusal; other errors mean that the kernel looked at the call, or
 * has none. */
TEST(a_call_is_judged_by_its_errno)
{
	static const struct {
		int64_t result;
		int error;
		enum verdict verdict;
	} cases[] = { { -1, EPERM, REFUSED }, { -1, EACCES, INCONCLUSIVE },
		{ -1, EROFS, INCONCLUSIVE }, { -1, ENOSYS, ABSENT }, { -1, EAFNOSUPPORT, ABSENT },
		{ -1, EINVAL, ESCAPED }, { -1, EFAULT, ESCAPED }, { -1, ENOENT, ESCAPED },
		{ -1, EBADF, ESCAPED }, { 0, 0, ESCAPED }, { 3, EPERM, ESCAPED } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct finding f = { .right = by_filter };

		errno = cases[i].error;
		judge_call(&f, cases[i].result, "it");
		if (f.verdict != cases[i].verdict)
			TEST_FAIL("errno %d: %s", cases[i].error, f.evidence);
	}
}

TEST(what_opens_has_escaped)
{
	struct finding f = { 0 };

	judge_open(&f, "/dev/null", O_WRONLY);
	ASSERT_EQ(f.verdict, ESCAPED);
	ASSERT_STR(f.evidence, "/dev/null can be opened for writing");
}

/* That a path is not there says nothing where the host does not have it either. */
TEST(a_missing_path_is_refused_when_the_host_has_it)
{
	static const struct {
		const char *lacks;
		enum verdict verdict;
	} cases[] = { { NULL, INCONCLUSIVE }, { "", REFUSED }, { "/other:/nonexistent", ABSENT },
		{ "/nonexistent-not", REFUSED } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct scene scene = { .lacks = cases[i].lacks };
		struct finding f = { .scene = &scene };

		judge_open(&f, "/nonexistent", O_RDONLY);
		if (f.verdict != cases[i].verdict)
			TEST_FAIL("case %zu: %s", i, f.evidence);
	}
}

TEST(what_a_kernel_of_its_own_gives_is_contained)
{
	struct scene scene = { .own_kernel = true };
	struct finding f = { .scene = &scene };

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
