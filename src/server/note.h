/* note - what `atoll upgrade` knows of the keeper: a small file of root's, DATA/keeper, written by
 * the keeper whenever what is in it changes. */
#pragma once

#include "base/base.h"

#include <sys/types.h>

enum note_state {
	NOTE_SERVING,
	NOTE_CHECKING, /* whether the programs on disk would start */
	NOTE_STOPPING, /* the server; who comes waits */
	NOTE_STARTING, /* the next one */
	NOTE_STATES,
};

enum {
	NOTE_VERSION_SIZE = 32,
	NOTE_BUILD_SIZE = 41,
	NOTE_WHY_SIZE = 252 /* as struct err has it */,
};

/* One build of the programs: the release, and what the linker made of its bytes. */
struct note_program {
	char version[NOTE_VERSION_SIZE], build[NOTE_BUILD_SIZE];
};

struct note {
	pid_t pid; /* the keeper's, and when that process began */
	uint64_t start_time;
	enum note_state state;
	int64_t asked;              /* how often an upgrade was asked for */
	bool is_refused;            /* the last one, */
	char why[NOTE_WHY_SIZE];    /* and why; empty: it was not */
	struct note_program now;    /* what the keeper is */
	struct note_program before; /* what the one was that made the last upgrade; empty: none */
	int64_t stopped_ms;         /* the monotonic clock when that stopped serving */
	int64_t away_ms;            /* for how long nobody served then */
	int64_t had, has;           /* sandboxes before and after; -1: not known */
};

/* This very program. */
void note_program_own(struct note_program *ret);

int note_write(const char *data_dir, const struct note *note, struct err *e);
/* -ENOENT: no keeper ever was there. */
int note_read(const char *data_dir, struct note *ret, struct err *e);

/* Its text, and back. The text has at most NOTE_TEXT_SIZE bytes with its NUL. */
enum {
	NOTE_TEXT_SIZE = 1024
};
size_t note_format(const struct note *note, char text[NOTE_TEXT_SIZE]);
int note_parse(struct str text, struct note *ret);
