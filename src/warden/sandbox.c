#include "warden/warden.h"
#include "warden/wire.h"

#include <linux/fs.h>
#include <sys/socket.h>

enum {
	MAX_WAITERS = 64, /* for the end of one sandbox, which the kernel may put off for long */
	FORGET_AT_ONCE = 256,
};

static struct disk_size size_of(const struct warden_request *q)
{
	return (struct disk_size){ q->disk_bytes, q->disk_inodes };
}

static bool fits(const struct slot *slot, const struct warden_request *q)
{
	return slot->state == SLOT_IDLE && !slot_is_bare(slot) &&
	       disk_size_eq(slot->disk_size, size_of(q));
}

/* One that can be given any disk. */
static struct slot *take_bare(struct warden *w)
{
	LIST_EACH(&w->prepared, node)
	{
		struct slot *slot = container_of(node, struct slot, pool_node);

		if (slot->state == SLOT_IDLE && slot_is_bare(slot))
			return slot;
	}
	return NULL;
}

/* One that will be able to soon. */
static struct slot *find_placing(const struct warden *w)
{
	LIST_EACH(&w->prepared, node)
	{
		struct slot *slot = container_of(node, struct slot, pool_node);

		if (slot->state == SLOT_MAKING && slot->is_placing)
			return slot;
	}
	return NULL;
}

/* Volumes are mounted, and namespaces inside allowed, when the root is given: one that has it will
 * not do. */
static bool goes_with_root(const struct warden_request *q)
{
	return q->n_mounts > 0 || q->is_nested;
}

/* One whose disk and root are being made as this request wants them. */
static struct slot *find_in_making(const struct warden *w, const struct warden_request *q,
	const struct tree *tree)
{
	LIST_EACH(&w->prepared, node)
	{
		struct slot *slot = container_of(node, struct slot, pool_node);

		if (slot->state == SLOT_MAKING && slot->work && slot->has_disk &&
			disk_size_eq(slot->disk_size, size_of(q)) &&
			slot->asked_root.dev == tree->dev && slot->asked_root.ino == tree->ino &&
			slot->shm_bytes == q->shm_bytes && !goes_with_root(q))
			return slot;
	}
	return NULL;
}

/* A slot sealed in the right root, else one without a root yet, else none. */
static struct slot *find_slot(struct warden *w, const struct warden_request *q,
	const struct tree *tree)
{
	struct slot *rootless = NULL;

	LIST_EACH(&w->prepared, node)
	{
		struct slot *slot = container_of(node, struct slot, pool_node);

		if (fits(slot, q) && slot->root.dev == tree->dev && slot->root.ino == tree->ino &&
			slot->shm_bytes == q->shm_bytes && !goes_with_root(q))
			return slot;
		if (fits(slot, q) && slot->root.dev == 0 && !rootless)
			rootless = slot;
	}
	return rootless;
}

static void placed_later(struct slot *slot, const struct err *why);

/* One without a disk, or that will be one. */
static int make_bare(struct warden *w, const struct warden_request *q, struct slot **ret,
	struct err *e)
{
	struct slot *slot = take_bare(w);
	int r = 0;

	if (!slot)
		slot = find_placing(w);
	if (!slot) {
		slot = slot_new(w, &w->expected);
		r = slot_ask_place(slot, true, placed_later, e);
	}
	slot->cold = true;
	slot->disk_size = size_of(q);
	slot->engine = (enum warden_engine)q->engine;
	if (r < 0)
		slot_end(slot, e);
	else
		*ret = slot;
	return r;
}

/* From here on the sandbox exists for any warden to come. */
static int name_slot(struct slot *slot, const char *id, struct err *e)
{
	char unnamed[SLOT_KEY_SIZE + 1];

	(void)snprintf(unnamed, sizeof unnamed, ".%s", slot->key);
	if (renameat2(slot->w->run_fd, unnamed, slot->w->run_fd, id, RENAME_NOREPLACE) < 0)
		return err_sys(e, -errno, "name the run directory");
	(void)snprintf(slot->id, sizeof slot->id, "%s", id);
	(void)map_put(&slot->w->by_id, str_of(slot->id), slot);
	return 0;
}

/* Whoever serves its redirected traffic must know whose it is. */
static void tell_name(const struct slot *slot)
{
	struct warden_reply message = { .kind = WARDEN_NAMED,
		.address = net_address(&slot->w->network, slot->number) };

	control_tell(slot->w, &message, slot->id);
}

static int send_start(struct slot *slot, int settings_fd, struct err *e)
{
	struct guest_boot message = { .version = WARDEN_VERSION, .step = GUEST_START };
	int r;

	memcpy(message.id, slot->id, sizeof message.id);
	r = fd_send(slot->guest_fd, &message, guest_boot_size(0), &settings_fd, GUEST_START_FDS);
	if (r == -EPIPE) /* it has gone, and says why in its last words */
		return 0;
	return r < 0 ? err_sys(e, r, "start the guest") : 0;
}

int slot_start(struct slot *slot, const char *id, int settings_fd, struct err *e)
{
	int r = name_slot(slot, id, e);

	CRASH_POINT("warden.create.named");
	if (r >= 0)
		tell_name(slot);
	if (r >= 0)
		r = send_start(slot, settings_fd, e);
	CRASH_POINT("warden.create.started");
	return r;
}

/* An engine takes its time, and its guest must not run anything before its sockets are taken. Until
 * then the place under its name is only reserved: another warden shall not take it for a sandbox.
 */
static int hold_start(struct slot *slot, const char *id, int settings_fd, struct err *e)
{
	slot->settings_fd = fcntl(settings_fd, F_DUPFD_CLOEXEC, 0);
	if (slot->settings_fd < 0)
		return err_sys(e, -errno, "keep the settings");
	(void)snprintf(slot->wanted_id, sizeof slot->wanted_id, "%s", id);
	(void)map_put(&slot->w->by_id, str_of(slot->wanted_id), slot);
	return 0;
}

/* It has its root. */
static int boot_slot(struct slot *slot, const struct warden_request *q, int settings_fd,
	struct err *e)
{
	const struct limits asked = { q->memory_bytes, q->cpu_percent, q->max_pids };
	struct limits limits = engine_limits(slot->engine, &asked);
	struct warden *w = slot->w;
	int r = cgroup_limit(&w->cgroups, slot->key, &limits, &slot->limits, e);

	slot->state = SLOT_BOOTING;
	list_remove(&slot->pool_node);
	if (slot->engine == WARDEN_LOCAL)
		list_append(&w->booting, &slot->pool_node);
	if (r >= 0)
		r = slot->engine == WARDEN_LOCAL ? slot_start(slot, q->id, settings_fd, e)
						 : hold_start(slot, q->id, settings_fd, e);
	if (r < 0)
		return r;
	slot_expect_answer(slot);
	return 0;
}

static void expect_alike(struct warden *w, const struct warden_request *q)
{
	struct expectation x = { .disk_size = size_of(q),
		.shm_bytes = q->shm_bytes,
		.limits = { q->memory_bytes, q->cpu_percent, q->max_pids },
		.goes_with_root = goes_with_root(q) };

	(void)snprintf(x.template_name, sizeof x.template_name, "%s", q->template_name);
	expect_another(w, &x);
}

static void refuse(struct warden *w, const struct warden_request *q, const struct err *e)
{
	control_reply(w, WARDEN_REPLY, q->tag, q->id, e, NULL, 0);
}

void later_free(struct slot *slot)
{
	struct later *later = TAKE(slot->later);

	if (!later)
		return;
	/* Until it is named, its place under that name is only reserved. */
	if (!slot->id[0] && !slot->wanted_id[0] &&
		map_get(&slot->w->by_id, str_of(later->message.request.id)) == slot)
		(void)map_remove(&slot->w->by_id, str_of(later->message.request.id));
	close_fdp(&later->settings_fd);
	tree_done(&later->tree);
	free(later);
}

/* Its disk is there, and so is its root. */
static void boot_later(struct slot *slot, const struct err *why)
{
	struct later *later = slot->later;
	struct err e = *why;
	int r = e.code;

	if (r >= 0)
		r = boot_slot(slot, &later->message.request, later->settings_fd, &e);
	if (r < 0)
		slot_end(slot, &e);
	else
		later_free(slot);
}

static void keep_for_later(struct slot *slot, const struct warden_message *m, struct tree *tree,
	int settings_fd, const struct ranges *ranges)
{
	slot->state = SLOT_BOOTING;
	list_remove(&slot->pool_node);
	slot->later = XNEW(struct later);
	*slot->later = (struct later){ .message = *m,
		.settings_fd = fcntl(settings_fd, F_DUPFD_CLOEXEC, 0),
		.tree = *tree,
		.ranges = *ranges };
	tree->fd = -EBADF;
	(void)map_put(&slot->w->by_id, str_of(slot->later->message.request.id), slot);
}

/* Its policy holds. A worker makes what is not there yet, and then it goes on. */
static void make_rest(struct slot *slot, const struct err *why)
{
	if (why->code < 0)
		slot_end(slot, why);
	else if (slot->work)
		slot->worked = boot_later;
	else if (slot->root.dev)
		boot_later(slot, why);
	else if (slot_is_bare(slot))
		slot_ask_disk(slot, &slot->later->tree, boot_later);
	else
		slot_ask_root(slot, &slot->later->tree, boot_later);
}

/* Its disk and root are there before its policy holds: then it goes on. */
static void wait_for_policy(struct slot *slot, const struct err *why)
{
	if (why->code < 0)
		slot_end(slot, why);
}

/* Its place is there: what it shares and what it may reach are noted in it. 1: its policy does not
 * hold yet. */
static int take_over(struct slot *slot, const struct warden_message *m, const struct ranges *ranges,
	struct err *e)
{
	int r = linger_note(slot, m, e);

	return r < 0 ? r : policy_give(slot, ranges, e);
}

static void go_on_later(struct slot *slot, int taken)
{
	if (taken == 0) {
		make_rest(slot, &(struct err){ 0 });
		return;
	}
	slot->laid = make_rest;
	if (slot->work)
		slot->worked = wait_for_policy;
}

static void placed_later(struct slot *slot, const struct err *why)
{
	struct err e = *why;
	int r = e.code;

	if (r >= 0)
		r = take_over(slot, &slot->later->message, &slot->later->ranges, &e);
	if (r < 0)
		slot_end(slot, &e);
	else
		go_on_later(slot, r);
}

/* What is there is taken as far as it is. Nothing in it runs before its policy holds. */
static void create_from(struct slot *slot, const struct warden_message *m, struct tree *tree,
	int settings_fd, const struct ranges *ranges)
{
	struct err e = { 0 };
	int r;

	slot->create_pending = true;
	slot->create_tag = m->request.tag;
	slot->created_us = time_now_us();
	if (slot->is_placing) {
		keep_for_later(slot, m, tree, settings_fd, ranges);
		slot->worked = placed_later;
		return;
	}
	r = take_over(slot, m, ranges, &e);
	if (r == 0 && slot->root.dev)
		r = boot_slot(slot, &m->request, settings_fd, &e);
	else if (r >= 0) {
		keep_for_later(slot, m, tree, settings_fd, ranges);
		go_on_later(slot, r);
	}
	if (r < 0)
		slot_end(slot, &e); /* which answers when nothing of it runs */
}

/* The best there is for this request: prepared, nearly prepared, or one made for it. */
static int find_or_make(struct warden *w, const struct warden_request *q, const struct tree *tree,
	struct slot **ret, struct err *e)
{
	struct slot *slot = NULL;

	if (q->engine == WARDEN_LOCAL && !q->image_name[0]) {
		expect_alike(w, q);
		slot = find_slot(w, q, tree);
		if (!slot)
			slot = find_in_making(w, q, tree);
	}
	if (!slot)
		return make_bare(w, q, ret, e);
	*ret = slot;
	return 0;
}

/* A saved image needs a host that can have one. */
static int check_image(const struct warden *w, const struct warden_request *q, struct err *e)
{
	if (!q->image_name[0])
		return 0;
	if (!disk_has_images(&w->disk))
		return err_set(e, -EOPNOTSUPP,
			"saved images need loop devices, and this host has none");
	if (!image_exists(w, q->image_name))
		return err_set(e, -ENOENT, "there is no image '%s'", q->image_name);
	return 0;
}

/* The descriptors: its settings, and the ranges of its policy if it has any. */
static int check_files(const struct warden_request *q, const int *fds, int n_fds,
	struct ranges *ret, struct err *e)
{
	int r = wire_check_settings(fds[0], e);

	return r < 0 ? r : ranges_receive(fds[n_fds - 1], q->reach_flags, q->n_ranges, ret, e);
}

void sandbox_create(struct warden *w, const struct warden_message *m, const int *fds, int n_fds)
{
	const struct warden_request *q = &m->request;
	CLEANUP(tree_done) struct tree tree = TREE_INIT;
	struct slot *slot = NULL;
	struct ranges ranges;
	struct err e = { 0 };
	int r = check_files(q, fds, n_fds, &ranges, &e);

	if (r >= 0 && map_get(&w->by_id, str_of(q->id)))
		r = err_set(&e, -EEXIST, "sandbox '%s' exists", q->id);
	if (r >= 0)
		r = engine_check(q, &e);
	if (r >= 0)
		r = check_image(w, q, &e);
	if (r >= 0)
		r = linger_check(w, m, &e);
	if (r >= 0)
		r = hold_check(w, q->disk_bytes, &e);
	if (r >= 0)
		r = tree_open(w, q->template_name, &tree, &e);
	if (r >= 0)
		r = find_or_make(w, q, &tree, &slot, &e);
	if (r < 0) {
		refuse(w, q, &e);
		return;
	}
	create_from(slot, m, &tree, fds[0], &ranges);
	refill_soon(w);
}

static bool has_room(const struct list *waiters)
{
	int n = 0;

	LIST_EACH(waiters, node)
	n++;
	return n < MAX_WAITERS;
}

void sandbox_destroy(struct warden *w, const struct warden_request *q)
{
	struct slot *slot = map_get(&w->by_id, str_of(q->id));
	struct waiter *waiter;
	struct err e = { 0 };

	if (!slot)
		(void)err_set(&e, -ENOENT, "there is no sandbox '%s'", q->id);
	else if (!has_room(&slot->waiters))
		(void)err_set(&e, -EBUSY, "too many wait for the end of sandbox '%s'", q->id);
	if (!slot || e.code < 0) {
		refuse(w, q, &e);
		return;
	}
	waiter = XNEW(struct waiter);
	waiter->tag = q->tag;
	list_append(&slot->waiters, &waiter->node);
	(void)err_set(&e, -ECANCELED, "the sandbox was destroyed");
	slot_end(slot, &e);
}

void sandbox_socket(struct warden *w, const struct warden_request *q)
{
	struct slot *slot = map_get(&w->by_id, str_of(q->id));
	int fds[NET_SOCKETS], n = 0, r;
	struct err e = { 0 };

	if (!slot || slot->state != SLOT_RUNNING)
		r = err_set(&e, -ENOENT, "there is no sandbox '%s'", q->id);
	else if (slot->engine == WARDEN_GVISOR)
		r = err_set(&e, -EOPNOTSUPP, "the network of '%s' is gVisor's own", q->id);
	else
		r = net_sockets(&w->network, slot->net_fd, fds, &n, &e);
	if (r < 0)
		refuse(w, q, &e);
	else
		control_reply(w, WARDEN_REPLY, q->tag, q->id, &e, fds, n);
	while (n > 0)
		(void)close(fds[--n]);
}

/* Counted by the kernel, and nothing in the sandbox can change it. */
void sandbox_usage(struct warden *w, const struct warden_request *q)
{
	const struct slot *slot = map_get(&w->by_id, str_of(q->id));
	struct warden_reply message = { .kind = WARDEN_REPLY, .tag = q->tag };

	if (!slot || slot->state != SLOT_RUNNING) {
		(void)err_set(&message.e, -ENOENT, "there is no sandbox '%s'", q->id);
	} else {
		message.count = (uint64_t)cgroup_cpu_us(&w->cgroups, slot->key);
		message.bytes = net_sent_bytes(slot->pid);
	}
	control_tell(w, &message, q->id);
}

void sandbox_list(struct warden *w, const struct warden_request *q)
{
	struct err fine = { 0 };

	LIST_EACH(&w->slots, node)
	{
		struct slot *slot = container_of(node, struct slot, node);

		struct warden_reply message = { .kind = WARDEN_LISTED,
			.tag = q->tag,
			.is_frozen = slot->frozen,
			.engine = slot->engine,
			.address = net_address(&w->network, slot->number) };

		if (slot->state == SLOT_RUNNING)
			control_tell(w, &message, slot->id);
	}
	control_reply(w, WARDEN_REPLY, q->tag, "", &fine, NULL, 0);
}

/* ---- addresses that were somebody's ---- */

static void forgot(void *arg, const struct work_report *report, const int *fds, int n_fds)
{
	struct warden *w = arg;

	(void)fds;
	(void)n_fds;
	w->forgetting = NULL;
	if (report->e.code < 0)
		log_warn("net.remembers", "err=%s", log_quote(str_of(report->e.msg)));
	else
		net_forgot(&w->network, report->addresses, report->n_addresses);
}

/* To forget one address takes as long as to forget many, so they wait for each other. */
void forget_soon(struct warden *w)
{
	struct work_order order = { .op = WORK_FORGET };

	if (++w->n_worn < FORGET_AT_ONCE || w->forgetting || w->leaving)
		return;
	w->n_worn = 0;
	order.n_addresses =
		(uint32_t)net_list_worn(&w->network, order.addresses, ARRAY_SIZE(order.addresses));
	if (order.n_addresses)
		w->forgetting = work_ask(&w->workers, LANE_USED, false, &order, NULL, forgot, w);
}
