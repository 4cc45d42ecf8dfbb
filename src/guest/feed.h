/* feed - an open Connect server stream: frames out, keepalives in silence, a deadline, and the news
 * that the client reads again or has gone. What flows through it is the owner's. */
#pragma once

#include "base/base.h"
#include "connect/connect.h"
#include "http/http.h"
#include "loop/loop.h"

struct feed;

#define FEED_JSON "application/connect+json"
#define FEED_PROTO "application/connect+proto"

struct feed_options {
	const struct proto_message *proto; /* what frames are sent as; NULL: JSON, as they are */
	int64_t deadline_ms;               /* 0: none. Then it ends with deadline_exceeded. */
	int64_t keepalive_ms;              /* an empty event after so much silence */
};

struct feed_ops {
	const char *keepalive;      /* the empty event, as JSON */
	void (*drained)(void *arg); /* after feed_send said stop: go on */
	void (*closed)(void *arg);  /* client gone or deadline: the feed is no more */
};

/* Begins the reply. Takes the exchange. */
struct feed *feed_open(struct http_exchange *take_x, const struct feed_options *o,
	const struct feed_ops *ops, void *arg);
/* Whole frames, in JSON. True while more is welcome. */
bool feed_send(struct feed *f, struct str frames);
/* The same, in what its options say. */
bool feed_send_as_is(struct feed *f, struct str frames);
/* The last frames, the end-of-stream frame among them. Frees the feed; `closed` is not called. */
void feed_finish(struct feed *f, struct str frames);
void feed_cut(struct feed *f); /* the same in mid-stream: nothing can be told */
