/* talk - how much of what one team's commands print the loop takes in one turn. Each piece has to
 * be understood, masked and kept, and sixty commands that print without end have sixty pieces ready
 * whenever somebody looks: the rest waits in its sockets, where it costs nothing.
 *
 * Whoever was refused is before those who have read since: it goes in rounds. */
#pragma once

#include "base/base.h"

enum {
	TALK_BYTES = 64 << 10, /* of one team in a turn; what was read last may be more */
};

struct talk { /* of one team; zeroed at first */
	uint64_t turn, round;
	size_t bytes;     /* read in this turn */
	bool has_refused; /* somebody who had not read in this round, in this turn */
};
struct talker {         /* one command's part in it; zeroed at first */
	uint64_t round; /* in which it has read last */
};

/* Asked before each reading; `turn` is the loop's number of it. */
bool talk_may_read(struct talk *talk, struct talker *who, uint64_t turn);
void talk_note(struct talk *talk, uint64_t turn, size_t bytes);
