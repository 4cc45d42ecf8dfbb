/* Names against patterns of a shell: * ? [a-z] [!a-z] and \ before what stands for itself. The time
 * is in proportion to the name, whatever the pattern: names come from sandboxes, and patterns from
 * their owners. */
#pragma once

#include "base/str.h"

enum {
	GLOB_NAME_MAX = 255, /* bytes of a file's name; what is longer matches nothing */
	GLOB_PARTS_MAX = 255,
	GLOB_WORDS = (GLOB_PARTS_MAX + 64) / 64,
};

struct glob {
	size_t n; /* parts that each take one byte */
	bool takes_hidden;
	uint64_t star[GLOB_WORDS];       /* bit i: any bytes may come behind the first i parts */
	uint64_t takes[256][GLOB_WORDS]; /* bit i: part i takes this byte */
};

/* -E2BIG: more parts than any name has bytes. */
int glob_compile(struct glob *g, struct str pattern);
/* As with shells, a leading dot is matched by a dot alone. */
bool glob_matches(const struct glob *g, struct str name);
