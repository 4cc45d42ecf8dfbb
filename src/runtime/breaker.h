/* A circuit breaker: when most of what a runtime is asked to make fails, and none of it by the
 * asker's fault, nothing more is asked of it for a while; then one try tells whether it is well
 * again. Pure: the time is told to it. */
#pragma once

#include "runtime/runtime.h"

enum {
	BREAKER_WINDOW_S = 30, /* what happened within is looked at */
	BREAKER_FAILURES = 5,  /* so many, and more than succeeded, open it */
	BREAKER_OPEN_MS = 5000,
	BREAKER_MAX_OPEN_MS = 60000,
	BREAKER_PROBE_MS = 60000, /* a try that was not answered by then was none */
};

struct breaker {
	enum runtime_breaker_state state;
	struct {
		int64_t second;
		int succeeded, failed;
	} window[BREAKER_WINDOW_S];
	int64_t open_ms;  /* how long it is open this time */
	int64_t until_ms; /* open: until then; half open: the try has so long */
	bool is_trying;   /* half open: somebody does */
	int64_t refused;  /* since it opened */
	struct err why;   /* the failure that opened it */
};

/* -EHOSTDOWN: nothing may be asked now, and why. 0: ask, and tell how it went. */
int breaker_admit(struct breaker *b, int64_t now_ms, struct err *e);
/* How one that was admitted went; is_ours says that a failure (r < 0) was the runtime's own. True:
 * the state has changed. */
bool breaker_note(struct breaker *b, int64_t now_ms, int r, bool is_ours, const struct err *e);
/* What an observer sees: one that has been open long enough is half open. */
void breaker_look(const struct breaker *b, int64_t now_ms, struct runtime_breaker *ret);
