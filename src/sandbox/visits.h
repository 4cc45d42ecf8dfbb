/* Who comes to which port of a sandbox, told once in a while. */
#pragma once

#include "sandbox/sandbox-internal.h"

void visits_step(struct live *live);         /* every few seconds */
void visits_last(struct live *live);         /* it ends: what was not told yet */
void visits_stop(struct sandbox_book *book); /* the server does */
void visits_free(struct live *live);
