/* What the readers of the event log share. */
#pragma once

#include "observe/observe.h"

/* ---- read.c ---- */
/* A page of items whose texts it holds. */
struct page {
	struct arena *arena;
	struct observe_item *v;
	size_t n, cap, bytes;
	bool more;
};
void page_done(struct page *page);
/* -ENOBUFS: it is full, which is no failure: there is more then. */
int page_add(struct page *page, const struct observe_item *item, struct err *e);
/* Columns as EVENT_COLUMNS says, from `first` on; borrowed for the row's call. */
#define EVENT_COLUMNS                                                                             \
	"seq, at_us, actor, kind, subject, data, team_id, agent_id, task_id, cause, actor_name, " \
	"source"
void item_read(const struct store_row *row, struct observe_item *ret);
/* Reads one number, such as the newest of the log; blocking, at start. */
int read_number(struct store *store, const char *sql, int64_t *ret, struct err *e);

/* ---- trim.c ---- */
enum {
	OBSERVE_TEAM_SIZE = 64,
};
struct trim; /* forgets what is old, or too much, a little at a time */
/* Blocking, at start. */
int trim_new(struct loop *loop, struct store *store, struct trim **ret, struct err *e);
/* From now on; as observe_feed_forget. */
void trim_start(struct trim *trim, int64_t keep_s, const struct limit_teams *teams);
/* The oldest number that is left: of that team or, when its id is empty, of all. */
int64_t trim_oldest(const struct trim *trim, struct str team_id);
struct trim *trim_free(struct trim *trim);

/* ---- metrics.c ---- */
/* Counts what an event tells. */
void metrics_note(struct observe_metrics *m, const struct observe_item *item);

/* ---- data.c ---- */
/* What readers want to know of an event's data; what it does not say is unset. */
struct event_data {
	struct json_int us, quota_us, row_us, runtime_us, ready_us; /* how long it took */
	struct json_int n, exit_code, duration_ms;                  /* of an execution */
	struct str runtime, base_template, by, why, signal, ended_by;
	struct str program, user, via, ended_cause; /* of a process */
	struct json_strs args;
	struct json_int pid;
};
/* -EINVAL: nothing that is known. Texts are in the arena. */
int event_data_read(struct arena *arena, struct str json, struct event_data *ret);
