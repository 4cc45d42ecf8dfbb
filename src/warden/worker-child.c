#include "warden/freezer.h"
#include "warden/fuse.h"
#include "warden/locks.h"
#include "warden/netlink.h"
#include "warden/place.h"
#include "warden/reach.h"
#include "warden/save.h"
#include "warden/saved.h"
#include "warden/tcp.h"
#include "warden/tracks.h"
#include "warden/volume-image.h"
#include "warden/worker.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

/* A worker works on one order at a time, and knows nothing from one to the next but where things
 * are. */
struct self {
	struct disk disk;
	struct rootfs rootfs;
	struct volumes volumes;
	struct network network; /* with sockets of this process's own, when they are needed */
	const struct cgroups *cgroups;
	const struct workers *ws;
	int tracks_fd;
	int own_cgroup_fd; /* -EBADF: not opened yet */
};

enum {
	STOP_DEADLINE_MS = 2000,
	CUT_AGAIN = 50,
	CUT_PAUSE_US = 1000,
	WARM_PAUSE_US = 2000, /* less than a grace period, whatever the machine */
};

struct answer {
	struct work_report report;
	int fds[FD_MAX_PASS];
	int n_fds;
};

/* Other sandboxes' mounts and sockets must not live on in this copy of the warden. */
static void keep_only(const int *keep, size_t n)
{
	unsigned from = STDERR_FILENO + 1;

	for (;;) {
		unsigned next = ~0U;

		for (size_t i = 0; i < n; i++)
			if (keep[i] >= 0 && (unsigned)keep[i] >= from)
				next = MIN(next, (unsigned)keep[i]);
		if (next > from)
			(void)close_range(from, next == ~0U ? next : next - 1, 0);
		if (next == ~0U)
			return;
		from = next + 1;
	}
}

/* ---- orders ---- */

static int forget(struct self *self, const uint32_t *addresses, uint32_t n, struct err *e)
{
	int r = 0;

	if (n == 0)
		return 0;
	if (self->tracks_fd < 0)
		r = tracks_open(&self->tracks_fd, e);
	if (r >= 0)
		r = tracks_forget(self->tracks_fd, addresses, n);
	return r < 0 ? err_sys(e, r, "have the kernel forget old connections") : 0;
}

/* As long as an interface is there, so may be what sends. */
static int do_forget(struct self *self, const struct work_order *order, struct answer *a,
	struct err *e)
{
	for (uint32_t i = 0; i < order->n_addresses; i++)
		if (net_index(net_number(&self->network, order->addresses[i])) == 0)
			a->report.addresses[a->report.n_addresses++] = order->addresses[i];
	return forget(self, a->report.addresses, a->report.n_addresses, e);
}

/* By what the policy says now, which may be newer than the order. */
static int do_cut(struct self *self, const struct work_order *order, const int fds[WORK_FDS],
	struct err *e)
{
	cleanup_free struct ranges *ranges = XNEW(struct ranges);
	int r = ranges_read(fds[WORK_POLICY], ranges, e);

	if (r < 0)
		return r;
	if (self->tracks_fd < 0)
		r = tracks_open(&self->tracks_fd, e);
	if (r >= 0)
		r = tracks_cut(self->tracks_fd, order->addresses[0], ranges,
			order->cuts_opened ? self->ws->opened : NULL);
	return r < 0 ? err_sys(e, r, "have the kernel forget what a policy has closed") : 0;
}

static int do_place(struct self *self, const struct work_order *order, struct answer *a,
	struct err *e)
{
	int r = self->network.rtnl_fd >= 0 ? 0 : net_open_own(&self->network, e);

	if (r >= 0)
		r = place_make(self->ws, &self->network, order, &a->report, a->fds, e);
	if (r >= 0)
		a->n_fds = r;
	return r;
}

static int make_root(const struct self *self, const struct work_order *order,
	const int fds[WORK_FDS], int mount_fd, struct answer *a, struct err *e)
{
	struct rootfs_layers layers = { .lower_fd = fds[WORK_TREE],
		.image_fd = mount_fd,
		.user_ns_fd = fds[WORK_USER_NS],
		.first_uid = order->first_uid };

	return rootfs_mount(&self->rootfs, &layers, &a->fds[0], e);
}

static int add_volumes(const struct self *self, const struct work_order *order, struct answer *a,
	struct err *e)
{
	int fds[WARDEN_MAX_MOUNTS], r = 0;

	for (uint32_t i = 0; i < order->n_mounts; i++)
		fds[i] = -EBADF;
	if (order->n_mounts)
		r = volumes_open(&self->volumes, order->mounts, order->n_mounts, order->first_uid,
			fds, e);
	for (uint32_t i = 0; i < order->n_mounts; i++)
		if (fds[i] >= 0)
			a->fds[a->n_fds++] = fds[i];
	return r;
}

/* From the disk to what the guest is given: mapped, and the root on it if its template is known. */
static int finish_disk(const struct self *self, const struct work_order *order,
	const int fds[WORK_FDS], struct image *image, struct answer *a, struct err *e)
{
	int r = rootfs_idmap(image->mount_fd, fds[WORK_USER_NS], e);

	if (r < 0)
		return r;
	if (fds[WORK_TREE] >= 0)
		r = make_root(self, order, fds, image->mount_fd, a, e);
	else
		a->fds[0] = TAKE_FD(image->mount_fd);
	if (r < 0)
		return r;
	a->n_fds = 1;
	a->report.has_layer = image->layer_fd >= 0;
	if (a->report.has_layer)
		a->fds[a->n_fds++] = TAKE_FD(image->layer_fd);
	a->report.disk = image->is;
	return add_volumes(self, order, a, e);
}

static int do_disk(struct self *self, const struct work_order *order, int fds[WORK_FDS],
	struct answer *a, struct err *e)
{
	cleanup_close int from = -EBADF;
	struct image image = IMAGE_INIT;
	/* A kernel that cannot be asked was told of at start. */
	int r = 0;

	(void)forget(self, order->addresses, order->n_addresses, NULL);
	if (order->image_name[0])
		r = from = saved_open(&self->disk, order->image_name, e);
	if (r >= 0 && fds[WORK_MOUNT] >= 0)
		r = disk_reuse(&self->disk, &order->disk, TAKE_FD(fds[WORK_MOUNT]), order->key,
			&image, e);
	else if (r >= 0)
		r = disk_make(&self->disk, order->key, from, order->size, &image, e);
	if (r < 0)
		return r;
	if (image.layer_fd >= 0)
		(void)disk_use(image.layer_fd, &a->report.use, NULL);
	r = finish_disk(self, order, fds, &image, a, e);
	close_fdp(&image.mount_fd);
	close_fdp(&image.layer_fd);
	if (r < 0)
		(void)disk_remove(&self->disk, &image.is);
	return r;
}

static int do_root(const struct self *self, const struct work_order *order, const int fds[WORK_FDS],
	struct answer *a, struct err *e)
{
	int r = make_root(self, order, fds, fds[WORK_MOUNT], a, e);

	if (r < 0)
		return r;
	a->n_fds = 1;
	return add_volumes(self, order, a, e);
}

/* The warden's death must not leave a sandbox that stands still. */
static int do_save(struct self *self, const struct work_order *order, const int fds[WORK_FDS],
	struct answer *a, struct err *e)
{
	int r;

	(void)prctl(PR_SET_PDEATHSIG, 0);
	r = save_disk(&self->disk, self->cgroups, order, fds, &a->report, e);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	return r;
}

/* What a sandbox leaves that has written little is not in anybody's way. */
static bool is_little(const struct work_order *order, int layer_fd)
{
	struct disk_use now = { 0 };

	return order->blank.inodes && layer_fd >= 0 && disk_use(layer_fd, &now, NULL) >= 0 &&
	       disk_use_is_little(now, order->blank);
}

/* What was about to be mounted when it was killed may come a moment later. */
static void cut_fuse(uid_t first_uid)
{
	struct err e = { 0 };
	int n = fuse_cut(first_uid, &e);

	for (int i = 0; i < CUT_AGAIN && n > 0; i++) {
		(void)usleep(CUT_PAUSE_US);
		n = fuse_cut(first_uid, &e);
	}
	if (n < 0)
		log_warn("worker.fuse", "err=%s", log_quote(str_of(e.msg)));
}

static int do_shut(const struct self *self, const struct work_order *order, const int fds[WORK_FDS],
	struct answer *a, struct err *e)
{
	cleanup_close int opened = -EBADF;

	(void)cgroup_kill(self->cgroups, order->key);
	if (order->may_serve)
		cut_fuse(order->first_uid);
	a->report.is_spared = is_little(order, fds[WORK_LAYER]);
	if (a->report.is_spared || order->disk.loop < 0)
		return 0;
	if (fds[WORK_LAYER] < 0) {
		opened = disk_open_layer(&self->disk, &order->disk, e);
		if (opened < 0)
			return opened;
	}
	disk_shut(opened >= 0 ? opened : fds[WORK_LAYER]);
	return 0;
}

/* The run directory goes last: as long as it is there, another warden would know what to look for.
 */
static bool remove_objects(const struct self *self, const char *key)
{
	char name[SLOT_KEY_SIZE + 1];

	(void)snprintf(name, sizeof name, ".%s", key);
	return cgroup_remove(self->cgroups, key) >= 0 &&
	       dir_remove_tree(self->ws->run_fd, name, NULL) >= 0;
}

static int do_empty(const struct self *self, const struct work_order *order, struct answer *a,
	struct err *e)
{
	int r = disk_empty(&self->disk, &order->disk, order->blank, &a->fds[0], e);

	if (r < 0)
		return r;
	a->n_fds = 1;
	a->report.is_gone = remove_objects(self, order->key);
	return 0;
}

/* Whoever still has a file of it open, another sandbox maybe, reads nothing any more; it shall not
 * take room either. */
static int do_remove(const struct self *self, const struct work_order *order, int fds[WORK_FDS],
	struct answer *a, struct err *e)
{
	cleanup_close int file = disk_open_file(&self->disk, &order->disk, O_RDWR, NULL);
	int r = disk_remove(&self->disk, &order->disk);

	for (int i = 0; i < WORK_FDS; i++) {
		close_fdp(&fds[i]);
		fds[i] = -EBADF;
	}
	if (file >= 0 && disk_is_attached(&order->disk))
		(void)!ftruncate(file, 0);
	if (r < 0)
		return err_sys(e, r, "remove %s", order->disk.name);
	a->report.is_gone = order->key[0] && !disk_is_attached(&order->disk) &&
			    remove_objects(self, order->key);
	return 0;
}

static int do_clear(const struct self *self, const struct work_order *order, struct answer *a)
{
	a->report.is_gone = remove_objects(self, order->key);
	return 0;
}

static int do_warm(struct self *self, const struct work_order *order, struct err *e)
{
	int64_t until_ms = time_now_ms() + order->warm_ms;

	if (self->own_cgroup_fd < 0)
		self->own_cgroup_fd = cgroup_open_own(self->cgroups, e);
	if (self->own_cgroup_fd < 0)
		return self->own_cgroup_fd;
	while (time_now_ms() < until_ms) {
		if (pwrite(self->own_cgroup_fd, "0", 1, 0) != 1)
			return err_sys(e, -errno, "join the cgroup that one is in");
		(void)usleep(WARM_PAUSE_US);
	}
	return 0;
}

/* The locks of all cgroups are held for milliseconds while sandboxes are made and removed. */
static int do_stop(const struct self *self, const struct work_order *order, struct err *e)
{
	CLEANUP(freezer_close) struct freezer f = FREEZER_INIT;
	int r = freezer_open(self->cgroups, order->key, &f, e);

	if (r < 0)
		return r;
	r = freezer_order(&f, order->op == WORK_STOP);
	if (r < 0)
		return err_sys(e, r, "stop or start the processes");
	if (order->op == WORK_GO)
		return 0;
	r = order->may_serve ? freezer_await_served(&f, self->cgroups, order->key,
				       time_now_ms() + STOP_DEADLINE_MS)
			     : freezer_await(&f, time_now_ms() + STOP_DEADLINE_MS);
	if (r >= 0)
		return 0;
	if (!order->stays_ordered)
		(void)freezer_order(&f, false);
	return err_set(e, -EBUSY,
		"a process of the sandbox waits in the kernel and cannot be stopped");
}

static int do_tcp(const struct self *self, struct answer *a)
{
	struct tcp_taker taker;

	tcp_find_taker(self->cgroups, &taker);
	memcpy(a->report.key, taker.key, sizeof a->report.key);
	a->report.bytes = (uint64_t)taker.bytes;
	return 0;
}

static int do_volume_open(const struct self *self, const struct work_order *order, struct answer *a,
	struct err *e)
{
	int r = volume_image_open(&self->volumes, order->volume, a->fds, e);

	a->n_fds = r < 0 ? 0 : VOLUME_OPEN_FDS;
	return r;
}

static int obey(struct self *self, const struct work_order *order, int fds[WORK_FDS],
	struct answer *a, struct err *e)
{
	switch (order->op) {
	case WORK_PLACE:
		return do_place(self, order, a, e);
	case WORK_DISK:
		return do_disk(self, order, fds, a, e);
	case WORK_ROOT:
		return do_root(self, order, fds, a, e);
	case WORK_STOP:
	case WORK_GO:
		return do_stop(self, order, e);
	case WORK_SAVE:
		return do_save(self, order, fds, a, e);
	case WORK_SHUT:
		return do_shut(self, order, fds, a, e);
	case WORK_EMPTY:
		return do_empty(self, order, a, e);
	case WORK_REMOVE:
		return do_remove(self, order, fds, a, e);
	case WORK_CLEAR:
		return do_clear(self, order, a);
	case WORK_DISCARD:
		return saved_discard(&self->disk, order->image_name, e);
	case WORK_LOCKS:
		locks_end_takers(self->cgroups);
		return 0;
	case WORK_TCP:
		return do_tcp(self, a);
	case WORK_FORGET:
		return do_forget(self, order, a, e);
	case WORK_CUT:
		return do_cut(self, order, fds, e);
	case WORK_VOLUME_MAKE:
		return volume_image_make(&self->volumes, order->volume, order->size.bytes, e);
	case WORK_VOLUME_OPEN:
		return do_volume_open(self, order, a, e);
	case WORK_VOLUME_REMOVE:
		return volume_image_remove(&self->volumes, order->volume, e);
	case WORK_CLOSE:
		return 0; /* as after every order */
	case WORK_WARM:
		return do_warm(self, order, e);
	}
	return err_set(e, -EINVAL, "no such order");
}

/* ---- its life ---- */

/* An order, and then the word that the warden has closed its copies of what came with it. */
static bool next_order(int socket_fd, struct work_message *ret, int ret_fds[WORK_FDS])
{
	int fds[FD_MAX_PASS], n_fds = 0, n = 0;
	char word;

	if (fd_recv(socket_fd, ret, sizeof *ret, fds, &n_fds) != sizeof *ret ||
		recv(socket_fd, &word, sizeof word, 0) != sizeof word)
		return false;
	for (int i = 0; i < WORK_FDS; i++)
		ret_fds[i] = ret->present >> i & 1 && n < n_fds ? fds[n++] : -EBADF;
	return true;
}

/* What was handed over is closed before the answer: after it, nothing of it is held here. */
static void serve(struct self *self, int socket_fd, const struct work_order *order,
	int fds[WORK_FDS])
{
	struct answer a = { 0 };
	struct err e = { 0 };

	if (obey(self, order, fds, &a, &e) < 0) {
		a.report.e = e;
		while (a.n_fds > 0)
			(void)close(a.fds[--a.n_fds]);
	}
	for (int i = 0; i < WORK_FDS; i++)
		close_fdp(&fds[i]);
	(void)fd_send(socket_fd, &a.report, sizeof a.report, a.fds, a.n_fds);
	while (a.n_fds > 0)
		(void)close(a.fds[--a.n_fds]);
}

_Noreturn void worker_child_main(const struct worker_place *place)
{
	const struct workers *ws = place->ws;
	const int *legacy = ws->cgroups->legacy_fd;
	const int keep[] = { place->socket_fd, ws->disk->dir_fd, ws->disk->host_fd,
		ws->disk->control_fd, ws->volumes->dir_fd, ws->volumes->images_fd, ws->run_fd,
		ws->guest_fd, ws->cgroups->unified_fd, legacy[CGROUP_MEMORY], legacy[CGROUP_CPU],
		legacy[CGROUP_PIDS], legacy[CGROUP_FREEZER],
		place->lane == LANE_FRESH ? ws->lock_fd : -EBADF };
	struct self self = { .disk = *ws->disk,
		.rootfs = *ws->rootfs,
		.volumes = *ws->volumes,
		.network = *ws->network,
		.cgroups = ws->cgroups,
		.ws = ws,
		.tracks_fd = -EBADF,
		.own_cgroup_fd = -EBADF };
	struct work_message message;
	int fds[WORK_FDS];
	struct err e = { 0 };

	self.volumes.rootfs = &self.rootfs;
	(void)prctl(PR_SET_NAME, place->lane == LANE_FRESH ? "atoll-maker" : "atoll-worker", 0, 0,
		0);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	self.network.rtnl_fd = self.network.own_ns_fd = self.network.table_fd = -EBADF;
	keep_only(keep, ARRAY_SIZE(keep));
	if (rootfs_use_place(&self.rootfs, place->number, &e) < 0)
		_exit(1);
	while (next_order(place->socket_fd, &message, fds))
		serve(&self, place->socket_fd, &message.order, fds);
	_exit(0);
}
