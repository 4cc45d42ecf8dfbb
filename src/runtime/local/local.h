/* The local runtime's two halves: the wire to the warden (wire.c) and what is asked over it. */
#pragma once

#include "runtime/runtime-internal.h"
#include "warden/proto.h"

/* One question to the warden and who waits for its answer. */
struct call {
	struct list node; /* in local.unsent or local.waiting */
	struct warden_request request;
	struct warden_mount *mounts; /* of a CREATE; NULL: none */
	int fd;                      /* passed along; -EBADF: none */
	int ranges_fd;               /* of a policy, passed along as the last; -EBADF: none */
	done_fn done;
	runtime_dial_fn dial;
	runtime_each_fn each;
	runtime_denied_fn each_denied;
	runtime_used_fn used;
	struct runtime_used amounts; /* for it */
	runtime_volume_fn opened;
	int volume_fds[WARDEN_VOLUME_FDS]; /* for it */
	runtime_host_fn host;
	struct runtime_host shared; /* for it */
	void *arg;
	int port;
	uint32_t engine; /* of a LIST: only those */
};

enum {
	/* More than there are numbers: each address has a place of its own. */
	LOCAL_RESIDENTS = 4096,
};

/* Who has, or had last, an address. */
struct resident {
	uint32_t address;
	char id[WARDEN_ID_SIZE];
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
	struct runtime
		*engines[WARDEN_ENGINES];  /* whose sandboxes the warden runs; NULL: nobody's */
	int egress_fds[WARDEN_EGRESS_FDS]; /* by enum warden_egress; -EBADF: no network */
	struct resident *residents;
};

/* One question, and who waits for its answer: exactly one of the callbacks is set by the caller. */
struct call *call_new(enum warden_op op, const char *id, void *arg);
/* A memory file that nobody can change any more: what the warden takes bytes in. */
int sealed_file(const char *name, struct str bytes, struct err *e);
/* Tells the call's failure on a later turn. */
void fail_later(struct local *local, struct call *call, const struct err *e);
/* Sends now or when the socket takes it; the call is freed after its answer. */
void local_ask(struct local *local, struct call *call);
/* Ends a call: exactly one of its callbacks is called, then it is freed. */
void call_end(struct call *call, int r, int fd, const struct err *e);
int local_wire_start(struct local *local, struct err *e);
void local_wire_stop(struct local *local);
/* Takes sockets of the sandbox's network (IPv4, IPv6) and returns one of them, connected to a port
 * on its loopback or about to be; the others are closed. */
int local_connect(const int *take_fds, int n, int port, struct err *e);

/* For the other runtimes of the same warden. */
struct local *local_from(struct runtime *rt);
void local_create_with(struct local *local, enum warden_engine engine,
	const struct runtime_spec *spec, done_fn done, void *arg);
void local_list_of(struct local *local, enum warden_engine engine, runtime_each_fn each,
	done_fn done, void *arg);
/* A connected socket of that name in the sandbox's run directory, or -errno. */
int local_open_door(const struct local *local, const char *id, const char *socket, struct err *e);

/* volume.c: takes what came with the answer to a call with `opened`. */
int local_take_volume(struct call *call, const int *take_fds, int n, int r, struct err *e);

/* network.c: policies, and who is behind an address. */
int local_add_policy(struct call *call, const struct policy *policy, struct err *e);
void local_set_policy(struct runtime *rt, const char *id, const struct policy *policy, done_fn done,
	void *arg);
int local_egress_sockets(const struct runtime *rt, struct runtime_egress *ret, struct err *e);
const char *local_find_address(const struct runtime *rt, uint32_t address);
void local_denied(struct runtime *rt, runtime_denied_fn each, done_fn done, void *arg);
/* What the warden says of it. */
void local_keep_egress(struct local *local, const int *take_fds, int n);
void local_note_address(struct local *local, const struct warden_reply *reply);
void local_tell_denied(struct local *local, const struct warden_reply *reply);
