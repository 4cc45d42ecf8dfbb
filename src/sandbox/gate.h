/* gate - so many at a time go to an engine, few of each team, and of those that wait one of each
 * team in turn: who asks for a hundred sandboxes at once makes another team's one wait for a few of
 * them, not for the hundredth. What takes long (an engine that starts slowly, a large disk that is
 * copied) gives its place up after a while, so that a few of those keep nobody out. */
#pragma once

#include "base/base.h"
#include "loop/loop.h"

enum {
	GATE_TEAM_SIZE = 64,
};

struct gate {
	struct loop *loop;
	int most, most_team, inside;
	int64_t place_ms;  /* so long one has its place at most */
	struct map teams;  /* those with somebody inside or waiting, by name */
	struct list turns; /* the same, whose turn is next first */
	struct loop_task task;
};

/* One that wants in; embedded in its owner. */
struct gate_pass {
	struct gate *gate; /* NULL: not in any */
	struct list node;
	struct gate_team *team; /* while it waits or is inside */
	struct loop_timer timer;
	bool is_inside;
	loop_fn go;
	void *arg;
};

void gate_init(struct gate *gate, struct loop *loop, int most, int most_team, int64_t place_ms);
void gate_done(struct gate *gate); /* nobody comes back to it */
/* `go` comes at once where there is a place, else from the loop when it is its turn. */
void gate_enter(struct gate *gate, struct gate_pass *pass, const char *team, loop_fn go, void *arg);
/* It is through, or wants in no more; fine if it never entered. */
void gate_leave(struct gate_pass *pass);
