/* warden - the one part that is root: makes and removes sandboxes of this machine.
 * Owns:   the sandboxes' kernel objects: processes, namespaces, mounts, cgroups, links, images.
 * Uses:   base, loop.
 * Never:  reads from a network, parses JSON or HTTP, decides who may have a sandbox or for how
 * long.
 *
 * A slot is a sandbox from its first kernel object to its last, named or not. Slots are prepared
 * ahead, up to a guest that waits sealed in the expected template's root; to create is then to name
 * it. A few stay bare, without a disk: what starts from a saved image gets a copy of that instead.
 * What waits for a disk or for the kernel's locks is done by workers (worker.h). What the warden
 * knows is also in DATA/run and the cgroup tree, so that the next warden finds it. */
#pragma once

#include "base/base.h"
#include "loop/loop.h"
#include "warden/cgroup.h"
#include "warden/disk.h"
#include "warden/firewall.h"
#include "warden/freezer.h"
#include "warden/meter.h"
#include "warden/net.h"
#include "warden/proto.h"
#include "warden/rootfs.h"
#include "warden/space.h"
#include "warden/times.h"
#include "warden/volume.h"
#include "warden/worker.h"

#include <sys/stat.h>

struct options {
	const char *data_dir, *templates_dir, *network, *guest_path, *template_name;
	int64_t server_uid, pool, disk_mb;
	int64_t hold_seconds;    /* that a writer stands still before it is ended for room */
	int64_t disk_overcommit; /* that many times the disk may be promised; 0: any */
	bool debug, probe, check, sweep, lend_images;
	const char *hold_volume; /* NULL: none */
	struct private_list opened;
	/* What a host without loop devices or with an older kernel does anyway: directories instead
	 * of disk images, layers by path instead of by descriptor, copies without XFS. */
	bool plain_layers, attach_layers, no_pool;
};
int options_parse(int argc, char *argv[], struct options *ret, struct err *e);
/* Prints what this host can, one line per check; returns the exit status. */
int probe_host(const struct options *options);
/* Prints which protocol this program speaks. Fails, and says why, if it could not take over what
 * lives in the data directory; another warden may run there meanwhile. Returns the exit status. */
int check_sandboxes(const struct options *options);
/* Sends descriptors of the directories that have a `saved` with images, over the control socket;
 * another warden may run there meanwhile. Returns the exit status. */
int lend_images(const struct options *options);
/* Freezes a volume's image, says "held", and lets it go at the end of its input: so that what is
 * copied meanwhile is whole. Returns the exit status: 1 if that took too long. */
int hold_volume(const struct options *options);

enum {
	BOOT_DEADLINE_MS = 10000,
	ENGINE_DEADLINE_MS = 60000, /* a kernel of its own to start, perhaps beside many others */
};

/* What the next request will probably want: what the last ones did. */
enum {
	EXPECTATIONS = 4,
};
struct expectation {
	uint64_t number; /* tells it from all others; 0: it is none */
	int64_t uses;    /* lately: see expect.c */
	char template_name[WARDEN_NAME_SIZE];
	struct disk_size disk_size;
	uint64_t shm_bytes;
	struct limits limits;
	bool goes_with_root; /* something of it does: see sandbox.c */
};

struct warden {
	struct loop *loop;
	const struct options *options;
	int run_fd, templates_fd, guest_fd, lock_fd;
	int inner_fd; /* the guest as a program of any tree, for other engines */
	struct cgroups cgroups;
	struct loop_timer lock_timer; /* the next try to lock their directories: see owner.h */
	struct network network;
	struct disk disk;
	struct rootfs rootfs;
	struct volumes volumes;
	struct workers workers;
	struct map images;    /* saved ones, by name: see still.c */
	struct list discards; /* on their way */
	struct firewall firewall;
	struct loop_io log_io;         /* of refused packets */
	struct loop_timer rules_timer; /* the next look at whether the rules stand */
	struct loop_task rules_next;   /* the next piece of what is being laid */

	int n_strays;         /* children that nobody knows the number of: see reap_strays */
	struct list slots;    /* all of them */
	struct map by_id;     /* those with a name */
	struct list prepared; /* those in the making and idle ones, the oldest first */
	struct list booting;  /* those that a guest of ours starts just now */
	struct expectation kinds[EXPECTATIONS], expected; /* the latter: the last one */
	uint64_t last_kind;
	struct loop_timer fade_timer;
	struct list spares; /* disks that wait for another sandbox: see spare.c */
	int n_spares;
	bool spare_taken; /* since the last look */
	struct loop_timer spare_timer;
	struct loop_timer refill;
	int64_t refill_pause_ms; /* after a failure; doubles until a sandbox has started */
	int64_t refill_from_ms;  /* nothing is begun before */
	int64_t lacks_since_ms;  /* 0: the pool has, or will have, what it should */
	struct work *warm;       /* while it is kept cheap to join cgroups */
	int64_t warm_until_ms;   /* 0: it need not be, or cannot */
	struct loop_timer space_timer;
	struct space space;     /* at the last look */
	bool is_short;          /* of room: see hold.c */
	bool has_volumes_below; /* they take of the same room */
	int64_t short_ms;
	int next_look;            /* the first slot of the next turn's */
	int n_asked;              /* that the server waits for, of volumes */
	struct list kept_volumes; /* of sandboxes that ended: see volume-serve.c */
	int n_kept;
	struct loop_timer kept_timer;
	struct work *forgetting; /* addresses, before they are given again */
	int n_worn;              /* how many more wait for that */

	struct warden_times times[WARDEN_STEPS];

	struct loop_io control;
	struct list replies; /* waiting for room in the control socket */
	struct loop_timer farewell;
	bool leaving;
};

/* Before anything else; `options` is borrowed. */
void warden_init(struct warden *w, const struct options *options);
int warden_open(struct warden *w, struct err *e);
/* Root's own directory, made where there is none. */
int warden_open_own_dir(int at, const char *name, mode_t mode, int *ret, struct err *e);
void warden_close(struct warden *w);
/* Takes over what an earlier warden left: lives with what lives, removes the rest. */
void warden_adopt(struct warden *w);
/* Ends what has no name yet; the loop stops when it is gone. Named sandboxes live on. */
void warden_leave(struct warden *w);

/* control.c: the server's socket. */
int control_open(struct warden *w, struct err *e);
void control_reply(struct warden *w, enum warden_kind kind, uint64_t tag, const char *id,
	const struct err *why, const int *fds, int n_fds);
/* Any other message of one sandbox: its version and id are filled in. */
void control_tell(struct warden *w, const struct warden_reply *message, const char *id);
void control_close(struct warden *w);

/* A template's tree, and what makes it that one and no other. */
struct tree {
	int fd;
	dev_t dev;
	ino_t ino;
};
#define TREE_INIT       \
	{               \
		-EBADF, \
	}
int tree_open(const struct warden *w, const char *template_name, struct tree *ret, struct err *e);
static inline void tree_done(struct tree *tree)
{
	close_fdp(&tree->fd);
}

enum slot_state {
	SLOT_MAKING,  /* a worker makes its place or its disk */
	SLOT_IDLE,    /* prepared, nobody's */
	SLOT_BOOTING, /* named, the guest has not answered yet */
	SLOT_RUNNING,
	SLOT_ENDING, /* killed or dead; its objects are being removed */
};

struct waiter {
	struct list node;
	uint64_t tag;
};

/* A request that waits for another to be done with. */
struct pending {
	struct list node;
	struct warden_request request;
};

/* An image that is being removed. */
struct discard {
	struct list node;
	struct warden *w;
	struct warden_request request;
	bool is_unasked; /* what was left of a save that failed */
};

/* What a sandbox whose disk or root is not there yet needs when it is. */
struct later {
	struct warden_message message;
	int settings_fd;
	struct tree tree;
	struct ranges ranges;
};

/* One limit of a sandbox, watched: see crossing.c. */
struct crossing {
	struct slot *slot;
	enum warden_limit limit;
	int fd;
	uint32_t events;
	struct loop_io io;
	struct loop_timer timer;
	int64_t told; /* the counter, when the server was last told */
	int looks;
};

struct slot;
/* Its disk or root is there, or why not. */
typedef void (*slot_fn)(struct slot *slot, const struct err *e);

struct slot {
	struct warden *w;
	struct list node;
	struct list pool_node; /* in `prepared` or in `booting` */
	enum slot_state state;
	bool is_placing;     /* a worker makes its place */
	int n_places;        /* that another server has taken before it could */
	uint32_t n_reserved; /* for that */
	int reserved[WORK_NUMBERS];
	bool has_disk;           /* or has asked for it */
	uint64_t kind;           /* that it is prepared for; 0: for none */
	char key[SLOT_KEY_SIZE]; /* names its cgroups, image and unnamed run directory */
	char id[WARDEN_ID_SIZE];
	int number; /* uid range, addresses, interface; 0: none yet */
	enum warden_engine engine;

	pid_t pid;
	uint64_t start_time; /* tells the process from a later one of the same pid */
	int pid_fd, net_fd, user_fd, guest_fd, listen_fd;
	int groups[GUEST_GROUPS], n_groups; /* for the guest, until it has its root */
	struct loop_io exit_io, guest_io;
	struct loop_timer timer; /* until the guest answers: the deadline; ending: the next try */
	int64_t pause_ms, deadline_ms;

	struct image image;
	struct disk_size disk_size;
	struct disk_use blank; /* what was taken of it before anybody had it; 0: not known */
	int n_uses;            /* by others before */
	bool is_of_blank;
	struct work *shutting; /* it has been killed */
	bool is_spared;        /* another may have its disk */
	bool was_saved;        /* a copy of its disk was asked for */
	uint64_t shm_bytes;    /* that its root was given */
	bool may_serve_files;  /* file systems of its programs: see fuse.h */
	struct limits limits, asked_limits;
	struct crossing crossings[WARDEN_LIMITS];
	struct tree root;       /* fd is unused; dev 0: none given yet */
	struct tree asked_root; /* that is on its way */
	int answers;            /* of the guest */

	bool create_pending;
	int settings_fd; /* of an engine, until its guest is ready for them, as the next */
	char wanted_id[WARDEN_ID_SIZE];
	uint64_t create_tag;
	int64_t created_us, ended_us; /* when it was asked for, for the debug log */
	bool cold;
	struct err why;             /* of a failure, or of the end */
	struct list waiters;        /* requests to destroy it */
	struct list policy_waiters; /* requests whose policy is being laid */
	slot_fn laid;               /* its first policy holds */

	bool frozen;
	bool has_lost_writes; /* see copy_report */
	struct work *work;    /* its disk, its root, or a copy of its disk is being made */
	slot_fn worked;
	int64_t asked_us;
	struct later *later;
	bool is_held;     /* there is no room for what it writes: see hold.c */
	bool has_stopped; /* since then: no process of it runs any more */
	int64_t held_ms, written_at;
	uint64_t held_written, held_free; /* what it had written, and what was free, when held */
	uint64_t written_bytes, written_before; /* to its disk: at the last look, at the first */
	bool is_dead;    /* ending: nothing of it runs, and whoever waited for that was told */
	bool is_removed; /* ending: its disk is */
	int64_t removed_ms;
	uint32_t n_volumes; /* that it shares with others */
	char volumes[WARDEN_MAX_MOUNTS][WARDEN_VOLUME_SIZE];
	int n_volume_fds; /* their mounts, so that its end is never a volume's last use */
	int volume_fds[WARDEN_MAX_MOUNTS];
	struct warden_request still; /* being served: FREEZE or SAVE; op 0: none */
	struct list pending;         /* to be served after that */
	pid_t lost_pid;              /* a worker that may stop or start it yet; 0: none */
	struct loop_timer lost_timer;
	bool must_settle;     /* after what is being served: see still_settle */
	struct work *cutting; /* what its policy has closed; NULL: nothing is */
	bool must_cut;        /* again, or once the table is there */
};

/* slot.c: preparing. */
void slot_close_groups(struct slot *slot);
struct slot *slot_new(struct warden *w, const struct expectation *expected);
/* Has its place made: it is bare when `done` comes. On failure the slot is good only for slot_end;
 * `done` does not come once it has ended. */
int slot_ask_place(struct slot *slot, bool is_urgent, slot_fn done, struct err *e);
/* Whether it need not be made after all: nobody has begun. */
bool slot_forget_place(struct slot *slot);
bool slot_is_bare(const struct slot *slot);
/* Has its disk made, and with a tree the root on it, which the guest is given; of a slot with
 * `later`, as that says. `done` comes later, unless the slot has ended. */
void slot_ask_disk(struct slot *slot, const struct tree *tree, slot_fn done);
void slot_ask_root(struct slot *slot, const struct tree *tree, slot_fn done);
uid_t slot_first_uid(const struct slot *slot);

/* spare.c: disks that are used again. */
bool spare_may_be(const struct slot *slot);            /* unless there is too much on it */
void spare_keep(struct slot *slot, int take_mount_fd); /* it has been emptied */
bool spare_take(struct slot *slot, struct work_order *order, int *ret_mount_fd);
void spares_drop(struct warden *w);  /* all are removed, in time */
void spares_close(struct warden *w); /* the next warden removes them */

/* expect.c: what is prepared. */
void expect_another(struct warden *w, const struct expectation *x);
/* The kind of which most are missing, and how many of all; NULL: none is. */
const struct expectation *expect_lacking(const struct warden *w, int64_t *ret_all);
bool expect_size(const struct warden *w, struct disk_size size); /* disks of it will be wanted */

/* refill.c: preparing ahead of requests. */
/* Slots are about to be made: joining cgroups is to be cheap for a while. */
void refill_warm(struct warden *w);
void refill_soon(struct warden *w);
/* A prepared one has died or could not be made, and the next may do the same: not at once. */
void refill_back_off(struct warden *w);

/* sandbox.c: from a request to a named sandbox and to its end. */
void sandbox_create(struct warden *w, const struct warden_message *m, const int *fds, int n_fds);
void sandbox_destroy(struct warden *w, const struct warden_request *q);
void sandbox_socket(struct warden *w, const struct warden_request *q);
void sandbox_list(struct warden *w, const struct warden_request *q);
void later_free(struct slot *slot);
/* Addresses of sandboxes that ended: the kernel forgets them, many at a time. */
void forget_soon(struct warden *w);

/* still.c: stopping a sandbox, letting it go on, and keeping its disk as it is at a moment. */
void sandbox_still(struct warden *w, const struct warden_request *q);
/* An adopted one: whether it was stopped on purpose, and not by a warden that died saving it. */
int still_adopt(struct slot *slot, struct err *e);
void still_end(struct slot *slot); /* the sandbox is ending */
/* Workers of an earlier warden are gone: whether sandboxes stand still is as they left it. */
void still_settle(struct warden *w);
void images_load(struct warden *w); /* those that are there, at start */
void images_close(struct warden *w);
bool image_exists(const struct warden *w, const char *name);
void image_discard(struct warden *w, const struct warden_request *q);
void image_list(struct warden *w, const struct warden_request *q);

/* hold.c: room below the sandboxes' disks. */
void hold_open(struct warden *w);
void hold_close(struct warden *w);
int hold_check(const struct warden *w, uint64_t disk_bytes, struct err *e); /* one more sandbox? */
void hold_adopt(struct slot *slot); /* one that an earlier warden held goes on */
/* It was paused, or is no more. */
void hold_note(const struct slot *slot);
/* A request about it was served, which it was not held or released during. */
void hold_catch_up(struct slot *slot);
void hold_tell(struct warden *w, const struct warden_request *q); /* the answer to HOST */

/* volume-serve.c: what the server asks of volumes, and the mounts that sandboxes have of them. */
int volumes_find_images(struct warden *w, struct err *e); /* at start */
void volume_serve(struct warden *w, const struct warden_message *m);
void volumes_close(struct warden *w, const int *take_fds, int n);
void volumes_keep(struct slot *slot); /* it has ended: for a moment */
void volumes_drop(struct warden *w);
void volumes_forget(struct warden *w); /* the warden ends */

/* linger.c: ended ones that another sandbox keeps. */
/* The volumes that it is given, for the next warden as well. */
int linger_note(struct slot *slot, const struct warden_message *m, struct err *e);
void linger_adopt(struct slot *slot);
int linger_check(const struct warden *w, const struct warden_message *m, struct err *e);

/* crossing.c: limits that a sandbox comes up against. */
int crossings_watch(struct slot *slot, struct err *e);
void crossings_end(struct slot *slot);

/* policy.c: what sandboxes may reach. */
int policy_open(struct warden *w, const char *instance, struct err *e);
/* The rules for all that live: those of the warden before, or made anew where they differ. */
int policy_build(struct warden *w, struct err *e);
/* Takes the rules away if nobody needs them any more. */
void policy_close(struct warden *w);
/* Its interface is there; nothing runs in it yet. */
int policy_enter(struct slot *slot, struct err *e);
/* 0: from now on; 1: when slot->laid is called or its policy_waiters are answered. The same for the
 * next warden, should this one die. On failure the old one holds. */
int policy_give(struct slot *slot, const struct ranges *ranges, struct err *e);
void policy_leave(struct slot *slot);
void policy_forget(struct slot *slot); /* the warden ends, and nobody is answered */
void sandbox_policy(struct warden *w, const struct warden_request *q, int fd);
void sandbox_denials(struct warden *w, const struct warden_request *q);
void sandbox_usage(struct warden *w, const struct warden_request *q);

/* Gives it its name, and START: from here on it is a sandbox. */
int slot_start(struct slot *slot, const char *id, int settings_fd, struct err *e);

/* engine.c: sandboxes that another program runs, in the place that a slot is. */
/* -EOPNOTSUPP: this host does not have it. */
int engine_check(const struct warden_request *q, struct err *e);
/* What the engine itself needs, on top of what its sandbox may. */
struct limits engine_limits(enum warden_engine engine, const struct limits *of_sandbox);
/* What comes with ROOT in the listening socket's place: the door, where it cannot be handed in. */
int engine_door(const struct slot *slot, struct err *e);
/* The guest is ready for START: its sockets are taken out of the door, which is removed. */
int engine_take_door(struct slot *slot, struct err *e);

/* end.c: taking apart. */
int slot_watch(struct slot *slot, struct err *e); /* its process and its guest's answers */
/* A guest that does not answer in time is ended. */
void slot_expect_answer(struct slot *slot);
/* Closes what the warden holds of it, which keeps nothing alive that lives by itself. */
void slot_let_go(struct slot *slot);
/* Kills, answers whoever waits when nothing of it runs any more, removes, frees. Returns at once.
 */
void slot_end(struct slot *slot, const struct err *why);
/* A worker that is killed while it makes a place leaves a process that is the warden's child, and
 * ends. To be called from time to time. */
void reap_strays(struct warden *w);
/* An order of a slot that is ending was carried out. */
void slot_worked(struct slot *slot);
/* The same for its place: what was made meanwhile ends as well. */
void slot_placed_late(struct slot *slot);
