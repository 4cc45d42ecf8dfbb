/* Preparing a slot: first its place (place.h), with which it is bare, then its disk and the root on
 * it. Workers make all of that, since each part waits for locks or disks; what is left here is to
 * take what they made, and slot_end can undo from wherever it stopped. */
#include "warden/fuse.h"
#include "warden/host.h"
#include "warden/place.h"
#include "warden/state.h"
#include "warden/warden.h"

#include <sys/pidfd.h>
#include <sys/stat.h>

enum {
	ONE_CPU = 100,  /* percent */
	MAX_PLACES = 8, /* that another server was faster to take, one after the other */
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
	list_init(&slot->policy_waiters);
	list_init(&slot->pending);
	list_append(&w->slots, &slot->node);
	list_append(&w->prepared, &slot->pool_node);
	return slot;
}

uid_t slot_first_uid(const struct slot *slot)
{
	return place_first_uid(slot->number);
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

static int open_run_dir(const struct slot *slot, struct err *e)
{
	char name[SLOT_KEY_SIZE + 1];
	int fd;

	(void)snprintf(name, sizeof name, ".%s", slot->key);
	fd = openat(slot->w->run_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? err_sys(e, -errno, "open the run directory") : fd;
}

/* Everything the next warden must know is there before the sandbox has a name. */
static int write_state(struct slot *slot, struct err *e)
{
	struct state state = { .pid = slot->pid,
		.start_time = slot->start_time,
		.number = slot->number,
		.loop = slot->image.is.loop,
		.engine = slot->engine };
	cleanup_close int dir_fd = open_run_dir(slot, e);

	if (dir_fd < 0)
		return dir_fd;
	memcpy(state.key, slot->key, sizeof state.key);
	return state_write(dir_fd, &state, e);
}

void slot_close_groups(struct slot *slot)
{
	while (slot->n_groups > 0)
		(void)close(slot->groups[--slot->n_groups]);
}

static uint32_t processors(uint32_t percent)
{
	return (percent + ONE_CPU - 1) / ONE_CPU;
}

/* -EBADF: it gets none, or there is none. */
static int give_fuse(struct slot *slot, const struct warden_message *m)
{
	struct err e = { 0 };
	int fd;

	if (!m || !m->request.is_nested || slot->engine != WARDEN_LOCAL)
		return -EBADF;
	slot->may_serve_files = true;
	fd = fuse_make(&e);
	if (fd < 0) /* it can do without */
		log_warn("slot.no_fuse", "slot=%s err=%s", slot->key, log_quote(str_of(e.msg)));
	return fd;
}

static int send_root(struct slot *slot, const int *own_fds, int n_own, const int *mount_fds,
	struct err *e)
{
	const struct warden_message *m = slot->later ? &slot->later->message : NULL;
	struct guest_boot message = { .version = WARDEN_VERSION,
		.step = GUEST_ROOT,
		.engine = slot->engine,
		.n_mounts = m ? m->request.n_mounts : 0,
		.shm_bytes = slot->shm_bytes };
	int fds[GUEST_ROOT_FDS + GUEST_GROUPS + 1 + WARDEN_MAX_MOUNTS], n = n_own, r;
	cleanup_close int fuse = give_fuse(slot, m);

	if (!m) {
		message.cpus = processors(slot->w->expected.limits.cpu_percent);
		message.memory_mb = (uint32_t)(slot->w->expected.limits.memory_bytes >> 20);
	} else if (slot->engine != WARDEN_LOCAL) {
		message.cpus = processors(m->request.cpu_percent);
	}
	static_assert(ARRAY_SIZE(fds) <= FD_MAX_PASS, "all go with one message");
	static_assert((int)GUEST_ENGINE_FDS <= (int)GUEST_ROOT_FDS, "there is room for either");
	memcpy(fds, own_fds, (size_t)n_own * sizeof *fds);
	/* gVisor does not show what its own kernel has not made. */
	for (int i = 0; i < slot->n_groups && slot->engine != WARDEN_GVISOR; i++)
		fds[n++] = slot->groups[i];
	message.n_groups = (uint32_t)(n - n_own);
	message.is_nested = m ? m->request.is_nested : 0;
	message.has_fuse = fuse >= 0;
	if (fuse >= 0)
		fds[n++] = fuse;
	for (uint32_t i = 0; i < message.n_mounts; i++) {
		memcpy(message.paths[i], m->mounts[i].path, sizeof message.paths[i]);
		fds[n++] = mount_fds[i];
	}
	r = fd_send(slot->guest_fd, &message, guest_boot_size(message.n_mounts), fds, n);
	slot_close_groups(slot);
	return r < 0 ? err_sys(e, r, "give the guest its root") : 0;
}

static int send_local_root(struct slot *slot, int root_fd, const int *mount_fds, struct err *e)
{
	int fds[GUEST_ROOT_FDS] = { root_fd, slot->listen_fd }, *meters = fds + 2;
	int r = meters_open(&slot->w->cgroups, slot->key, meters, e);

	if (r < 0)
		return r;
	r = send_root(slot, fds, GUEST_ROOT_FDS, mount_fds, e);
	meters_close(meters);
	return r;
}

/* The mounts are those of its volumes. */
static int give_root(struct slot *slot, int root_fd, const int *mount_fds, struct err *e)
{
	cleanup_close int door = -EBADF;
	int r = 0;

	if (slot->engine == WARDEN_GVISOR)
		r = door = engine_door(slot, e);
	if (r >= 0 && slot->engine == WARDEN_LOCAL)
		r = send_local_root(slot, root_fd, mount_fds, e);
	else if (r >= 0)
		r = send_root(slot,
			(int[]){ root_fd, door >= 0 ? door : slot->listen_fd, slot->w->inner_fd },
			GUEST_ENGINE_FDS, mount_fds, e);
	if (r < 0)
		return r;
	slot->root = slot->asked_root;
	close_fdp(&slot->image.mount_fd);
	close_fdp(&slot->user_fd);
	close_fdp(&slot->listen_fd);
	slot->image.mount_fd = slot->user_fd = slot->listen_fd = -EBADF;
	return 0;
}

/* ---- its place ---- */

/* Nobody has had those that it did not take. */
static void give_back_numbers(struct slot *slot)
{
	for (uint32_t i = 0; i < slot->n_reserved; i++)
		if (slot->reserved[i] != slot->number)
			net_give_back(&slot->w->network, slot->reserved[i]);
	slot->n_reserved = 0;
}

/* All of it, or a process that ends by itself and has to be waited for, or nothing. */
static void take_place(struct slot *slot, const struct work_report *report, const int *fds,
	int n_fds)
{
	slot->is_placing = false;
	/* A worker that did not come to its report may have come to the process. */
	slot->w->n_strays += report->pid == 0 && report->e.code < 0;
	slot->pid = report->pid;
	slot->start_time = report->start_time;
	slot->number = report->number;
	give_back_numbers(slot);
	if (n_fds >= PLACE_GROUPS) {
		slot->pid_fd = fds[PLACE_PID];
		slot->net_fd = fds[PLACE_NET];
		slot->user_fd = fds[PLACE_USER];
		slot->guest_fd = fds[PLACE_GUEST];
		slot->listen_fd = fds[PLACE_LISTEN];
		slot->n_groups = n_fds - PLACE_GROUPS;
		memcpy(slot->groups, fds + PLACE_GROUPS,
			(size_t)slot->n_groups * sizeof *slot->groups);
		return;
	}
	if (slot->pid > 0)
		slot->pid_fd = pidfd_open(slot->pid, 0);
	for (int i = 0; i < n_fds; i++)
		(void)close(fds[i]);
}

/* Its interface is there: from now on it has rules, and only then it runs. */
static int let_run(struct slot *slot, struct err *e)
{
	int r = crossings_watch(slot, e);

	slot->limits = slot->asked_limits;
	if (r >= 0)
		r = policy_enter(slot, e);
	if (r >= 0) {
		r = fd_send(slot->guest_fd, "", 1, NULL, 0);
		r = r < 0 ? err_sys(e, r, "let the guest start") : 0;
	}
	if (r >= 0)
		slot_expect_answer(slot);
	return r;
}

/* Another server has taken its numbers meanwhile: whoever waits for this slot gets another. */
static void place_anew(struct slot *slot)
{
	struct warden *w = slot->w;
	struct slot *other = slot_new(w, &w->expected);
	struct err e = { 0 }, why = { .code = -ECANCELED };

	net_look_elsewhere(&w->network);
	other->n_places = slot->n_places + 1;
	other->state = slot->state;
	other->cold = slot->cold;
	other->engine = slot->engine;
	other->disk_size = slot->disk_size;
	other->create_pending = slot->create_pending;
	other->create_tag = slot->create_tag;
	other->created_us = slot->created_us;
	other->later = TAKE(slot->later);
	if (other->later) {
		list_remove(&other->pool_node);
		(void)map_put(&w->by_id, str_of(other->later->message.request.id), other);
	}
	slot->create_pending = false;
	if (slot_ask_place(other, other->later, slot->worked, &e) < 0)
		slot_end(other, &e);
	slot_end(slot, &why);
}

static void on_placed(void *arg, const struct work_report *report, const int *fds, int n_fds)
{
	struct slot *slot = arg;
	struct err e = report->e, fine = { 0 };
	int r = e.code;
	STEP(slot->w, WARDEN_STEP_PLACED);

	slot->work = NULL;
	take_place(slot, report, fds, n_fds);
	if (slot->pid_fd >= 0 && slot_watch(slot, &e) < 0)
		r = MIN(r, e.code);
	log_debug("slot.place", "slot=%s code=%d us=%" PRId64, slot->key, r,
		time_now_us() - slot->asked_us);
	if (slot->state == SLOT_ENDING) {
		slot_placed_late(slot);
		return;
	}
	if (r == -EEXIST && slot->n_places < MAX_PLACES) {
		place_anew(slot);
		return;
	}
	if (r >= 0)
		r = let_run(slot, &e);
	slot->worked(slot, r < 0 ? &e : &fine);
}

/* The network gives the number, the number gives the user ids. Where other servers take numbers as
 * well, somebody else may be faster. */
static int reserve_numbers(struct slot *slot, struct err *e)
{
	struct network *net = &slot->w->network;
	uint32_t n = net->is_shared ? WORK_NUMBERS : 1;
	int r = net_take(net, &slot->reserved[0], e);

	if (r < 0)
		return r;
	slot->n_reserved = 1;
	while (slot->n_reserved < n && net_take_spare(net, &slot->reserved[slot->n_reserved]) >= 0)
		slot->n_reserved++;
	return 0;
}

int slot_ask_place(struct slot *slot, bool is_urgent, slot_fn done, struct err *e)
{
	struct warden *w = slot->w;
	struct work_order order = { .op = WORK_PLACE, .limits = w->expected.limits };
	int r = reserve_numbers(slot, e);

	if (r < 0)
		return r;
	memcpy(order.key, slot->key, sizeof order.key);
	memcpy(order.numbers, slot->reserved, sizeof order.numbers);
	order.n_numbers = slot->n_reserved;
	slot->asked_limits = order.limits;
	refill_warm(w);
	slot->worked = done;
	slot->is_placing = true;
	slot->asked_us = time_now_us();
	slot->work = work_ask(&w->workers, LANE_FRESH, is_urgent, &order, NULL, on_placed, slot);
	return 0;
}

bool slot_forget_place(struct slot *slot)
{
	if (!slot->is_placing || work_is_begun(slot->work))
		return false;
	work_forget(TAKE(slot->work));
	slot->is_placing = false;
	give_back_numbers(slot);
	return true;
}

/* ---- its disk ---- */

/* Its volumes' mounts are kept, and closed by a worker. */
static void take_volumes(struct slot *slot, const int *fds, int n)
{
	assert(slot->n_volume_fds == 0 && n <= WARDEN_MAX_MOUNTS);
	memcpy(slot->volume_fds, fds, (size_t)n * sizeof *fds);
	slot->n_volume_fds = n;
}

/* Closing one here is never the last use of the sandbox's disk: layer_fd is another. */
static void close_all(const int *fds, int n)
{
	for (int i = 0; i < n; i++)
		(void)close(fds[i]);
}

static int take_disk(struct slot *slot, const struct work_report *report, const int *fds, int n_fds,
	struct err *e)
{
	int r, used = report->has_layer ? 2 : 1;

	slot->image.is = report->disk;
	if (slot->is_of_blank && !slot->blank.inodes)
		slot->blank = report->use;
	if (report->has_layer)
		slot->image.layer_fd = fds[1];
	take_volumes(slot, fds + used, n_fds - used);
	if (slot->state == SLOT_ENDING) {
		close_all(fds, 1);
		return 0;
	}
	disk_learn(&slot->w->disk, slot->disk_size);
	r = write_state(slot, e);
	if (slot->asked_root.dev == 0) {
		slot->image.mount_fd = fds[0];
		return r;
	}
	if (r >= 0)
		r = give_root(slot, fds[0], fds + used, e);
	close_all(fds, 1);
	return r;
}

/* A step that failed first and then did not may have left a word in `e`. */
static void go_on(struct slot *slot, int r, const struct err *e)
{
	struct err fine = { 0 };

	if (slot->state == SLOT_ENDING)
		slot_worked(slot);
	else
		slot->worked(slot, r < 0 ? e : &fine);
}

/* What its image would be called is removed at its end, and what it was called now. */
static void forget_disk(struct slot *slot)
{
	struct work_order order = { .op = WORK_REMOVE, .disk = slot->image.is };

	if (slot->n_uses)
		(void)work_ask(&slot->w->workers, LANE_USED, false, &order, NULL, NULL, NULL);
	slot->image.is = disk_name(&slot->w->disk, slot->key);
}

static void on_disk(void *arg, const struct work_report *report, const int *fds, int n_fds)
{
	struct slot *slot = arg;
	struct err e = report->e;
	int r = e.code;
	STEP(slot->w, WARDEN_STEP_DISK);

	slot->work = NULL;
	if (r >= 0)
		r = take_disk(slot, report, fds, n_fds, &e);
	else /* a worker that was killed has not tidied up */
		forget_disk(slot);
	log_debug("slot.disk", "slot=%s code=%d us=%" PRId64, slot->key, r,
		time_now_us() - slot->asked_us);
	go_on(slot, r, &e);
}

static void on_root(void *arg, const struct work_report *report, const int *fds, int n_fds)
{
	struct slot *slot = arg;
	struct err e = report->e;
	int r = e.code;
	STEP(slot->w, WARDEN_STEP_DISK);

	slot->work = NULL;
	if (r >= 0)
		take_volumes(slot, fds + 1, n_fds - 1);
	if (r >= 0 && slot->state != SLOT_ENDING)
		r = give_root(slot, fds[0], fds + 1, &e);
	close_all(fds, MIN(n_fds, 1));
	go_on(slot, r, &e);
}

static int keep(int fd)
{
	return fd < 0 ? -EBADF : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

/* What both orders say. */
static void fill_order(struct slot *slot, const struct tree *tree, struct work_order *order,
	int fds[WORK_FDS])
{
	const struct warden_message *m = slot->later ? &slot->later->message : NULL;

	work_no_fds(fds);
	memcpy(order->key, slot->key, sizeof order->key);
	order->first_uid = slot_first_uid(slot);
	if (m && tree) {
		order->n_mounts = m->request.n_mounts;
		memcpy(order->mounts, m->mounts, sizeof order->mounts);
	}
	fds[WORK_USER_NS] = keep(slot->user_fd);
	fds[WORK_TREE] = tree ? keep(tree->fd) : -EBADF;
	slot->asked_root =
		tree ? (struct tree){ -EBADF, tree->dev, tree->ino } : (struct tree)TREE_INIT;
	if (m)
		slot->shm_bytes = m->request.shm_bytes;
	slot->asked_us = time_now_us();
}

void slot_ask_disk(struct slot *slot, const struct tree *tree, slot_fn done)
{
	struct warden *w = slot->w;
	struct work_order order = { .op = WORK_DISK, .size = slot->disk_size };
	uint32_t worn = net_must_forget(&w->network, slot->number);
	int fds[WORK_FDS];
	bool is_fresh;

	assert(slot_is_bare(slot) && !slot->work && slot->guest_fd >= 0);
	slot->has_disk = true;
	slot->worked = done;
	fill_order(slot, tree, &order, fds);
	if (slot->later)
		memcpy(order.image_name, slot->later->message.request.image_name,
			sizeof order.image_name);
	slot->is_of_blank = !order.image_name[0];
	if (slot->is_of_blank)
		(void)spare_take(slot, &order, &fds[WORK_MOUNT]);
	/* Volumes are written by sandboxes, too. */
	is_fresh = !order.image_name[0] && order.n_mounts == 0 &&
		   disk_knows(&w->disk, slot->disk_size);
	if (worn) {
		order.addresses[order.n_addresses++] = worn;
		net_forgot(&w->network, &worn, 1);
	}
	slot->work = work_ask(&w->workers, is_fresh ? LANE_FRESH : LANE_USED, slot->later != NULL,
		&order, fds, on_disk, slot);
}

void slot_ask_root(struct slot *slot, const struct tree *tree, slot_fn done)
{
	struct work_order order = { .op = WORK_ROOT, .disk = slot->image.is };
	int fds[WORK_FDS];

	assert(slot->has_disk && !slot->work && slot->root.dev == 0);
	slot->worked = done;
	fill_order(slot, tree, &order, fds);
	fds[WORK_MOUNT] = keep(slot->image.mount_fd);
	slot->work = work_ask(&slot->w->workers, order.n_mounts ? LANE_USED : LANE_FRESH, true,
		&order, fds, on_root, slot);
}

bool slot_is_bare(const struct slot *slot)
{
	return !slot->has_disk;
}
