/* gauges - how close the sandbox is to its limits, and how often it came up against one.
 * The kernel's own counters are read from the files that the warden handed over; of the others it
 * says nothing to anybody but the program that was refused, so they are looked at when a process
 * ends and when somebody asks. */
#pragma once

#include "base/base.h"
#include "guest/settings.h"
#include "warden/proto.h"

/* What is looked at, as the metrics spell it. */
enum gauge_kind {
	GAUGE_DISK,
	GAUGE_INODES,
	GAUGE_SHM,
	GAUGE_FILES, /* a process has as many open as it may */
	GAUGE_KINDS,
};

struct gauges {
	int meters[GUEST_METERS];     /* by enum guest_meter; -EBADF: not known here */
	int use_fd;                   /* what it has used of the processors; -EBADF: not known */
	int64_t blamed;               /* kills for memory that a process was told of */
	int64_t crossed[GAUGE_KINDS]; /* how often */
	bool is_over[GAUGE_KINDS];    /* now */
	bool disk_failed;             /* for good */
};

void gauges_init(struct gauges *g);
void gauges_done(struct gauges *g);

/* How many processes the kernel has killed because memory ran out. */
int64_t gauges_oom_kills(const struct gauges *g);
/* Processor time that the sandbox has used, in µs; false: not known here. */
bool gauges_cpu_use(const struct gauges *g, int64_t *ret_user_us, int64_t *ret_system_us);
int64_t gauges_processes(const struct gauges *g); /* threads count; 0: not known */
/* A process that was started at `kills_before` was killed by nobody we know of: was it that? */
bool gauges_blame_memory(struct gauges *g, int64_t kills_before);

/* 0 when the root file system takes writes and has lost none; -EIO, -EROFS. Changes nothing
 * but a time. */
int gauges_check_disk(void);
void gauges_look_at_disk(struct gauges *g);
/* Looks at the file systems. */
void gauges_look(struct gauges *g);
/* A process has that many files open, of those that it may. */
void gauges_note_files(struct gauges *g, bool is_over);

/* Members of the metrics object. */
void gauges_write(const struct gauges *g, struct jsonw *w);

/* The number behind a name, in a text of lines `name number`; 0: there is none. */
int64_t gauge_number(struct str text, struct str name);
