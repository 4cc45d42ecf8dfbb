/* What a keeper hands to the build that it becomes, in a variable that only that process believes:
 * it names its own pid. */
#pragma once

#include "server/note.h"

struct handover {
	int listen_fd;
	struct note note;
};

int handover_put(const struct handover *handover, struct err *e);
/* False: nothing was handed over. The variable is gone afterwards. */
bool handover_take(struct handover *ret);
void handover_forget(void);
