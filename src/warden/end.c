/* The end of a slot, whoever wanted it and however far it had come: kill, wait for the process,
 * then remove its cgroups, image and directory, trying again for as long as the kernel still holds
 * one. */
#include "warden/warden.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum {
	FIRST_PAUSE_MS = 1,
	LONGEST_PAUSE_MS = 100,
	REMOVE_DEADLINE_MS = 20000,
	ABANDON_BYTES = 4 << 20,
};

static void answer_waiters(struct slot *slot, const struct err *why)
{
	if (slot->create_pending)
		control_reply(slot->w, WARDEN_REPLY, slot->create_tag, slot->id, &slot->why, NULL,
			0);
	LIST_EACH(&slot->waiters, node)
	{
		struct waiter *waiter = container_of(node, struct waiter, node);

		control_reply(slot->w, WARDEN_REPLY, waiter->tag, slot->id, why, NULL, 0);
		list_remove(&waiter->node);
		free(waiter);
	}
}

void slot_let_go(struct slot *slot)
{
	crossings_end(slot);
	loop_io_remove(&slot->exit_io);
	loop_io_remove(&slot->guest_io);
	close_fdp(&slot->pid_fd);
	close_fdp(&slot->net_fd);
	close_fdp(&slot->user_fd);
	close_fdp(&slot->guest_fd);
	close_fdp(&slot->listen_fd);
	close_fdp(&slot->settings_fd);
	slot->pid_fd = slot->net_fd = slot->user_fd = slot->guest_fd = slot->listen_fd = -EBADF;
	slot->settings_fd = -EBADF;
}

static void slot_gone(struct slot *slot, const struct err *why)
{
	struct warden *w = slot->w;

	CRASH_POINT("warden.destroy.removed");
	log_debug("slot.gone", "slot=%s us=%" PRId64, slot->key, time_now_us() - slot->ended_us);
	answer_waiters(slot, why);
	birth_free(slot);
	if (slot->id[0] && map_get(&w->by_id, str_of(slot->id)) == slot)
		(void)map_remove(&w->by_id, str_of(slot->id));
	if (slot->wanted_id[0] && map_get(&w->by_id, str_of(slot->wanted_id)) == slot)
		(void)map_remove(&w->by_id, str_of(slot->wanted_id));
	policy_leave(slot);
	net_release(&w->network, slot->number);
	loop_timer_cancel(&slot->timer);
	list_remove(&slot->node);
	free(slot);
	if (w->leaving)
		warden_leave(w);
	else
		refill_soon(w);
}

static int remove_run_dir(const struct slot *slot)
{
	char name[SLOT_KEY_SIZE + 1];
	int r;

	(void)snprintf(name, sizeof name, ".%s", slot->key);
	r = slot->key[0] ? dir_remove_tree(slot->w->run_fd, name, NULL) : 0;
	if (slot->id[0] && dir_remove_tree(slot->w->run_fd, slot->id, NULL) < 0)
		r = -EBUSY;
	return r < 0 ? -EBUSY : 0;
}

/* Names what is still there, for the log and the one who waits. */
static const char *remove_objects(struct slot *slot)
{
	const struct warden *w = slot->w;
	const char *left = NULL;
	int r;

	if (slot->key[0] && cgroup_remove(&w->cgroups, slot->key) < 0)
		left = "a cgroup";
	r = disk_remove(&slot->image);
	if (r < 0)
		left = "its disk image";
	if (r == -EAGAIN) { /* not stuck: it takes as long as it takes */
		slot->pause_ms = FIRST_PAUSE_MS;
		slot->deadline_ms = loop_now_ms(w->loop) + REMOVE_DEADLINE_MS;
	}
	/* The kernel removes the interface with the namespace, some time later. Only one who leaves
	 * must know: the firewall table goes with the last interface. */
	if (w->leaving && slot->number && w->network.enabled && net_index(slot->number))
		left = "its interface";
	/* Last: as long as this is here, another warden would know what to look for. */
	if (!left && remove_run_dir(slot) < 0)
		left = "its run directory";
	return left;
}

static void try_remove(void *arg)
{
	struct slot *slot = arg;
	STEP(slot->w, WARDEN_STEP_REMOVE);
	const char *left = remove_objects(slot);
	struct err why = { 0 };

	if (left && loop_now_ms(slot->w->loop) < slot->deadline_ms) {
		log_debug("slot.left", "slot=%s left=%s", slot->key, log_quote(str_of(left)));
		loop_timer_set(&slot->timer, loop_now_ms(slot->w->loop) + slot->pause_ms);
		slot->pause_ms = MIN(slot->pause_ms * 2, LONGEST_PAUSE_MS);
		return;
	}
	if (left) {
		(void)err_set(&why, -EBUSY, "the kernel does not let go of %s of sandbox '%s'",
			left, slot->id);
		log_error("slot.stuck", "slot=%s sandbox_id=%s err=%s", slot->key, slot->id,
			log_quote(str_of(why.msg)));
	}
	slot_gone(slot, &why);
}

/* The process is dead and with it everything in its pid namespace. */
static void dismantle(struct slot *slot)
{
	still_end(slot);
	slot_let_go(slot);
	loop_timer_cancel(&slot->timer);
	loop_timer_init(&slot->timer, slot->w->loop, try_remove, slot);
	slot->pause_ms = FIRST_PAUSE_MS;
	slot->deadline_ms = loop_now_ms(slot->w->loop) + REMOVE_DEADLINE_MS;
	/* From a timer, so that nobody's slot vanishes while he is still using it. */
	loop_timer_set(&slot->timer, loop_now_ms(slot->w->loop));
}

/* The wait status, or -1 for a process that another warden had started. */
static int reap(const struct slot *slot)
{
	siginfo_t info = { 0 };

	if (waitid(P_PIDFD, (id_t)slot->pid_fd, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0)
		return -1;
	return info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status;
}

/* Only a kill can be the memory limit's doing: earlier ones may have hit other processes inside. An
 * engine's end is told by its own status; in gVisor the first kill hits its kernel, and with it
 * all. */
static bool ran_out_of_memory(const struct slot *slot, int status)
{
	bool killed = status < 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

	return (killed || slot->engine == WARDEN_GVISOR) &&
	       cgroup_oom_kills(&slot->w->cgroups, slot->key) > 0;
}

static void describe_end(struct slot *slot, int status)
{
	if (slot->why.code < 0)
		return;
	if (ran_out_of_memory(slot, status))
		(void)err_set(&slot->why, -ENOMEM,
			"the sandbox reached its memory limit and the kernel ended it");
	else if (status >= 0 && WIFSIGNALED(status))
		(void)err_set(&slot->why, -EOWNERDEAD, "the guest was killed by signal %d",
			WTERMSIG(status));
	else if (status >= 0)
		(void)err_set(&slot->why, -ECONNABORTED, "the guest exited with status %d",
			WEXITSTATUS(status));
	else
		(void)err_set(&slot->why, -ECONNABORTED, "the guest ended");
}

/* Its last words may still lie in the socket. */
static void hear_last_words(struct slot *slot)
{
	struct err e;

	while (slot->guest_fd >= 0 && slot->why.code >= 0 &&
		recv(slot->guest_fd, &e, sizeof e, 0) == sizeof e) {
		e.msg[sizeof e.msg - 1] = '\0';
		if (e.code < 0)
			slot->why = e;
	}
}

static void on_exit_event(void *arg, uint32_t events)
{
	struct slot *slot = arg;
	STEP(slot->w, WARDEN_STEP_EXIT);
	int status = reap(slot);

	(void)events;
	if (slot->state == SLOT_ENDING)
		log_debug("slot.exited", "slot=%s us=%" PRId64, slot->key,
			time_now_us() - slot->ended_us);
	hear_last_words(slot);
	describe_end(slot, status);
	if (slot->state == SLOT_RUNNING) {
		struct err why = slot->why;

		log_info("sandbox.exited", "sandbox_id=%s err=%s", slot->id,
			log_quote(str_of(why.msg)));
		control_tell(slot->w,
			&(struct warden_reply){ .kind = WARDEN_EXITED,
				.engine = slot->engine,
				.e = why },
			slot->id);
	} else if (slot->state == SLOT_MAKING || slot->state == SLOT_IDLE) {
		log_warn("slot.died", "slot=%s err=%s", slot->key,
			log_quote(str_of(slot->why.msg)));
		refill_back_off(slot->w);
	}
	if (slot->w->making == slot)
		slot->w->making = NULL;
	slot->state = SLOT_ENDING;
	dismantle(slot);
}

static void booted(struct slot *slot)
{
	struct err fine = { 0 };

	CRASH_POINT("warden.create.ready");
	slot->state = SLOT_RUNNING;
	slot->create_pending = false;
	slot->w->refill_pause_ms = 0;
	loop_timer_cancel(&slot->timer);
	loop_io_remove(&slot->guest_io);
	(void)close(TAKE_FD(slot->guest_fd));
	log_debug("sandbox.created", "sandbox_id=%s slot=%s cold=%d us=%" PRId64, slot->id,
		slot->key, slot->cold, time_now_us() - slot->created_us);
	control_reply(slot->w, WARDEN_REPLY, slot->create_tag, slot->id, &fine, NULL, 0);
}

/* Its guest has answered to ROOT: only now may it be told what to run. */
static void start_held(struct slot *slot)
{
	struct err e = { 0 };
	int r = slot->engine == WARDEN_GVISOR ? engine_take_door(slot, &e) : 0;

	if (r >= 0)
		r = slot_start(slot, slot->wanted_id, slot->settings_fd, &e);
	close_fdp(&slot->settings_fd);
	slot->settings_fd = -EBADF;
	if (r < 0)
		slot_end(slot, &e);
}

/* The guest answers once for its root and once for its start. Nothing of the sandbox's own has run
 * before the second, but what comes is checked all the same. */
static void on_guest_event(void *arg, uint32_t events)
{
	struct slot *slot = arg;
	STEP(slot->w, WARDEN_STEP_GUEST);
	struct err e;
	ssize_t n = recv(slot->guest_fd, &e, sizeof e, 0);

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n != sizeof e) {
		/* Gone: its exit tells. */
		loop_io_remove(&slot->guest_io);
		return;
	}
	e.msg[sizeof e.msg - 1] = '\0';
	if (e.code < 0) {
		slot_end(slot, &e);
		return;
	}
	slot->answers++;
	if (slot->state != SLOT_BOOTING || slot->birth)
		loop_timer_cancel(&slot->timer);
	if (slot->answers == GUEST_ANSWERS && slot->state == SLOT_BOOTING)
		booted(slot);
	else if (slot->answers == GUEST_ANSWERS - 1 && slot->settings_fd >= 0)
		start_held(slot);
	else if (slot->answers == 1)
		refill_soon(slot->w);
}

static int boot_deadline_ms(const struct slot *slot)
{
	return slot->engine == WARDEN_LOCAL ? BOOT_DEADLINE_MS : ENGINE_DEADLINE_MS;
}

static void on_deadline(void *arg)
{
	struct slot *slot = arg;
	struct err e = { 0 };

	(void)err_set(&e, -ETIMEDOUT, "the guest did not answer within %d s",
		boot_deadline_ms(slot) / 1000);
	slot_end(slot, &e);
}

void slot_expect_answer(struct slot *slot)
{
	loop_timer_cancel(&slot->timer);
	loop_timer_init(&slot->timer, slot->w->loop, on_deadline, slot);
	loop_timer_set(&slot->timer, loop_now_ms(slot->w->loop) + boot_deadline_ms(slot));
}

int slot_watch(struct slot *slot, struct err *e)
{
	int r = loop_io_add(slot->w->loop, &slot->exit_io, slot->pid_fd, EPOLLIN, on_exit_event,
		slot, e);

	if (r >= 0 && slot->guest_fd >= 0)
		r = loop_io_add(slot->w->loop, &slot->guest_io, slot->guest_fd, EPOLLIN,
			on_guest_event, slot, e);
	return r;
}

/* The old freezer keeps what it holds from dying. */
static void kill_process(const struct slot *slot)
{
	CLEANUP(freezer_close) struct freezer f = FREEZER_INIT;

	(void)syscall(SYS_pidfd_send_signal, slot->pid_fd, SIGKILL, NULL, 0);
	if (freezer_open(&slot->w->cgroups, slot->key, &f, NULL) >= 0)
		(void)freezer_order(&f, false);
}

void slot_end(struct slot *slot, const struct err *why)
{
	if (slot->state == SLOT_ENDING)
		return;
	if (slot->w->making == slot)
		slot->w->making = NULL;
	if ((slot->state == SLOT_MAKING || slot->state == SLOT_IDLE) && why->code != -ECANCELED)
		refill_back_off(slot->w);
	slot->state = SLOT_ENDING;
	slot->ended_us = time_now_us();
	slot->why = *why;
	loop_timer_cancel(&slot->timer);
	still_end(slot);
	/* Else its last unmount would write all that out, to nobody's use. */
	if (cgroup_dirty_bytes(&slot->w->cgroups, slot->key) > ABANDON_BYTES)
		disk_abandon(&slot->w->disk, &slot->image);
	/* While its loop device holds it, unlinking only takes the name away: what it costs to free
	 * the blocks is paid by the dying process, not here. */
	disk_unlink(&slot->image);
	if (slot->pid_fd < 0) {
		if (slot->key[0])
			(void)cgroup_kill(&slot->w->cgroups, slot->key);
		dismantle(slot);
		return;
	}
	/* Its death ends the whole pid namespace, on every kind of host. */
	if (!cgroup_kill(&slot->w->cgroups, slot->key))
		kill_process(slot);
	CRASH_POINT("warden.destroy.killed");
	/* Without a watch (clone failed half-way) nobody would tell us. */
	if (!slot->exit_io.loop)
		dismantle(slot);
}
