/* archive - GNU tar, which is part of every Debian: sparse files stay sparse in it, and owners,
 * modes and extended attributes stay what they are. */
#pragma once

#include "base/base.h"
#include "server/said.h"

DEFINE_CLEANUP(struct arena, arena_free)

struct archive_words { /* of one command line */
	struct arena *arena;
	const char *v[64];
	size_t n;
	bool failed; /* there were more than that */
};
/* Copied. */
void archive_add(struct archive_words *words, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* "-C" and a directory by its descriptor, and the name of what is to be taken from there. */
void archive_add_from(struct archive_words *words, int dir_fd, const char *name);

/* All words of one that extracts there, but for the archive. */
void archive_add_unpack(struct archive_words *words, int into_fd);

/* How many bytes were read so far, some times a second. */
typedef void (*archive_fn)(void *arg, uint64_t bytes);

/* Runs one that creates, and one that extracts from what the first one prints, if there is one.
 * Descriptors in `pass` are theirs as well. A file that changed or went while it was read is no
 * failure, and what cannot be done with one file of a plain volume is told in `lost`. Both end with
 * us. -EINTR: a signal waits (interrupt.h). */
struct archive_run {
	const struct archive_words *create, *extract; /* either may be NULL */
	const int *pass;
	size_t n_pass;
	bool has_names; /* one that creates alone prints them: those that cannot be made are lost */
	archive_fn fn;
	void *arg;
	struct said_lost *lost; /* added to */
};
int archive_run(const struct archive_run *run, struct err *e);
