/* outlet - bytes to our own stdout or stderr, without ever blocking the loop: a reader that is slow
 * must not keep Ctrl+C from being heard. The descriptors are shared with whoever started us, so
 * they are never made non-blocking themselves. */
#pragma once

#include "base/base.h"
#include "loop/loop.h"

struct outlet {
	struct loop *loop;
	int fd;     /* what is written to */
	int own_fd; /* a non-blocking description of our own, or -EBADF */
	bool is_socket;
	bool is_immediate; /* a regular file and the like: always ready */
	struct loop_io io;
	struct buf queue;
	int error;       /* sticky: the first -errno of writing */
	loop_fn drained; /* the queue is empty again, or an error was met */
	void *arg;
};

void outlet_init(struct outlet *o, struct loop *loop, int fd, loop_fn drained, void *arg);
void outlet_done(struct outlet *o); /* drops what is still queued */
/* Keeps what cannot be written now; look at outlet_is_full afterwards. 0 or the sticky error. */
int outlet_write(struct outlet *o, struct str bytes);
bool outlet_is_full(const struct outlet *o); /* something waits: bring no more until drained */
