/* observe - what happened and how much of it: teams' sandboxes over time, the use of templates, the
 *           machine itself.
 * Owns:   events on their way to the event log; the rest it reads: the sandboxes table and /proc.
 * Uses:   base, loop, store.
 * Never:  changes what it looks at, or keeps a count that a restart would lose. */
#pragma once

#include "base/base.h"
#include "store/store.h"

/* The event log is append-only. What changes a row writes its event in the same transaction
 * (store_add_event); what merely happens is told here, and written soon, in order, off the way of
 * whoever tells it. */
struct observe_log;
struct observe_log *observe_log_new(struct store *store);
/* Writes what is left; the loop has stopped. */
struct observe_log *observe_log_free(struct observe_log *log);
DEFINE_CLEANUP(struct observe_log, observe_log_free)
struct observe_event {
	const char *actor, *kind, *subject; /* as in struct store_event */
	const char *team_id, *cause;        /* NULL: not known */
	struct str data;                    /* JSON object; empty: {} */
};
void observe_event(struct observe_log *log, const struct observe_event *event); /* copies */

enum {
	OBSERVE_MAX_POINTS = 360,
	OBSERVE_MIN_STEP_S = 10,
};

struct observe_point {
	int64_t at_us;     /* where its step begins */
	int64_t running;   /* the most at once within the step */
	double start_rate; /* sandboxes started a second, in the busiest ten seconds of it */
};
/* Steps of equal length that cover [from, to); e is set when r < 0. */
typedef void (*observe_points_fn)(void *arg, int r, const struct observe_point *v, size_t n,
	const struct err *e);
/* from_us < to_us. -E2BIG: too many sandboxes lived then to look at in one go. */
void observe_team(struct store *store, const char *team_id, int64_t from_us, int64_t to_us,
	observe_points_fn fn, void *arg);

struct observe_use {
	char template_id[24];
	int64_t count, last_us;
};
typedef void (*observe_uses_fn)(void *arg, int r, const struct observe_use *v, size_t n,
	const struct err *e);
/* How often a team started sandboxes from each template, and when last. */
void observe_templates(struct store *store, const char *team_id, observe_uses_fn fn, void *arg);

struct observe_machine {
	char cpu_family[16], cpu_model[16], cpu_name[96], cpu_architecture[32];
	int64_t cpu_count, memory_total, memory_used;                /* bytes */
	int64_t pages_total, pages_free, pages_reserved, page_bytes; /* huge ones */
	int64_t cpu_busy, cpu_all; /* ticks since boot: two readings give a percentage */
};
void observe_machine(struct observe_machine *ret);
