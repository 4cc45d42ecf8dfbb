/* The end of a slot, whoever wanted it and however far it had come: kill, wait for the process and
 * answer, then remove its disk, cgroups and directory, trying again for as long as the kernel still
 * holds one. Nothing here waits: a worker sees to the disk. */
#include "warden/warden.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum {
	FIRST_PAUSE_MS = 1,
	LONGEST_PAUSE_MS = 100,
	STUCK_PAUSE_MS = 5000,
	STUCK_AFTER_MS = 20000,
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
	slot_close_groups(slot);
}

static bool is_known(const struct warden *w, pid_t pid)
{
	LIST_EACH(&w->slots, node)
	if (container_of(node, struct slot, node)->pid == pid)
		return true;
	return workers_have(&w->workers, pid);
}

/* One that is known is waited for by whoever watches it, and then the next is seen. */
void reap_strays(struct warden *w)
{
	siginfo_t info = { 0 };

	while (w->n_strays > 0 && waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
		info.si_pid > 0 && !is_known(w, info.si_pid)) {
		(void)waitpid(info.si_pid, NULL, 0);
		w->n_strays--;
		info.si_pid = 0;
	}
}

static void slot_gone(struct slot *slot)
{
	struct warden *w = slot->w;

	CRASH_POINT("warden.destroy.removed");
	log_debug("slot.gone", "slot=%s us=%" PRId64, slot->key, time_now_us() - slot->ended_us);
	net_release(&w->network, slot->number);
	if (slot->shutting)
		work_forget(TAKE(slot->shutting));
	volumes_keep(slot);
	loop_timer_cancel(&slot->timer);
	loop_timer_cancel(&slot->lost_timer);
	list_remove(&slot->node);
	free(slot);
	reap_strays(w);
	forget_soon(w);
	if (w->leaving)
		warden_leave(w);
	else
		refill_soon(w);
}

static int remove_run_dir(const struct slot *slot)
{
	char name[SLOT_KEY_SIZE + 1];

	(void)snprintf(name, sizeof name, ".%s", slot->key);
	return slot->key[0] ? dir_remove_tree(slot->w->run_fd, name, NULL) : 0;
}

/* The kernel removes the interface with the namespace, some time later. One who leaves must know,
 * since the firewall table goes with the last interface; and whether somebody else keeps it: see
 * linger.c. */
static bool must_see_interface(const struct slot *slot)
{
	return (slot->w->leaving || slot->n_volumes) && slot->number && slot->w->network.enabled;
}

/* What the kernel still holds although nothing of it runs; for the log. */
static const char *kept_by_others(const struct slot *slot)
{
	if (disk_is_attached(&slot->image.is))
		return "its disk";
	return must_see_interface(slot) && net_index(slot->number) ? "its interface" : NULL;
}

/* The run directory is last: as long as it is here, another warden would know what to look for. */
static const char *remove_objects(const struct slot *slot)
{
	if (slot->key[0] && cgroup_remove(&slot->w->cgroups, slot->key) < 0)
		return "a cgroup";
	return remove_run_dir(slot) < 0 ? "its run directory" : NULL;
}

/* Nothing was left, or it is tried again in a while. */
static void tried_remove(struct slot *slot, const char *left)
{
	int64_t now_ms = loop_now_ms(slot->w->loop);

	if (!left) {
		slot_gone(slot);
		return;
	}
	log_debug("slot.left", "slot=%s left=%s", slot->key, log_quote(str_of(left)));
	if (slot->deadline_ms && now_ms >= slot->deadline_ms) {
		log_error("slot.stuck", "slot=%s left=%s why=\"the kernel does not let go of it\"",
			slot->key, log_quote(str_of(left)));
		slot->deadline_ms = 0;
	}
	loop_timer_set(&slot->timer, now_ms + slot->pause_ms);
	slot->pause_ms =
		MIN(slot->pause_ms * 2, slot->deadline_ms ? LONGEST_PAUSE_MS : STUCK_PAUSE_MS);
}

static void cleared(void *arg, const struct work_report *report, const int *fds, int n_fds)
{
	struct slot *slot = arg;
	STEP(slot->w, WARDEN_STEP_REMOVE);
	bool is_gone = report->e.code >= 0 && report->is_gone;

	(void)fds;
	(void)n_fds;
	slot->work = NULL;
	tried_remove(slot, is_gone ? NULL : "a cgroup or its run directory");
}

/* The kernel's lock of all cgroups may be taken for milliseconds, so a worker tries them again,
 * once there is only that. When the warden leaves, the workers may be gone before, and nobody
 * waits. */
static void try_remove(void *arg)
{
	struct slot *slot = arg;
	struct work_order order = { .op = WORK_CLEAR };
	STEP(slot->w, WARDEN_STEP_REMOVE);
	const char *kept = kept_by_others(slot);

	if (kept || slot->w->leaving || !slot->key[0]) {
		tried_remove(slot, kept ? kept : remove_objects(slot));
		return;
	}
	memcpy(order.key, slot->key, sizeof order.key);
	slot->work = work_ask(&slot->w->workers, LANE_USED, false, &order, NULL, cleared, slot);
}

static void begin_remove(struct slot *slot)
{
	loop_timer_cancel(&slot->timer);
	loop_timer_init(&slot->timer, slot->w->loop, try_remove, slot);
	slot->pause_ms = FIRST_PAUSE_MS;
	slot->deadline_ms = loop_now_ms(slot->w->loop) + STUCK_AFTER_MS;
	/* From a timer, so that nobody's slot vanishes while he is still using it. */
	loop_timer_set(&slot->timer, loop_now_ms(slot->w->loop));
}

/* Mostly the worker has removed all of it; what the kernel still holds is tried again here. */
static void finish_remove(struct slot *slot, bool is_gone)
{
	if (is_gone && !slot->w->leaving)
		slot_gone(slot);
	else
		begin_remove(slot);
}

static void disk_removed(void *arg, const struct work_report *report, const int *fds, int n_fds)
{
	struct slot *slot = arg;
	STEP(slot->w, WARDEN_STEP_WORKED);

	(void)fds;
	(void)n_fds;
	slot->work = NULL;
	slot->is_removed = true;
	slot->removed_ms = loop_now_ms(slot->w->loop);
	if (report->e.code < 0)
		log_error("slot.disk_left", "slot=%s err=%s", slot->key,
			log_quote(str_of(report->e.msg)));
	finish_remove(slot, report->is_gone && !must_see_interface(slot));
}

static void ask_remove(struct slot *slot);

static void disk_emptied(void *arg, const struct work_report *report, const int *fds, int n_fds)
{
	struct slot *slot = arg;
	STEP(slot->w, WARDEN_STEP_WORKED);

	slot->work = NULL;
	if (report->e.code < 0 || n_fds != 1) {
		log_debug("slot.not_emptied", "slot=%s err=%s", slot->key,
			log_quote(str_of(report->e.msg)));
		ask_remove(slot);
		return;
	}
	spare_keep(slot, fds[0]);
	slot->is_removed = true;
	finish_remove(slot, report->is_gone);
}

static void ask_empty(struct slot *slot)
{
	struct work_order order = { .op = WORK_EMPTY,
		.disk = slot->image.is,
		.blank = slot->blank };
	int fds[WORK_FDS];

	work_no_fds(fds);
	memcpy(order.key, slot->key, sizeof order.key);
	fds[WORK_MOUNT] = TAKE_FD(slot->image.mount_fd); /* of one whose root was never made */
	fds[WORK_LAYER] = TAKE_FD(slot->image.layer_fd);
	slot->work = work_ask(&slot->w->workers, LANE_USED, false, &order, fds, disk_emptied, slot);
}

static void ask_remove(struct slot *slot)
{
	struct work_order order = { .op = WORK_REMOVE, .disk = slot->image.is };
	int fds[WORK_FDS];

	work_no_fds(fds);
	memcpy(order.key, slot->key, sizeof order.key);
	fds[WORK_MOUNT] = TAKE_FD(slot->image.mount_fd);
	fds[WORK_LAYER] = TAKE_FD(slot->image.layer_fd);
	slot->work = work_ask(&slot->w->workers, LANE_USED, false, &order, fds, disk_removed, slot);
}

/* Nothing of it runs any more and it cannot be reached: its name is free. What is left of it has
 * only its key, for this warden and the next. */
static void bury(struct slot *slot)
{
	struct warden *w = slot->w;
	char unnamed[SLOT_KEY_SIZE + 1];
	struct err fine = { 0 };

	(void)snprintf(unnamed, sizeof unnamed, ".%s", slot->key);
	if (slot->id[0])
		(void)renameat(w->run_fd, slot->id, w->run_fd, unnamed);
	if (slot->id[0] && map_get(&w->by_id, str_of(slot->id)) == slot)
		(void)map_remove(&w->by_id, str_of(slot->id));
	if (slot->wanted_id[0] && map_get(&w->by_id, str_of(slot->wanted_id)) == slot)
		(void)map_remove(&w->by_id, str_of(slot->wanted_id));
	CRASH_POINT("warden.destroy.buried");
	answer_waiters(slot, &fine);
	later_free(slot);
	slot->id[0] = slot->wanted_id[0] = '\0';
}

void slot_worked(struct slot *slot)
{
	if (slot->work || !slot->is_dead)
		return;
	if (slot->is_spared && spare_may_be(slot))
		ask_empty(slot);
	else if (slot->image.is.name[0] && !slot->is_removed)
		ask_remove(slot);
	else
		begin_remove(slot);
}

/* The process is dead and with it everything in its pid namespace. */
static void dismantle(struct slot *slot)
{
	still_end(slot);
	slot_let_go(slot);
	loop_timer_cancel(&slot->timer);
	bury(slot);
	policy_leave(slot); /* nothing goes through its network, whoever has a socket of it */
	slot->is_dead = true;
	slot_worked(slot);
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
	slot->state = SLOT_ENDING;
	list_remove(&slot->pool_node);
	dismantle(slot);
}

static void booted(struct slot *slot)
{
	struct err fine = { 0 };

	CRASH_POINT("warden.create.ready");
	slot->state = SLOT_RUNNING;
	list_remove(&slot->pool_node);
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
	if (slot->state != SLOT_BOOTING || slot->later)
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
	if (slot->w->cgroups.unified_fd < 0 &&
		freezer_open(&slot->w->cgroups, slot->key, &f, NULL) >= 0)
		(void)freezer_order(&f, false);
}

static void shut(void *arg, const struct work_report *report, const int *fds, int n_fds)
{
	struct slot *slot = arg;

	(void)fds;
	(void)n_fds;
	slot->shutting = NULL;
	slot->is_spared = report->e.code >= 0 && report->is_spared;
}

/* Its processes die now, also those that its first one has not taken along yet, and each closes its
 * files. What they have not written need not be: else their end would wait for the disk, and so
 * would unmounting. */
static void ask_shut(struct slot *slot)
{
	struct work_order order = { .op = WORK_SHUT, .disk = slot->image.is };
	int fds[WORK_FDS];

	if (!slot->exit_io.loop)
		return;
	work_no_fds(fds);
	memcpy(order.key, slot->key, sizeof order.key);
	if (slot->image.layer_fd >= 0)
		fds[WORK_LAYER] = fcntl(slot->image.layer_fd, F_DUPFD_CLOEXEC, 0);
	if (spare_may_be(slot))
		order.blank = slot->blank;
	order.first_uid = slot_first_uid(slot);
	order.may_serve = slot->may_serve_files;
	slot->shutting = work_ask(&slot->w->workers, LANE_USED, true, &order, fds, shut, slot);
}

void slot_end(struct slot *slot, const struct err *why)
{
	if (slot->state == SLOT_ENDING)
		return;
	if ((slot->state == SLOT_MAKING || slot->state == SLOT_IDLE) && why->code != -ECANCELED)
		refill_back_off(slot->w);
	slot->state = SLOT_ENDING;
	list_remove(&slot->pool_node);
	slot->ended_us = time_now_us();
	slot->why = *why;
	loop_timer_cancel(&slot->timer);
	slot->is_held = false;
	/* Before anything else: what comes after it may take as long as it takes. Its first process
	 * takes all others along; the worker that sees to its disk kills them as well, should that
	 * one be slow to go. */
	if (slot->pid_fd >= 0)
		kill_process(slot);
	else if (slot->key[0])
		(void)cgroup_kill(&slot->w->cgroups, slot->key);
	CRASH_POINT("warden.destroy.killed");
	(void)slot_forget_place(slot);
	still_end(slot);
	ask_shut(slot);
	/* Without a watch nobody would tell us. One whose place is being made is told of that. */
	if (!slot->exit_io.loop && !slot->is_placing)
		dismantle(slot);
}

void slot_placed_late(struct slot *slot)
{
	if (!slot->exit_io.loop) {
		dismantle(slot);
		return;
	}
	kill_process(slot);
}
