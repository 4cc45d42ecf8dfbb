/* Whether a sandbox is well, and how long it may go unused: the rules alone, by a clock that is
 * told to them. */
#pragma once

#include "sandbox/sandbox.h"

enum {
	VITAL_MISSES = 3, /* so many questions in a row without an answer */
};

enum vital_word { /* what came of one question */
	VITAL_HEARD,
	VITAL_SILENT,  /* nothing came in time */
	VITAL_REFUSED, /* nobody is there to ask */
};

struct vital {
	enum sandbox_health health;
	int misses;
	int64_t heard_ms;   /* when it last answered; 0: never yet */
	int64_t changed_ms; /* when its health last changed */
};
/* True: its health has changed. */
bool vital_note(struct vital *v, int64_t now_ms, enum vital_word word);

/* Whether anything was done with it. */
struct idle {
	int64_t used_ms; /* when it was last in use */
	int64_t egress_bytes;
};
enum {
	IDLE_NOISE_BYTES = 1024, /* sent since the last look: an interface is never quite silent */
};
/* One look: in use by somebody, or by what it sends. For how long it was not used. */
int64_t idle_look(struct idle *idle, int64_t now_ms, bool is_busy, int64_t egress_bytes);
