/* struct str borrows bytes and is never assumed terminated; char * is for libc's edge. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct str {
	const char *p;
	size_t n;
};

#define STR(literal) ((struct str){ (literal), sizeof(literal) - 1 })
#define STR_NONE ((struct str){ NULL, 0 })
/* For printf: "%.*s", STR_ARG(s). */
#define STR_ARG(s) (int)(s).n, ((s).p ? (s).p : "")

static inline struct str str_of(const char *z)
{
	return (struct str){ z, z ? strlen(z) : 0 };
}

static inline struct str str_make(const void *p, size_t n)
{
	return (struct str){ (const char *)p, n };
}

static inline bool str_eq(struct str a, struct str b)
{
	return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static inline bool str_is(struct str a, const char *z)
{
	return str_eq(a, str_of(z));
}

static inline struct str str_from(struct str s, size_t at)
{
	return at >= s.n ? (struct str){ s.p + s.n, 0 } : (struct str){ s.p + at, s.n - at };
}

static inline bool str_has_prefix(struct str s, struct str prefix)
{
	return s.n >= prefix.n && memcmp(s.p, prefix.p, prefix.n) == 0;
}

bool str_eq_nocase(struct str a, struct str b); /* ASCII only, as header names are */
struct str str_trim(struct str s);              /* spaces and tabs, both ends */
/* Cuts the first field off *rest at `sep`; false when nothing is left. An empty last field counts.
 */
bool str_split(struct str *rest, char sep, struct str *field);
ptrdiff_t str_find(struct str s, char c); /* -1: not there */
/* Whole decimal number within [min, max], optional '-'; anything else -EINVAL, too big -ERANGE. */
int str_to_int(struct str s, int64_t min, int64_t max, int64_t *ret);
/* Well-formed UTF-8 without NUL. */
bool str_is_utf8(struct str s);
/* A variable's name, as a shell has them. */
bool str_is_variable(struct str s);
