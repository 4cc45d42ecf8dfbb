/* Volumes on the warden's side. What the server asks of them goes to workers. And mounts of volumes
 * that sandboxes have are kept here for a moment longer than by them: so a sandbox never waits at
 * its end for its volumes to be written out and unmounted, and who gets the same one next finds it
 * mounted. The last descriptor is closed by a worker. */
#include "warden/volume-image.h"
#include "warden/warden.h"

enum {
	MAX_ASKED = 256,
	MAX_KEPT = 64,
	KEEP_MS = 3000,
};

struct asked {
	struct warden *w;
	uint64_t tag;
};

struct kept { /* of a sandbox that has ended */
	struct list node;
	int64_t until_ms;
	int n_fds;
	int fds[WARDEN_MAX_MOUNTS];
};

/* ---- what the server asks ---- */

static void served(void *arg, const struct work_report *report, const int *fds, int n_fds)
{
	struct asked *asked = arg;
	struct warden *w = asked->w;
	STEP(w, WARDEN_STEP_WORKED);

	CRASH_POINT("warden.volume.done");
	w->n_asked--;
	control_reply(w, WARDEN_REPLY, asked->tag, "", &report->e, fds, n_fds);
	free(asked);
	volumes_close(w, fds, n_fds);
	if (w->leaving)
		warden_leave(w);
}

static enum work_op work_of(uint32_t op)
{
	return op == WARDEN_VOLUME_MAKE   ? WORK_VOLUME_MAKE
	       : op == WARDEN_VOLUME_OPEN ? WORK_VOLUME_OPEN
					  : WORK_VOLUME_REMOVE;
}

void volume_serve(struct warden *w, const struct warden_message *m)
{
	const struct warden_request *q = &m->request;
	struct work_order order = { .op = work_of(q->op), .size = { q->disk_bytes, 0 } };
	struct err e = { 0 };
	struct asked *asked;
	int r = 0;

	memcpy(order.volume, m->mounts[0].volume, sizeof order.volume);
	if (w->n_asked >= MAX_ASKED)
		r = err_set(&e, -EBUSY, "too many volumes are being worked on");
	else if (q->op == WARDEN_VOLUME_MAKE && w->volumes.images_fd >= 0)
		r = hold_check(w, 0, &e);
	if (r < 0) {
		control_reply(w, WARDEN_REPLY, q->tag, "", &e, NULL, 0);
		return;
	}
	asked = XNEW(struct asked);
	*asked = (struct asked){ w, q->tag };
	w->n_asked++;
	(void)work_ask(&w->workers, LANE_USED, true, &order, NULL, served, asked);
	CRASH_POINT("warden.volume.asked");
}

/* ---- mounts on their way out ---- */

void volumes_close(struct warden *w, const int *take_fds, int n)
{
	const struct work_order order = { .op = WORK_CLOSE };
	int fds[WORK_FDS], at = 0;

	while (at < n) {
		work_no_fds(fds);
		for (int i = 0; i < WORK_FDS && at < n; i++)
			fds[i] = take_fds[at++];
		(void)work_ask(&w->workers, LANE_USED, false, &order, fds, NULL, NULL);
	}
}

static void let_go(struct warden *w, struct kept *kept)
{
	volumes_close(w, kept->fds, kept->n_fds);
	list_remove(&kept->node);
	free(kept);
	w->n_kept--;
}

static void on_timer(void *arg)
{
	struct warden *w = arg;

	LIST_EACH(&w->kept_volumes, node)
	{
		struct kept *kept = container_of(node, struct kept, node);

		if (kept->until_ms > loop_now_ms(w->loop)) {
			loop_timer_set(&w->kept_timer, kept->until_ms);
			return;
		}
		let_go(w, kept);
	}
}

void volumes_keep(struct slot *slot)
{
	struct warden *w = slot->w;
	int n = slot->n_volume_fds;
	struct kept *kept;

	slot->n_volume_fds = 0;
	if (n == 0 || w->leaving) {
		volumes_close(w, slot->volume_fds, n);
		return;
	}
	kept = XNEW(struct kept);
	kept->until_ms = loop_now_ms(w->loop) + KEEP_MS;
	kept->n_fds = n;
	memcpy(kept->fds, slot->volume_fds, sizeof kept->fds);
	list_append(&w->kept_volumes, &kept->node);
	if (++w->n_kept > MAX_KEPT) /* the oldest: never this one */
		let_go(w, container_of(w->kept_volumes.next, struct kept, node));
	if (!w->kept_timer.loop)
		loop_timer_init(&w->kept_timer, w->loop, on_timer, w);
	if (!loop_timer_is_set(&w->kept_timer))
		loop_timer_set(&w->kept_timer, loop_now_ms(w->loop) + KEEP_MS);
}

void volumes_drop(struct warden *w)
{
	loop_timer_cancel(&w->kept_timer);
	LIST_EACH(&w->kept_volumes, node)
	let_go(w, container_of(node, struct kept, node));
}

void volumes_forget(struct warden *w)
{
	LIST_EACH(&w->kept_volumes, node)
	{
		struct kept *kept = container_of(node, struct kept, node);

		while (kept->n_fds > 0)
			(void)close(kept->fds[--kept->n_fds]);
		list_remove(&kept->node);
		free(kept);
	}
}

/* ---- at start ---- */

/* A server that somebody has got hold of may have put something else there: then there are no
 * images, and the sandboxes go on. */
int volumes_find_images(struct warden *w, struct err *e)
{
	struct volumes *v = &w->volumes;
	int r;

	v->control_fd = w->disk.control_fd;
	v->rootfs = &w->rootfs;
	if (v->dir_fd < 0 || v->control_fd < 0)
		return 0;
	r = warden_open_own_dir(v->dir_fd, VOLUME_IMAGES_DIR, VOLUME_IMAGES_MODE, &v->images_fd, e);
	if (r >= 0)
		volume_image_tidy(v);
	return r;
}
