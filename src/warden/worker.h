/* worker - processes that do the warden's file-system work.
 *
 * To mount, look up, write out or unmount a file system means to wait for its locks and for the
 * disk below it, and a sandbox's programs can make that minutes. So the warden's own thread does
 * none of it: it asks a worker, and goes on. A worker that is not done by its deadline is killed,
 * or given up where the kernel does not let it die, and another takes its place.
 *
 * There are lanes. What is fresh (a disk that no sandbox has written to) has workers of its
 * own, so that nothing a sandbox does to its disk can keep another from being made. Workers of the
 * used lane are as many as there are slow ones, up to a ceiling. */
#pragma once

#include "base/base.h"
#include "loop/loop.h"
#include "warden/cgroup.h"
#include "warden/disk.h"
#include "warden/proto.h"
#include "warden/rootfs.h"
#include "warden/volume.h"

enum {
	SLOT_KEY_SIZE = 17,
	WORK_MAX_ADDRESSES = 512,
	WORK_NUMBERS = 3,
};

enum work_op {
	WORK_PLACE = 1, /* where a sandbox will be: see place.h */
	WORK_DISK,      /* makes the disk of `key`, mounted; with a tree, the root on it as well */
	WORK_ROOT,      /* only the root, on a disk that is there */
	WORK_STOP,      /* the processes of `key` stand still, or go on as before */
	WORK_GO,        /* they go on */
	WORK_SAVE,      /* copies the disk of a sandbox to `image_name` */
	/* The processes of `key` are killed; nothing is written to the disk any more, and nothing
	 * waits for it, unless there is so little on it that it may be used again. */
	WORK_SHUT,
	WORK_EMPTY,   /* makes the disk as good as new; and what REMOVE removes besides */
	WORK_REMOVE,  /* removes the disk, closes what was handed over, which may unmount it; then
		       * cgroups and run directory of `key`, if nothing keeps them */
	WORK_CLEAR,   /* what REMOVE and EMPTY left of cgroups and run directory */
	WORK_DISCARD, /* removes `image_name` */
	WORK_LOCKS,   /* ends processes that hold record locks without number */
	WORK_TCP,     /* finds who has most of what TCP holds for nobody: see tcp.h */
	WORK_FORGET,  /* has the kernel forget the connections of `addresses` */
	WORK_CUT,     /* the same for one, but TCP, to where its policy does not let it any more */
	WORK_VOLUME_MAKE,   /* makes the image of `volume`, of `size` */
	WORK_VOLUME_OPEN,   /* opens it for the server */
	WORK_VOLUME_REMOVE, /* removes it, whoever has it mounted */
	WORK_CLOSE,         /* closes what was handed over, which may unmount a volume */
	WORK_WARM,          /* keeps it cheap to join cgroups for `warm_ms`: see cgroup_open_own */
};

enum work_lane {
	LANE_FRESH,
	LANE_USED,
	LANE_WARM, /* WARM alone, which takes its time */
	LANES,
};

/* Descriptors that go with an order; -EBADF: none of that kind. */
enum work_fd {
	WORK_USER_NS, /* DISK, ROOT: whose ids the layers are mapped to */
	WORK_TREE,    /* DISK, ROOT: the template's directory */
	WORK_MOUNT,  /* ROOT, REMOVE: the disk, mounted and mapped; DISK: an emptied one, mounted */
	WORK_LAYER,  /* SAVE, SHUT, EMPTY, REMOVE: a directory of the mounted disk */
	WORK_POLICY, /* CUT: the directory that the policy is kept in */
	WORK_MARKER, /* SAVE: locked meanwhile; once unlinked: leave the sandbox alone */
	WORK_FREEZE, /* SAVE: to stop the sandbox; none: it stands still already */
	WORK_FROZEN, /* SAVE: to see that it stands still */
	WORK_FDS,    /* CLOSE: any of them */
};

static inline void work_no_fds(int fds[WORK_FDS])
{
	for (int i = 0; i < WORK_FDS; i++)
		fds[i] = -EBADF;
}

struct work_order {
	enum work_op op;
	char key[SLOT_KEY_SIZE];
	char image_name[WARDEN_ID_SIZE]; /* SAVE, DISCARD; DISK: a copy of it; empty: of a blank */
	struct image_name disk;          /* ROOT, SAVE, SHUT, EMPTY, REMOVE; DISK: an emptied one */
	char volume[WARDEN_VOLUME_SIZE]; /* VOLUME_... */
	struct disk_size size;           /* DISK from a blank; VOLUME_MAKE */
	struct disk_use blank; /* SHUT, EMPTY: what was taken at first; SHUT: 0: never spare it */
	uid_t first_uid;
	struct limits limits;      /* PLACE */
	uint32_t n_numbers;        /* PLACE */
	int numbers[WORK_NUMBERS]; /* that it may have, the first that is free */
	int64_t warm_ms;           /* WARM */
	bool freezer_is_legacy;
	bool may_serve;     /* STOP, SAVE, SHUT: its programs may have file systems: see fuse.h */
	bool stays_ordered; /* STOP: others want it to stand still as well, whatever comes of it */
	uint32_t n_mounts;  /* DISK, ROOT: volumes that come with the root */
	struct warden_mount mounts[WARDEN_MAX_MOUNTS];
	bool cuts_opened;     /* CUT: also what the operator's list does not open any more */
	uint32_t n_addresses; /* FORGET, CUT; DISK: before anything else */
	uint32_t addresses[WORK_MAX_ADDRESSES]; /* host byte order */
};

/* What is sent: the descriptors that are there come along in their order. */
struct work_message {
	struct work_order order;
	uint32_t present; /* a bit for each of enum work_fd */
};

struct work_report {
	struct err e; /* code 0: done */
	/* PLACE: a child of the warden's, also after a failure; 0: none. Others after -ETIMEDOUT:
	 * the worker, which goes on with it until it dies (workers_have). */
	pid_t pid;
	uint64_t start_time;    /* PLACE: tells the process from a later one of the same pid */
	int number;             /* PLACE: that it has, also after a failure; 0: none */
	struct image_name disk; /* DISK */
	bool has_layer;         /* DISK */
	struct disk_use use;    /* DISK: what is taken of it */
	bool is_spared;         /* SHUT: it may be used again */
	bool is_gone;           /* EMPTY, REMOVE, CLEAR: so are its cgroups and its run directory */
	int64_t still_us;       /* SAVE: how long the sandbox stood still */
	uint64_t bytes;         /* SAVE: that the copy takes, shared with others or not */
	bool has_lost_writes;   /* SAVE: below the sandbox's disk there was no room for them */
	uint32_t n_addresses;   /* FORGET: those that nobody has any more, and were forgotten */
	uint32_t addresses[WORK_MAX_ADDRESSES];
	/* TCP: whose, if anybody's; `bytes` of it. */
	char key[SLOT_KEY_SIZE];
};

/* PLACE answers with its descriptors (place.h). What DISK and ROOT answer with: the root (with a
 * tree) or the disk, a directory of the disk (has_layer), and one mount for each volume; EMPTY: the
 * disk, mounted; VOLUME_OPEN: what volume_image_open says. They are the callee's, who never closes
 * a last reference: that goes with WORK_REMOVE. */
typedef void (*work_fn)(void *arg, const struct work_report *report, const int *fds, int n_fds);

struct work;
struct workers {
	struct loop *loop;
	const struct disk *disk;
	const struct rootfs *rootfs;
	const struct volumes *volumes;
	const struct network *network;
	const struct private_list *opened;
	const struct cgroups *cgroups;
	int run_fd, guest_fd; /* DATA/run, and the guest as a program */
	uid_t server_uid;     /* whose the guests' sockets are */
	int lock_fd;          /* held by the workers of the fresh lane as well */
	struct lane {
		struct list waiting[2]; /* urgent, and not */
		int turn;               /* whose it is when there are both */
		struct list workers;
		int n_workers;
	} lanes[LANES];
	struct list lost;       /* killed, and not dead yet */
	struct loop_timer look; /* whether those at work have become slow */
	bool closed;
};

/* All is borrowed. Starts those workers that are always there. */
int workers_open(struct workers *ws, struct loop *loop, int lock_fd, struct err *e);
/* Forgets those at work: they finish what would do harm half done, and end. */
void workers_close(struct workers *ws);

/* `fds` by enum work_fd, taken in any case; NULL: none. `fn` comes from the loop, once; NULL:
 * nobody wants to know. */
struct work *work_ask(struct workers *ws, enum work_lane lane, bool urgent,
	const struct work_order *order, int *take_fds, work_fn fn, void *arg);
/* Nobody waits for it any more: it is not begun, or goes on to its end untold. */
void work_forget(struct work *work);
/* The same, and what was begun is ended, now or as soon as the kernel lets it. */
void work_kill(struct work *work);
/* Nobody needs what it makes: a copy of an image, which may take very long, ends in -EIO soon. */
void work_stop(struct work *work);
/* Those that were given up and have not died: the kernel keeps them in some sandbox's disk. */
int workers_lost(const struct workers *ws);
bool workers_have(const struct workers *ws, pid_t pid);
/* Whether a worker has begun. */
bool work_is_begun(const struct work *work);

/* worker-child.c: what the process does. */
struct worker_place {
	const struct workers *ws;
	enum work_lane lane;
	int number; /* no other worker that lives has it */
	int socket_fd;
};
_Noreturn void worker_child_main(const struct worker_place *place);
