/* said - what tar prints while it works: names that it reads, and errors. Names in both are
 * whatever a sandbox called its files; tar quotes them, so that a line is a line. */
#pragma once

#include "base/base.h"

enum {
	SAID_HEAD = 256,
	SAID_TAIL = 128,
	SAID_SIZE = 200, /* what is kept of one line */
};

enum said_kind {
	SAID_READING, /* errors of one that reads files */
	SAID_WRITING, /* errors of one that makes files */
	SAID_NAMES,   /* of all files that are read */
};

/* Of files of plain volumes alone: their owners choose names and change files at will, and what
 * cannot be done with one of those must not keep the others from being done. */
struct said_lost {
	uint64_t n;
	char first[SAID_SIZE]; /* as tar says it */
};

struct said {
	enum said_kind kind;
	char line[SAID_HEAD + 2 * SAID_TAIL]; /* without the middle of one that is longer */
	size_t n;
	bool is_cut;
	size_t name_bytes; /* of the line when it is read back */
	int escape;        /* how far in one we are */
	bool has_spoken;
	struct said_lost lost;
	char cause[SAID_SIZE]; /* the first that is no single file's; empty: none */
};

void said_feed(struct said *said, const char *p, size_t n);
/* The same, with what comes from another added. */
void said_add_lost(struct said_lost *to, const struct said_lost *lost);
