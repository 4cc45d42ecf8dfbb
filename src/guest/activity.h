/* activity - what was done here through the API, in order: which processes began and ended, which
 * files were changed. The server asks for it every few seconds and writes it into its event log.
 * Owns:   the records, as JSON, until the server says that it has written them.
 * Uses:   base, json.
 * Never:  waits, or grows without end: of what is too much only the number is kept. Each record has
 *         a number of its own, also one that is not kept, so that a gap shows how many are missing.
 */
#pragma once

#include "base/base.h"

#include <sys/types.h>

enum {
	ACTIVITY_EPOCH_SIZE = 21,
	ACTIVITY_MAX_RECORDS = 512,
	ACTIVITY_MAX_BYTES = 512 << 10, /* of all of them */
	ACTIVITY_PAGE_BYTES = 96 << 10, /* of one answer */
	ACTIVITY_WORD = 256,            /* a program, a user, a tag */
	ACTIVITY_PATH = 1024,
	ACTIVITY_ARGS = 1024, /* all arguments together */
	ACTIVITY_MAX_ARGS = 64,
	ACTIVITY_SOURCE_SIZE = 46,
};

struct activity {
	char epoch[ACTIVITY_EPOCH_SIZE]; /* of this guest: another one counts from 1 again */
	int64_t last;                    /* the newest number; 0: nothing happened yet */
	struct list records;
	size_t n, bytes;
	bool is_over; /* whatever ends later is told to nobody */
};

void activity_init(struct activity *a);
void activity_done(struct activity *a);

/* Who is behind it, as the server says; the texts are borrowed. */
struct activity_asker {
	struct str source; /* the client's address; empty: not known */
	bool is_recorded;  /* the server writes down itself what it asks for */
};

struct activity_process {
	struct activity_asker asker;
	char *const *argv;
	const char *user, *cwd;
	struct str tag; /* p NULL: none */
	bool has_pty;
};
/* What its end is to say. The texts are its own. */
struct activity_begun {
	int64_t seq, clock_us;
	char *program, *user, *tag;
	char *args; /* as JSON; NULL: they are not told */
	bool has_pty, is_recorded, is_cut;
};
void activity_started(struct activity *a, pid_t pid, const struct activity_process *process,
	struct activity_begun *ret);
/* fault: "timeout", "memory" or NULL. Frees what `begun` holds. */
void activity_ended(struct activity *a, pid_t pid, struct activity_begun *begun, int wait_status,
	const char *fault);
void activity_begun_done(struct activity_begun *begun);

struct activity_file {
	struct activity_asker asker;
	const char *kind; /* "file.written" ... */
	const char *user, *path;
	const char *to; /* where it was moved; NULL: it was not */
	int64_t bytes;  /* negative: not known */
	bool is_partly; /* it failed on the way, and some of it may be done */
};
void activity_file(struct activity *a, const struct activity_file *file);

/* Those behind `after`, as many as an answer has room for. When the epoch is ours, those up to
 * `after` are let go: they are written. */
void activity_answer(struct activity *a, struct str epoch, int64_t after, struct buf *out);
