/* Disks that are used again. To make a disk means to copy an image, attach it, mount it, and all of
 * that again backwards at the end: most of what a short-lived sandbox costs. So the disk of one
 * that has left little behind is emptied by a worker, checked to be as its blank was, and waits
 * mounted for the next of its size. Its blocks that were freed are not readable through its file
 * system. What was saved from, shared or written much to is never used again. */
#include "warden/warden.h"

enum {
	MAX_SPARES = 32,
	MAX_USES = 64,  /* of one disk: whatever adds up unseen ends */
	IDLE_MS = 1000, /* nobody has taken any: they go, one after the other */
	NEXT_MS = 50,
};

struct spare {
	struct list node;
	struct image image;
	struct disk_size size;
	struct disk_use blank;
	int n_uses;
};

bool spare_may_be(const struct slot *slot)
{
	const struct warden *w = slot->w;

	return slot->blank.inodes && slot->engine == WARDEN_LOCAL && slot->n_volumes == 0 &&
	       slot->image.layer_fd >= 0 && !slot->has_lost_writes && !slot->was_saved &&
	       slot->n_uses < MAX_USES && !w->is_short && !w->leaving &&
	       w->n_spares < MIN(MAX_SPARES, w->options->pool) && expect_size(w, slot->disk_size);
}

/* Its last user is gone: a slot that nobody named takes it away. */
static void drop(struct warden *w, struct spare *spare)
{
	struct slot *slot = slot_new(w, &w->expected);
	struct err why = { .code = -ECANCELED };

	slot->image = spare->image;
	list_remove(&spare->node);
	free(spare);
	w->n_spares--;
	slot_end(slot, &why);
}

void spares_drop(struct warden *w)
{
	loop_timer_cancel(&w->spare_timer);
	LIST_EACH(&w->spares, node)
	drop(w, container_of(node, struct spare, node));
}

static void look(void *arg)
{
	struct warden *w = arg;
	bool is_idle = !w->spare_taken;

	w->spare_taken = false;
	if (is_idle && w->n_spares > 0)
		drop(w, container_of(w->spares.next, struct spare, node));
	if (w->n_spares > 0)
		loop_timer_set(&w->spare_timer,
			loop_now_ms(w->loop) + (is_idle ? NEXT_MS : IDLE_MS));
}

void spare_keep(struct slot *slot, int take_mount_fd)
{
	struct warden *w = slot->w;
	struct spare *spare = XNEW(struct spare);

	*spare = (struct spare){ .image = slot->image,
		.size = slot->disk_size,
		.blank = slot->blank,
		.n_uses = slot->n_uses + 1 };
	spare->image.mount_fd = take_mount_fd;
	spare->image.layer_fd = -EBADF;
	slot->image = (struct image)IMAGE_INIT;
	list_append(&w->spares, &spare->node);
	w->n_spares++;
	if (w->is_short || w->leaving) {
		drop(w, spare);
		return;
	}
	if (!w->spare_timer.loop)
		loop_timer_init(&w->spare_timer, w->loop, look, w);
	if (!loop_timer_is_set(&w->spare_timer))
		loop_timer_set(&w->spare_timer, loop_now_ms(w->loop) + IDLE_MS);
}

/* The one that was used last: what the kernel knows of it is still in its caches. */
bool spare_take(struct slot *slot, struct work_order *order, int *ret_mount_fd)
{
	struct warden *w = slot->w;
	struct spare *found = NULL;

	LIST_EACH(&w->spares, node)
	{
		struct spare *spare = container_of(node, struct spare, node);

		if (disk_size_eq(spare->size, slot->disk_size))
			found = spare;
	}
	if (!found)
		return false;
	slot->blank = found->blank;
	slot->n_uses = found->n_uses;
	slot->image.is = order->disk = found->image.is;
	*ret_mount_fd = found->image.mount_fd;
	list_remove(&found->node);
	free(found);
	w->n_spares--;
	w->spare_taken = true;
	return true;
}

void spares_close(struct warden *w)
{
	loop_timer_cancel(&w->spare_timer);
	LIST_EACH(&w->spares, node)
	{
		struct spare *spare = container_of(node, struct spare, node);

		list_remove(&spare->node);
		close_fdp(&spare->image.mount_fd);
		free(spare);
	}
}
