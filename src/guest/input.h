/* input - bytes on their way into a process: its stdin pipe or its terminal.
 * A process that does not read makes its writers wait, in order; nothing is dropped. */
#pragma once

#include "base/base.h"
#include "loop/loop.h"

struct input {
	struct loop *loop;
	int fd;            /* -EBADF: none, or closed */
	struct loop_io io; /* only while something waits */
	struct list queue; /* of items, oldest first */
	size_t queued_bytes;
	bool closing; /* close once the queue is empty */
};

void input_init(struct input *in, struct loop *loop, int take_fd);
/* Fails what waits with -EPIPE (on later turns) and closes. */
void input_done(struct input *in);
bool input_is_open(const struct input *in);

/* 1: written whole, `done` is not called. 0: the rest is copied and waits for the process; done is
 * called later. Otherwise -errno: -EBADF not open, -EPIPE nobody reads, -ENOBUFS too much waits. */
int input_write(struct input *in, struct str bytes, done_fn done, void *arg);
/* End of file for the process, after what still waits. */
void input_close(struct input *in);
