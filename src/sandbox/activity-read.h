/* What a guest says was done in its sandbox, and the events that are made of it. All of it is the
 * sandbox's word: read by table, bounded, and without the secrets that the sandbox was given. */
#pragma once

#include "base/base.h"
#include "json/json.h"
#include "secret/mask.h"

enum {
	ACTIVITY_EPOCH_SIZE = 33,
	ACTIVITY_ANSWER_BYTES = 128 << 10,
	ACTIVITY_MAX_RECORDS = 512,     /* of one answer */
	ACTIVITY_DATA_BYTES = 24 << 10, /* of one event */
	ACTIVITY_SOURCE_SIZE = 46,
};

enum activity_kind {
	ACTIVITY_PROCESS_STARTED,
	ACTIVITY_PROCESS_ENDED,
	ACTIVITY_TERMINAL_OPENED,
	ACTIVITY_TERMINAL_CLOSED,
	ACTIVITY_FILE_WRITTEN,
	ACTIVITY_FILE_MADE,
	ACTIVITY_FILE_MOVED,
	ACTIVITY_FILE_DELETED,
	ACTIVITY_KINDS,
};
const char *activity_name(enum activity_kind kind); /* as in the event log */
bool activity_is_file(enum activity_kind kind);

struct activity_record { /* texts are in the arena, and of a sensible length */
	int64_t seq, at_us;
	enum activity_kind kind;
	struct str source; /* an address, or empty */
	struct str program, user, cwd, tag, cause, path, to;
	struct json_strs args;
	struct json_int pid, begun, us, exit_code, signal, bytes;
	bool is_cut, is_recorded, is_partly;
};

struct activity_page {
	char epoch[ACTIVITY_EPOCH_SIZE];
	int64_t last;              /* the newest number that it has given */
	bool more;                 /* there are others behind these */
	struct activity_record *v; /* by rising number */
	size_t n;
};
/* -EINVAL: that is no guest's answer. Records of kinds that this server does not know are left
 * out. */
int activity_read(struct arena *arena, struct str json, struct activity_page *ret, struct err *e);

/* The event's data, one JSON object. needles NULL: what its secrets are is not known, so it tells
 * nothing that could hold one. */
void activity_write(const struct activity_record *record, struct mask_needles *needles,
	struct buf *out);
