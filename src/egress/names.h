/* Which questions are asked upstream, and what the others are answered with. */
#pragma once

#include "egress/egress-internal.h"

enum {
	JUDGED_ASK = -1, /* else an rcode, with no records */
	JUDGED_DENY = -2,
};
/* Pure. `text` is the name as text when it has one, else empty. asks_inside: names of the host's
 * own network may lead to what the operator has opened. */
int names_judge(const struct policy *policy, const struct dns_question *question, bool asks_inside,
	char text[DNS_TEXT_SIZE]);
/* Pure: whether it is this host's or its network's own, and so nobody's in a sandbox. */
bool names_is_hidden(struct str name);
