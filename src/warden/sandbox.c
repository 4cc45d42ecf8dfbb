#include "warden/warden.h"
#include "warden/saved.h"
#include "warden/wire.h"

#include <linux/fs.h>
#include <sys/socket.h>

enum {
	BARE_SLOTS = 2,         /* kept besides the complete ones */
	REFILL_AFTER_MS = 2,    /* the request that emptied the pool is still being served */
	REFILL_PAUSE_MS = 1000, /* after a failure */
	REFILL_MAX_PAUSE_MS = 60000,
	MAX_WAITERS = 64, /* for the end of one sandbox, which the kernel may put off for long */
};

static int count_idle(const struct warden *w, bool bare)
{
	int n = 0;

	LIST_EACH(&w->slots, node)
	{
		struct slot *slot = container_of(node, struct slot, node);

		n += slot->state == SLOT_IDLE && slot_is_bare(slot) == bare;
	}
	return n;
}

/* One that waits for its disk to be copied needs no processor; an engine needs it for so long that
 * the next requests would find nothing prepared. */
static bool is_booting(const struct warden *w)
{
	LIST_EACH(&w->slots, node)
	{
		struct slot *slot = container_of(node, struct slot, node);

		if (slot->state == SLOT_BOOTING && !slot->birth && slot->engine == WARDEN_LOCAL)
			return true;
	}
	return false;
}

/* A guest that joins its cgroups (old hierarchies only) makes the next mkdir there wait for many
 * milliseconds: its first answer says that it is through, and calls refill_soon. */
static bool is_joining(const struct warden *w)
{
	LIST_EACH(&w->slots, node)
	{
		struct slot *slot = container_of(node, struct slot, node);

		if (slot->state == SLOT_IDLE && slot->answers == 0)
			return true;
	}
	return false;
}

/* Of those that die together only the first counts. */
void refill_back_off(struct warden *w)
{
	int64_t now_ms = loop_now_ms(w->loop);

	if (now_ms < w->refill_from_ms)
		return;
	w->refill_pause_ms = MIN(MAX(w->refill_pause_ms * 2, REFILL_PAUSE_MS), REFILL_MAX_PAUSE_MS);
	w->refill_from_ms = now_ms + w->refill_pause_ms;
	log_warn("refill.pause", "ms=%" PRId64, w->refill_pause_ms);
}

static void refill_failed(struct warden *w, const struct err *e)
{
	log_error("slot.failed", "err=%s", log_quote(str_of(e->msg)));
	slot_end(w->making, e);
	loop_timer_set(&w->refill, w->refill_from_ms);
}

static bool lacks(const struct warden *w, bool bare)
{
	int64_t wanted = w->options->pool;

	if (bare)
		wanted = disk_has_images(&w->disk) ? MIN(wanted, BARE_SLOTS) : 0;
	return count_idle(w, bare) < wanted;
}

/* The blank of a size that was wanted last may be gone again: then one of the usual size is not
 * in vain either. */
static void begin_slot(struct warden *w)
{
	if (!disk_is_prepared(&w->disk, w->expected.disk_size))
		w->expected.disk_size = w->disk.usual_size;
	w->making = slot_new(w, &w->expected);
	w->making->stays_bare = !lacks(w, false);
}

static void refill_step(void *arg)
{
	struct warden *w = arg;
	struct err e = { 0 };
	int r;

	if (w->leaving || (!w->making && ((!lacks(w, false) && !lacks(w, true)) || is_joining(w))))
		return;
	if (!w->making && loop_now_ms(w->loop) < w->refill_from_ms) {
		loop_timer_set(&w->refill, w->refill_from_ms);
		return;
	}
	/* Requests on their way need the processors more. */
	if (is_booting(w)) {
		loop_timer_set(&w->refill, loop_now_ms(w->loop) + REFILL_AFTER_MS);
		return;
	}
	if (!w->making)
		begin_slot(w);
	r = slot_step(w->making, &e);
	if (r < 0) {
		refill_failed(w, &e);
		return;
	}
	if (r == 0)
		w->making = NULL;
	/* In the next turn: requests and answers that came meanwhile go first. */
	loop_defer(w->loop, &w->refill_next, refill_step, w);
}

void refill_soon(struct warden *w)
{
	if (!w->refill.loop)
		loop_timer_init(&w->refill, w->loop, refill_step, w);
	if (w->leaving || loop_timer_is_set(&w->refill) || w->refill_next.loop)
		return;
	loop_timer_set(&w->refill, loop_now_ms(w->loop) + REFILL_AFTER_MS);
}

static struct disk_size size_of(const struct warden_request *q)
{
	return (struct disk_size){ q->disk_bytes, q->disk_inodes };
}

static bool fits(const struct slot *slot, const struct warden_request *q)
{
	return slot->state == SLOT_IDLE && !slot_is_bare(slot) &&
	       disk_size_eq(slot->disk_size, size_of(q));
}

static struct slot *find_bare(const struct warden *w)
{
	LIST_EACH(&w->slots, node)
	{
		struct slot *slot = container_of(node, struct slot, node);

		if (slot->state == SLOT_IDLE && slot_is_bare(slot))
			return slot;
	}
	return NULL;
}

/* A slot sealed in the right root, else one without a root yet, else none. With volumes only the
 * latter will do: they are mounted when the root is given. One sealed in vain makes way, since the
 * next request will probably be like this one. */
static struct slot *find_slot(struct warden *w, const struct warden_request *q,
	const struct tree *tree)
{
	struct slot *rootless = NULL, *other = NULL;
	struct err unused = { .code = -ECANCELED };

	LIST_EACH(&w->slots, node)
	{
		struct slot *slot = container_of(node, struct slot, node);

		if (fits(slot, q) && slot->root.dev == tree->dev && slot->root.ino == tree->ino &&
			slot->shm_bytes == q->shm_bytes && q->n_mounts == 0)
			return slot;
		if (fits(slot, q) && slot->root.dev == 0 && !rootless)
			rootless = slot;
		else if (slot->state == SLOT_IDLE && !slot_is_bare(slot) && !other)
			other = slot;
	}
	if (!rootless && other)
		slot_end(other, &unused);
	return rootless;
}

/* Finishes a bare one or the one being prepared if it suits, or makes one from nothing. `bare`: up
 * to where it would be given a disk. */
static int make_slot(struct warden *w, const struct warden_request *q, bool bare, struct slot **ret,
	struct err *e)
{
	struct expectation now = { .disk_size = size_of(q) };
	struct slot *slot = find_bare(w);
	int r;

	/* What is past its disk has its engine written down. */
	if (!slot && w->making &&
		(slot_is_bare(w->making) ||
			(!bare && q->engine == WARDEN_LOCAL &&
				disk_size_eq(w->making->disk_size, size_of(q)))))
		slot = TAKE(w->making);
	if (!slot)
		slot = slot_new(w, &now);
	if (slot_is_bare(slot))
		slot->disk_size = size_of(q);
	slot->engine = (enum warden_engine)q->engine;
	r = bare ? slot_finish_bare(slot, e) : slot_finish(slot, e);
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

static int boot_slot(struct slot *slot, const struct warden_message *m, const struct tree *tree,
	int settings_fd, struct err *e)
{
	const struct warden_request *q = &m->request;
	const struct limits asked = { q->memory_bytes, q->cpu_percent, q->max_pids };
	struct limits limits = engine_limits(slot->engine, &asked);
	int r = 0;

	slot->state = SLOT_BOOTING;
	if (slot->root.dev == 0)
		r = slot_give_root(slot, tree, m, e);
	if (r >= 0)
		r = cgroup_limit(&slot->w->cgroups, slot->key, &limits, &slot->limits, e);
	if (r >= 0)
		r = slot->engine == WARDEN_LOCAL ? slot_start(slot, q->id, settings_fd, e)
						 : hold_start(slot, q->id, settings_fd, e);
	if (r < 0)
		return r;
	slot_expect_answer(slot);
	return 0;
}

static void expect(struct warden *w, const struct warden_request *q)
{
	(void)snprintf(w->expected.template_name, sizeof w->expected.template_name, "%s",
		q->template_name);
	w->expected.disk_size = size_of(q);
	w->expected.shm_bytes = q->shm_bytes;
	w->expected.limits = (struct limits){ q->memory_bytes, q->cpu_percent, q->max_pids };
	w->expected.has_mounts = q->n_mounts > 0;
}

static void refuse(struct warden *w, const struct warden_request *q, const struct err *e)
{
	control_reply(w, WARDEN_REPLY, q->tag, q->id, e, NULL, 0);
}

void birth_free(struct slot *slot)
{
	struct birth *birth = TAKE(slot->birth);

	if (!birth)
		return;
	/* Until it is named, its place under that name is only reserved. */
	if (!slot->id[0] && !slot->wanted_id[0] &&
		map_get(&slot->w->by_id, str_of(birth->message.request.id)) == slot)
		(void)map_remove(&slot->w->by_id, str_of(birth->message.request.id));
	blanks_forget(&birth->blank);
	close_fdp(&birth->settings_fd);
	tree_done(&birth->tree);
	free(birth);
}

/* Its disk is there. */
static void go_on(struct slot *slot, struct err *e)
{
	struct birth *birth = slot->birth;
	int r = e->code;

	if (r >= 0)
		r = slot_finish(slot, e);
	if (r >= 0)
		r = boot_slot(slot, &birth->message, &birth->tree, birth->settings_fd, e);
	if (r < 0)
		slot_end(slot, e);
	else
		birth_free(slot);
}

static void image_copied(void *arg, const struct copy_report *report)
{
	struct slot *slot = arg;
	struct err e = report->e;

	slot->copier = NULL;
	log_debug("image.copied", "slot=%s code=%d us=%" PRId64, slot->key, e.code,
		report->total_us);
	go_on(slot, &e);
}

static void blank_made(void *arg, const struct err *made)
{
	struct slot *slot = arg;
	struct err e = *made;

	go_on(slot, &e);
}

static int copy_saved(struct slot *slot, int take_saved_fd, struct err *e)
{
	CLEANUP(copy_order_done) struct copy_order o = COPY_ORDER_INIT;
	struct warden *w = slot->w;

	o.from_fd = take_saved_fd;
	o.to_fd = disk_begin(&w->disk, slot->key, &slot->image, e);
	if (o.to_fd < 0)
		return o.to_fd;
	return copier_start(w->loop, &w->copiers, &o, image_copied, slot, &slot->copier, e);
}

static int open_saved(const struct warden *w, const char *name, struct err *e)
{
	if (!disk_has_images(&w->disk))
		return err_set(e, -EOPNOTSUPP,
			"saved images need loop devices, and this host has none");
	return saved_open(&w->disk, name, e);
}

/* As create, but its disk is not there yet: a copy of a saved one, or the first of its size. It
 * goes on when that has been made. */
static void create_later(struct warden *w, const struct warden_message *m, struct tree *tree,
	int settings_fd, const struct ranges *ranges)
{
	const struct warden_request *q = &m->request;
	int64_t now_us = time_now_us();
	struct slot *slot = NULL;
	struct err e = { 0 };
	cleanup_close int saved_fd = q->image_name[0] ? open_saved(w, q->image_name, &e) : -EBADF;

	if (e.code < 0 || make_slot(w, q, true, &slot, &e) < 0) {
		refuse(w, q, &e);
		return;
	}
	slot->create_pending = true;
	slot->create_tag = q->tag;
	slot->created_us = now_us;
	slot->state = SLOT_BOOTING;
	slot->birth = XNEW(struct birth);
	*slot->birth = (struct birth){ .message = *m,
		.settings_fd = fcntl(settings_fd, F_DUPFD_CLOEXEC, 0),
		.tree = *tree };
	tree->fd = -EBADF;
	(void)map_put(&w->by_id, str_of(slot->birth->message.request.id), slot);
	if (policy_give(slot, ranges, &e) < 0)
		slot_end(slot, &e);
	else if (!q->image_name[0])
		blanks_ask(&w->blanks, &slot->birth->blank, size_of(q), blank_made, slot);
	else if (copy_saved(slot, TAKE_FD(saved_fd), &e) < 0)
		slot_end(slot, &e);
	refill_soon(w);
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
	int64_t now_us = time_now_us();
	CLEANUP(tree_done) struct tree tree = TREE_INIT;
	struct slot *slot = NULL;
	struct ranges ranges;
	struct err e = { 0 };
	int r = check_files(q, fds, n_fds, &ranges, &e);

	if (r >= 0 && map_get(&w->by_id, str_of(q->id)))
		r = err_set(&e, -EEXIST, "sandbox '%s' exists", q->id);
	if (r >= 0)
		r = engine_check((enum warden_engine)q->engine, &e);
	if (r >= 0)
		r = tree_open(w, q->template_name, &tree, &e);
	if (r < 0) {
		refuse(w, q, &e);
		return;
	}
	if (q->image_name[0] || !disk_is_prepared(&w->disk, size_of(q))) {
		create_later(w, m, &tree, fds[0], &ranges);
		return;
	}
	if (q->engine == WARDEN_LOCAL) {
		expect(w, q);
		slot = find_slot(w, q, &tree);
	}
	if (!slot && make_slot(w, q, false, &slot, &e) < 0) {
		refuse(w, q, &e);
		return;
	}
	slot->create_pending = true;
	slot->create_tag = q->tag;
	slot->created_us = now_us;
	if (policy_give(slot, &ranges, &e) < 0 || boot_slot(slot, m, &tree, fds[0], &e) < 0)
		slot_end(slot, &e); /* which answers when nothing is left */
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
		message.bytes = net_sent_bytes(&w->network, slot->number);
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
