/* json - bytes to structs by tables, structs to bytes by a writer; TOML by the same tables.
 * Owns:   the field tables' meaning, limits on depth and size, the writer's commas and escapes.
 * Uses:   base, jansson (parsing).
 * Never:  lets a json_t out of the room.
 *
 * A shape is a table of fields. Decoding checks types, ranges and presence once, at the edge;
 * strings land in the arena, terminated. Duplicate keys, NUL in strings, bad UTF-8, trailing bytes
 * and nesting deeper than 32 are refused. Messages name the field's path: "process.envs: must be an
 * object". */
#pragma once

#include "base/base.h"

/* What the struct member at `offset` is, by kind. Absent optional fields leave zeroes. */
struct json_int {
	bool is_set;
	int64_t value;
};
struct json_bool {
	bool is_set;
	bool value;
};
struct json_pair {
	struct str key, value;
};
struct json_map { /* object of string values, in the order given */
	struct json_pair *v;
	size_t n;
	bool is_set;
};
struct json_strs { /* array of strings */
	struct str *v;
	size_t n;
	bool is_set;
};
struct json_list { /* array of objects: n elements of shape->size bytes */
	void *v;
	size_t n;
	bool is_set;
};

enum json_kind {
	JSON_STR,  /* struct str; p is NULL when absent */
	JSON_INT,  /* struct json_int; a number or, with JSON_LAX, a decimal string (proto int64) */
	JSON_BOOL, /* struct json_bool */
	JSON_MAP,  /* struct json_map */
	JSON_RAW_MAP, /* struct json_map of values of any type, each as its own JSON text */
	JSON_STRS,    /* struct json_strs */
	JSON_OBJECT,  /* the shape's struct in place, preceded by nothing; see `present` */
	JSON_OBJECTS, /* struct json_list */
	JSON_RAW,     /* struct str: the value's own JSON text, compact, any type */
	JSON_BYTES,   /* struct str: decoded from base64 (either alphabet, padding optional) */
};

enum json_flags {
	JSON_REQUIRED = 1 << 0,
	JSON_LAX = 1 << 1,      /* proto3 JSON: null means absent, int64 also as string */
	JSON_NULLABLE = 1 << 2, /* null means absent, and nothing else is lax */
};

struct json_shape;
struct json_field {
	const char *name;
	const char *alias; /* second accepted spelling (snake_case), or NULL */
	enum json_kind kind;
	unsigned flags;
	size_t offset;
	size_t present;   /* JSON_OBJECT: offset + 1 of a bool that says it was there; 0: none */
	int64_t min, max; /* JSON_INT: range when max > min. JSON_STR, JSON_BYTES: max is the length
			     limit when > 0. JSON_MAP, JSON_RAW_MAP, JSON_STRS, JSON_OBJECTS: max is
			     the count limit when > 0 */
	const struct json_shape *shape; /* JSON_OBJECT, JSON_OBJECTS */
};
struct json_shape {
	const struct json_field *fields;
	size_t n_fields;
	size_t size;         /* of the struct, for JSON_OBJECTS */
	bool ignore_unknown; /* false: an unknown key is an error that names it */
};

#define JSON_FIELD(type, member, json_name, json_kind, ...)                                 \
	{                                                                                   \
		.name = (json_name), .kind = (json_kind), .offset = offsetof(type, member), \
		__VA_ARGS__                                                                 \
	}
#define JSON_SHAPE(type, table, ...)                                                    \
	{                                                                               \
		.fields = (table), .n_fields = ARRAY_SIZE(table), .size = sizeof(type), \
		__VA_ARGS__                                                             \
	}

/* `out` is zeroed first. -EINVAL with what is wrong and where; -ENOBUFS when the arena is full. */
int json_decode(struct arena *a, struct str text, const struct json_shape *shape, void *out,
	struct err *e);
/* The same for an array of objects at the top. */
int json_decode_list(struct arena *a, struct str text, const struct json_shape *shape,
	struct json_list *out, struct err *e);
/* Whether it is within bounds, without building anything: -EINVAL. For who has less time than
 * json_decode may take, which is about a second for the most that it takes. */
int json_check(struct str text, size_t max_values, struct err *e);
/* A TOML subset, decoded by the same tables: comments, `key = value`, [table], basic "strings" with
 * escapes, 'literal strings', integers, booleans, one-line arrays of strings. Errors name the line.
 */
int toml_decode(struct arena *a, struct str text, const struct json_shape *shape, void *out,
	struct err *e);

/* The writer: appends to a buf and never fails by itself (look at buf->failed once, at the end).
 * Bytes that are not UTF-8 become U+FFFD, so that the document is always valid. */
struct jsonw {
	struct buf *out;
	uint64_t comma; /* one bit a level: an element was written */
	unsigned depth;
};
void jsonw_init(struct jsonw *w, struct buf *out);
void jsonw_object(struct jsonw *w, const char *key); /* key NULL inside arrays and at the top */
void jsonw_array(struct jsonw *w, const char *key);
void jsonw_end_object(struct jsonw *w);
void jsonw_end_array(struct jsonw *w);
void jsonw_str(struct jsonw *w, const char *key, struct str value);
void jsonw_strz(struct jsonw *w, const char *key, const char *value); /* NULL: null */
void jsonw_pair(struct jsonw *w, struct str key, struct str value);   /* key from outside */
void jsonw_int(struct jsonw *w, const char *key, int64_t value);
void jsonw_int64_str(struct jsonw *w, const char *key, int64_t value); /* proto int64: "12" */
void jsonw_num(struct jsonw *w, const char *key, double value);        /* finite; 2 decimals */
void jsonw_bool(struct jsonw *w, const char *key, bool value);
void jsonw_null(struct jsonw *w, const char *key);
void jsonw_base64(struct jsonw *w, const char *key, struct str bytes);
void jsonw_raw(struct jsonw *w, const char *key, struct str json); /* trusted JSON text */
void jsonw_map(struct jsonw *w, const char *key, const struct json_map *map);
/* Of a trusted compact object those members that `names` has, by their other names, and no other:
 * a value is copied as it is, in one pass. */
struct json_rename {
	const char *from, *to;
};
void jsonw_members(struct jsonw *w, const char *key, struct str object,
	const struct json_rename *names, size_t n_names);
