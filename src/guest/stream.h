/* stream - clients that follow a process: Start and Connect.
 * Every stream gets every event from the moment it attaches. One that does not read stops the
 * reading of the process's output, and so the process itself; nothing is dropped or hoarded. A
 * client that goes away only detaches. */
#pragma once

#include "base/base.h"
#include "guest/feed.h"
#include "guest/process.h"

/* Begins the reply with the start event and follows. Takes the exchange. */
void stream_open(struct process *p, struct http_exchange *take_x, const struct feed_options *o);
/* The start and the end of a process that is no more. Takes the exchange. */
void stream_replay(const struct process_ended *ended, struct http_exchange *take_x);

/* For process.c. */
void streams_output(struct process *p, enum output_kind kind, struct str bytes);
void streams_end(struct process *p, const struct ending *ending);
void streams_cut(struct process *p); /* we are going: no end can be told */
