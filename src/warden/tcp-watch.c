#include "warden/tcp.h"
#include "warden/warden.h"

enum {
	LOOK_MS = 250,
	LITTLE_BYTES = 64 << 20,
	CLOSED_PART = 4, /* of the closed ones there may be: the kernel begins to cut them there */
	MIB = 1 << 20,
};

static struct tcp_host look_at_host(void)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	struct tcp_host host = { 0 };

	if (file_read(AT_FDCWD, "/proc/net/sockstat", &text, NULL) >= 0)
		tcp_read_host(buf_str(&text), &host);
	return host;
}

static struct slot *find(const struct warden *w, const char *key)
{
	LIST_EACH(&w->slots, node)
	{
		struct slot *slot = container_of(node, struct slot, node);

		if (slot->state == SLOT_RUNNING && strcmp(slot->key, key) == 0)
			return slot;
	}
	return NULL;
}

static void end_taker(struct slot *slot, int64_t bytes)
{
	struct err why = { 0 };

	if (bytes)
		(void)err_set(&why, -ENOMEM,
			"the kernel held %d MiB of what was sent to TCP connections that this "
			"sandbox had not accepted, more than an eighth of its memory: accept or "
			"refuse them",
			(int)(bytes / MIB));
	else
		(void)err_set(&why, -ENOMEM,
			"this sandbox had closed more than an eighth of all the TCP connections "
			"that the kernel keeps until they are sent: read what is sent, or reset "
			"them");
	log_warn("sandbox.too_much_tcp", "sandbox_id=%s err=%s", slot->id,
		log_quote(str_of(why.msg)));
	control_tell(slot->w,
		&(struct warden_reply){ .kind = WARDEN_EXITED, .engine = slot->engine, .e = why },
		slot->id);
	slot_end(slot, &why);
}

static void looked(void *arg, const struct work_report *report, const int *fds, int n_fds)
{
	struct tcp_watch *watch = arg;
	struct slot *slot = NULL;

	(void)fds;
	(void)n_fds;
	if (report->e.code == 0 && report->key[0])
		slot = find(watch->w, report->key);
	watch->is_looking = false;
	watch->has_found = slot != NULL;
	if (slot)
		end_taker(slot, (int64_t)report->bytes);
}

static void look(void *arg)
{
	const struct work_order order = { .op = WORK_TCP };
	struct tcp_watch *watch = arg;
	struct tcp_host host = look_at_host();
	bool is_much = host.bytes - watch->low_bytes > LITTLE_BYTES ||
		       host.n_closed > watch->max_closed / CLOSED_PART;

	if ((is_much || watch->has_found) && !watch->is_looking) {
		watch->is_looking = true;
		(void)work_ask(&watch->w->workers, LANE_USED, false, &order, NULL, looked, watch);
		watch->low_bytes = host.bytes;
	}
	watch->low_bytes = MIN(watch->low_bytes, host.bytes);
	loop_timer_set(&watch->timer, loop_now_ms(watch->w->loop) + LOOK_MS);
}

void tcp_watch_start(struct tcp_watch *watch, struct warden *w)
{
	*watch = (struct tcp_watch){ .w = w, .max_closed = tcp_max_closed() };
	loop_timer_init(&watch->timer, w->loop, look, watch);
	loop_timer_set(&watch->timer, loop_now_ms(w->loop) + LOOK_MS);
}

void tcp_watch_stop(struct tcp_watch *watch)
{
	loop_timer_cancel(&watch->timer);
}
