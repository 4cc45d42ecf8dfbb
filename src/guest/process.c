#include "guest/process.h"

#include "guest/stream.h"

#include <signal.h>
#include <sys/wait.h>

enum {
	DRAIN_MAX_READS = 64, /* of a killed process: more than a pipe holds */
	REAP_TURN = 64,       /* then others have their turn: some make orphans without end */
};

static struct str pid_key(const pid_t *pid)
{
	return str_make(pid, sizeof *pid);
}

/* ---- output ---- */

static void output_close(struct output *o)
{
	loop_io_remove(&o->io);
	if (o->fd >= 0)
		(void)close(o->fd);
	o->fd = -EBADF;
}

static void output_ready(void *arg, uint32_t events);

static void output_watch(struct output *o)
{
	if (o->fd < 0 || o->io.loop)
		return;
	/* Fails only when the kernel is out of memory or watches: then its output is lost, and the
	 * process learns it by SIGPIPE instead of hanging. */
	if (loop_io_add(o->process->table->loop, &o->io, o->fd, EPOLLIN, output_ready, o, NULL) < 0)
		output_close(o);
}

void process_pause_output(struct process *p)
{
	/* Not watched at all: with an empty mask the end of the other side would wake us for ever.
	 */
	for (size_t i = 0; i < ARRAY_SIZE(p->out); i++)
		loop_io_remove(&p->out[i].io);
}

void process_resume_output(struct process *p)
{
	if (p->is_full)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(p->out); i++)
		output_watch(&p->out[i]);
}

/* More than this, and what was not read by its follower would be dropped. */
static void hold_if_full(struct process *p)
{
	if (!p->is_held || !list_empty(&p->streams) ||
		backlog_bytes(p->backlog) < PROCESS_HOLD_BYTES)
		return;
	p->is_full = true;
	process_pause_output(p);
}

void process_followed(struct process *p)
{
	if (!p->is_full)
		return;
	p->is_full = false;
	if (p->n_blocked == 0)
		process_resume_output(p);
}

/* One read and its data event. False at the end of the pipe, or of the terminal (EIO). */
static bool output_pump(struct output *o, bool *ret_more)
{
	struct process *p = o->process;
	size_t most = o->kind == OUTPUT_PTY ? PROCESS_PTY_CHUNK : PROCESS_CHUNK;
	ssize_t n = read(o->fd, p->table->chunk, most);

	*ret_more = n > 0;
	if (n > 0) {
		struct str bytes = str_make(p->table->chunk, (size_t)n);
		uint64_t seq = backlog_add(p->backlog, o->kind, bytes);

		streams_output(p, &(struct backlog_event){ seq, o->kind, bytes });
		hold_if_full(p);
	}
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static void end_if_over(struct process *p);

static void output_ready(void *arg, uint32_t events)
{
	struct output *o = arg;
	struct process *p = o->process;
	bool more;

	(void)events;
	if (!output_pump(o, &more)) {
		output_close(o);
		end_if_over(p);
	}
}

/* What a killed process has already said; its pipes may stay open in others. */
static void outputs_drain(struct process *p)
{
	for (size_t i = 0; i < ARRAY_SIZE(p->out); i++) {
		bool more = p->out[i].fd >= 0;

		for (int n = 0; more && n < DRAIN_MAX_READS && p->n_blocked == 0; n++)
			(void)output_pump(&p->out[i], &more);
	}
}

/* ---- ending ---- */

static void ended_free(struct process_table *t, struct process_ended *ended)
{
	list_remove(&ended->node);
	(void)map_remove(&t->ended_by_pid, pid_key(&ended->pid));
	ended->backlog = backlog_unref(ended->backlog);
	free(ended->tag);
	free(ended);
}

static void forget_old(void *arg)
{
	struct process_table *t = arg;

	int64_t next_ms = INT64_MAX;

	LIST_EACH(&t->ended, node)
	{
		struct process_ended *ended = container_of(node, struct process_ended, node);

		if (ended->forget_ms > loop_now_ms(t->loop))
			next_ms = MIN(next_ms, ended->forget_ms);
		else
			ended_free(t, ended);
	}
	if (next_ms != INT64_MAX)
		loop_timer_set(&t->forget, next_ms);
	backlog_pool_trim(&t->kept);
	backlog_pool_trim(&t->held);
}

void process_forget(struct process_table *t, struct process_ended *ended)
{
	ended_free(t, ended);
	backlog_pool_trim(&t->held);
}

/* The oldest that nobody is certain to ask for, or else the oldest. */
static struct process_ended *choose_to_forget(struct process_table *t)
{
	LIST_EACH(&t->ended, node)
	{
		struct process_ended *ended = container_of(node, struct process_ended, node);

		if (!ended->is_held)
			return ended;
	}
	return container_of(t->ended.next, struct process_ended, node);
}

static void remember(struct process_table *t, struct process *p)
{
	struct process_ended *ended = XNEW(struct process_ended);

	ended->pid = p->pid;
	ended->tag = TAKE(p->tag);
	ended->backlog = TAKE(p->backlog);
	ended->wait_status = p->wait_status;
	ended->is_oom = p->is_oom;
	ended->is_held = p->is_held;
	ended->is_timed_out = p->is_timed_out;
	ended->forget_ms =
		loop_now_ms(t->loop) + (p->is_held ? PROCESS_HOLD_MS : PROCESS_REMEMBER_MS);
	list_append(&t->ended, &ended->node);
	(void)map_put(&t->ended_by_pid, pid_key(&ended->pid), ended);
	if (t->ended_by_pid.n > PROCESS_MAX_REMEMBERED)
		ended_free(t, choose_to_forget(t));
	if (!loop_timer_is_set(&t->forget) || t->forget.at_ms > ended->forget_ms)
		loop_timer_set(&t->forget, ended->forget_ms);
}

static void process_free(struct process *p)
{
	loop_timer_cancel(&p->deadline);
	for (size_t i = 0; i < ARRAY_SIZE(p->out); i++)
		output_close(&p->out[i]);
	input_done(&p->in);
	list_remove(&p->node);
	(void)map_remove(&p->table->by_pid, pid_key(&p->pid));
	p->backlog = backlog_unref(p->backlog);
	activity_begun_done(&p->begun);
	free(p->tag);
	free(p->config);
	free(p);
}

void process_describe_end(const struct process_table *t, const struct process_fate *fate,
	struct ending *ret)
{
	ending_from_status(fate->wait_status, ret);
	if (fate->is_oom)
		ending_blame_memory(ret, t->settings->memory_mb);
	else if (ending_is_foreign(fate->wait_status))
		ending_blame_foreign(ret);
	ret->tells_more = fate->is_held;
	ret->fault = fate->is_timed_out ? "timeout" : fate->is_oom ? "memory" : NULL;
}

static void end_if_over(struct process *p)
{
	bool is_over = p->is_killed || (p->is_pty && p->table->no_hangup);
	struct process_fate fate = process_fate(p);
	struct ending ending;

	if (!p->is_reaped)
		return;
	if (!is_over && (p->out[0].fd >= 0 || p->out[1].fd >= 0))
		return;
	outputs_drain(p);
	process_describe_end(p->table, &fate, &ending);
	streams_end(p, &ending);
	remember(p->table, p);
	process_free(p);
}

/* By the signal itself, or as shells say it. */
static bool is_ended_by(int wait_status, int signo)
{
	return (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == signo) ||
	       (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 128 + signo);
}

static const char *fault_of(const struct process *p)
{
	return p->is_timed_out ? "timeout" : p->is_oom ? "memory" : NULL;
}

static void reaped(struct process *p, int wait_status)
{
	p->is_reaped = true;
	p->wait_status = wait_status;
	/* Its number was given back a moment ago, and the kernel hands them out in a circle. */
	if (p->is_group_killed || (p->asked_signo && is_ended_by(wait_status, p->asked_signo)))
		(void)kill(-p->pid, SIGKILL);
	p->is_oom = !p->is_killed && ending_is_kill(wait_status) &&
		    gauges_blame_memory(p->table->gauges, p->kills_before);
	if (p->begun.seq)
		activity_ended(p->table->activity, p->pid, &p->begun, wait_status, fault_of(p));
	LIST_EACH(&p->waiters, node)
	{
		struct process_waiter *w = container_of(node, struct process_waiter, node);

		list_remove(&w->node);
		w->fn(w->arg);
	}
	end_if_over(p);
}

static void reap_more(void *arg)
{
	process_table_reap(arg);
}

void process_table_reap(struct process_table *t)
{
	for (int i = 0; i < REAP_TURN; i++) {
		int status;
		pid_t pid = waitpid(-1, &status, WNOHANG);
		struct process *p;

		if (pid <= 0)
			return;
		p = process_find(t, pid);
		/* It may have ended for want of something that its end has freed. */
		if (p || i == 0)
			gauges_look(t->gauges);
		if (p)
			reaped(p, status);
	}
	loop_defer(t->loop, &t->reap_again, reap_more, t);
}

void process_on_reaped(struct process *p, struct process_waiter *w, loop_fn fn, void *arg)
{
	w->fn = fn;
	w->arg = arg;
	list_append(&p->waiters, &w->node);
}

/* Reaped, but a grandchild holds its output. The kernel gives a number to nobody while it is that
 * of a group, so if a process has it now, the group is gone. */
static void signal_orphans(const struct process *p, int signo)
{
	if (kill(p->pid, 0) < 0 && errno == ESRCH)
		(void)kill(-p->pid, signo);
}

static bool is_interrupt(int signo)
{
	return signo == SIGINT || signo == SIGQUIT; /* who ignores SIGHUP was told to (nohup) */
}

int process_signal(struct process *p, int signo, bool to_group, struct err *e)
{
	/* What a shell has put into the background ignores a terminal's signals. It ends with the
	 * shell that they end, and when only it is left, by another. */
	if (p->ends_group && to_group && is_interrupt(signo)) {
		p->asked_signo = signo;
		signo = p->is_reaped ? SIGTERM : signo;
	}
	if (!p->is_reaped && kill(to_group ? -p->pid : p->pid, signo) < 0)
		return err_sys(e, -errno, "kill");
	if (p->is_reaped && to_group)
		signal_orphans(p, signo);
	if (signo != SIGKILL && signo != SIGTERM)
		return 0;
	p->is_killed = true;
	p->is_group_killed |= to_group;
	end_if_over(p);
	return 0;
}

static void on_deadline(void *arg)
{
	struct process *p = arg;

	p->is_timed_out = true;
	(void)process_signal(p, SIGKILL, p->is_held || p->ends_group, NULL);
}

int process_resize(struct process *p, struct pty_size size, struct err *e)
{
	if (!p->is_pty || p->out[0].fd < 0)
		return err_set(e, -ENOTTY, "tty not assigned to process");
	return pty_resize(p->out[0].fd, size, e);
}

/* ---- starting ---- */

/* The child's three descriptors, and ours beside them. */
struct wires {
	int child[3];
	int in, out, err;
};

static void wires_close_child(struct wires *w, int null_fd)
{
	for (int i = 0; i < 3; i++) {
		bool again =
			i > 0 && w->child[i] == w->child[0]; /* a terminal: one for all three */

		if (w->child[i] >= 0 && w->child[i] != null_fd && !again)
			(void)close(w->child[i]);
	}
}

static void wires_done(struct wires *w)
{
	close_fdp(&w->in);
	close_fdp(&w->out);
	close_fdp(&w->err);
}

static int pipe_make(int *ret_read, int *ret_write, int *ours, struct err *e)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_sys(e, -errno, "pipe");
	*ret_read = fds[0];
	*ret_write = fds[1];
	/* Only our end: the two are separate open files, and programs do not expect EAGAIN. */
	return fd_set_nonblock(*ours, true);
}

static int wires_make_pipes(struct wires *w, const struct process_spec *spec, int null_fd,
	struct err *e)
{
	int r = 0;

	if (spec->has_stdin)
		r = pipe_make(&w->child[0], &w->in, &w->in, e);
	else
		w->child[0] = null_fd;
	if (r == 0)
		r = pipe_make(&w->out, &w->child[1], &w->out, e);
	if (r == 0)
		r = pipe_make(&w->err, &w->child[2], &w->err, e);
	return r;
}

static int wires_make_pty(struct wires *w, const struct process_spec *spec, struct err *e)
{
	int slave, r;

	r = pty_open(spec->size, spec->user->uid, &w->out, &slave, e);
	if (r < 0)
		return r;
	w->child[0] = w->child[1] = w->child[2] = slave;
	/* A second descriptor, so that reading and writing are watched apart. */
	w->in = fcntl(w->out, F_DUPFD_CLOEXEC, 3);
	return w->in < 0 ? err_sys(e, -errno, "dup") : 0;
}

static pid_t launch(struct process_table *t, const struct process_spec *spec, struct wires *w,
	struct err *e)
{
	const char *path = NULL;
	struct spawn spawn = {
		.argv = spec->argv,
		.envp = spec->envp,
		.cwd = spec->cwd,
		.user = spec->user,
		.fds = { w->child[0], w->child[1], w->child[2] },
		.is_pty = spec->has_pty,
		.keep_ids = geteuid() != 0,
		.max_files = (uint64_t)t->settings->max_files,
	};
	pid_t pid;

	for (char *const *v = spec->envp; *v && !path; v++)
		if (strncmp(*v, "PATH=", 5) == 0)
			path = *v + 5;
	spawn.path = path ? path : "/bin:/usr/bin";
	pid = spawn_run(&t->spawner, &spawn, e);
	if (pid == -EAGAIN && t->settings->max_processes)
		return err_set(e, pid, "the sandbox's limit of %" PRId64 " processes was reached",
			t->settings->max_processes);
	return pid;
}

/* What ended under the same pid or tag must not be mistaken for the new one. */
static void forget_namesakes(struct process_table *t, const struct process *p)
{
	struct process_ended *ended = process_find_ended(t, p->pid);

	if (ended)
		ended_free(t, ended);
	while (p->tag && (ended = process_find_ended_tag(t, str_of(p->tag))))
		ended_free(t, ended);
}

static struct process *adopt(struct process_table *t, const struct process_spec *spec, pid_t pid,
	const struct wires *w)
{
	struct process *p = XNEW(struct process);

	p->table = t;
	p->pid = pid;
	p->is_pty = spec->has_pty;
	p->hidden = spec->hidden;
	p->tag = spec->tag.p ? strndup(spec->tag.p, spec->tag.n) : NULL;
	p->config = strndup(spec->config.p, spec->config.n);
	p->is_held = spec->is_held;
	p->ends_group = spec->ends_group;
	p->backlog = backlog_new(spec->hidden ? &t->unkept : spec->is_held ? &t->held : &t->kept);
	list_init(&p->streams);
	list_init(&p->waiters);
	p->out[0] = (struct output){ .process = p,
		.fd = w->out,
		.kind = spec->has_pty ? OUTPUT_PTY : OUTPUT_STDOUT };
	p->out[1] = (struct output){ .process = p, .fd = w->err, .kind = OUTPUT_STDERR };
	input_init(&p->in, t->loop, w->in);
	loop_timer_init(&p->deadline, t->loop, on_deadline, p);
	/* A moment behind the stream's own deadline: that is the one to be told. */
	if (spec->timeout_ms > 0)
		loop_timer_set(&p->deadline, loop_now_ms(t->loop) + spec->timeout_ms + 1);
	forget_namesakes(t, p);
	list_append(&t->live, &p->node);
	(void)map_put(&t->by_pid, pid_key(&p->pid), p);
	process_resume_output(p);
	return p;
}

/* A template's own command is nobody's doing. */
static void record_start(struct process *p, const struct process_spec *spec)
{
	const struct activity_process what = { .asker = spec->asker,
		.argv = spec->argv,
		.user = spec->user->name,
		.cwd = spec->cwd,
		.tag = spec->tag,
		.has_pty = spec->has_pty };

	if (p->table->activity && !spec->hidden)
		activity_started(p->table->activity, p->pid, &what, &p->begun);
}

int process_start(struct process_table *t, const struct process_spec *spec, struct process **ret,
	struct err *e)
{
	struct wires w = { .child = { -EBADF, -EBADF, -EBADF }, -EBADF, -EBADF, -EBADF };
	int64_t kills_before = gauges_oom_kills(t->gauges);
	pid_t pid;
	int r;

	r = spec->has_pty ? wires_make_pty(&w, spec, e) : wires_make_pipes(&w, spec, t->null_fd, e);
	pid = r < 0 ? r : launch(t, spec, &w, e);
	wires_close_child(&w, t->null_fd);
	if (pid < 0) {
		wires_done(&w);
		return pid;
	}
	*ret = adopt(t, spec, pid, &w);
	(*ret)->kills_before = kills_before;
	record_start(*ret, spec);
	return 0;
}

/* ---- the table ---- */

int process_table_init(struct process_table *t, struct loop *loop, struct gauges *gauges,
	const struct settings *settings, struct err *e)
{
	*t = (struct process_table){ .loop = loop,
		.gauges = gauges,
		.settings = settings,
		.frame = BUF_INIT((size_t)4 * PROCESS_CHUNK),
		.null_fd = open("/dev/null", O_RDWR | O_CLOEXEC) };
	list_init(&t->live);
	list_init(&t->ended);
	list_init(&t->replays);
	backlog_pool_init(&t->kept, BACKLOG_POOL_MAX_BYTES);
	backlog_pool_init(&t->held, BACKLOG_HELD_MAX_BYTES);
	backlog_pool_init(&t->unkept, 0);
	loop_timer_init(&t->forget, loop, forget_old, t);
	spawner_init(&t->spawner);
	t->chunk = xcalloc(1, PROCESS_CHUNK);
	return t->null_fd < 0 ? err_sys(e, -errno, "open /dev/null") : 0;
}

void process_table_done(struct process_table *t)
{
	LIST_EACH(&t->live, node)
	{
		struct process *p = container_of(node, struct process, node);

		streams_cut(&p->streams);
		process_free(p);
	}
	streams_cut(&t->replays);
	LIST_EACH(&t->ended, gone)
	ended_free(t, container_of(gone, struct process_ended, node));
	loop_timer_cancel(&t->forget);
	loop_task_cancel(&t->reap_again);
	map_done(&t->by_pid);
	map_done(&t->ended_by_pid);
	spawner_done(&t->spawner);
	close_fdp(&t->null_fd);
	free(t->chunk);
	buf_done(&t->frame);
}

struct process *process_find(struct process_table *t, pid_t pid)
{
	return map_get(&t->by_pid, pid_key(&pid));
}

struct process *process_find_tag(struct process_table *t, struct str tag)
{
	for (struct list *node = t->live.prev; node != &t->live; node = node->prev) {
		struct process *p = container_of(node, struct process, node);

		if (p->tag && str_is(tag, p->tag))
			return p;
	}
	return NULL;
}

struct process_ended *process_find_ended(struct process_table *t, pid_t pid)
{
	return map_get(&t->ended_by_pid, pid_key(&pid));
}

struct process_ended *process_find_ended_tag(struct process_table *t, struct str tag)
{
	for (struct list *node = t->ended.prev; node != &t->ended; node = node->prev) {
		struct process_ended *ended = container_of(node, struct process_ended, node);

		if (ended->tag && str_is(tag, ended->tag))
			return ended;
	}
	return NULL;
}
