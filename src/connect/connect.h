/* connect - Connect-RPC, JSON codec only: envelopes, codes, errors.
 * Owns:   the 5-byte envelope, the end-of-stream frame, the code table.
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
