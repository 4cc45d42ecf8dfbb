/* Preparing a slot, in steps of less than a millisecond each, in an order in which every step only
 * needs the ones before it, and slot_end can undo from wherever it stopped. */
#include "warden/slot-child.h"
#include "warden/host.h"
#include "warden/state.h"
#include "warden/warden.h"

#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

enum {
	BACKLOG = 1024,
	BARE_STEPS = 4, /* those that come before the disk */
};

struct slot *slot_new(struct warden *w, const struct expectation *expected)
{
	struct slot *slot = XNEW(struct slot);

	slot->w = w;
	slot->pid_fd = slot->net_fd = slot->user_fd = slot->guest_fd = slot->listen_fd = -EBADF;
	slot->settings_fd = -EBADF;
	for (int i = 0; i < WARDEN_LIMITS; i++)
		slot->crossings[i].fd = -EBADF;
	slot->image = (struct image)IMAGE_INIT;
	slot->disk_size = expected->disk_size;
	random_id(slot->key, SLOT_KEY_SIZE - 1);
	list_init(&slot->waiters);
	list_init(&slot->pending);
	list_append(&w->slots, &slot->node);
	return slot;
}

uid_t slot_first_uid(const struct slot *slot)
{
	return (uid_t)WARDEN_FIRST_UID + (uid_t)slot->number * WARDEN_UID_BLOCK;
}

int tree_open(const struct warden *w, const char *template_name, struct tree *ret, struct err *e)
{
	char path[WARDEN_NAME_SIZE + 16];
	struct stat st;
	int fd;

	(void)snprintf(path, sizeof path, "%s/rootfs", template_name);
	fd = open_beneath(w->templates_fd, path, O_PATH | O_DIRECTORY);
	if (fd == -ENOENT)
		return err_set(e, fd, "there is no template '%s'", template_name);
	if (fd < 0)
		return err_sys(e, fd, "template '%s'", template_name);
	if (fstat(fd, &st) < 0) {
		int r = err_sys(e, -errno, "template '%s'", template_name);

		(void)close(fd);
		return r;
	}
	*ret = (struct tree){ fd, st.st_dev, st.st_ino };
	return 0;
}

static int step_copy_image(struct slot *slot, struct err *e)
{
	if (birth_is_from_image(slot->birth)) /* it has been copied already */
		return 0;
	return disk_copy(&slot->w->disk, slot->key, slot->disk_size, &slot->image, e);
}

static int step_attach_image(struct slot *slot, struct err *e)
{
	return disk_attach(&slot->w->disk, &slot->image, e);
}

static int step_mount_image(struct slot *slot, struct err *e)
{
	int r = disk_mount(&slot->w->disk, &slot->image, e);

	if (r >= 0 && birth_is_from_image(slot->birth))
		r = disk_renew(&slot->image, e);
	return r < 0 ? r : rootfs_idmap(slot->image.mount_fd, slot->user_fd, e);
}

static int step_cgroup(struct slot *slot, struct err *e)
{
	int r = cgroup_make(&slot->w->cgroups, slot->key, e);

	if (r >= 0)
		r = cgroup_limit(&slot->w->cgroups, slot->key, &slot->w->expected.limits,
			&slot->limits, e);
	return r < 0 ? r : crossings_watch(slot, e);
}

/* Somebody of the server's block who is nobody else: the kernel counts watches, queued signals,
 * message queues and the like also for who made the user namespace. With root for all, one sandbox
 * could take them from every other and from the host's own root. */
static uid_t pick_owner(void)
{
	uint16_t any;

	random_bytes(&any, sizeof any);
	return (uid_t)WARDEN_FIRST_UID + (uid_t)MAX(any, 1);
}

/* Leaving euid 0 takes the effective capabilities away, and the child's place in its cgroup needs
 * one; coming back gives them again. A warden that cannot come back does not go on. */
static pid_t clone_for(uid_t owner, struct clone_args *args)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2];
	pid_t pid = -1;
	int error;

	/* The raw calls: this process has one thread, and its child must not ask for others. */
	if (syscall(SYS_capget, &head, caps) < 0 ||
		syscall(SYS_setresuid, (uid_t)-1, owner, (uid_t)-1) < 0)
		return -1;
	if (syscall(SYS_capset, &head, caps) == 0)
		pid = (pid_t)syscall(SYS_clone3, args, sizeof *args);
	if (pid == 0)
		return 0;
	error = errno;
	if (syscall(SYS_setresuid, (uid_t)-1, 0, (uid_t)-1) < 0 ||
		syscall(SYS_capset, &head, caps) < 0)
		abort();
	errno = error;
	return pid;
}

static int clone_child(struct slot *slot, const struct slot_child *child, int cgroup_fd,
	struct err *e)
{
	struct clone_args args = {
		.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
			 CLONE_NEWUTS | CLONE_PIDFD,
		.pidfd = (uintptr_t)&slot->pid_fd,
		.exit_signal = SIGCHLD,
	};
	pid_t pid;

	if (cgroup_fd >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)cgroup_fd;
	}
	pid = clone_for(pick_owner(), &args);
	if (pid == 0)
		slot_child_main(child);
	if (pid < 0)
		return err_sys(e, -errno, "clone a process into new namespaces");
	slot->pid = pid;
	return 0;
}

static int open_namespace(const struct slot *slot, const char *name, int *ret, struct err *e)
{
	char path[64];
	int fd;

	(void)snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)slot->pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, -errno, "open %s", path);
	*ret = fd;
	return 0;
}

static int step_clone(struct slot *slot, struct err *e)
{
	struct slot_child child = { .guest_fd = slot->w->guest_fd };
	cleanup_close int cgroup_fd = -EBADF;
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, -errno, "socketpair");
	slot->guest_fd = pair[0];
	child.socket_fd = pair[1];
	(void)fd_set_nonblock(slot->guest_fd, true);
	r = cgroup_open_unified(&slot->w->cgroups, slot->key, &cgroup_fd, e);
	if (r >= 0)
		r = cgroup_open_legacy(&slot->w->cgroups, slot->key, child.procs_fds,
			&child.n_procs, e);
	if (r >= 0)
		r = clone_child(slot, &child, cgroup_fd, e);
	for (int i = 0; i < child.n_procs; i++)
		(void)close(child.procs_fds[i]);
	(void)close(child.socket_fd);
	if (r >= 0)
		r = slot_watch(slot, e);
	if (r >= 0 && process_start_time(slot->pid, &slot->start_time) < 0)
		r = err_set(e, -ESRCH, "the cloned process is gone");
	if (r >= 0)
		r = open_namespace(slot, "net", &slot->net_fd, e);
	return r >= 0 ? open_namespace(slot, "user", &slot->user_fd, e) : r;
}

static int write_map(const struct slot *slot, const char *name, struct err *e)
{
	char path[64], text[64];

	(void)snprintf(path, sizeof path, "/proc/%d/%s", (int)slot->pid, name);
	(void)snprintf(text, sizeof text, "0 %u %d", (unsigned)slot_first_uid(slot),
		WARDEN_UID_BLOCK);
	return file_write(AT_FDCWD, path, str_of(text), e);
}

/* When memory runs out everything else in the sandbox goes first: with PID 1 all would end. The
 * first file also sets the least that a process and its children may choose for themselves; the
 * second, the old one, does not, so that nothing the guest starts can follow it down there. Not
 * -17, which is never: with nothing else left to kill the sandbox must end and not hang. A warden
 * that lacks the capability leaves it at what the guest does: everything else volunteers. */
static void protect(const struct slot *slot)
{
	char path[64];

	(void)snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)slot->pid);
	(void)file_write(AT_FDCWD, path, STR("0"), NULL);
	(void)snprintf(path, sizeof path, "/proc/%d/oom_adj", (int)slot->pid);
	(void)file_write(AT_FDCWD, path, STR("-16"), NULL);
}

/* The network gives the number, the number gives the uids, and with those the child goes on. */
static int step_number(struct slot *slot, struct err *e)
{
	int r = net_attach(&slot->w->network, slot->net_fd, &slot->number, e);

	if (r >= 0)
		r = policy_enter(slot, e);
	if (r >= 0)
		r = write_map(slot, "uid_map", e);
	if (r >= 0)
		r = write_map(slot, "gid_map", e);
	if (r < 0)
		return r;
	protect(slot);
	r = fd_send(slot->guest_fd, "", 1, NULL, 0);
	if (r < 0)
		return err_sys(e, r, "let the guest start");
	slot_expect_answer(slot);
	return 0;
}

/* Bound through /proc, since the path of a data directory may be longer than a socket's may. */
static int bind_socket(int dir_fd, uid_t owner, int *ret, struct err *e)
{
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	(void)snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/guest.sock",
		dir_fd);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0)
		return err_sys(e, -errno, "bind the guest's socket");
	if (fchownat(dir_fd, "guest.sock", owner, (gid_t)-1, AT_SYMLINK_NOFOLLOW) < 0 ||
		fchmodat(dir_fd, "guest.sock", 0600, 0) < 0)
		return err_sys(e, -errno, "give the guest's socket to the server");
	if (listen(fd, BACKLOG) < 0)
		return err_sys(e, -errno, "listen");
	*ret = TAKE_FD(fd);
	return 0;
}

static int open_run_dir(const struct slot *slot, bool make, struct err *e)
{
	char name[SLOT_KEY_SIZE + 1];
	int fd;

	(void)snprintf(name, sizeof name, ".%s", slot->key);
	if (make && mkdirat(slot->w->run_fd, name, 0711) < 0)
		return err_sys(e, -errno, "make the run directory");
	fd = openat(slot->w->run_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? err_sys(e, -errno, "open the run directory") : fd;
}

static int step_run_dir(struct slot *slot, struct err *e)
{
	cleanup_close int dir_fd = open_run_dir(slot, true, e);

	if (dir_fd < 0)
		return dir_fd;
	return bind_socket(dir_fd, (uid_t)slot->w->options->server_uid, &slot->listen_fd, e);
}

/* Everything the next warden must know is there before the sandbox has a name. */
static int step_state(struct slot *slot, struct err *e)
{
	struct state state = { .pid = slot->pid,
		.start_time = slot->start_time,
		.number = slot->number,
		.loop = slot->image.loop,
		.engine = slot->engine };
	cleanup_close int dir_fd = open_run_dir(slot, false, e);

	if (dir_fd < 0)
		return dir_fd;
	memcpy(state.key, slot->key, sizeof state.key);
	return state_write(dir_fd, &state, e);
}

static int send_root(struct slot *slot, const int *own_fds, const struct warden_message *m,
	struct err *e)
{
	struct guest_boot message = { .version = WARDEN_VERSION,
		.step = GUEST_ROOT,
		.engine = slot->engine,
		.shm_bytes = slot->shm_bytes };
	int fds[GUEST_ROOT_FDS + WARDEN_MAX_MOUNTS], r = 0;
	uint32_t n = m ? m->request.n_mounts : 0;
	int own = slot->engine == WARDEN_LOCAL ? GUEST_ROOT_FDS : GUEST_ENGINE_FDS;

	static_assert(ARRAY_SIZE(fds) <= FD_MAX_PASS, "all go with one message");
	static_assert((int)GUEST_ENGINE_FDS <= (int)GUEST_ROOT_FDS, "there is room for either");
	memcpy(fds, own_fds, (size_t)own * sizeof *fds);
	message.n_mounts = n;
	for (uint32_t i = 0; i < n; i++) {
		memcpy(message.paths[i], m->mounts[i].path, sizeof message.paths[i]);
		fds[own + (int)i] = -EBADF;
	}
	if (n)
		r = volumes_open(&slot->w->volumes, m->mounts, n, slot_first_uid(slot), fds + own,
			e);
	if (r >= 0) {
		r = fd_send(slot->guest_fd, &message, guest_boot_size(n), fds, own + (int)n);
		r = r < 0 ? err_sys(e, r, "give the guest its root") : 0;
	}
	for (uint32_t i = 0; i < n; i++)
		close_fdp(&fds[own + (int)i]);
	return r;
}

static int send_local_root(struct slot *slot, int root_fd, const struct warden_message *m,
	struct err *e)
{
	int fds[GUEST_ROOT_FDS] = { root_fd, slot->listen_fd }, *meters = fds + 2;
	int r = meters_open(&slot->w->cgroups, slot->key, meters, e);

	if (r < 0)
		return r;
	r = send_root(slot, fds, m, e);
	meters_close(meters);
	return r;
}

int slot_give_root(struct slot *slot, const struct tree *tree, const struct warden_message *m,
	struct err *e)
{
	struct rootfs_layers layers = { .lower_fd = tree->fd,
		.image_fd = slot->image.mount_fd,
		.user_ns_fd = slot->user_fd,
		.first_uid = slot_first_uid(slot) };
	cleanup_close int root_fd = -EBADF, door = -EBADF;
	int r = rootfs_mount(&slot->w->rootfs, &layers, &root_fd, e);

	slot->shm_bytes = m ? m->request.shm_bytes : slot->w->expected.shm_bytes;
	if (r >= 0 && slot->engine == WARDEN_GVISOR)
		r = door = engine_door(slot, e);
	if (r >= 0 && slot->engine == WARDEN_LOCAL)
		r = send_local_root(slot, root_fd, m, e);
	else if (r >= 0)
		r = send_root(slot,
			(int[]){ root_fd, door >= 0 ? door : slot->listen_fd, slot->w->inner_fd },
			m, e);
	if (r < 0)
		return r;
	slot->root = *tree;
	slot->root.fd = -EBADF;
	disk_let_go(&slot->image);
	close_fdp(&slot->user_fd);
	close_fdp(&slot->listen_fd);
	slot->user_fd = slot->listen_fd = -EBADF;
	return 0;
}

/* The expected template may not exist, or no longer, and volumes go with the root: then the root
 * waits until all is known. */
static int step_root(struct slot *slot, struct err *e)
{
	CLEANUP(tree_done) struct tree tree = TREE_INIT;

	if (slot->w->expected.has_mounts || !slot->w->expected.template_name[0] ||
		tree_open(slot->w, slot->w->expected.template_name, &tree, NULL) < 0)
		return 0;
	return slot_give_root(slot, &tree, NULL, e);
}

bool slot_is_bare(const struct slot *slot)
{
	return slot->next_step <= BARE_STEPS;
}

/* For a request that is here already: its own template follows at once, so none is guessed. */
int slot_finish(struct slot *slot, struct err *e)
{
	int r = 1;

	slot->cold = true;
	slot->stays_bare = false;
	while (r > 0)
		r = slot_step(slot, e);
	return r;
}

int slot_finish_bare(struct slot *slot, struct err *e)
{
	int r = 0;

	assert(slot_is_bare(slot));
	slot->cold = true;
	slot->stays_bare = true;
	while (r >= 0 && slot->next_step < BARE_STEPS)
		r = slot_step(slot, e);
	return r;
}

int slot_step(struct slot *slot, struct err *e)
{
	static const struct {
		const char *name;
		int (*run)(struct slot *slot, struct err *e);
	} steps[] = {
		{ "cgroup", step_cgroup },
		{ "clone", step_clone },
		{ "number", step_number },
		{ "run-dir", step_run_dir },
		{ "copy-image", step_copy_image },
		{ "attach-image", step_attach_image },
		{ "mount-image", step_mount_image },
		{ "state", step_state },
		{ "root", step_root },
	};
	int64_t from_us = time_now_us();
	int at = slot->next_step++, r = 0;

	if (!slot->cold || steps[at].run != step_root)
		r = steps[at].run(slot, e);
	if (r < 0)
		return err_wrap(e, r, "prepare a sandbox: %s", steps[at].name);
	log_debug("slot.step", "slot=%s step=%s us=%" PRId64, slot->key, steps[at].name,
		time_now_us() - from_us);
	if (slot->next_step < (int)ARRAY_SIZE(steps) &&
		(slot->next_step != BARE_STEPS || !slot->stays_bare))
		return 1;
	if (slot->state == SLOT_MAKING)
		slot->state = SLOT_IDLE;
	return 0;
}
