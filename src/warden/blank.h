/* blank - empty disk images, one for each size, which those of sandboxes are copies of. The usual
 * size is made at start and stays. Others come from requests: each is made once, beside the loop,
 * by a program that the loop watches, and the one that was used longest ago goes when there are too
 * many. A copy does not need what it was copied from. */
#pragma once

#include "base/base.h"
#include "loop/loop.h"
#include "warden/disk.h"
#include "warden/run.h"

/* A new directory with upper/ and work/ as every sandbox begins with them. */
int layer_make(const struct disk *disk, const char *name, struct err *e);

/* -ENOENT: there is none of that size. */
int blank_open(const struct disk *disk, struct disk_size size, struct err *e);
bool blank_exists(const struct disk *disk, struct disk_size size);
/* Makes that of the usual size, and waits for it. */
int blank_prepare(const struct disk *disk, struct err *e);
/* Removes those made for another resolv.conf, by another version, or not to the end. */
void blank_tidy(const struct disk *disk);

/* Somebody who waits for a size; embedded in whatever waits. */
typedef void (*blank_fn)(void *arg, const struct err *e);
struct blank_wait {
	struct list node;
	struct disk_size size;
	blank_fn fn;
	void *arg;
};
struct blanks {
	struct loop *loop;
	const struct disk *disk;
	struct list waiting; /* in the order they came; one size is made at a time */
	struct disk_size making;
	struct run run;
	struct loop_io io;
	struct loop_timer deadline;
	struct loop_task next;
};
/* Before the first question; both are borrowed. */
void blanks_open(struct blanks *b, struct loop *loop, const struct disk *disk);
void blanks_close(struct blanks *b);
/* Calls fn on a later turn: there is one of that size now (code 0), or why not. */
void blanks_ask(struct blanks *b, struct blank_wait *wait, struct disk_size size, blank_fn fn,
	void *arg);
void blanks_forget(struct blank_wait *wait); /* fine if it does not wait */
