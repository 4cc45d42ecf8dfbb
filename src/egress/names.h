/* Which questions are asked upstream, and what the others are answered with. */
#pragma once

#include "egress/egress-internal.h"

enum {
	JUDGED_ASK = -1, /* else an rcode, with no records */
	JUDGED_DENY = -2,
};
/* Pure. `text` is the name as text when it has one, else empty. */
int names_judge(const struct policy *policy, const struct dns_question *question,
	char text[DNS_TEXT_SIZE]);
/* Pure: whether it is this host's or its network's own, and so nobody's in a sandbox. */
bool names_is_hidden(struct str name);
