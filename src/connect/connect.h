/* connect - Connect-RPC: envelopes, codes, errors, and protobuf as another spelling of JSON.
 * Owns:   the 5-byte envelope, the end-of-stream frame, the code table, protobuf's wire format.
 * Uses:   base, json.
 * Never:  touches a socket: it turns bytes into messages and back (e2b-wire.md §3.4). */
#pragma once

#include "base/base.h"

enum connect_code {
	CONNECT_CANCELED,
	CONNECT_UNKNOWN,
	CONNECT_INVALID_ARGUMENT,
	CONNECT_DEADLINE_EXCEEDED,
	CONNECT_NOT_FOUND,
	CONNECT_ALREADY_EXISTS,
	CONNECT_PERMISSION_DENIED,
	CONNECT_RESOURCE_EXHAUSTED,
	CONNECT_FAILED_PRECONDITION,
	CONNECT_ABORTED,
	CONNECT_OUT_OF_RANGE,
	CONNECT_UNIMPLEMENTED,
	CONNECT_INTERNAL,
	CONNECT_UNAVAILABLE,
	CONNECT_DATA_LOSS,
	CONNECT_UNAUTHENTICATED,
};
const char *connect_code_name(enum connect_code code);
int connect_code_http(enum connect_code code);
/* The code for one of our -errno values: -ENOENT not_found, -EEXIST already_exists, -EINVAL ... */
enum connect_code connect_code_of(int err_code);
/* By its name; -ENOENT for a name that is none. */
int connect_code_parse(struct str name, enum connect_code *ret);

enum {
	CONNECT_HEAD = 5,
	CONNECT_FLAG_COMPRESSED = 1,
	CONNECT_FLAG_END = 2,
};

/* Feeds bytes, however split; calls fn for each whole envelope. A frame longer than max_bytes or
 * with the compressed flag is refused (-EMSGSIZE, -EPROTO) before its payload is stored. fn's own
 * negative result stops the feed and is returned; it may have ended the reader then, but not
 * otherwise. */
typedef int (*connect_frame_fn)(void *arg, unsigned flags, struct str payload, struct err *e);
struct connect_reader {
	struct buf held; /* one unfinished frame */
	size_t max_bytes;
};
void connect_reader_init(struct connect_reader *r, size_t max_bytes);
void connect_reader_done(struct connect_reader *r);
int connect_reader_feed(struct connect_reader *r, struct str bytes, connect_frame_fn fn, void *arg,
	struct err *e);
/* At the end of the body: -EPROTO when a frame was cut short. */
int connect_reader_finish(const struct connect_reader *r, struct err *e);

/* Reserves the 5 bytes, returns a mark; connect_frame_end(out, mark, flags) fills them in once the
 * payload was appended. No copy of the payload. */
size_t connect_frame_begin(struct buf *out);
void connect_frame_end(struct buf *out, size_t mark, unsigned flags);
/* The last frame of a stream: {} or {"error":{"code","message"}}. */
void connect_end_ok(struct buf *out);
void connect_end_error(struct buf *out, enum connect_code code, const char *message);
/* Body of a failed unary call. */
void connect_error_body(struct buf *out, enum connect_code code, const char *message);

/* ---- binary protobuf ----
 * Messages are JSON everywhere else; what comes or goes as protobuf is turned at the door, by a
 * table of the message's fields, as protobuf's own JSON mapping has it. */

enum proto_kind {
	PROTO_BOOL,
	PROTO_UINT32,
	PROTO_INT64, /* a string in JSON */
	PROTO_SINT32,
	PROTO_ENUM, /* its name in JSON; its number when it has none */
	PROTO_STRING,
	PROTO_BYTES, /* base64 in JSON */
	PROTO_MESSAGE,
	PROTO_TIMESTAMP,  /* google.protobuf.Timestamp; RFC 3339 in JSON */
	PROTO_STRING_MAP, /* map<string, string>; a key that comes twice does so in JSON as well */
};

enum {
	PROTO_MAX_FIELDS = 16, /* of a message */
	PROTO_MAX_DEPTH = 16,  /* of messages in each other: no more than JSON's own limit */
};

struct proto_name {
	const char *name;
	int32_t number;
};
struct proto_enum {
	const struct proto_name *names;
	size_t n_names;
};

struct proto_message;
struct proto_field {
	uint32_t number;
	const char *name; /* in JSON */
	enum proto_kind kind;
	bool is_repeated; /* not of a map */
	unsigned oneof;   /* not 0: of the fields with the same, the last one counts */
	const struct proto_enum *values;     /* PROTO_ENUM */
	const struct proto_message *message; /* PROTO_MESSAGE */
};
struct proto_message {
	const struct proto_field *fields;
	size_t n_fields;
};
#define PROTO_MESSAGE_OF(table)                                   \
	{                                                         \
		.fields = (table), .n_fields = ARRAY_SIZE(table), \
	}
#define PROTO_ENUM_OF(table)                                    \
	{                                                       \
		.names = (table), .n_names = ARRAY_SIZE(table), \
	}

/* Appends the message as JSON. Only fields on the wire appear; unknown ones are passed over.
 * -EINVAL: not protobuf, or a value that JSON cannot say. -ENOBUFS: past the ceiling of out. */
int proto_to_json(const struct proto_message *m, struct str bytes, struct buf *out, struct err *e);
/* Appends a JSON object as protobuf. Unknown keys are passed over, null is the same as absent.
 * -EINVAL: not JSON, or of another type than the table says; -ENOBUFS. */
int proto_from_json(const struct proto_message *m, struct str json, struct buf *out, struct err *e);

/* By hand, for what is too much to go through JSON. A message in a message: begin, its fields, end
 * with the mark that begin gave. */
size_t proto_begin(struct buf *out, uint32_t number);
void proto_end(struct buf *out, size_t mark);
void proto_add_bytes(struct buf *out, uint32_t number, struct str bytes);
void proto_add_number(struct buf *out, uint32_t number, uint64_t value);
