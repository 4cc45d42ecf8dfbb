#include "execution/talk.h"

#include "test.h"

enum {
	PIECE = TALK_BYTES / 2,
};

/* All that have something, as the loop finds them: always in the same order. */
static size_t one_turn(struct talk *talk, struct talker *v, size_t n, uint64_t turn, size_t *read)
{
	size_t all = 0;

	for (size_t i = 0; i < n; i++) {
		if (!talk_may_read(talk, &v[i], turn))
			continue;
		talk_note(talk, turn, PIECE);
		all += PIECE;
		read[i]++;
	}
	return all;
}

TEST(a_team_with_many_talkers_has_its_share_of_a_turn_and_each_its_share_of_that)
{
	struct talker v[64] = { 0 };
	struct talk talk = { 0 };
	size_t read[64] = { 0 };

	for (uint64_t turn = 1; turn <= 320; turn++) {
		size_t n = one_turn(&talk, v, 64, turn, read);

		ASSERT(n > 0 && n <= TALK_BYTES);
	}
	for (size_t i = 0; i < 64; i++)
		ASSERT(read[i] >= 9 && read[i] <= 11);
}

TEST(one_alone_reads_in_every_turn)
{
	struct talker v[1] = { 0 };
	struct talk talk = { 0 };
	size_t read[1] = { 0 };

	for (uint64_t turn = 1; turn <= 100; turn++)
		(void)one_turn(&talk, v, 1, turn, read);
	ASSERT_EQ(read[0], 100);
}

TEST(who_was_refused_and_is_gone_keeps_nobody_waiting)
{
	struct talker v[3] = { 0 };
	struct talk talk = { 0 };
	size_t read[3] = { 0 };

	(void)one_turn(&talk, v, 3, 1, read);
	ASSERT(talk.has_refused);
	ASSERT_EQ(one_turn(&talk, v, 2, 2, read), 0); /* the third had its turn */
	ASSERT_EQ(one_turn(&talk, v, 2, 3, read), 2 * PIECE);
}
