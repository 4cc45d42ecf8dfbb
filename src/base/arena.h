/* One arena per request: everything made for it is freed at once, when the exchange ends. Sized by
 * input, so it has a ceiling and can fail. */
#pragma once

#include "base/str.h"

struct arena;

struct arena *arena_new(size_t max_bytes);
struct arena *arena_free(struct arena *a);
void *arena_alloc(struct arena *a, size_t size); /* zeroed, aligned; NULL past the ceiling */
char *arena_dup(struct arena *a, struct str s);  /* terminated copy; NULL past the ceiling */
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
