/* runtime - isolation behind one interface.
 * Owns:   the ops table, what each engine can do, the sandboxes' processes and descriptors.
 * Uses:   base, loop, http (to reach a guest), the warden's wire (local only).
 * Never:  knows about keys, time-outs, teams or rows: the sandbox room decides, this room acts. */
#pragma once

#include "base/base.h"
#include "loop/loop.h"

struct runtime;

enum {
	RUNTIME_GUEST_PORT = 49983
}; /* E2B's envd port: dialled, it is the guest's own API */

struct runtime_spec {
	const char *id;
	const char *template_name;
	const char *image; /* a saved image to start from; NULL: a fresh disk */
	int64_t cpu_count, memory_mb, disk_mb, max_pids;
	struct str settings; /* the guest's JSON, as POST /init takes it; copied */
};

typedef void (*runtime_exited_fn)(void *arg, const char *id, const struct err *why);
typedef void (*runtime_dial_fn)(void *arg, int fd, const struct err *e); /* fd < 0: -errno */
typedef void (*runtime_each_fn)(void *arg, const char *id, bool is_frozen);

struct runtime_local_config {
	const char *data_dir;
	int warden_fd; /* socket to the warden; taken */
};
/* Started by root: talks to a warden that the server has executed before it gave up root. */
int runtime_local_new(struct loop *loop, const struct runtime_local_config *config,
	struct runtime **ret, struct err *e);
struct runtime *runtime_free(struct runtime *rt);
DEFINE_CLEANUP(struct runtime, runtime_free)

const char *runtime_name(const struct runtime *rt);
/* Called when a sandbox ends that nobody asked to end, with the cause. */
void runtime_on_exited(struct runtime *rt, runtime_exited_fn fn, void *arg);
/* Ready to create sandboxes? 0, or why not. */
int runtime_ready(const struct runtime *rt, struct err *e);

/* Done when the guest serves. A failure leaves nothing behind. -ENOENT: no such template. */
void runtime_create(struct runtime *rt, const struct runtime_spec *spec, done_fn done, void *arg);
/* Done when nothing is left. -ENOENT: there was nothing. */
void runtime_destroy(struct runtime *rt, const char *id, done_fn done, void *arg);
/* The one data door: a non-blocking descriptor to a port inside, connected or still connecting
 * (writable or failed will tell). */
void runtime_dial(struct runtime *rt, const char *id, int port, runtime_dial_fn fn, void *arg);
/* Every sandbox that lives, then done: what the kernel says, for reconciling. */
void runtime_list(struct runtime *rt, runtime_each_fn each, done_fn done, void *arg);

/* Stops every process where it is, memory kept; resume lets them run on. Both may be repeated. */
void runtime_pause(struct runtime *rt, const char *id, done_fn done, void *arg);
void runtime_resume(struct runtime *rt, const char *id, done_fn done, void *arg);
/* Keeps the disk as it is now under a name ([a-z0-9]+, new). The sandbox stands still for
 * milliseconds and loses no process and no stream; a paused one stays paused. */
void runtime_save(struct runtime *rt, const char *id, const char *image, done_fn done, void *arg);
void runtime_discard(struct runtime *rt, const char *image, done_fn done, void *arg);
/* Every saved image, then done. */
void runtime_list_images(struct runtime *rt, runtime_each_fn each, done_fn done, void *arg);
