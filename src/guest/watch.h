/* watch - what happens in a directory, in the words of fsnotify: one inotify instance for each
 * watch. A recursive watch follows new sub-directories and reports what was already in them. */
#pragma once

#include "base/base.h"
#include "guest/users.h"
#include "loop/loop.h"

#include <limits.h>

struct watch;

struct watch_options {
	bool recursive;
	bool with_entry; /* EntryInfo in CREATE, WRITE and CHMOD events */
};

/* One event as a JSON object, {"name","type","entry"?}; borrowed. */
struct watch_ops {
	void (*event)(void *arg, struct str json);
	/* Nothing more will come: events were lost, or the kernel refused a directory. */
	void (*failed)(void *arg, const struct err *e);
};

struct watch_set {
	struct loop *loop;
	struct users *users;
	struct list watches;
	struct buf event; /* the one being told */
};

void watch_set_init(struct watch_set *set, struct loop *loop, struct users *users);
/* Every watch left fails, and its owner frees it then; one that is just starting is cancelled. */
void watch_set_done(struct watch_set *set);
/* Reads what the kernel has already queued, for all: so that a new directory is watched, and a poll
 * sees what happened, before the call that caused it is answered. */
void watch_set_drain(struct watch_set *set);

/* `path` is an existing directory. Errors have fsnotify's wording in front. */
int watch_new(struct watch_set *set, const char *path, const struct watch_options *o,
	const struct watch_ops *ops, void *arg, struct watch **ret, struct err *e);
/* Begins to watch, all directories below included when it is recursive: those are found by a job.
 * Events come only behind `done`. It is told -ECANCELED when the watch was freed meanwhile, or when
 * we are going: then the request that waits for it is gone as well. */
void watch_start(struct watch *w, done_fn done, void *arg);
struct watch *watch_free(struct watch *w);
void watch_drain(struct watch *w);
/* While paused the kernel keeps the events, up to its own limit. */
void watch_pause(struct watch *w, bool paused);
