/* runtime - isolation behind one interface.
 * Owns:   the ops table, what each engine can do, the sandboxes' processes and descriptors.
 * Uses:   base, loop, http (to reach a guest), the warden's wire (local only).
 * Never:  knows about keys, time-outs, teams or rows: the sandbox room decides, this room acts. */
#pragma once

#include "base/base.h"
#include "loop/loop.h"

struct limit_set;
struct policy;
struct runtime;

enum {
	RUNTIME_GUEST_PORT = 49983
}; /* E2B's envd port: dialled, it is the guest's own API */

/* A volume of the server's, seen in the sandbox at a path. */
struct runtime_mount {
	const char *volume_id, *path;
};
enum {
	RUNTIME_MAX_MOUNTS = 16,
};
/* Why nothing can be mounted at this path; NULL: it can. */
const char *runtime_mount_problem(struct str path);

struct runtime_spec {
	const char *id;
	const char *template_name;
	const char *image;                  /* a saved image to start from; NULL: a fresh disk */
	const struct limit_set *limits;     /* all said */
	struct str settings;                /* the guest's JSON, as POST /init takes it; copied */
	const struct runtime_mount *mounts; /* no path twice; copied */
	size_t n_mounts;
	bool is_nested; /* namespaces of its own may be made inside */
	/* What it may reach, from its first instruction on; NULL: everything public. Copied. */
	const struct policy *policy;
};

typedef void (*runtime_exited_fn)(void *arg, const char *id, const struct err *why);
typedef void (*runtime_lost_fn)(void *arg, const struct err *why);
typedef void (*runtime_dial_fn)(void *arg, int fd, const struct err *e); /* fd < 0: -errno */
typedef void (*runtime_each_fn)(void *arg, const char *id, bool is_frozen);

struct runtime_local_config {
	const char *data_dir;
	int warden_fd; /* socket to the warden; taken */
};
/* Started by root: talks to a warden that the server has executed before it gave up root. */
int runtime_local_new(struct loop *loop, const struct runtime_local_config *config,
	struct runtime **ret, struct err *e);
/* The same sandboxes run by another program of the host, which need not be there until it is asked
 * for: "gvisor" (runsc), "runc", "crun". They share disks, saved images, volumes and network with
 * `local`, which is borrowed and must outlive them. -ENOENT: no such name. */
int runtime_oci_new(struct runtime *local, const char *name, struct runtime **ret, struct err *e);
struct runtime *runtime_free(struct runtime *rt);
DEFINE_CLEANUP(struct runtime, runtime_free)

/* All that a server has, by name; the first is the default, and the last to be freed. */
enum {
	RUNTIME_MAX = 8,
	RUNTIME_NAME_SIZE = 16,
};
struct runtime_set {
	struct runtime *v[RUNTIME_MAX];
	size_t n;
};
/* An empty name is the default's; NULL: no such runtime, and `e` names those there are. */
struct runtime *runtime_find(const struct runtime_set *set, struct str name, struct err *e);
void runtime_set_free(struct runtime_set *set);

const char *runtime_name(const struct runtime *rt);
/* Called when a sandbox ends that nobody asked to end, with the cause. */
void runtime_on_exited(struct runtime *rt, runtime_exited_fn fn, void *arg);
/* Called when a sandbox comes up against a limit that only the kernel sees, with how often it did
 * since the last call. */
enum runtime_limit {
	RUNTIME_LIMIT_MEMORY, /* a process was killed */
	RUNTIME_LIMIT_PIDS,   /* a process could not be made */
};
typedef void (
	*runtime_crossed_fn)(void *arg, const char *id, enum runtime_limit limit, uint64_t times);
void runtime_on_crossed(struct runtime *rt, runtime_crossed_fn fn, void *arg);
/* Called once when it can do nothing any more, with the cause; what it made lives on. */
void runtime_on_lost(struct runtime *rt, runtime_lost_fn fn, void *arg);
/* Ready to create sandboxes? 0, or why not. */
int runtime_ready(const struct runtime *rt, struct err *e);

/* Done when the guest serves. A failure leaves nothing behind. -ENOENT: no such template.
 * -EOPNOTSUPP: the host lacks what this runtime needs. -ESTALE: a volume is gone. -ENOTDIR: a
 * volume's path is taken by something else than a directory. -EHOSTDOWN: its breaker is open. */
void runtime_create(struct runtime *rt, const struct runtime_spec *spec, done_fn done, void *arg);
/* Whose fault a failure of it was. */
enum runtime_fault {
	RUNTIME_FAULT_NONE,    /* r >= 0 */
	RUNTIME_FAULT_REQUEST, /* what was asked for cannot be had */
	RUNTIME_FAULT_LASTING, /* the runtime's, and the same again would fail again */
	RUNTIME_FAULT_PASSING, /* the runtime's, and the same again may do */
};
enum runtime_fault runtime_fault_of(int r);

/* ---- when a runtime fails ---- */

/* What a runtime is asked to create goes through a breaker of its own: when most of it fails by the
 * runtime's fault, it is left alone for a while and runtime_create ends in -EHOSTDOWN at once; then
 * one creation tells whether it works again. */
enum runtime_breaker_state {
	RUNTIME_BREAKER_CLOSED, /* it works */
	RUNTIME_BREAKER_HALF_OPEN,
	RUNTIME_BREAKER_OPEN,
};
struct runtime_breaker {
	enum runtime_breaker_state state;
	int64_t failures; /* in the last half minute */
	int64_t refused;  /* since it opened */
	int64_t retry_s;  /* when it is worth to ask again; 0: now */
	struct err why;   /* what opened it */
};
void runtime_breaker(const struct runtime *rt, struct runtime_breaker *ret);
const char *runtime_breaker_name(enum runtime_breaker_state state); /* "closed" ... */
/* The longest that any of these asks to wait for; 0: none does. */
int64_t runtime_retry_s(const struct runtime_set *set);
/* Called when the state changes. */
typedef void (*runtime_breaker_fn)(void *arg, const struct runtime *rt);
void runtime_on_breaker(struct runtime *rt, runtime_breaker_fn fn, void *arg);

/* Asks until it is done: what fails for a moment is asked for again, three times in all, after a
 * second, three seconds and so on; what is wrong with the request, or will not pass, is not. */
struct runtime_tries {
	/* One attempt; it may be made again on a later turn. */
	void (*ask)(void *arg, done_fn done, void *done_arg);
	/* Each that failed, from 1; in again_ms comes the next, or none if it is negative. NULL:
	 * nobody wants to know. */
	void (*failed)(void *arg, int attempt, int64_t again_ms, const struct err *e);
	done_fn done; /* as the last attempt ended */
	void *arg;
	int64_t deadline_ms; /* loop_now_ms's: none begins later; 0: none such */
	int64_t first_ms;    /* the first pause; 0: a second */
};
void runtime_try(struct runtime *rt, const struct runtime_tries *tries);
/* The server stops: nothing is tried again; who waits for that hears of the last failure. */
void runtime_stop_trying(const struct runtime_set *set);

/* Done when nothing of it runs or can be reached any more; what remains is removed behind that (see
 * runtime_host). -ENOENT: there was nothing. */
void runtime_destroy(struct runtime *rt, const char *id, done_fn done, void *arg);
/* The one data door: a non-blocking descriptor to a port inside, connected or still connecting
 * (writable or failed will tell). */
void runtime_dial(struct runtime *rt, const char *id, int port, runtime_dial_fn fn, void *arg);
/* The server stops: who still waits for a dial hears -ECANCELED now, while there is somebody to
 * hear. */
void runtime_hang_up(const struct runtime_set *set);
/* Every sandbox that lives, then done: what the kernel says, for reconciling. */
void runtime_list(struct runtime *rt, runtime_each_fn each, done_fn done, void *arg);

/* Stops every process where it is, memory kept; resume lets them run on. Both may be repeated. */
void runtime_pause(struct runtime *rt, const char *id, done_fn done, void *arg);
void runtime_resume(struct runtime *rt, const char *id, done_fn done, void *arg);
/* Keeps the disk as it is now under a name ([a-z0-9]+, new). The sandbox stands still for
 * milliseconds and loses no process and no stream; a paused one stays paused. On success r is how
 * many MiB the image takes, shared with others or not. */
void runtime_save(struct runtime *rt, const char *id, const char *image, done_fn done, void *arg);
void runtime_discard(struct runtime *rt, const char *image, done_fn done, void *arg);
/* Every saved image, then done. */
void runtime_list_images(struct runtime *rt, runtime_each_fn each, done_fn done, void *arg);

/* ---- volumes that are file systems of their own ---- */

/* Of the machine whose `local` this is; ids are UUIDs. Made: when it is on the disk. -EOPNOTSUPP:
 * the host cannot. -ENOSPC. -EEXIST. */
void runtime_volume_make(struct runtime *local, const char *id, int64_t bytes, done_fn done,
	void *arg);
/* Its root directory, and a directory beside it on the same file system that no sandbox sees. They
 * are the callee's, and to close the last one may take long: it writes out and unmounts. -ESTALE:
 * it is gone. */
typedef void (*runtime_volume_fn)(void *arg, int r, const int take_fds[2], const struct err *e);
void runtime_volume_open(struct runtime *local, const char *id, runtime_volume_fn fn, void *arg);
/* Who has it mounted can do nothing more with it. -ENOENT. */
void runtime_volume_remove(struct runtime *local, const char *id, done_fn done, void *arg);

/* What the kernel has counted of a running or frozen one since it was booted: processor time, and
 * what it has sent over its network. -ENOENT, -EOPNOTSUPP. */
struct runtime_used {
	int64_t cpu_us, sent_bytes;
};
typedef void (
	*runtime_used_fn)(void *arg, int r, const struct runtime_used *used, const struct err *e);
void runtime_used(struct runtime *rt, const char *id, runtime_used_fn fn, void *arg);

/* What the engine's one loop does, and how long each kept it since it was started: times that took
 * at most so long, the last all others. */
enum {
	RUNTIME_STEPS = 12,
	RUNTIME_BUCKETS = 8,
};
struct runtime_step {
	int64_t at_most[RUNTIME_BUCKETS];
	int64_t total_us, max_us;
};
const char *runtime_step_name(size_t step);
int64_t runtime_bucket_us(size_t bucket); /* but the last */

/* What all sandboxes of an engine share on this machine. */
struct runtime_host {
	int64_t free_bytes, total_bytes; /* of the fullest file system that their disks lie on */
	int64_t promised_bytes;          /* the sizes of their disks together */
	bool is_short;                   /* of room: sandboxes that write are held, none is made */
	int held, ending, prepared;      /* sandboxes that are */
	int lost_workers; /* processes that the kernel keeps in some sandbox's file system */
	struct runtime_step steps[RUNTIME_STEPS];
};
typedef void (
	*runtime_host_fn)(void *arg, int r, const struct runtime_host *host, const struct err *e);
void runtime_host(struct runtime *rt, runtime_host_fn fn, void *arg); /* -EOPNOTSUPP */
/* A sandbox stands still since there is no room for what it writes, or goes on again. */
typedef void (*runtime_held_fn)(void *arg, const char *id, bool is_held);
void runtime_on_held(struct runtime *rt, runtime_held_fn fn, void *arg);

/* ---- the network ---- */

/* What a running or paused sandbox may reach from now on (NULL: everything public). When done is
 * called the kernel follows it, and flows that are no longer allowed are cut; on failure the old
 * policy holds. Copied. */
void runtime_set_policy(struct runtime *rt, const char *id, const struct policy *policy,
	done_fn done, void *arg);

/* Where the kernel sends what sandboxes must not do by themselves. All are non-blocking, the
 * runtime's own, and stay open until runtime_free:
 * - names, by datagrams and by connections (listening): everything to port 53 of any sandbox, with
 *   whatever destination. IP_PKTINFO is on: answer from the address that was asked.
 * - the proxy (listening): every connection of a sandbox whose policy is by name, but those to
 *   port 53. SO_ORIGINAL_DST is where it was meant to go.
 * The peer's address tells the sandbox: runtime_find_address. */
struct runtime_egress {
	int dns_udp_fd, dns_tcp_fd, proxy_fd;
};
/* -EAGAIN: not ready yet. -EOPNOTSUPP: sandboxes have no network. */
int runtime_egress_sockets(const struct runtime *rt, struct runtime_egress *ret, struct err *e);
/* The sandbox that sends from this address (IPv4, host byte order), or that did last: it may have
 * ended. NULL: none ever did. One that is being created is known before anything in it runs, but
 * perhaps only in the next turn of the loop. Borrowed until then. */
const char *runtime_find_address(const struct runtime *rt, uint32_t address);

/* A packet that the kernel refused. Only some are told, the rest are counted. */
struct runtime_denial {
	const char *id;
	int protocol;     /* IPPROTO_TCP ... */
	uint32_t address; /* where it was meant to go; IPv4, host byte order */
	uint16_t port;    /* 0: the protocol has none */
};
typedef void (*runtime_denial_fn)(void *arg, const struct runtime_denial *what);
void runtime_on_denied(struct runtime *rt, runtime_denial_fn fn, void *arg);
/* How many packets the kernel has refused of each sandbox that had any, then done. */
typedef void (*runtime_denied_fn)(void *arg, const char *id, uint64_t packets);
void runtime_denied(struct runtime *rt, runtime_denied_fn each, done_fn done, void *arg);
