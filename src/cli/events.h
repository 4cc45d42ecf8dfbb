/* events - the stream of a process, from bytes of process.Process/Start to what happened. */
#pragma once

#include "base/base.h"
#include "connect/connect.h"

enum process_event_kind {
	PROCESS_STARTED,
	PROCESS_STDOUT, /* of a terminal too */
	PROCESS_STDERR,
	PROCESS_ENDED,
	PROCESS_ALIVE,  /* only to keep the connection */
	PROCESS_CLOSED, /* the stream's own end, always last */
};

struct process_event {
	enum process_event_kind kind;
	int64_t pid;      /* STARTED */
	struct str bytes; /* STDOUT, STDERR */
	int exit_code;    /* ENDED: as a shell would say it, 128+N for signal N */
	int signo;        /* ENDED: 0 when it exited by itself */
	struct str cause; /* ENDED: where the guest knows more than that; n 0: it does not */
	struct str code;  /* CLOSED: Connect's name for what went wrong; n 0: nothing */
	struct str message;
};

/* Negative: stop, with that result. What the event points to lives until fn returns. */
typedef int (*process_event_fn)(void *arg, const struct process_event *event, struct err *e);

struct event_stream {
	struct connect_reader reader;
	struct buf bytes; /* of the frame in hand */
	process_event_fn fn;
	void *arg;
	bool is_started, is_ended, is_closed;
};

void event_stream_init(struct event_stream *s, process_event_fn fn, void *arg);
void event_stream_done(struct event_stream *s);
/* -EPROTO for what is no such stream: events out of order included. */
int event_stream_feed(struct event_stream *s, struct str bytes, struct err *e);
/* At the end of the body: -EPROTO unless the stream closed itself. */
int event_stream_finish(const struct event_stream *s, struct err *e);

/* The number of a signal by the guest's words for it ("killed", "segmentation fault (core dumped)",
 * "signal 35"); 0: none of them. */
int process_signal_of(struct str words);
