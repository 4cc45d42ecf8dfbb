/* What is done in sandboxes, on its way from their guests into the event log. */
#pragma once

#include "sandbox/sandbox-internal.h"

/* The guest has said the newest number that it has given. */
void activity_hint(struct live *live, int64_t last);
/* It is about to stop: asks a last time where that is wanted and there is hope for an answer, then
 * goes on; it is not freed meanwhile. */
void activity_last(struct live *live, bool is_wanted, live_fn then, void *arg);
/* Its guest is a new one. */
void activity_reborn(struct live *live);
/* Somebody speaks to its guest. */
void activity_used(struct live *live);
/* At start: as far as the server before has written. */
void activity_take(struct live *live, const char *epoch, int64_t seq);
void activity_done(struct sandbox_book *book); /* it is about to be freed */
void activity_stop(struct sandbox_book *book); /* asks nobody any more, but for the last time */
