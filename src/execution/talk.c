#include "execution/talk.h"

/* The round is over when nobody had to wait in the turn before. */
static void enter(struct talk *talk, uint64_t turn)
{
	if (talk->turn == turn)
		return;
	talk->turn = turn;
	talk->bytes = 0;
	if (!talk->has_refused)
		talk->round++;
	talk->has_refused = false;
}

bool talk_may_read(struct talk *talk, struct talker *who, uint64_t turn)
{
	enter(talk, turn);
	if (who->round == talk->round)
		return false;
	if (talk->bytes >= TALK_BYTES) {
		talk->has_refused = true;
		return false;
	}
	who->round = talk->round;
	return true;
}

void talk_note(struct talk *talk, uint64_t turn, size_t bytes)
{
	enter(talk, turn);
	talk->bytes += bytes;
}
