/* A sandbox that stands still: stopped on purpose until it is let go, or for the moment in which
 * its disk is copied. One such request at a time for each sandbox, the others wait their turn. */
#include "warden/saved.h"
#include "warden/warden.h"
#include "warden/host.h"

enum {
	MAX_PENDING = 64,
	LOST_LOOK_MS = 50,
	OLD_WORKER_DEADLINE_MS = 10000,
	MIB = 1 << 20,
};

/* In the run directory while the disk is copied; the worker holds a lock on it for as long as it
 * lives. It tells the next warden what the sandbox is to be when that is over: paused as it was, or
 * else let go, should nobody have done so. */
#define MARKER_NAME "saving"
#define MARKER_PAUSED "p"

static void serve(struct slot *slot, const struct warden_request *q);

static void answer(const struct slot *slot, const struct warden_request *q, const struct err *e)
{
	control_reply(slot->w, WARDEN_REPLY, q->tag, q->id, e, NULL, 0);
}

/* Whether it stood still before somebody wanted its disk. */
static bool stands(const struct slot *slot)
{
	return slot->frozen || slot->is_held;
}

static int order(const struct slot *slot, bool frozen, struct err *e)
{
	CLEANUP(freezer_close) struct freezer f = FREEZER_INIT;
	int r = freezer_open(&slot->w->cgroups, slot->key, &f, e);

	if (r >= 0)
		r = freezer_order(&f, frozen);
	return r < 0 ? err_sys(e, r, "stop or start the processes") : 0;
}

/* ---- orders of which nobody said what came ---- */

/* The kernel says. Whoever asked was told that it failed: one that nobody wants to stand still goes
 * on. Of one that is held the kernel does not say whether it is paused as well. */
static void settle(struct slot *slot)
{
	CLEANUP(freezer_close) struct freezer f = FREEZER_INIT;

	slot->must_settle = false;
	if (freezer_open(&slot->w->cgroups, slot->key, &f, NULL) < 0)
		return;
	if (!stands(slot))
		(void)freezer_order(&f, false);
	if (!slot->is_held)
		slot->frozen = freezer_is_ordered(&f);
	hold_note(slot);
}

static void settle_soon(struct slot *slot)
{
	if (slot->state == SLOT_ENDING) {
		if (slot->w->cgroups.unified_fd < 0) /* what the old freezer holds does not die */
			(void)order(slot, false, NULL);
	} else if (slot->still.op) {
		slot->must_settle = true;
	} else {
		settle(slot);
	}
}

void still_settle(struct warden *w)
{
	LIST_EACH(&w->slots, node)
	{
		struct slot *slot = container_of(node, struct slot, node);

		if (slot->state == SLOT_RUNNING)
			settle_soon(slot);
	}
}

static void look_for_lost(void *arg)
{
	struct slot *slot = arg;

	if (workers_have(&slot->w->workers, slot->lost_pid)) {
		loop_timer_set(&slot->lost_timer, loop_now_ms(slot->w->loop) + LOST_LOOK_MS);
		return;
	}
	slot->lost_pid = 0;
	settle_soon(slot);
}

/* A worker that was killed in the kernel does what it is at before it dies, however late. */
static void await_lost(struct slot *slot, pid_t pid)
{
	slot->lost_pid = pid;
	loop_timer_init(&slot->lost_timer, slot->w->loop, look_for_lost, slot);
	loop_timer_set(&slot->lost_timer, loop_now_ms(slot->w->loop) + LOST_LOOK_MS);
}

static int check_lost(const struct slot *slot, struct err *e)
{
	return slot->lost_pid ? err_set(e, -EBUSY,
					"an earlier order to stop or start the sandbox still waits "
					"in the kernel: try again later")
			      : 0;
}

/* ---- one request at a time ---- */

/* The next ones may be served at once, so this goes on until one takes its time. `count` goes with
 * the answer. */
static void finish(struct slot *slot, uint64_t count, const struct err *e)
{
	struct warden_request q = slot->still;
	struct warden_reply reply = { .kind = WARDEN_REPLY, .tag = q.tag, .count = count, .e = *e };

	slot->still = (struct warden_request){ 0 };
	if (slot->must_settle)
		settle(slot);
	control_tell(slot->w, &reply, q.id);
	hold_catch_up(slot);
	while (!slot->still.op && !list_empty(&slot->pending)) {
		struct pending *next = container_of(slot->pending.next, struct pending, node);

		list_remove(&next->node);
		q = next->request;
		free(next);
		serve(slot, &q);
	}
}

/* What it is now is seen by the next warden, should this one not live to see it. */
static void stopped(void *arg, const struct work_report *report, const int *fds, int n_fds)
{
	struct slot *slot = arg;
	bool wanted = slot->still.op == WARDEN_FREEZE;
	STEP(slot->w, WARDEN_STEP_WORKED);

	(void)fds;
	(void)n_fds;
	slot->work = NULL;
	if (report->e.code < 0 && report->pid)
		await_lost(slot, report->pid);
	if (slot->state == SLOT_ENDING) {
		/* What the old freezer holds does not die. */
		if (slot->w->cgroups.unified_fd < 0)
			(void)order(slot, false, NULL);
		slot_worked(slot);
		return;
	}
	if (report->e.code >= 0)
		slot->frozen = wanted;
	else
		settle(slot);
	hold_note(slot);
	if (!wanted)
		CRASH_POINT("warden.thaw");
	finish(slot, 0, &report->e);
	if (slot->w->leaving)
		warden_leave(slot->w);
}

static void ask_stop(struct slot *slot, const struct warden_request *q, enum work_op op)
{
	struct work_order order = { .op = op,
		.stays_ordered = slot->is_held,
		.may_serve = slot->may_serve_files };

	memcpy(order.key, slot->key, sizeof order.key);
	slot->still = *q;
	slot->work = work_ask(&slot->w->workers, LANE_USED, true, &order, NULL, stopped, slot);
}

static void freeze(struct slot *slot, const struct warden_request *q)
{
	struct err e = { 0 };

	if (check_lost(slot, &e) < 0 || slot->frozen)
		answer(slot, q, &e);
	else
		ask_stop(slot, q, WORK_STOP);
	CRASH_POINT("warden.freeze");
}

static void thaw(struct slot *slot, const struct warden_request *q)
{
	struct err e = { 0 };

	if (!slot->is_held && check_lost(slot, &e) >= 0) {
		ask_stop(slot, q, WORK_GO);
		return;
	}
	if (e.code < 0) {
		answer(slot, q, &e);
		return;
	}
	/* One that is held goes on when there is room. */
	slot->frozen = false;
	hold_note(slot);
	CRASH_POINT("warden.thaw");
	answer(slot, q, &e);
}

static int open_run_dir(const struct slot *slot)
{
	return openat(slot->w->run_fd, slot->id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int make_marker(const struct slot *slot, struct err *e)
{
	cleanup_close int dir = open_run_dir(slot);
	cleanup_close int fd =
		openat(dir, MARKER_NAME, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0 || (stands(slot) && write(fd, MARKER_PAUSED, 1) != 1))
		return err_sys(e, -errno, "mark the sandbox");
	return TAKE_FD(fd);
}

static void remove_marker(const struct slot *slot)
{
	cleanup_close int dir = open_run_dir(slot);

	(void)unlinkat(dir, MARKER_NAME, 0);
}

/* Its disk is no longer what its programs wrote: no copy may pass for one of it. */
static int tell_lost_writes(struct err *e)
{
	return err_set(e, -ENOSPC,
		"the host's disk was full or failed, and writes of this sandbox were lost: its "
		"files cannot be saved; copy what you need out of it and start another");
}

/* ---- images ---- */

/* A name is taken from when somebody begins to save under it until nothing of it is left. */
struct saved_image {
	char name[WARDEN_ID_SIZE];
	bool is_ready;
};

static struct saved_image *image_reserve(struct warden *w, const char *name)
{
	struct saved_image *image = XNEW(struct saved_image);

	(void)snprintf(image->name, sizeof image->name, "%s", name);
	(void)map_put(&w->images, str_of(image->name), image);
	return image;
}

static void image_forget(struct warden *w, const char *name)
{
	free(map_remove(&w->images, str_of(name)));
}

static void load_one(void *arg, const char *name)
{
	struct warden *w = arg;

	if (strlen(name) < WARDEN_ID_SIZE && !map_get(&w->images, str_of(name)))
		image_reserve(w, name)->is_ready = true;
}

void images_load(struct warden *w)
{
	saved_each(&w->disk, load_one, w);
}

bool image_exists(const struct warden *w, const char *name)
{
	const struct saved_image *image = map_get(&w->images, str_of(name));

	return image && image->is_ready;
}

void images_close(struct warden *w)
{
	struct saved_image *image;
	size_t at = 0;

	while ((image = map_next(&w->images, &at)))
		free(image);
	map_done(&w->images);
	LIST_EACH(&w->discards, node)
	free(container_of(node, struct discard, node));
}

static void discarded(void *arg, const struct work_report *report, const int *fds, int n_fds)
{
	struct discard *d = arg;
	struct saved_image *image = map_get(&d->w->images, str_of(d->request.image_name));

	(void)fds;
	(void)n_fds;
	list_remove(&d->node);
	if (report->e.code >= 0 || report->e.code == -ENOENT || d->is_unasked)
		image_forget(d->w, d->request.image_name);
	else if (image)
		image->is_ready = true;
	if (!d->is_unasked)
		control_reply(d->w, WARDEN_REPLY, d->request.tag, "", &report->e, NULL, 0);
	free(d);
}

/* Nobody can start from it from now on; its name is free when it is gone. */
static void discard(struct warden *w, const struct warden_request *q, bool is_unasked)
{
	struct saved_image *image = map_get(&w->images, str_of(q->image_name));
	struct work_order order = { .op = WORK_DISCARD };
	struct discard *d = XNEW(struct discard);

	if (image)
		image->is_ready = false;
	*d = (struct discard){ .w = w, .request = *q, .is_unasked = is_unasked };
	list_append(&w->discards, &d->node);
	memcpy(order.image_name, q->image_name, sizeof order.image_name);
	(void)work_ask(&w->workers, LANE_USED, false, &order, NULL, discarded, d);
}

void image_discard(struct warden *w, const struct warden_request *q)
{
	struct err e = { 0 };

	if (image_exists(w, q->image_name)) {
		discard(w, q, false);
		return;
	}
	(void)err_set(&e, -ENOENT, "there is no image '%s'", q->image_name);
	control_reply(w, WARDEN_REPLY, q->tag, "", &e, NULL, 0);
}

void image_list(struct warden *w, const struct warden_request *q)
{
	struct saved_image *image;
	struct err fine = { 0 };
	size_t at = 0;

	while ((image = map_next(&w->images, &at)))
		if (image->is_ready)
			control_tell(w,
				&(struct warden_reply){ .kind = WARDEN_LISTED, .tag = q->tag },
				image->name);
	control_reply(w, WARDEN_REPLY, q->tag, "", &fine, NULL, 0);
}

/* ---- saving ---- */

static void saved(void *arg, const struct work_report *report, const int *fds, int n_fds)
{
	struct slot *slot = arg;
	const char *name = slot->still.image_name;
	struct err e = report->e;
	STEP(slot->w, WARDEN_STEP_WORKED);

	(void)fds;
	(void)n_fds;
	CRASH_POINT("warden.save.copied");
	slot->work = NULL;
	/* One that was killed had no time to let the sandbox go, or to tidy up. */
	if (e.code < 0 && report->pid)
		await_lost(slot, report->pid);
	if (e.code < 0)
		settle(slot);
	remove_marker(slot);
	if (e.code == -ETIMEDOUT || e.code == -EIO)
		discard(slot->w, &slot->still, true);
	else if (e.code < 0)
		image_forget(slot->w, name);
	else
		((struct saved_image *)map_get(&slot->w->images, str_of(name)))->is_ready = true;
	if (report->has_lost_writes) {
		slot->has_lost_writes = true;
		(void)tell_lost_writes(&e);
	}
	log_debug("sandbox.saved",
		"sandbox_id=%s image=%s code=%d still_us=%" PRId64 " us=%" PRId64, slot->id, name,
		e.code, report->still_us, time_now_us() - slot->asked_us);
	finish(slot, e.code < 0 ? 0 : (report->bytes + MIB - 1) / MIB, &e);
	if (slot->w->leaving)
		warden_leave(slot->w);
}

static int open_freezer(const struct slot *slot, struct work_order *order, int fds[WORK_FDS],
	struct err *e)
{
	struct freezer f = FREEZER_INIT;
	int r;

	if (stands(slot))
		return 0;
	r = freezer_open(&slot->w->cgroups, slot->key, &f, e);
	fds[WORK_FREEZE] = f.order_fd;
	fds[WORK_FROZEN] = f.state_fd;
	order->freezer_is_legacy = f.legacy;
	return r;
}

static int ask_save(struct slot *slot, const char *name, struct err *e)
{
	struct work_order order = { .op = WORK_SAVE,
		.disk = slot->image.is,
		.may_serve = slot->may_serve_files };
	int fds[WORK_FDS], r;

	work_no_fds(fds);
	memcpy(order.key, slot->key, sizeof order.key);
	(void)snprintf(order.image_name, sizeof order.image_name, "%s", name);
	if (slot->image.layer_fd >= 0)
		fds[WORK_LAYER] = fcntl(slot->image.layer_fd, F_DUPFD_CLOEXEC, 0);
	r = open_freezer(slot, &order, fds, e);
	if (r >= 0)
		r = fds[WORK_MARKER] = make_marker(slot, e);
	slot->asked_us = time_now_us();
	if (r >= 0)
		slot->work =
			work_ask(&slot->w->workers, LANE_USED, false, &order, fds, saved, slot);
	for (int i = 0; r < 0 && i < WORK_FDS; i++)
		close_fdp(&fds[i]);
	return r;
}

static void save(struct slot *slot, const struct warden_request *q)
{
	struct err e = { 0 };
	int r = slot->has_lost_writes ? tell_lost_writes(&e) : check_lost(slot, &e);

	if (r >= 0 && map_get(&slot->w->images, str_of(q->image_name)))
		r = err_set(&e, -EEXIST, "there is an image '%s' already", q->image_name);
	if (r >= 0)
		r = ask_save(slot, q->image_name, &e);
	CRASH_POINT("warden.save.started");
	if (r < 0) {
		answer(slot, q, &e);
		return;
	}
	slot->still = *q;
	slot->was_saved = true;
	(void)image_reserve(slot->w, q->image_name);
}

static void serve(struct slot *slot, const struct warden_request *q)
{
	if (q->op == WARDEN_FREEZE)
		freeze(slot, q);
	else if (q->op == WARDEN_THAW)
		thaw(slot, q);
	else
		save(slot, q);
}

static bool is_full(const struct slot *slot)
{
	int n = 0;

	LIST_EACH(&slot->pending, node)
	n++;
	return n >= MAX_PENDING;
}

void sandbox_still(struct warden *w, const struct warden_request *q)
{
	struct slot *slot = map_get(&w->by_id, str_of(q->id));
	struct pending *pending;
	struct err e = { 0 };

	if (!slot || slot->state != SLOT_RUNNING)
		(void)err_set(&e, -ENOENT, "there is no sandbox '%s'", q->id);
	else if (is_full(slot))
		(void)err_set(&e, -EBUSY, "too many requests wait for sandbox '%s'", q->id);
	if (!slot || e.code < 0) {
		control_reply(w, WARDEN_REPLY, q->tag, q->id, &e, NULL, 0);
	} else if (!slot->still.op) {
		serve(slot, q);
	} else {
		pending = XNEW(struct pending);
		pending->request = *q;
		list_append(&slot->pending, &pending->node);
	}
}

void still_end(struct slot *slot)
{
	struct err e = { 0 };

	(void)err_set(&e, -ENOENT, "sandbox '%s' ended meanwhile", slot->id);
	if (slot->still.op == WARDEN_SAVE) {
		work_kill(TAKE(slot->work));
		discard(slot->w, &slot->still, true);
	} else if (slot->work && !slot->is_dead && !work_is_begun(slot->work)) {
		work_forget(TAKE(slot->work));
	} else if (slot->work && !slot->is_dead) {
		work_stop(slot->work);
	}
	if (slot->still.op)
		answer(slot, &slot->still, &e);
	slot->still = (struct warden_request){ 0 };
	LIST_EACH(&slot->pending, node)
	{
		struct pending *pending = container_of(node, struct pending, node);

		answer(slot, &pending->request, &e);
		list_remove(&pending->node);
		free(pending);
	}
}

/* An earlier warden's worker may still be at it. It finishes soon, and must have, before anybody
 * decides whether this sandbox stands still. */
static int await_worker(int marker_fd, const char *id, struct err *e)
{
	int64_t deadline_ms = time_now_ms() + OLD_WORKER_DEADLINE_MS;

	while (file_lock(marker_fd, F_WRLCK) < 0) {
		if (time_now_ms() > deadline_ms)
			return err_set(e, -EBUSY, "'%s' is still being copied", id);
		(void)usleep(1000);
	}
	return 0;
}

int still_adopt(struct slot *slot, struct err *e)
{
	CLEANUP(freezer_close) struct freezer f = FREEZER_INIT;
	cleanup_close int dir = open_run_dir(slot);
	cleanup_close int marker = openat(dir, MARKER_NAME, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	char paused;
	int r = freezer_open(&slot->w->cgroups, slot->key, &f, e);

	if (r == -EOPNOTSUPP)
		return 0;
	if (r >= 0 && marker >= 0)
		r = await_worker(marker, slot->id, e);
	if (r < 0)
		return r;
	if (marker >= 0) {
		if (read(marker, &paused, 1) != 1)
			(void)freezer_order(&f, false);
		(void)unlinkat(dir, MARKER_NAME, 0);
	}
	slot->frozen = freezer_is_ordered(&f);
	hold_adopt(slot);
	return 0;
}
