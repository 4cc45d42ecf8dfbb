/* What sandboxes may reach: kept beside their state, and laid in the firewall. The file is written
 * first: should the warden die in between, the next one lays what the file says, and the server
 * says again what it should be.
 *
 * The rules look at every packet outwards, and let in what the kernel knows as an answer. Whom a
 * policy has closed may go on sending datagrams, which keep themselves known: so a worker has the
 * kernel forget those, behind the change (WORK_CUT), and behind a restart, in case the warden
 * before did not come to it. */
#include "warden/warden.h"
#include "warden/nflog.h"

enum {
	LOOK_PAUSE_MS = 5000,
};

/* Not found: it is none of ours any more. */
static struct slot *slot_of_number(const struct warden *w, int number)
{
	LIST_EACH(&w->slots, node)
	{
		struct slot *slot = container_of(node, struct slot, node);

		if (slot->number == number && slot->state == SLOT_RUNNING)
			return slot;
	}
	return NULL;
}

static void on_packet(void *arg, const struct logged_packet *packet)
{
	struct warden *w = arg;
	const struct slot *slot =
		slot_of_number(w, firewall_number_of(&w->firewall, packet->index));
	struct warden_reply message = { .kind = WARDEN_DENIED,
		.address = packet->address,
		.port = packet->port,
		.protocol = packet->protocol };

	/* The kernel tells few, and those need not wait for a server that is behind. */
	if (slot && list_empty(&w->replies))
		control_tell(w, &message, slot->id);
}

static void on_log(void *arg, uint32_t events)
{
	struct warden *w = arg;

	(void)events;
	nflog_read(w->firewall.log_fd, on_packet, w);
}

/* Whoever waited for its policy is told. */
static void settle(struct slot *slot, const struct err *why)
{
	slot_fn laid = TAKE(slot->laid);

	LIST_EACH(&slot->policy_waiters, node)
	{
		struct waiter *waiter = container_of(node, struct waiter, node);

		control_reply(slot->w, WARDEN_REPLY, waiter->tag, slot->id, why, NULL, 0);
		list_remove(&waiter->node);
		free(waiter);
	}
	if (laid && slot->state != SLOT_ENDING)
		laid(slot, why);
}

static void settle_all(struct warden *w, const struct err *why)
{
	LIST_EACH(&w->slots, node)
	settle(container_of(node, struct slot, node), why);
}

static void cut(struct slot *slot, bool urgent);

static void on_laid(void *arg, int number)
{
	struct warden *w = arg;
	struct err fine = { 0 };

	LIST_EACH(&w->slots, node)
	{
		struct slot *slot = container_of(node, struct slot, node);

		if (slot->number != number || slot->is_dead)
			continue;
		if (slot->state == SLOT_RUNNING)
			cut(slot, true);
		settle(slot, &fine);
	}
}

static int rebuild(struct warden *w, bool may_adopt, struct err *e);

/* What the kernel refuses to change is not as it was left: both tables are made anew. */
static int restore(struct warden *w, struct err *e)
{
	struct err why = { 0 };
	int r = net_apply_rules(&why);

	if (r >= 0)
		r = rebuild(w, false, &why);
	if (r >= 0)
		log_warn("firewall.restored", "why=\"somebody had changed or removed its tables\"");
	else if (e)
		*e = why;
	return r;
}

/* One piece of what is being laid, and the next in the next turn. */
static void on_turn(void *arg)
{
	struct warden *w = arg;
	struct err e = { 0 };
	int r = firewall_turn(&w->firewall, &e);

	if (r < 0) {
		e = (struct err){ 0 };
		r = restore(w, &e);
	}
	if (r < 0) {
		log_error("firewall.gone", "err=%s", log_quote(str_of(e.msg)));
		settle_all(w, &e);
	}
	if (r > 0)
		loop_defer(w->loop, &w->rules_next, on_turn, w);
}

static void turn_soon(struct warden *w)
{
	if (w->firewall.enabled && !list_empty(&w->firewall.jobs) && !w->rules_next.loop)
		loop_defer(w->loop, &w->rules_next, on_turn, w);
}

static void look(void *arg)
{
	struct warden *w = arg;
	struct err e = { 0 };
	STEP(w, WARDEN_STEP_LOOK);

	loop_timer_set(&w->rules_timer, loop_now_ms(w->loop) + LOOK_PAUSE_MS);
	net_look_for_others(&w->network);
	if (!firewall_stands(&w->firewall) && restore(w, &e) < 0)
		log_error("firewall.gone", "err=%s", log_quote(str_of(e.msg)));
}

int policy_open(struct warden *w, const char *instance, struct err *e)
{
	int r;

	if (!w->network.enabled)
		return 0;
	w->firewall.opened = w->options->opened;
	w->firewall.laid = on_laid;
	w->firewall.laid_arg = w;
	r = firewall_open(&w->firewall, instance, e);
	if (r >= 0 && w->firewall.log_fd >= 0)
		r = loop_io_add(w->loop, &w->log_io, w->firewall.log_fd, EPOLLIN, on_log, w, e);
	if (r < 0)
		return r;
	loop_timer_init(&w->rules_timer, w->loop, look, w);
	loop_timer_set(&w->rules_timer, loop_now_ms(w->loop) + LOOK_PAUSE_MS);
	return 0;
}

void policy_close(struct warden *w)
{
	loop_io_remove(&w->log_io);
	loop_timer_cancel(&w->rules_timer);
	loop_task_cancel(&w->rules_next);
	if (net_is_last(&w->network))
		firewall_remove_all(&w->firewall);
	else if (w->firewall.is_built && w->by_id.n == 0)
		firewall_remove(&w->firewall);
	firewall_close(&w->firewall);
}

static int open_dir(const struct slot *slot, struct err *e)
{
	char name[WARDEN_ID_SIZE + 1];
	int fd;

	(void)snprintf(name, sizeof name, "%s%s", slot->id[0] ? "" : ".",
		slot->id[0] ? slot->id : slot->key);
	fd = openat(slot->w->run_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? err_sys(e, -errno, "open the run directory") : fd;
}

/* One whose policy cannot be read is given nothing, rather than everything. */
static void read_policy(const struct slot *slot, struct ranges *ret)
{
	struct err e = { 0 };
	cleanup_close int dir_fd = open_dir(slot, &e);
	bool unnamed = !slot->id[0] && dir_fd == -ENOENT; /* not that far yet */

	ret->n = ret->flags = 0;
	if (unnamed || (dir_fd >= 0 && ranges_read(dir_fd, ret, &e) >= 0))
		return;
	log_error("policy.unreadable", "sandbox_id=%s err=%s", slot->id, log_quote(str_of(e.msg)));
	ret->flags = 0;
	ret->n = 1;
	ret->v[0] = (struct warden_range){ 0 };
}

static void cut_done(void *arg, const struct work_report *report, const int *fds, int n_fds)
{
	struct slot *slot = arg;

	(void)fds;
	(void)n_fds;
	slot->cutting = NULL;
	if (report->e.code < 0)
		log_warn("policy.not_cut", "sandbox_id=%s err=%s", slot->id,
			log_quote(str_of(report->e.msg)));
	if (slot->must_cut)
		cut(slot, true);
}

/* One at a time for each: what changes meanwhile is one more. What is not urgent is what the warden
 * before may have left open. */
static void cut(struct slot *slot, bool urgent)
{
	struct warden *w = slot->w;
	struct work_order order = { .op = WORK_CUT, .n_addresses = 1, .cuts_opened = !urgent };
	int fds[WORK_FDS];
	struct err e = { 0 };

	slot->must_cut = slot->cutting;
	if (slot->cutting || !w->firewall.enabled)
		return;
	work_no_fds(fds);
	order.addresses[0] = net_address(&w->network, slot->number);
	fds[WORK_POLICY] = open_dir(slot, &e);
	if (fds[WORK_POLICY] >= 0)
		slot->cutting =
			work_ask(&w->workers, LANE_USED, urgent, &order, fds, cut_done, slot);
	else
		log_warn("policy.not_cut", "sandbox_id=%s err=%s", slot->id,
			log_quote(str_of(e.msg)));
}

static void cut_marked(struct warden *w)
{
	LIST_EACH(&w->slots, node)
	{
		struct slot *slot = container_of(node, struct slot, node);

		if (slot->must_cut && !slot->cutting)
			cut(slot, false);
	}
}

/* What was laid at once has nobody else to tell of it. */
static void settle_laid(struct warden *w)
{
	struct err fine = { 0 };

	LIST_EACH(&w->slots, node)
	{
		struct slot *slot = container_of(node, struct slot, node);

		if (!firewall_is_laying(&w->firewall, slot->number))
			settle(slot, &fine);
	}
}

static void expect(struct warden *w)
{
	firewall_begin(&w->firewall);
	LIST_EACH(&w->slots, node)
	{
		struct slot *slot = container_of(node, struct slot, node);
		uint32_t index = slot->number && !slot->is_dead ? net_index(slot->number) : 0;

		if (index)
			firewall_expect(&w->firewall, slot->number, index);
	}
}

static int lay_all(struct warden *w, struct err *e)
{
	cleanup_free struct ranges *ranges = XNEW(struct ranges);
	cleanup_free struct reach *reach = XNEW(struct reach);
	int r = 0;

	LIST_EACH(&w->slots, node)
	{
		struct slot *slot = container_of(node, struct slot, node);

		if (slot->is_dead || !firewall_expects(&w->firewall, slot->number))
			continue;
		read_policy(slot, ranges);
		reach_of(ranges, reach);
		slot->must_cut |= slot->id[0] && !ranges_deny_nothing(ranges);
		if (!firewall_keep(&w->firewall, slot->number, reach))
			r = firewall_set(&w->firewall, slot->number, reach, e);
		if (r < 0)
			return r;
	}
	return 0;
}

/* The one before may have had another list of what is opened, which no policy tells. */
static void cut_all(struct warden *w)
{
	LIST_EACH(&w->slots, node)
	{
		struct slot *slot = container_of(node, struct slot, node);

		slot->must_cut |= slot->id[0] && !slot->is_dead;
	}
}

static int build(struct warden *w, bool may_adopt, struct err *e)
{
	struct firewall *fw = &w->firewall;
	int r;

	expect(w);
	r = may_adopt && firewall_adopt(fw);
	if (r > 0) {
		r = lay_all(w, e);
		if (r >= 0)
			return 0;
		expect(w); /* it was not as it seemed */
	}
	r = firewall_make(fw, e);
	if (r >= 0)
		r = lay_all(w, e);
	if (r >= 0)
		cut_all(w);
	return r;
}

/* A table that the kernel refuses because of one thing is better than none without it. */
static int rebuild(struct warden *w, bool may_adopt, struct err *e)
{
	struct firewall *fw = &w->firewall;
	struct err why = { 0 };
	int r = fw->enabled ? build(w, may_adopt, e) : 0;

	if (r < 0 && !fw->counts_nothing && firewall_can_count(&why) < 0) {
		fw->counts_nothing = true;
		if (e)
			*e = (struct err){ 0 };
		r = build(w, may_adopt, e);
		if (r >= 0)
			log_warn("firewall.no_connection_limit",
				"means=\"the connections of a sandbox have no limit: one can fill "
				"the host's table\" fix=\"modprobe nft_connlimit\" err=%s",
				log_quote(str_of(why.msg)));
	}
	if (r >= 0) {
		settle_laid(w);
		cut_marked(w);
	}
	turn_soon(w);
	return r;
}

int policy_build(struct warden *w, struct err *e)
{
	int64_t began_us = time_now_us();
	int r = rebuild(w, true, e);

	while (r >= 0 && (r = firewall_turn(&w->firewall, e)) > 0)
		;
	log_debug("firewall.built", "us=%" PRId64, time_now_us() - began_us);
	return r;
}

int policy_enter(struct slot *slot, struct err *e)
{
	struct warden *w = slot->w;
	uint32_t index = w->firewall.enabled ? net_index(slot->number) : 0;
	int r = firewall_enter(&w->firewall, slot->number, index, e);

	turn_soon(w);
	return r < 0 ? restore(w, e) : 0;
}

/* 1: begun. */
static int lay(struct slot *slot, const struct ranges *ranges, struct err *e)
{
	cleanup_free struct reach *reach = XNEW(struct reach);
	struct warden *w = slot->w;
	int r;

	reach_of(ranges, reach);
	r = firewall_set(&w->firewall, slot->number, reach, e);
	turn_soon(w);
	if (r >= 0)
		return r;
	r = restore(w, e);
	return r < 0 ? r : firewall_is_laying(&w->firewall, slot->number);
}

int policy_give(struct slot *slot, const struct ranges *ranges, struct err *e)
{
	cleanup_close int dir_fd = -EBADF;
	cleanup_free struct ranges *old = NULL;
	int r;

	/* Most sandboxes are made with none, and none is what a slot has until it is named. */
	if (!slot->id[0] && ranges->n == 0 && ranges->flags == 0)
		return 0;
	old = XNEW(struct ranges);
	dir_fd = r = open_dir(slot, e);
	if (r >= 0)
		r = ranges_read(dir_fd, old, e);
	if (r < 0)
		return r;
	if (ranges_equal(old, ranges))
		return firewall_is_laying(&slot->w->firewall, slot->number);
	r = ranges_write(dir_fd, ranges, e);
	CRASH_POINT("warden.policy.kept");
	if (r < 0)
		return r;
	r = lay(slot, ranges, e);
	CRASH_POINT("warden.policy.laid");
	if (r < 0)
		(void)ranges_write(dir_fd, old, NULL);
	else if (r == 0 && slot->state == SLOT_RUNNING)
		cut(slot, true);
	return r;
}

void policy_leave(struct slot *slot)
{
	struct err gone = { 0 };

	if (slot->cutting)
		work_forget(TAKE(slot->cutting));

	(void)err_set(&gone, -ENOENT, "the sandbox has ended");
	slot->laid = NULL;
	settle(slot, &gone);
	if (slot->number)
		firewall_leave(&slot->w->firewall, slot->number);
	turn_soon(slot->w);
}

void policy_forget(struct slot *slot)
{
	LIST_EACH(&slot->policy_waiters, node)
	{
		list_remove(node);
		free(container_of(node, struct waiter, node));
	}
}

static void wait_for(struct slot *slot, uint64_t tag)
{
	struct waiter *waiter = XNEW(struct waiter);

	waiter->tag = tag;
	list_append(&slot->policy_waiters, &waiter->node);
}

void sandbox_policy(struct warden *w, const struct warden_request *q, int fd)
{
	struct slot *slot = map_get(&w->by_id, str_of(q->id));
	cleanup_free struct ranges *ranges = XNEW(struct ranges);
	struct err e = { 0 };
	int r;

	if (!slot || slot->state != SLOT_RUNNING)
		r = err_set(&e, -ENOENT, "there is no sandbox '%s'", q->id);
	else
		r = ranges_receive(fd, q->reach_flags, q->n_ranges, ranges, &e);
	if (r >= 0)
		r = policy_give(slot, ranges, &e);
	if (r > 0) {
		wait_for(slot, q->tag);
		return;
	}
	if (r == 0)
		e = (struct err){ 0 }; /* also of a first attempt */
	control_reply(w, WARDEN_REPLY, q->tag, q->id, &e, NULL, 0);
	/* This one took the place of what earlier ones waited for. */
	if (r == 0)
		settle(slot, &e);
}

struct denials {
	struct warden *w;
	uint64_t tag;
};

static void on_denied(void *arg, int number, uint64_t packets)
{
	struct denials *d = arg;
	const struct slot *slot = slot_of_number(d->w, number);
	struct warden_reply message = { .kind = WARDEN_LISTED, .tag = d->tag, .count = packets };

	if (slot)
		control_tell(d->w, &message, slot->id);
}

void sandbox_denials(struct warden *w, const struct warden_request *q)
{
	struct denials d = { w, q->tag };
	struct err e = { 0 };

	(void)firewall_each_denied(&w->firewall, on_denied, &d, &e);
	control_reply(w, WARDEN_REPLY, q->tag, "", &e, NULL, 0);
}
