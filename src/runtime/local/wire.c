/* The socket to the warden: many calls in flight, answers in any order, matched by their tag. */
#include "runtime/local/local.h"

#include <limits.h>
#include <sys/socket.h>

/* Every call that waits fails; the sandboxes themselves live on without a warden. */
static void fail_all(void *arg)
{
	struct local *local = arg;
	struct list *queues[] = { &local->waiting, &local->unsent };

	for (size_t i = 0; i < ARRAY_SIZE(queues); i++)
		while (!list_empty(queues[i])) {
			struct call *call = container_of(queues[i]->next, struct call, node);

			list_remove(&call->node);
			call_end(call, -EPIPE, -EBADF, &local->state);
		}
	if (local->base.lost)
		local->base.lost(local->base.lost_arg, &local->state);
}

static void die(struct local *local, int code, const char *why)
{
	if (local->is_dead)
		return;
	local->is_dead = true;
	loop_io_remove(&local->io);
	if (!local->has_refused) /* it said itself why it could not start: nothing tells it better
				  */
		(void)err_set(&local->state, code, "the warden is gone (%s): restart the server",
			why);
	log_debug("warden.gone", "why=%s", log_quote(str_of(why)));
	loop_defer(local->base.loop, &local->dead_task, fail_all, local);
}

static int send_call(const struct local *local, const struct call *call)
{
	struct warden_message m;
	uint32_t n = call->request.n_mounts;
	int fds[2], n_fds = 0;

	m.request = call->request;
	if (n)
		memcpy(m.mounts, call->mounts, n * sizeof m.mounts[0]);
	if (call->fd >= 0)
		fds[n_fds++] = call->fd;
	if (call->ranges_fd >= 0)
		fds[n_fds++] = call->ranges_fd;
	return fd_send(local->warden_fd, &m, warden_message_size(n), fds, n_fds);
}

static void send_waiting(struct local *local)
{
	while (!list_empty(&local->unsent)) {
		struct call *call = container_of(local->unsent.next, struct call, node);
		int r = send_call(local, call);

		if (r == -EAGAIN)
			break;
		if (r < 0) {
			die(local, -EPIPE, "its socket is closed");
			return;
		}
		list_remove(&call->node);
		list_append(&local->waiting, &call->node);
		close_fdp(&call->fd);
		close_fdp(&call->ranges_fd);
		call->fd = call->ranges_fd = -EBADF;
	}
	loop_io_set(&local->io, list_empty(&local->unsent) ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

void local_ask(struct local *local, struct call *call)
{
	call->request.version = WARDEN_VERSION;
	call->request.tag = ++local->last_tag;
	list_append(&local->unsent, &call->node);
	if (local->is_dead)
		loop_defer(local->base.loop, &local->dead_task, fail_all, local);
	else
		send_waiting(local);
}

static struct call *call_of(struct local *local, uint64_t tag)
{
	LIST_EACH(&local->waiting, node)
	{
		struct call *call = container_of(node, struct call, node);

		if (call->request.tag == tag)
			return call;
	}
	return NULL;
}

static void close_all(const int *fds, int n)
{
	for (int i = 0; i < n; i++)
		(void)close(fds[i]);
}

static int64_t bounded(uint64_t n)
{
	return (int64_t)MIN(n, (uint64_t)INT64_MAX);
}

static struct runtime_host host_of(const struct warden_host *h, const struct warden_times *times)
{
	struct runtime_host host = { .free_bytes = bounded(h->free_bytes),
		.total_bytes = bounded(h->total_bytes),
		.promised_bytes = bounded(h->promised_bytes),
		.is_short = h->is_short,
		.held = (int)MIN(h->held, INT_MAX),
		.ending = (int)MIN(h->ending, INT_MAX),
		.prepared = (int)MIN(h->prepared, INT_MAX),
		.lost_workers = (int)MIN(h->lost_workers, INT_MAX) };

	for (size_t i = 0; i < RUNTIME_STEPS; i++) {
		struct runtime_step *step = &host.steps[i];

		for (size_t b = 0; b < RUNTIME_BUCKETS; b++)
			step->at_most[b] = times[i].at_most[b];
		step->total_us = bounded(times[i].total_us);
		step->max_us = bounded(times[i].max_us);
	}
	return host;
}

static void answered(struct local *local, const struct warden_reply *reply, const int *fds, int n)
{
	struct call *call = call_of(local, reply->tag);
	struct err e = reply->e;
	int r = reply->e.code;

	if (!call) {
		close_all(fds, n);
		return;
	}
	list_remove(&call->node);
	if (call->dial && r >= 0)
		r = local_connect(fds, n, call->port, &e);
	else if (call->opened)
		r = local_take_volume(call, fds, n, r, &e);
	else
		close_all(fds, n);
	if (r >= 0 && call->request.op == WARDEN_SAVE)
		r = (int)MIN(reply->count, (uint64_t)INT_MAX);
	call->amounts = (struct runtime_used){ bounded(reply->count), bounded(reply->bytes) };
	if (call->host)
		call->shared = host_of(&reply->host, reply->times);
	call_end(call, r, r, &e);
}

/* Whose sandbox the warden speaks of; NULL: nobody's here. */
static const struct runtime *engine_of(const struct local *local, const struct warden_reply *reply)
{
	return reply->engine < WARDEN_ENGINES ? local->engines[reply->engine] : NULL;
}

static void tell_crossed(const struct local *local, const struct warden_reply *reply)
{
	static const enum runtime_limit limits[WARDEN_LIMITS] = {
		[WARDEN_LIMIT_MEMORY] = RUNTIME_LIMIT_MEMORY,
		[WARDEN_LIMIT_PIDS] = RUNTIME_LIMIT_PIDS,
	};
	const struct runtime *rt = engine_of(local, reply);

	if (rt && rt->crossed && reply->limit < WARDEN_LIMITS)
		rt->crossed(rt->crossed_arg, reply->id, limits[reply->limit], reply->count);
}

static void tell_exited(const struct local *local, const struct warden_reply *reply)
{
	const struct runtime *rt = engine_of(local, reply);

	if (rt && rt->exited)
		rt->exited(rt->exited_arg, reply->id, &reply->e);
}

static void tell_held(const struct local *local, const struct warden_reply *reply)
{
	const struct runtime *rt = engine_of(local, reply);

	if (rt && rt->held)
		rt->held(rt->held_arg, reply->id, reply->count != 0);
}

static void handle(struct local *local, const struct warden_reply *reply, const int *fds, int n)
{
	struct call *call;

	switch ((enum warden_kind)reply->kind) {
	case WARDEN_READY:
		local->is_ready = reply->e.code >= 0;
		local->has_refused = !local->is_ready;
		local->state = reply->e;
		local_keep_egress(local, fds, n);
		return;
	case WARDEN_REPLY:
		answered(local, reply, fds, n);
		return;
	case WARDEN_LISTED:
		call = call_of(local, reply->tag);
		if (reply->address)
			local_note_address(local, reply);
		if (call && call->each && call->engine == reply->engine)
			call->each(call->arg, reply->id, reply->is_frozen != 0);
		else if (call && call->each_denied)
			call->each_denied(call->arg, reply->id, reply->count);
		break;
	case WARDEN_NAMED:
		local_note_address(local, reply);
		break;
	case WARDEN_DENIED:
		local_tell_denied(local, reply);
		break;
	case WARDEN_EXITED:
		tell_exited(local, reply);
		break;
	case WARDEN_HELD:
		tell_held(local, reply);
		break;
	case WARDEN_CROSSED:
		tell_crossed(local, reply);
		break;
	}
	close_all(fds, n);
}

/* False when there is nothing more to read. */
static bool read_reply(struct local *local)
{
	struct warden_reply reply = { 0 };
	int fds[FD_MAX_PASS], n = 0;
	ssize_t got = fd_recv(local->warden_fd, &reply, sizeof reply, fds, &n);

	if (got == -EAGAIN)
		return false;
	if (got != sizeof reply || reply.version != WARDEN_VERSION) {
		close_all(fds, n);
		die(local, -EPIPE,
			got <= 0 ? "it ended" : "it sent what this server does not know");
		return false;
	}
	reply.id[sizeof reply.id - 1] = '\0';
	reply.e.msg[sizeof reply.e.msg - 1] = '\0';
	handle(local, &reply, fds, n);
	return true;
}

static void on_readable(void *arg, uint32_t events)
{
	struct local *local = arg;

	/* Some, not all: an answer per turn and client must not starve the others. */
	for (int budget = 64; budget > 0 && read_reply(local); budget--)
		;
	if (events & EPOLLOUT && !local->is_dead)
		send_waiting(local);
}

int local_wire_start(struct local *local, struct err *e)
{
	int r = fd_set_nonblock(local->warden_fd, true);

	(void)err_set(&local->state, -EAGAIN, "the warden is still starting");
	if (r < 0)
		return err_sys(e, r, "the warden's socket");
	return loop_io_add(local->base.loop, &local->io, local->warden_fd, EPOLLIN, on_readable,
		local, e);
}

void local_wire_stop(struct local *local)
{
	loop_io_remove(&local->io);
	loop_task_cancel(&local->dead_task);
	if (!local->state.msg[0])
		(void)err_set(&local->state, -ECANCELED, "the server stops");
	fail_all(local);
}
