/* spans - events of a sandbox's life as OpenTelemetry spans, in OTLP's JSON.
 *
 * The ids follow from the sandbox's id and the event's number, so that the same event gives the
 * same span however often it is sent: a receiver that keeps spans by id keeps it once. */
#pragma once

#include "observe/observe-internal.h"

enum {
	SPANS_OF_EVENT = 5, /* the most */
};

struct trace_event { /* an event and what is known of its sandbox; empty or 0: not known */
	const struct observe_item *item;
	struct str traceparent; /* of the request that made the sandbox */
	struct str template_name, runtime;
	int64_t started_us;
	struct observe_amounts amounts; /* what it has used so far */
	/* Of an execution. */
	struct str command, exec_traceparent;
};
/* Writes the spans that this event completes into an open array, and says how many. */
size_t spans_write(struct jsonw *w, const struct trace_event *event,
	const struct observe_prices *prices);

/* The document around them: begin, spans, end. */
void spans_begin(struct jsonw *w, struct buf *out, const char *node_id);
void spans_end(struct jsonw *w);
