/* The local runtime's two halves: the wire to the warden (wire.c) and what is asked over it. */
#pragma once

#include "runtime/runtime-internal.h"
#include "warden/proto.h"

/* One question to the warden and who waits for its answer. */
struct call {
	struct list node; /* in local.unsent or local.waiting */
	struct warden_request request;
	int fd; /* passed along; -EBADF: none */
	done_fn done;
	runtime_dial_fn dial;
	runtime_each_fn each;
	void *arg;
	int port;
};

struct local {
	struct runtime base;
	int warden_fd, run_fd;
	struct loop_io io;
	struct list unsent, waiting;
	uint64_t last_tag;
	bool is_ready, has_refused, is_dead;
	struct err state; /* why it is not ready */
	struct loop_task dead_task;
};

/* Sends now or when the socket takes it; the call is freed after its answer. */
void local_ask(struct local *local, struct call *call);
/* Ends a call: exactly one of its callbacks is called, then it is freed. */
void call_end(struct call *call, int r, int fd, const struct err *e);
int local_wire_start(struct local *local, struct err *e);
void local_wire_stop(struct local *local);
/* Takes sockets of the sandbox's network (IPv4, IPv6) and returns one of them, connected to a port
 * on its loopback or about to be; the others are closed. */
int local_connect(const int *take_fds, int n, int port, struct err *e);
