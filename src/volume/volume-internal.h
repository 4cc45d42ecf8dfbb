/* The volume room's own objects, shared by its files. */
#pragma once

#include "volume/volume.h"

#include <limits.h>
#include <sys/stat.h>

#define INCOMING_DIR ".incoming" /* uploads on their way, and trees on theirs out */

struct holding { /* a volume that the book knows */
	struct volume view;
	char token[VOLUME_TOKEN_SIZE];
	struct list holders; /* notices of what was opened with that token */
	struct list node;    /* oldest first */

	/* reach.c */
	bool is_image;           /* a file system of its own */
	bool is_tidied;          /* what an earlier server left beside it is being removed */
	struct reach *reach;     /* open; NULL: not */
	struct opening *opening; /* on the way there */
	struct list open_node;
	int64_t used_ms;

	/* measure.c */
	int64_t used_bytes; /* as measured, and what was uploaded since; -1: not measured yet */
	int64_t pending;    /* bytes of uploads that are not in place yet */
	int64_t landed;     /* of those that came into place since the measuring began */
	int64_t due_ms, measured_ms, took_ms, pause_ms;
	bool is_deep;    /* too deep to be measured, which counts as full */
	bool is_endless; /* it was not measured in its time, which does as well */
	bool is_told;    /* that it is full */
};

struct volume_book {
	struct volume_book_config config;
	int incoming_fd;
	struct map by_id;
	struct list holdings;
	struct list sweeping; /* trees that a job is removing */
	struct list unswept;  /* somebody still wrote there: to be tried again */
	struct loop_timer sweeper;
	struct list open;     /* holdings that are, the last used last */
	struct list openings; /* on their way */
	struct list making;   /* changes that wait for their volume */
	struct loop_timer idler;
	bool is_resting;             /* nothing is opened any more */
	struct measuring *measuring; /* at work; NULL: none */
	struct loop_timer measurer;
};

/* ---- volume.c ---- */
struct volume_change { /* one transaction on its way */
	struct volume_book *book;
	struct volume volume;
	bool is_image;    /* it has been made */
	struct list node; /* while it is */
	char actor[ACTOR_SIZE];
	int dir_fd; /* the job's own */
	int64_t max_count;
	struct err e;
	struct loop_task task;
	volume_fn fn; /* this or the next is called at its end */
	done_fn done;
	void *arg;
};
struct volume_change *volume_change_new(struct volume_book *book, const char *actor);
/* What who asks may change; one that is not there ends the change, later. */
int volume_change_find(struct volume_change *c, const struct volume_owner *who, struct str id);
void volume_change_end(void *change, int r, const struct err *e);

/* ---- place.c: a path in a volume ---- */
/* An absolute path without `.`, `..`, doubled or final slashes. -EINVAL: NUL, bad UTF-8, too long.
 */
int place_clean(struct str path, char out[PATH_MAX], struct err *e);
struct str place_base(const char *clean); /* "/" for the root */
/* Opens below the volume's root, wherever links in between point. */
int place_open(int root_fd, const char *clean, int flags);
/* The directory above, as O_PATH; the root has none: -EEXIST. */
int place_open_parent(int root_fd, const char *clean);
int place_fail(struct err *e, int code, const char *clean); /* the room's errors from -errno */
/* fd may be O_PATH; 0 or -errno. */
int place_chmod(int fd, int mode);
int place_change(int fd, const struct volume_attr *attr);

/* ---- reach.c: where the files of a volume are ---- */
struct reach {
	struct loop *loop;
	int refs;
	bool is_image;
	bool is_removed; /* the volume is: what fails now, fails rightly */
	int root_fd;
	int incoming_fd; /* on the same file system, the server's own */
	int host_fd;     /* of an image: the file system that it lies on */
};
typedef void (*reach_fn)(void *arg, struct reach *take_reach, const struct err *e); /* NULL: no */
void reaches_init(struct volume_book *book);
void reaches_rest(struct volume_book *book); /* whoever waits is told, and nobody waits again */
void reaches_done(struct volume_book *book);
/* Calls fn now, or later. */
void reach_get(struct volume_book *book, const char *id, reach_fn fn, void *arg);
struct reach *reach_ref(struct reach *reach);
struct reach *reach_unref(struct reach *reach); /* NULL is fine, and what it returns */
void reach_forget(struct holding *h);           /* the volume has been removed */
/* -ENOSPC: the host's disk has too little room for what a volume would take. What is written there
 * would be lost later, and nobody told. Waits. */
int reach_check_room(const struct reach *reach);

/* ---- sweep.c: trees on their way out ---- */
struct sweep;
void sweeps_init(struct volume_book *book);
/* What could not be removed by now, the next start does. */
void sweeps_let_go(struct volume_book *book);
/* What an earlier server left: all that lies there now. What comes later is being uploaded. */
void sweep_leftovers(struct volume_book *book);
/* Of what will lie in INCOMING_DIR under this name. May outlive the book. */
struct sweep *sweep_new(struct volume_book *book, const char *name);
/* The same beside a volume; without a name until sweep_find, for a job, has found what lies there:
 * how much, or -errno. */
struct sweep *sweep_new_at(struct volume_book *book, struct reach *reach, const char *name);
struct sweep *sweep_beside(struct volume_book *book, struct reach *reach);
int sweep_find(struct sweep *sweep, size_t most);
void sweep_begin(struct sweep *sweep); /* it lies there: removed bit by bit, in a lane of its own */
void sweep_drop(struct sweep *sweep);  /* it never came */

/* ---- measure.c: how much is in a volume ---- */
void measure_init(struct volume_book *book);
void measure_let_go(struct volume_book *book);
/* It is new, or may have changed. */
void measure_soon(struct volume_book *book, struct holding *h);
/* That many bytes more, or less, of an upload that is under way. */
void measure_add(struct volume_book *book, const char *id, int64_t bytes);
/* It is in place now, with so many in all. */
void measure_land(struct volume_book *book, const char *id, int64_t bytes);

/* ---- tree.c: whole directories ---- */
struct listing {
	struct arena *arena;
	struct volume_entry *v;
	size_t n, cap;
};
/* Adds one entry; -E2BIG when there are too many. */
int listing_add(struct listing *l, const char *path, int fd, const struct stat *st);
int tree_list(struct listing *l, int dir_fd, const char *path, int depth);
