#include "cli/attack.h"

#include "test.h"

TEST(a_line_of_the_probe_is_read)
{
	struct attack_line l;

	ASSERT_EQ(attack_line_parse(
			  STR("kernel.bpf\trefused\tload BPF programs\tbpf: no (and 1 more)"), &l),
		0);
	ASSERT_BYTES(l.name, "kernel.bpf");
	ASSERT_BYTES(l.title, "load BPF programs");
	ASSERT_BYTES(l.evidence, "bpf: no (and 1 more)");
	ASSERT_EQ(l.verdict, ATTACK_REFUSED);
	ASSERT_EQ(l.end, 0);
}

TEST(every_verdict_is_known)
{
	static const struct {
		const char *line;
		enum attack_verdict verdict;
	} cases[] = { { "a\tabsent\tb\tc", ATTACK_ABSENT },
		{ "a\tcontained\tb\tc", ATTACK_CONTAINED }, { "a\tESCAPED\tb\tc", ATTACK_ESCAPED },
		{ "a\tinconclusive\tb\tc", ATTACK_INCONCLUSIVE } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct attack_line l;

		ASSERT_EQ(attack_line_parse(str_of(cases[i].line), &l), 0);
		ASSERT_EQ(l.verdict, cases[i].verdict);
	}
}

TEST(the_end_says_how_many_there_were)
{
	struct attack_line l;

	ASSERT_EQ(attack_line_parse(STR("end\t87"), &l), 0);
	ASSERT_EQ(l.end, 87);
}

TEST(anything_else_is_no_line)
{
	static const char *const lines[] = { "", "a", "a\tb", "a\trefused", "a\trefused\tb",
		"a\tEscaped\tb\tc", "\trefused\tb\tc", "end\t0", "end\t-1", "end\tx", "end" };
	struct attack_line l = { .end = 7 };

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		if (attack_line_parse(str_of(lines[i]), &l) != -EPROTO)
			TEST_FAIL("'%s' is taken", lines[i]);
	ASSERT_EQ(l.end, 7);
}

/* Any other failure than a refusal for the right reason is no pass. */
TEST(an_answer_is_judged_by_its_status)
{
	static const int right[] = { 401, 404, 0 };

	ASSERT_EQ(attack_judge_status(0, 404, right), ATTACK_REFUSED);
	ASSERT_EQ(attack_judge_status(0, 200, right), ATTACK_ESCAPED);
	ASSERT_EQ(attack_judge_status(0, 500, right), ATTACK_INCONCLUSIVE);
	ASSERT_EQ(attack_judge_status(0, 0, right), ATTACK_INCONCLUSIVE);
	ASSERT_EQ(attack_judge_status(-EIO, 404, right), ATTACK_INCONCLUSIVE);
	ASSERT_EQ(attack_judge_code(-EBADMSG), ATTACK_REFUSED);
	ASSERT_EQ(attack_judge_code(-EIO), ATTACK_INCONCLUSIVE);
}

/* Several ways of one attempt are one row, and a lighter outcome never hides a heavier one. */
TEST(the_heaviest_verdict_stays)
{
	struct cli cli = { 0 };
	struct attack a = { .cli = &cli };

	attack_say(&a, "x.y", "user", ATTACK_ESCAPED, "t", "first %s", "a\033[31mb");
	attack_say(&a, "x.y", "user", ATTACK_REFUSED, "t", "second");
	attack_say(&a, "x.y", "root", ATTACK_REFUSED, "t", "third");
	attack_say(&a, "x.y", "root", ATTACK_CONTAINED, "t", "fourth");
	ASSERT_EQ(a.n, 2);
	ASSERT_EQ(a.rows[0].verdict, ATTACK_ESCAPED);
	ASSERT_STR(a.rows[0].evidence, "first a?[31mb");
	ASSERT_EQ(a.rows[1].verdict, ATTACK_CONTAINED);
	ASSERT_STR(a.rows[1].evidence, "fourth");
	free(a.rows);
}
