/* What a keeper hands to the build that it becomes, in variables that only that process
 * believes: they name its own pid. */
#pragma once

#include "server/listening.h"
#include "server/note.h"

struct handover {
	struct listening listening;
	struct note note;
};

int handover_put(const struct handover *handover, struct err *e);
/* False: nothing was handed over. The variable is gone afterwards. */
bool handover_take(struct handover *ret);
void handover_forget(void);
