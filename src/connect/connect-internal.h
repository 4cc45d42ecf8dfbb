/* What the files of the protobuf codec share. */
#pragma once

#include "connect/connect.h"

enum proto_wire {
	WIRE_VARINT = 0,
	WIRE_FIXED64 = 1,
	WIRE_LENGTH = 2,
	WIRE_FIXED32 = 5,
};

static inline bool proto_is_number(enum proto_kind kind)
{
	return kind <= PROTO_ENUM;
}

enum {
	TIMESTAMP_SIZE = 40,
	TIMESTAMP_SECONDS = 1, /* the fields of google.protobuf.Timestamp, */
	TIMESTAMP_NANOS = 2,
	MAP_KEY = 1, /* and of a map's entry */
	MAP_VALUE = 2,
};

struct timestamp {
	int64_t seconds; /* since 1970 */
	int32_t nanos;   /* 0 to 999999999 */
};

/* proto-time.c: years 1 to 9999, else -EINVAL. */
int timestamp_write(const struct timestamp *t, char out[TIMESTAMP_SIZE]);
int timestamp_read(struct str text, struct timestamp *ret);

/* proto-scan.c: JSON read in one pass, without a tree: what is turned into protobuf is our own
 * writer's, and may be a listing of many megabytes. */
struct scan {
	struct str rest;
};
/* Passes over white space; true when `c` came next, which is then passed over as well. */
bool scan_eat(struct scan *s, char c);
char scan_peek(struct scan *s); /* the next character behind white space; NUL at the end */
/* What is between the quotes, still escaped. */
int scan_string(struct scan *s, struct str *ret);
/* A number, true, false or null: its text. */
int scan_word(struct scan *s, struct str *ret);
/* A value of any kind, passed over. */
int scan_skip(struct scan *s);
/* The next member's key, or element, of an object or array whose opening was eaten: 1 when there is
 * one, 0 when `close` was eaten. `first` begins as true. */
int scan_next(struct scan *s, char close, bool *first);
/* Appends what an escaped text stands for. */
int scan_unescape(struct str text, struct buf *out);
