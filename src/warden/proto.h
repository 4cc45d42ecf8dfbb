/* warden/proto - the two wires of the warden: to the server's runtime/local room, and to a guest
 * that waits to be booted. Fixed-size messages over SOCK_SEQPACKET, descriptors passed along. Both
 * ends are built from one tree, but the warden trusts nothing in a request: see wire.c. */
#pragma once

#include "base/base.h"

enum {
	WARDEN_VERSION = 7,
	WARDEN_ID_SIZE = 32,     /* with its NUL; [a-z0-9]+ */
	WARDEN_NAME_SIZE = 64,   /* with its NUL; [a-z0-9][a-z0-9-_]* */
	WARDEN_VOLUME_SIZE = 37, /* with its NUL; a UUID, names DATA/volumes/<it> */
	WARDEN_PATH_SIZE = 256,  /* with its NUL; see warden_path_problem */
	WARDEN_MAX_MOUNTS = 16,
	WARDEN_MAX_RANGES = 1024,
	WARDEN_CONTROL_FD = 3, /* in the warden: the server's socket */
	WARDEN_GUEST_FD = 3,   /* in the guest: the warden's socket until it is booted */
	WARDEN_FIRST_UID =
		0x70000000, /* host uids from here on are ours: block 0 the server's ... */
	WARDEN_UID_BLOCK =
		65536, /* ... block n the sandbox in slot n (systemd keeps this range free) */
};

enum warden_op {
	WARDEN_CREATE =
		1,      /* fd: the guest's settings (memfd, JSON); answers when the guest serves */
	WARDEN_DESTROY, /* answers when nothing of it runs and its name is free, the rest is removed
			 * behind that; -ENOENT when there was nothing */
	WARDEN_SOCKET,  /* answers with unconnected TCP sockets of the sandbox's network: IPv4, and
			 * IPv6 where the kernel has it */
	WARDEN_LIST,    /* answers LISTED for each sandbox that lives, then REPLY */
	WARDEN_FREEZE,  /* answers when no process of it runs any more; again is fine */
	WARDEN_THAW,    /* answers at once; one that is not frozen is fine */
	WARDEN_SAVE,    /* copies its writable layer, consistent, to image_name; thaws it before the
			 * answer unless it was frozen before */
	WARDEN_DISCARD, /* removes image_name; -ENOENT when there was none */
	WARDEN_IMAGES,  /* answers LISTED with each saved image's name in id, then REPLY */
	WARDEN_POLICY, /* what it may reach from now on: reach_flags and n_ranges; fd: the ranges */
	WARDEN_DENIALS, /* answers LISTED for each sandbox that was refused a packet, with their
			 * number in count, then REPLY */
	WARDEN_HOST,    /* answers with what all sandboxes share, in host */
	WARDEN_USAGE,   /* answers with what it has used since it was booted: processor time (µs)
			 * in count, and in bytes what it has sent */
	/* Volumes that are file systems of their own: `mounts` has one, with the volume and no
	 * path.
	 */
	WARDEN_VOLUME_MAKE, /* of disk_bytes; -EOPNOTSUPP: this host has no loop devices */
	WARDEN_VOLUME_OPEN, /* answers with descriptors of its root, and of a directory beside that
			     * which no sandbox sees; -ESTALE: it is gone */
	WARDEN_VOLUME_REMOVE, /* whoever has it mounted can do nothing more with it; -ENOENT */
	WARDEN_OPS,
};

/* What is beside its root is the server's. */
enum warden_volume_fd {
	WARDEN_VOLUME_ROOT,
	WARDEN_VOLUME_BESIDE,
	WARDEN_VOLUME_FDS,
};

/* What runs a sandbox: namespaces of its own, or a program of the host in the same place. */
enum warden_engine {
	WARDEN_LOCAL,
	WARDEN_GVISOR, /* runsc: its own kernel, so its ports are reached through the guest */
	WARDEN_RUNC,
	WARDEN_CRUN,
	WARDEN_ENGINES,
};

/* Flags of a policy. */
enum warden_reach {
	WARDEN_PROXIED = 1, /* its connections go to the proxy */
};

/* An array of them is the sealed memfd that comes with a policy. Allowing goes before denying. */
struct warden_range {
	uint32_t address; /* host byte order; zero below the prefix */
	uint8_t bits, allow;
	uint16_t zero;
};

struct warden_request {
	uint32_t version;
	uint32_t op;
	uint64_t tag; /* comes back in the answer */
	char id[WARDEN_ID_SIZE];
	char template_name[WARDEN_NAME_SIZE];
	char image_name[WARDEN_ID_SIZE]; /* SAVE, DISCARD; CREATE: start from it, at the size it
					  * has; empty: from a blank one of disk_bytes */
	uint64_t memory_bytes;
	uint64_t shm_bytes; /* of /dev/shm, and of shared memory with a name */
	uint64_t disk_bytes;
	uint64_t disk_inodes; /* with image_name: as that has */
	uint32_t cpu_percent; /* 100 is one core */
	uint32_t max_pids;
	uint32_t n_mounts; /* CREATE: that many struct warden_mount follow in the same message */
	uint32_t reach_flags, n_ranges; /* CREATE, POLICY; any ranges: one more fd, the last */
	uint32_t engine;                /* CREATE: enum warden_engine */
	uint32_t is_nested; /* CREATE: namespaces of its own may be made inside; 0 or 1 */
	uint32_t zero;
};

struct warden_mount {
	char volume[WARDEN_VOLUME_SIZE];
	char path[WARDEN_PATH_SIZE]; /* in the sandbox; made where it is missing */
};

/* What is sent: only the mounts that are there. By rising path, so that none comes before the one
 * it lies in, and none twice. */
struct warden_message {
	struct warden_request request;
	struct warden_mount mounts[WARDEN_MAX_MOUNTS];
};

static inline size_t warden_message_size(uint32_t n_mounts)
{
	return sizeof(struct warden_request) + n_mounts * sizeof(struct warden_mount);
}

/* Why nothing can be mounted at this path of a sandbox; NULL: it can. What the kernel and the guest
 * need for themselves stays uncovered. A path has one spelling, and links are not followed, so that
 * comparing texts is enough. */
static inline const char *warden_path_problem(struct str path)
{
	static const struct str own[] = { { "/proc", 5 }, { "/sys", 4 }, { "/dev", 4 },
		{ "/run/e2b", 8 } };
	struct str rest = str_from(path, 1), part;

	if (path.n == 0)
		return "path cannot be empty";
	if (path.p[0] != '/')
		return "path must be absolute";
	if (path.n >= WARDEN_PATH_SIZE || !str_is_utf8(path))
		return "path is longer than 255 bytes or not UTF-8";
	while (rest.p && str_split(&rest, '/', &part))
		if (path.n > 1 && (part.n == 0 || str_is(part, ".") || str_is(part, "..")))
			return "path must not contain any '.' or '..' components";
	for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
		struct str small = path.n < own[i].n ? path : own[i],
			   large = path.n < own[i].n ? own[i] : path;

		if (str_has_prefix(large, small) &&
			(large.n == small.n || small.n == 1 || large.p[small.n] == '/'))
			return "path is needed by the sandbox itself";
	}
	return NULL;
}

enum warden_kind {
	WARDEN_READY = 1, /* once, at start: the warden can create sandboxes (code says if not);
			   * fds: the sockets of enum warden_egress, unless there is no network */
	WARDEN_REPLY,
	WARDEN_LISTED,
	WARDEN_EXITED,  /* unasked: the sandbox ended by itself; code holds the wait status or -1 */
	WARDEN_NAMED,   /* unasked: the sandbox that is being created has this address; comes before
			 * anything in it runs */
	WARDEN_DENIED,  /* unasked: one of the packets that a sandbox was refused */
	WARDEN_HELD,    /* unasked: a sandbox stands still (count 1), or goes on again (0), since
			 * the host's disk is nearly full and it writes */
	WARDEN_CROSSED, /* unasked: a sandbox came up against its limit, count times since it was
			 * last told */
};

/* Where traffic of sandboxes is redirected to. */
enum warden_egress {
	WARDEN_DNS_UDP,
	WARDEN_DNS_TCP,
	WARDEN_PROXY,
	WARDEN_EGRESS_FDS,
};

/* Of a sandbox's limits, those whose crossing only the kernel sees. */
enum warden_limit {
	WARDEN_LIMIT_MEMORY, /* a process was killed */
	WARDEN_LIMIT_PIDS,   /* a process could not be made */
	WARDEN_LIMITS,
};

/* What there is below all sandboxes. */
struct warden_host {
	uint64_t free_bytes, total_bytes; /* of the fullest file system that their disks lie on */
	uint64_t promised_bytes;          /* the sizes of their disks together */
	uint32_t is_short;                /* of room: those that write are held */
	uint32_t held, ending, prepared;  /* how many are */
	uint32_t lost_workers;
	uint32_t zero;
};

/* What the warden's loop does: how long each kept it, since it was started. */
enum warden_step {
	WARDEN_STEP_CREATE,  /* a request to create */
	WARDEN_STEP_DESTROY, /* one to end */
	WARDEN_STEP_CHANGE,  /* to stop, let go, save; a policy */
	WARDEN_STEP_ASK,     /* all other requests */
	WARDEN_STEP_PLACED,  /* a worker has made a place */
	WARDEN_STEP_DISK,    /* or a disk, or a root */
	WARDEN_STEP_WORKED,  /* or done anything else */
	WARDEN_STEP_GUEST,   /* a guest has said something */
	WARDEN_STEP_EXIT,    /* a sandbox's first process has ended */
	WARDEN_STEP_REMOVE,  /* what a worker could not remove is tried again */
	WARDEN_STEP_REFILL,  /* slots are begun */
	WARDEN_STEP_LOOK,    /* looks from time to time: at room, rules, counters */
	WARDEN_STEPS,
};
enum {
	WARDEN_BUCKETS = 8,
};
/* Of at_most; the last one takes the rest. */
static const int64_t warden_bucket_us[WARDEN_BUCKETS - 1] = { 100, 300, 1000, 3000, 10000, 30000,
	100000 };
struct warden_times {
	uint32_t at_most[WARDEN_BUCKETS];
	uint64_t total_us, max_us;
};

struct warden_reply {
	uint32_t version;
	uint32_t kind;
	uint64_t tag;
	uint32_t is_frozen; /* LISTED */
	uint32_t address;   /* LISTED, NAMED: its own; DENIED: the other one; host byte order */
	uint16_t port, protocol; /* DENIED */
	uint32_t engine;         /* LISTED, EXITED: enum warden_engine */
	uint64_t count;          /* LISTED of DENIALS, CROSSED; REPLY to SAVE: MiB that it takes,
				  * to USAGE: µs */
	uint64_t bytes;          /* REPLY to USAGE */
	uint32_t limit;          /* CROSSED: enum warden_limit */
	uint32_t zero;
	struct warden_host host; /* REPLY to HOST, as the next */
	struct warden_times times[WARDEN_STEPS];
	char id[WARDEN_ID_SIZE];
	struct err e; /* code 0: fine */
};

/* Warden to guest, twice. ROOT seals the guest into its root file system: the descriptors are that
 * (a detached mount), the listening socket it will serve on, the files of enum guest_meter, as
 * detached mounts its directories of enum guest_group (n_groups: all of them, or none), a tree with
 * FUSE_NODE in it (has_fuse), and one more detached mount for each of the paths. START makes it a
 * sandbox with a name: the descriptor is its settings. A prepared guest may wait between the two
 * for hours. It answers with a struct err (code 0: done) when it is prepared for a ROOT, after
 * ROOT, and after START, and closes the socket with the last answer. End of file before START
 * means: nobody needs you.
 *
 * With another engine than WARDEN_LOCAL the guest that gets ROOT starts that engine's program,
 * which starts a second guest in the root; the second one inherits the socket and gives the other
 * answers. The program of that second guest comes along, after the listening socket, and then the
 * same directories of cgroups. In gVisor no
 * listening socket can be handed in: in its place comes the door, a directory (a detached mount) in
 * which the guest makes its sockets, GUEST_SOCKET and GUEST_DIAL, before it answers to ROOT. */
#define FUSE_NODE "fuse"          /* the device, in the tree that comes along */
#define GUEST_SOCKET "guest.sock" /* its API */
#define GUEST_DIAL "dial.sock"    /* ports of the sandbox: see guest_dial */
enum guest_step {
	GUEST_ROOT = 1,
	GUEST_START,
};
/* Files of its cgroups, open for reading: how the guest knows what the kernel did in it, on hosts
 * of either kind. With another engine there are none. */
enum guest_meter {
	METER_MEMORY, /* has a line `oom_kill N` */
	METER_CPU,    /* cpu.stat */
	METER_PIDS,   /* how many there are */
	METER_PIDS_EVENTS,
	GUEST_METERS,
};
/* Its own directories in the old cgroup hierarchies, for programs that look for their limits. With
 * the unified one the guest mounts it itself. */
enum guest_group {
	GROUP_MEMORY,
	GROUP_CPU,
	GUEST_GROUPS,
};
enum {
	GUEST_ROOT_FDS = 2 + GUEST_METERS,
	GUEST_ENGINE_FDS = 3, /* of ROOT with an engine, before the mounts' */
	GUEST_START_FDS = 1,
	GUEST_ANSWERS = 3,
};

struct guest_boot {
	uint32_t version;
	uint32_t step;
	char id[WARDEN_ID_SIZE]; /* START only */
	uint32_t engine;         /* ROOT only: enum warden_engine */
	uint32_t n_mounts;       /* ROOT only: that many paths are sent */
	uint64_t shm_bytes;      /* ROOT only */
	uint32_t n_groups;       /* ROOT only, not WARDEN_GVISOR */
	uint32_t cpus;           /* ROOT: so many processors; 0: all, or not known yet */
	uint32_t memory_mb;      /* ROOT: so much is expected; 0: somebody waits already */
	uint32_t is_nested;      /* ROOT: namespaces may be made inside */
	uint32_t has_fuse;       /* ROOT, nested: 0 or 1 */
	char paths[WARDEN_MAX_MOUNTS][WARDEN_PATH_SIZE];
};

static inline size_t guest_boot_size(uint32_t n_mounts)
{
	return offsetof(struct guest_boot, paths) + n_mounts * (size_t)WARDEN_PATH_SIZE;
}

/* On GUEST_DIAL: the one who connects sends this, is answered by one byte (0: connected to that
 * port of the sandbox's loopback, else an errno), and from then on the bytes are the service's. */
struct guest_dial {
	uint16_t port; /* network byte order */
};
