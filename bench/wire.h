/* wire - the smallest HTTP/1.1 client that can measure: blocking, one connection, no allocation on
 * the way. It knows only our own servers' framing and gives up on anything else. */
#pragma once

#include "base/base.h"

struct wire {
	int fd;
	size_t from, to; /* unread bytes of room */
	char room[256 << 10];
};

int wire_dial(struct wire *w, const char *host, int port, struct err *e);
void wire_done(struct wire *w);
int wire_send(struct wire *w, struct str text, struct err *e);
/* Sends a body of that many bytes; what is in them does not matter. */
int wire_send_bytes(struct wire *w, int64_t count, struct err *e);

struct wire_answer {
	int status;
	int64_t body_bytes;
	char body[4096]; /* its beginning, terminated */
};
/* Reads one answer to its end. -EPROTO: not one we understand. */
int wire_receive(struct wire *w, struct wire_answer *ret, struct err *e);
