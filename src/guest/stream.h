/* stream - clients that follow a process: Start and Connect.
 * Every stream gets every event from the moment it attaches, or from an older one that it names, as
 * far as that is kept. One that does not read stops the reading of the process's output, and so the
 * process itself; nothing is dropped or hoarded. A client that goes away only detaches. */
#pragma once

#include "base/base.h"
#include "guest/feed.h"
#include "guest/process.h"

/* Begins the reply with the start event and follows. Takes the exchange. `from_seq` is the first
 * data event wanted, at most backlog_next(); 0: what comes from now on. */
void stream_open(struct process *p, struct http_exchange *take_x, const struct feed_options *o,
	uint64_t from_seq);
/* The start, what is wanted of the output, and the end of a process that is no more. */
void stream_replay(struct process_table *t, const struct process_ended *ended,
	struct http_exchange *take_x, const struct feed_options *o, uint64_t from_seq);

/* For process.c. */
void streams_output(struct process *p, const struct backlog_event *event);
void streams_end(struct process *p, const struct ending *ending);
void streams_cut(struct list *streams); /* we are going: no end can be told */
