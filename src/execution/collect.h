/* collect - one file of a sandbox becomes an artifact: read from its guest, written beside others,
 * digested on the way, and on the disk itself when it is told. What does not fit is not kept. */
#pragma once

#include "execution/execution-internal.h"

struct collected {
	char id[UUID_SIZE], sha256[2 * SHA256_SIZE + 1];
	int64_t bytes;
};
typedef void (*collect_fn)(void *arg, int r, const struct collected *file, const struct err *e);
/* -ENOENT: no such file. -EFBIG: larger than max_bytes. -EDQUOT: the team has as much as it may. */
struct collect_from {
	const char *team_id, *sandbox_id, *user;
};
void collect_file(struct execution_book *book, const struct collect_from *from, struct str path,
	int64_t max_bytes, collect_fn fn, void *arg);
/* Their names, before rows say that they are there: blocking. */
int collect_sync_names(const struct execution_book *book, struct err *e);
/* One that no row will name after all. */
void collect_undo(struct execution_book *book, const char *team_id, const char *id,
	int64_t counted_bytes);

/* Names of files in a directory that match the pattern, as whole paths; for each, then done. */
typedef void (*collect_list_fn)(void *arg, struct str path);
void collect_list(struct execution_book *book, const struct collect_from *from, struct str pattern,
	collect_list_fn each, done_fn done, void *arg);
bool collect_is_pattern(struct str path);
