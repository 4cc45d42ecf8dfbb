#include "warden/worker.h"

#include <poll.h>
#include <signal.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum {
	LOOK_MS = 100,
	SLOW_MS = 300,  /* at work for so long: it waits for something, and another may begin */
	IDLE_MS = 2000, /* one more than usual waits so long for another order */
	EXIT_MS = 500,  /* to be waited for at the end */
	MAX_ALIVE = 48, /* of a lane, with those of it that do not die */
	/* Of most orders, which take milliseconds when nobody is in the way. */
	DEADLINE_MS = 60000,
	/* Of one that writes a sandbox's disk out, or copies it where that takes time. */
	SAVE_DEADLINE_MS = 120000,
	SLOW_SAVE_DEADLINE_MS = 1800000,
	REMOVE_DEADLINE_MS = 600000,
};

static const struct {
	int resident; /* that wait for orders */
	int at_once;  /* at work, slow ones not counted */
} lane_sizes[LANES] = { [LANE_FRESH] = { 4, 4 }, [LANE_USED] = { 2, 4 }, [LANE_WARM] = { 1, 1 } };

struct work {
	struct list node; /* while it waits */
	struct workers *ws;
	enum work_lane lane;
	struct worker *worker;
	struct work_order order;
	int fds[WORK_FDS];
	work_fn fn; /* NULL: nobody waits for it */
	void *arg;
};

struct worker {
	struct list node;
	struct workers *ws;
	enum work_lane lane;
	int number;
	bool is_lost; /* counts no more: killed, or without orders to come */
	pid_t pid;
	int pid_fd, socket_fd;
	struct loop_io exit_io, socket_io;
	struct loop_timer deadline;
	struct work *work;
	int64_t began_ms;
};

static void begin_some(struct workers *ws, enum work_lane lane);

/* ---- what is asked for ---- */

static void close_fds(struct work *work)
{
	for (int i = 0; i < WORK_FDS; i++) {
		close_fdp(&work->fds[i]);
		work->fds[i] = -EBADF;
	}
}

static void work_free(struct work *work)
{
	close_fds(work);
	free(work);
}

static void tell(struct work *work, const struct work_report *report, const int *fds, int n_fds)
{
	work_fn fn = work->fn;
	void *arg = work->arg;

	work_free(work);
	if (fn)
		fn(arg, report, fds, n_fds);
	else
		for (int i = 0; i < n_fds; i++)
			(void)close(fds[i]);
}

/* `pid`: of a worker that lives on. */
static void tell_failure(struct work *work, pid_t pid, int code, const char *why)
{
	struct work_report report = { .pid = pid };

	(void)err_set(&report.e, code, "%s", why);
	tell(work, &report, NULL, 0);
}

bool work_is_begun(const struct work *work)
{
	return work->worker;
}

/* ---- a worker's life ---- */

static void worker_free(struct worker *worker)
{
	loop_io_remove(&worker->exit_io);
	loop_io_remove(&worker->socket_io);
	loop_timer_cancel(&worker->deadline);
	list_remove(&worker->node);
	close_fdp(&worker->pid_fd);
	close_fdp(&worker->socket_fd);
	free(worker);
}

/* It counts no more, whether it dies now or in an hour. */
static void let_go(struct worker *worker)
{
	loop_io_remove(&worker->socket_io);
	loop_timer_cancel(&worker->deadline);
	list_remove(&worker->node);
	list_append(&worker->ws->lost, &worker->node);
	worker->ws->lanes[worker->lane].n_workers--;
	worker->is_lost = true;
}

static void lose(struct worker *worker)
{
	(void)kill(worker->pid, SIGKILL);
	let_go(worker);
}

static void on_exited(void *arg, uint32_t events)
{
	struct worker *worker = arg;
	struct workers *ws = worker->ws;
	enum work_lane lane = worker->lane;
	struct work *work = TAKE(worker->work);

	(void)events;
	if (!worker->is_lost)
		ws->lanes[lane].n_workers--;
	(void)waitpid(worker->pid, NULL, 0);
	worker_free(worker);
	if (work)
		tell_failure(work, 0, -EIO, "the process that worked on it was killed");
	begin_some(ws, lane);
}

/* Its socket's end is its own. */
static void dismiss(struct worker *worker)
{
	let_go(worker);
	close_fdp(&worker->socket_fd);
	worker->socket_fd = -EBADF;
}

static void on_late(struct worker *worker)
{
	struct work *work = TAKE(worker->work);
	struct workers *ws = worker->ws;
	enum work_lane lane = worker->lane;

	log_error("worker.lost", "pid=%d op=%d slot=%s ms=%" PRId64, (int)worker->pid,
		(int)work->order.op, work->order.key, loop_now_ms(ws->loop) - worker->began_ms);
	lose(worker);
	tell_failure(work, work->order.op == WORK_PLACE ? 0 : worker->pid, -ETIMEDOUT,
		"the kernel did not get done with the sandbox's disk in time: it may have far too "
		"many files or unwritten data");
	begin_some(ws, lane);
}

/* Of its order, or of its wait for one. */
static void on_deadline(void *arg)
{
	struct worker *worker = arg;

	if (worker->work)
		on_late(worker);
	else if (worker->ws->lanes[worker->lane].n_workers > lane_sizes[worker->lane].resident)
		dismiss(worker);
}

/* Many that are needed for a moment are needed again: to fork one costs more than its orders. */
static void rest(struct worker *worker)
{
	struct workers *ws = worker->ws;

	loop_timer_cancel(&worker->deadline);
	if (ws->lanes[worker->lane].n_workers > lane_sizes[worker->lane].resident)
		loop_timer_set(&worker->deadline, loop_now_ms(ws->loop) + IDLE_MS);
	begin_some(ws, worker->lane);
}

static void on_report(void *arg, uint32_t events)
{
	struct worker *worker = arg;
	struct work_report report;
	int fds[FD_MAX_PASS], n_fds = 0;
	ssize_t n = fd_recv(worker->socket_fd, &report, sizeof report, fds, &n_fds);
	struct work *work;

	(void)events;
	if (n == -EAGAIN || n == -EINTR)
		return;
	if (n != sizeof report) { /* its exit tells, which may take it a while */
		loop_io_remove(&worker->socket_io);
		return;
	}
	work = TAKE(worker->work);
	assert(work);
	rest(worker);
	tell(work, &report, fds, n_fds);
}

/* It is forked, not executed: nothing of it is anywhere on a disk, and it has all it needs. */
static int fork_worker(struct worker *worker, int socket_fd, struct err *e)
{
	struct worker_place place = { .ws = worker->ws,
		.lane = worker->lane,
		.number = worker->number,
		.socket_fd = socket_fd };

	worker->pid = fork();
	if (worker->pid == 0)
		worker_child_main(&place);
	worker->pid_fd = worker->pid < 0 ? -EBADF : pidfd_open(worker->pid, 0);
	return worker->pid_fd < 0 ? err_sys(e, -errno, "start a worker") : 0;
}

static int watch(struct worker *worker, struct err *e)
{
	struct loop *loop = worker->ws->loop;
	int r = loop_io_add(loop, &worker->exit_io, worker->pid_fd, EPOLLIN, on_exited, worker, e);

	return r < 0 ? r
		     : loop_io_add(loop, &worker->socket_io, worker->socket_fd, EPOLLIN, on_report,
			       worker, e);
}

static bool has_pid(const struct list *workers, pid_t pid)
{
	LIST_EACH(workers, node)
	if (container_of(node, struct worker, node)->pid == pid)
		return true;
	return false;
}

bool workers_have(const struct workers *ws, pid_t pid)
{
	bool found = has_pid(&ws->lost, pid);

	for (int i = 0; i < LANES; i++)
		found |= has_pid(&ws->lanes[i].workers, pid);
	return found;
}

static bool has_number(const struct list *workers, int number)
{
	LIST_EACH(workers, node)
	if (container_of(node, struct worker, node)->number == number)
		return true;
	return false;
}

static bool is_taken(const struct workers *ws, int number)
{
	bool taken = has_number(&ws->lost, number);

	for (int i = 0; i < LANES; i++)
		taken |= has_number(&ws->lanes[i].workers, number);
	return taken;
}

static int free_number(const struct workers *ws)
{
	int number = 0;

	while (is_taken(ws, number))
		number++;
	return number;
}

static struct worker *spawn(struct workers *ws, enum work_lane lane, struct err *e)
{
	struct worker *worker = XNEW(struct worker);
	int pair[2], r;

	list_init(&worker->node);
	worker->ws = ws;
	worker->lane = lane;
	worker->number = free_number(ws);
	worker->pid_fd = worker->socket_fd = -EBADF;
	loop_timer_init(&worker->deadline, ws->loop, on_deadline, worker);
	r = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
	if (r < 0) {
		(void)err_sys(e, -errno, "socketpair");
		worker_free(worker);
		return NULL;
	}
	worker->socket_fd = pair[0];
	r = fork_worker(worker, pair[1], e);
	(void)close(pair[1]);
	(void)fd_set_nonblock(worker->socket_fd, true);
	if (r >= 0)
		r = watch(worker, e);
	if (r < 0) {
		if (worker->pid > 0) {
			(void)kill(worker->pid, SIGKILL);
			(void)waitpid(worker->pid, NULL, 0);
		}
		worker_free(worker);
		return NULL;
	}
	list_append(&ws->lanes[lane].workers, &worker->node);
	ws->lanes[lane].n_workers++;
	return worker;
}

/* ---- who does what ---- */

static bool is_slow(const struct worker *worker)
{
	return loop_now_ms(worker->ws->loop) - worker->began_ms > SLOW_MS;
}

static int lost_of(const struct workers *ws, enum work_lane lane)
{
	int n = 0;

	LIST_EACH(&ws->lost, node)
	n += container_of(node, struct worker, node)->lane == lane;
	return n;
}

int workers_lost(const struct workers *ws)
{
	int n = 0;

	for (int i = 0; i < LANES; i++)
		n += lost_of(ws, (enum work_lane)i);
	return n;
}

/* One that has nothing to do; a new one where there is none and there may be. */
static struct worker *find_worker(struct workers *ws, enum work_lane lane, struct err *e)
{
	int n_quick = 0;

	LIST_EACH(&ws->lanes[lane].workers, node)
	{
		struct worker *worker = container_of(node, struct worker, node);

		if (!worker->work)
			return worker;
		n_quick += !is_slow(worker);
	}
	if (n_quick >= lane_sizes[lane].at_once ||
		ws->lanes[lane].n_workers + lost_of(ws, lane) >= MAX_ALIVE)
		return NULL;
	return spawn(ws, lane, e);
}

static int64_t deadline_ms(const struct workers *ws, const struct work *work)
{
	/* A disk of gigabytes is written and read once where nothing is copied by reference. */
	if (work->order.op == WORK_SAVE || work->order.image_name[0])
		return ws->disk->slow.code < 0 ? SLOW_SAVE_DEADLINE_MS : SAVE_DEADLINE_MS;
	/* Who closes a volume last writes out what is not written yet. */
	return work->order.op == WORK_REMOVE || work->order.op == WORK_VOLUME_REMOVE ||
			       work->order.op == WORK_CLOSE
		       ? REMOVE_DEADLINE_MS
		       : DEADLINE_MS;
}

static int send_order(struct worker *worker, struct work *work)
{
	int fds[WORK_FDS], n = 0;
	struct work_message message = { .order = work->order };

	static_assert(sizeof message <= 16384, "it fits into the socket");
	for (int i = 0; i < WORK_FDS; i++)
		if (work->fds[i] >= 0) {
			message.present |= 1U << i;
			fds[n++] = work->fds[i];
		}
	return fd_send(worker->socket_fd, &message, sizeof message, fds, n);
}

/* The worker begins when our copies are closed. If it began at once it could be faster, and the
 * last use of a disk would end here: the kernel would write out and unmount it in this thread. */
static void hand_over(struct worker *worker, struct work *work)
{
	close_fds(work);
	(void)fd_send(worker->socket_fd, "", 1, NULL, 0); /* if it is gone, we are told */
}

static void begin(struct worker *worker, struct work *work)
{
	struct workers *ws = worker->ws;

	list_remove(&work->node);
	if (send_order(worker, work) < 0) { /* its end is on its way; another will do it */
		list_append(&ws->lanes[work->lane].waiting[0], &work->node);
		lose(worker);
		return;
	}
	hand_over(worker, work);
	work->worker = worker;
	worker->work = work;
	worker->began_ms = loop_now_ms(ws->loop);
	loop_timer_set(&worker->deadline, worker->began_ms + deadline_ms(ws, work));
}

/* One of each kind in turn: what is urgent may come without end, and what ends must be removed no
 * slower than others are made. */
static struct work *next_waiting(struct lane *lane)
{
	if (list_empty(&lane->waiting[lane->turn]))
		lane->turn = !lane->turn;
	if (list_empty(&lane->waiting[lane->turn]))
		return NULL;
	return container_of(lane->waiting[lane->turn].next, struct work, node);
}

static void begin_some(struct workers *ws, enum work_lane lane)
{
	struct work *work;
	struct err e = { 0 };

	while (!ws->closed && (work = next_waiting(&ws->lanes[lane]))) {
		struct worker *worker = find_worker(ws, lane, &e);

		if (!worker) {
			if (e.code < 0)
				log_error("worker.failed", "err=%s", log_quote(str_of(e.msg)));
			loop_timer_set(&ws->look, loop_now_ms(ws->loop) + LOOK_MS);
			return;
		}
		begin(worker, work);
		ws->lanes[lane].turn = !ws->lanes[lane].turn;
	}
}

static void look(void *arg)
{
	for (int i = 0; i < LANES; i++)
		begin_some(arg, (enum work_lane)i);
}

struct work *work_ask(struct workers *ws, enum work_lane lane, bool urgent,
	const struct work_order *order, int *take_fds, work_fn fn, void *arg)
{
	struct work *work = XNEW(struct work);

	*work = (struct work){ .ws = ws, .lane = lane, .order = *order, .fn = fn, .arg = arg };
	for (int i = 0; i < WORK_FDS; i++)
		work->fds[i] = take_fds ? TAKE_FD(take_fds[i]) : -EBADF;
	list_append(&ws->lanes[lane].waiting[urgent ? 0 : 1], &work->node);
	begin_some(ws, lane);
	return work;
}

void work_forget(struct work *work)
{
	work->fn = NULL;
	if (!work->worker) {
		list_remove(&work->node);
		work_free(work);
	}
}

void work_kill(struct work *work)
{
	struct worker *worker = work->worker;

	if (worker) {
		worker->work = NULL;
		lose(worker);
	} else {
		list_remove(&work->node);
	}
	work_free(work);
}

void work_stop(struct work *work)
{
	if (work->worker && work->order.op == WORK_DISK && work->order.image_name[0])
		(void)kill(work->worker->pid, SIGKILL);
}

int workers_open(struct workers *ws, struct loop *loop, int lock_fd, struct err *e)
{
	ws->loop = loop;
	ws->lock_fd = lock_fd;
	list_init(&ws->lost);
	loop_timer_init(&ws->look, loop, look, ws);
	for (int i = 0; i < LANES; i++) {
		struct lane *lane = &ws->lanes[i];

		list_init(&lane->workers);
		list_init(&lane->waiting[0]);
		list_init(&lane->waiting[1]);
	}
	for (int i = 0; i < LANES; i++)
		for (int n = 0; n < lane_sizes[i].resident; n++)
			if (!spawn(ws, (enum work_lane)i, e))
				return e->code;
	return 0;
}

/* Those that have nothing to do end at once: when the warden is gone, so are they, and what they
 * hold open. */
static void await_exit(struct worker *worker)
{
	struct pollfd p = { .fd = worker->pid_fd, .events = POLLIN };

	close_fdp(&worker->socket_fd);
	worker->socket_fd = -EBADF;
	if (!worker->work && poll(&p, 1, EXIT_MS) > 0)
		(void)waitpid(worker->pid, NULL, WNOHANG);
}

static void forget_workers(struct list *workers)
{
	LIST_EACH(workers, node)
	{
		struct worker *worker = container_of(node, struct worker, node);

		loop_io_remove(&worker->socket_io);
		/* Whatever has nothing to finish: it would hold what the next warden wants. */
		if (worker->work && worker->work->order.op == WORK_WARM) {
			(void)kill(worker->pid, SIGKILL);
			work_free(TAKE(worker->work));
		}
		await_exit(worker);
		if (worker->work)
			work_free(TAKE(worker->work));
		worker_free(worker);
	}
}

void workers_close(struct workers *ws)
{
	if (!ws->loop)
		return;
	ws->closed = true;
	loop_timer_cancel(&ws->look);
	for (int i = 0; i < LANES; i++) {
		struct work *work;

		while ((work = next_waiting(&ws->lanes[i]))) {
			list_remove(&work->node);
			work_free(work);
		}
		forget_workers(&ws->lanes[i].workers);
	}
	forget_workers(&ws->lost);
}
