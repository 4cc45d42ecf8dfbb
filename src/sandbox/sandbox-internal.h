/* The sandbox room's own objects, shared by its files. */
#pragma once

#include "sandbox/sandbox.h"

struct live { /* one sandbox that the book knows */
	struct sandbox view;
	struct sandbox_book *book;
	struct arena *arena; /* holds the view's metadata */
	struct loop_timer timer;
	bool is_alive; /* while reconciling: the runtime has it */
};

struct sandbox_book {
	struct sandbox_book_config config;
	struct map by_id;
	size_t in_flight;
};

struct live *live_new(struct sandbox_book *book, const char *id);
void live_forget(struct live *live); /* out of the book and freed */
struct live *live_find(const struct sandbox_book *book, const char *team_id, struct str id);
void live_arm(struct live *live); /* sets the timer by end_us */
/* Marks it as ended and removes it; done when nothing is left and the row says why. */
void live_end(struct live *live, enum sandbox_end by, const char *actor, const char *why,
	done_fn done, void *arg);

/* Joins two answers into one: calls done when both have come, with the first failure if any. */
struct join {
	int waiting, r;
	struct err e;
	done_fn done;
	void *arg;
};
struct join *join_new(int waiting, done_fn done, void *arg);
void join_one(void *join, int r, const struct err *e); /* a done_fn */

/* rows.c: each copies what it needs and runs as one transaction. */
void rows_insert(struct store *store, const struct sandbox *sb, const char *runtime,
	const char *actor, done_fn done, void *arg);
void rows_set_end(struct store *store, const char *id, int64_t end_us, done_fn done, void *arg);
void rows_ended(struct store *store, const char *id, enum sandbox_end by, const char *actor,
	const char *why, done_fn done, void *arg);
/* Reads all running rows into the book, on the loop. */
void rows_load(struct sandbox_book *book, done_fn done, void *arg);
