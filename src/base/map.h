/* String map with borrowed keys: the key must live in the value, or as long. */
#pragma once

#include "base/str.h"

struct map_slot {
	struct str key;
	uint32_t hash;
	void *value;
};

struct map {
	struct map_slot *slots;
	size_t cap, n;
};

void map_done(struct map *m); /* frees the table, not the values */
void *map_get(const struct map *m, struct str key);
/* Replaces an equal key (and its borrowed bytes); returns the value that was there, or NULL. */
void *map_put(struct map *m, struct str key, void *value);
void *map_remove(struct map *m, struct str key);
/* `size_t at = 0; while ((v = map_next(m, &at)))`: every value, in no order; do not change
 * meanwhile. */
void *map_next(const struct map *m, size_t *at);
