/* Sandboxes that another program of the host runs: gVisor's runsc, runc, crun. To the warden they
 * are slots like all others, with the same cgroups, user ids, network, disk and end: the guest that
 * waits in the slot starts that program instead of being the sandbox itself, and has no more rights
 * than the slot has. What is left to do here is the way in. */
#include "warden/run.h"
#include "warden/warden.h"

#include <sys/mount.h>

#define DOOR_NAME "door"

static const struct engine {
	const char *program;
	const char *hint;
	/* Of the engine's own processes, which live in the sandbox's cgroup. */
	uint64_t memory_bytes;
	uint32_t pids;
} engines[] = {
	[WARDEN_LOCAL] = { NULL, NULL, 0, 0 },
	[WARDEN_GVISOR] = { "runsc", "apt-get install runsc", 128 << 20, 1024 },
	[WARDEN_RUNC] = { "runc", "apt-get install runc", 32 << 20, 64 },
	[WARDEN_CRUN] = { "crun", "apt-get install crun", 16 << 20, 32 },
};
static_assert(ARRAY_SIZE(engines) == WARDEN_ENGINES, "one line each");

int engine_check(const struct warden_request *q, struct err *e)
{
	const struct engine *kind = &engines[q->engine];

	if (q->is_nested && q->engine != WARDEN_LOCAL && q->engine != WARDEN_GVISOR)
		return err_set(e, -EOPNOTSUPP,
			"with %s nothing can be nested: the runtimes 'local' and 'gvisor' can",
			kind->program);
	if (!kind->program || run_finds(kind->program))
		return 0;
	return err_set(e, -EOPNOTSUPP, "this host has no %s (%s): the runtime 'local' needs none",
		kind->program, kind->hint);
}

struct limits engine_limits(enum warden_engine engine, const struct limits *of_sandbox)
{
	struct limits limits = *of_sandbox;

	limits.memory_bytes += engines[engine].memory_bytes;
	limits.max_pids += engines[engine].pids;
	return limits;
}

static int open_run_dir(const struct slot *slot, struct err *e)
{
	char name[SLOT_KEY_SIZE + 1];
	int fd;

	(void)snprintf(name, sizeof name, ".%s", slot->key);
	fd = openat(slot->w->run_fd, slot->id[0] ? slot->id : name,
		O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? err_sys(e, -errno, "open the run directory") : fd;
}

int engine_door(const struct slot *slot, struct err *e)
{
	cleanup_close int dir = open_run_dir(slot, e);
	uid_t uid = slot_first_uid(slot);
	int fd;

	if (dir < 0)
		return dir;
	if (mkdirat(dir, DOOR_NAME, 0700) < 0 ||
		fchownat(dir, DOOR_NAME, uid, uid, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(e, -errno, "make the door");
	fd = open_tree(dir, DOOR_NAME, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	return fd < 0 ? err_sys(e, -errno, "clone the door") : fd;
}

/* Whatever lies there, only a socket is taken, and as itself: a link would lead the server astray.
 * It is looked at where nobody inside can exchange it any more. */
static int take_socket(const struct slot *slot, int door, int dir, const char *name, struct err *e)
{
	uid_t server = (uid_t)slot->w->options->server_uid;
	struct stat st;

	if (renameat(door, name, dir, name) < 0 ||
		fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISSOCK(st.st_mode))
		return err_set(e, -EPROTO, "the guest has made no socket %s", name);
	if (fchmodat(dir, name, 0600, 0) < 0 ||
		fchownat(dir, name, server, (gid_t)-1, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(e, -errno, "take the guest's socket %s", name);
	return 0;
}

/* Nothing of the sandbox's own has run yet, and when it does the door leads nowhere: in a removed
 * directory nothing can be made. */
int engine_take_door(struct slot *slot, struct err *e)
{
	cleanup_close int dir = open_run_dir(slot, e), door = -EBADF;
	int r;

	if (dir < 0)
		return dir;
	door = openat(dir, DOOR_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (door < 0)
		return err_sys(e, -errno, "open the door");
	r = take_socket(slot, door, dir, GUEST_SOCKET, e);
	if (r >= 0)
		r = take_socket(slot, door, dir, GUEST_DIAL, e);
	if (r >= 0 && unlinkat(dir, DOOR_NAME, AT_REMOVEDIR) < 0)
		r = err_sys(e, -errno, "remove the door");
	return r;
}
