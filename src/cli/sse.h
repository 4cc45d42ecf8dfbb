/* sse - server-sent events, from bytes cut anywhere to whole events. */
#pragma once

#include "base/base.h"

enum {
	SSE_MAX_BYTES = 4 << 20, /* of one event */
};

struct sse_event {       /* lives until fn returns */
	struct str name; /* empty: a plain one */
	struct str id;   /* of this event; empty: it had none */
	struct str data; /* p NULL: it is none, and only says where the stream is */
};
/* Negative: stop, with that result. */
typedef int (*sse_fn)(void *arg, const struct sse_event *event, struct err *e);

struct sse {
	struct buf line, name, id, data;
	bool has_data, skips_lf;
	sse_fn fn;
	void *arg;
};
void sse_init(struct sse *s, sse_fn fn, void *arg);
void sse_done(struct sse *s);
/* Forgets an event that is not whole: its connection has ended. */
void sse_reset(struct sse *s);
/* -EPROTO: longer than an event may be. */
int sse_feed(struct sse *s, struct str bytes, struct err *e);
