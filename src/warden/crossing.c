/* Telling the server when a sandbox comes up against a limit that only the kernel sees. The kernel
 * may speak up hundreds of times a second (a fork bomb) and before it acts (memory), so that after
 * its first word nobody listens for a moment, and then the counter is read. */
#include "warden/warden.h"

enum {
	SETTLE_MS = 100,
	MAX_LOOKS = 10, /* for a counter that has not moved yet */
};

static void on_event(void *arg, uint32_t events)
{
	struct crossing *c = arg;

	(void)events;
	loop_io_remove(&c->io);
	c->looks = 0;
	loop_timer_set(&c->timer, loop_now_ms(c->slot->w->loop) + SETTLE_MS);
}

static int listen_again(struct crossing *c, struct err *e)
{
	return loop_io_add(c->slot->w->loop, &c->io, c->fd, c->events, on_event, c, e);
}

static void look(void *arg)
{
	struct crossing *c = arg;
	struct slot *slot = c->slot;
	STEP(slot->w, WARDEN_STEP_LOOK);
	int64_t count = meter_read(&slot->w->cgroups, slot->key, c->limit, c->fd);

	/* A server that is behind is told later, and then of all at once: what waits for it stays
	 * bounded. */
	if (count > c->told && !list_empty(&slot->w->replies)) {
		loop_timer_set(&c->timer, loop_now_ms(slot->w->loop) + SETTLE_MS);
		return;
	}
	if (count > c->told && slot->state == SLOT_RUNNING)
		control_tell(slot->w,
			&(struct warden_reply){ .kind = WARDEN_CROSSED,
				.engine = slot->engine,
				.limit = c->limit,
				.count = (uint64_t)(count - c->told) },
			slot->id);
	if (count <= c->told && ++c->looks < MAX_LOOKS) {
		loop_timer_set(&c->timer, loop_now_ms(slot->w->loop) + SETTLE_MS);
		return;
	}
	c->told = MAX(c->told, count);
	(void)listen_again(c, NULL);
}

int crossings_watch(struct slot *slot, struct err *e)
{
	for (int i = 0; i < WARDEN_LIMITS; i++) {
		struct crossing *c = &slot->crossings[i];
		int r;

		c->slot = slot;
		c->limit = (enum warden_limit)i;
		c->fd = meter_watch(&slot->w->cgroups, slot->key, c->limit, &c->events, e);
		if (c->fd < 0)
			return c->fd;
		/* What was before is told already, or nobody's business. */
		c->told = meter_read(&slot->w->cgroups, slot->key, c->limit, c->fd);
		loop_timer_init(&c->timer, slot->w->loop, look, c);
		r = listen_again(c, e);
		if (r < 0)
			return r;
	}
	return 0;
}

void crossings_end(struct slot *slot)
{
	for (int i = 0; i < WARDEN_LIMITS; i++) {
		struct crossing *c = &slot->crossings[i];

		loop_io_remove(&c->io);
		loop_timer_cancel(&c->timer);
		close_fdp(&c->fd);
		c->fd = -EBADF;
	}
}
