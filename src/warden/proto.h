/* warden/proto - the two wires of the warden: to the server's runtime/local room, and to a guest
 * that waits to be booted. Fixed-size messages over SOCK_SEQPACKET, descriptors passed along. Both
 * ends are built from one tree, but the warden trusts nothing in a request: see wire.c. */
#pragma once

#include "base/base.h"

enum {
	WARDEN_VERSION = 1,
	WARDEN_ID_SIZE = 32,   /* with its NUL; [a-z0-9]+ */
	WARDEN_NAME_SIZE = 64, /* with its NUL; [a-z0-9][a-z0-9-_]* */
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
	WARDEN_DESTROY, /* answers when nothing is left; -ENOENT when there was nothing */
	WARDEN_SOCKET,  /* answers with unconnected TCP sockets of the sandbox's network: IPv4, and
			 * IPv6 where the kernel has it */
	WARDEN_LIST,    /* answers LISTED for each sandbox that lives, then REPLY */
	WARDEN_FREEZE,  /* answers when no process of it runs any more; again is fine */
	WARDEN_THAW,    /* answers at once; one that is not frozen is fine */
	WARDEN_SAVE,    /* copies its writable layer, consistent, to image_name; thaws it before the
			 * answer unless it was frozen before */
	WARDEN_DISCARD, /* removes image_name; -ENOENT when there was none */
	WARDEN_IMAGES,  /* answers LISTED with each saved image's name in id, then REPLY */
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
	uint64_t disk_bytes;
	uint32_t cpu_percent; /* 100 is one core */
	uint32_t max_pids;
};

enum warden_kind {
	WARDEN_READY = 1, /* once, at start: the warden can create sandboxes (code says if not) */
	WARDEN_REPLY,
	WARDEN_LISTED,
	WARDEN_EXITED, /* unasked: the sandbox ended by itself; code holds the wait status or -1 */
};

struct warden_reply {
	uint32_t version;
	uint32_t kind;
	uint64_t tag;
	uint32_t is_frozen; /* LISTED */
	char id[WARDEN_ID_SIZE];
	struct err e; /* code 0: fine */
};

/* Warden to guest, twice. ROOT seals the guest into its root file system: the descriptors are that
 * (a detached mount) and the listening socket it will serve on. START makes it a sandbox with a
 * name: the descriptor is its settings. A prepared guest may wait between the two for hours. It
 * answers with a struct err (code 0: done) when it is prepared for a ROOT, after ROOT, and after
 * START, and closes the socket with the last answer. End of file before START means: nobody needs
 * you. */
enum guest_step {
	GUEST_ROOT = 1,
	GUEST_START,
};
enum {
	GUEST_ROOT_FDS = 2,
	GUEST_START_FDS = 1,
	GUEST_ANSWERS = 3,
};

struct guest_boot {
	uint32_t version;
	uint32_t step;
	char id[WARDEN_ID_SIZE]; /* START only */
};
