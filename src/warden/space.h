/* space - how much room there is below the sandboxes' disks. The disks are sparse, so all of them
 * together may be promised more than there is; when that runs out a write of any sandbox is lost,
 * its file system fails, and so may the pool they all lie in. Nothing here waits for a disk. */
#pragma once

#include "warden/disk.h"

enum {
	SPACE_MIB = 1 << 20,
	/* What is never given to sandboxes: for the database, the pool's own tables, and those who
	 * come to tidy up. */
	SPACE_RESERVE_MIB = 128,
	/* What may still be written between two looks and until the writers stand still. */
	SPACE_MARGIN_MIB = 128,
	SPACE_BALLAST_MIB = 32,
};

struct space {
	uint64_t free_bytes;  /* the least of the file systems concerned */
	uint64_t total_bytes; /* of the same */
	uint64_t dirty_bytes; /* written by anybody and not on a disk yet: takes room soon */
};

int space_look(const struct disk *disk, struct space *ret);
/* Whether writers must stand still, and whether there is room again: a little more than that. */
bool space_is_short(const struct space *s);
bool space_is_back(const struct space *s);
/* What must be given back; not what waits to be written, which goes by itself. */
uint64_t space_missing(const struct space *s);
/* When to look again: sooner, the less there is. */
int64_t space_next_look_ms(const struct space *s);

/* A file that only takes room: given up when the last of it is gone, so that what must be written
 * to get room again can be. Neither waits longer than it takes to note it down. */
void space_keep_ballast(const struct disk *disk, const struct space *s);
