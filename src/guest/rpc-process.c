/* process.Process: everything but input. */
#include "guest/rpc.h"

#include "guest/env.h"
#include "guest/rpc-process.h"
#include "guest/stream.h"

#include <signal.h>
#include <sys/stat.h>

enum {
	START_MAX_ENVS = 4096, /* merging is quadratic; the kernel's own limit is not far above */
	CONFIG_MAX_BYTES = 32 << 20,
	LIST_MAX_BYTES = 64 << 20,
	KILL_PATIENCE_MS = 200,
};

/* What a JSON number holds exactly. */
#define REPLAY_MAX_SEQ ((INT64_C(1) << 53) - 1)

/* ---- choosing a process ---- */

static const struct json_field selector_fields[] = {
	JSON_FIELD(struct rpc_selector, pid, "pid", JSON_INT, .flags = JSON_LAX, .min = 0,
		.max = UINT32_MAX),
	JSON_FIELD(struct rpc_selector, tag, "tag", JSON_STR, .flags = JSON_LAX),
};
const struct json_shape rpc_selector_shape =
	JSON_SHAPE(struct rpc_selector, selector_fields, .ignore_unknown = true);

struct process *rpc_select(struct process_table *t, const struct rpc_selector *s)
{
	if (s->pid.is_set)
		return s->pid.value <= INT32_MAX ? process_find(t, (pid_t)s->pid.value) : NULL;
	return s->tag.p ? process_find_tag(t, s->tag) : NULL;
}

enum connect_code rpc_select_error(const struct rpc_selector *s, struct err *e)
{
	if (s->pid.is_set)
		err_set(e, -ENOENT, "process with pid %" PRId64 " not found", s->pid.value);
	else if (s->tag.p)
		err_set(e, -ENOENT, "process with tag %.*s not found", STR_ARG(s->tag));
	else
		err_set(e, -ENOSYS, "invalid input type: a process is selected by pid or tag");
	return s->pid.is_set || s->tag.p ? CONNECT_NOT_FOUND : CONNECT_UNIMPLEMENTED;
}

struct process *rpc_select_or_fail(struct rpc *rpc, const struct rpc_selector *s)
{
	struct process *p = rpc_select(&rpc->guest->processes, s);
	struct err e = { 0 };

	if (!p) {
		enum connect_code code = rpc_select_error(s, &e);

		rpc_fail(rpc, code, "%s", e.msg);
	}
	return p;
}

/* ---- Start ---- */

struct size_in {
	struct json_int cols, rows;
};
static const struct json_field size_fields[] = {
	JSON_FIELD(struct size_in, cols, "cols", JSON_INT, .flags = JSON_LAX, .min = 0,
		.max = UINT16_MAX),
	JSON_FIELD(struct size_in, rows, "rows", JSON_INT, .flags = JSON_LAX, .min = 0,
		.max = UINT16_MAX),
};
static const struct json_shape size_shape =
	JSON_SHAPE(struct size_in, size_fields, .ignore_unknown = true);

struct pty_in {
	struct size_in size;
};
static const struct json_field pty_fields[] = {
	JSON_FIELD(struct pty_in, size, "size", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &size_shape),
};
static const struct json_shape pty_shape =
	JSON_SHAPE(struct pty_in, pty_fields, .ignore_unknown = true);

struct config_in {
	struct str cmd, cwd;
	struct json_strs args;
	struct json_map envs;
};
static const struct json_field config_fields[] = {
	JSON_FIELD(struct config_in, cmd, "cmd", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct config_in, args, "args", JSON_STRS, .flags = JSON_LAX),
	JSON_FIELD(struct config_in, envs, "envs", JSON_MAP, .flags = JSON_LAX,
		.max = START_MAX_ENVS),
	JSON_FIELD(struct config_in, cwd, "cwd", JSON_STR, .flags = JSON_LAX),
};
static const struct json_shape config_shape =
	JSON_SHAPE(struct config_in, config_fields, .ignore_unknown = true);

struct start_in {
	struct config_in process;
	struct pty_in pty;
	bool has_pty;
	struct str tag;
	struct json_bool has_stdin;
	struct json_bool is_held;    /* ours, as the next: for commands that the server records */
	struct json_bool ends_group; /* a deadline ends all of it */
	struct json_int timeout_ms;
	struct str input; /* all of its stdin */
};
static const struct json_field start_fields[] = {
	JSON_FIELD(struct start_in, process, "process", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &config_shape),
	JSON_FIELD(struct start_in, pty, "pty", JSON_OBJECT, .flags = JSON_LAX, .shape = &pty_shape,
		.present = offsetof(struct start_in, has_pty) + 1),
	JSON_FIELD(struct start_in, tag, "tag", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct start_in, has_stdin, "stdin", JSON_BOOL, .flags = JSON_LAX),
	JSON_FIELD(struct start_in, is_held, "hold", JSON_BOOL, .flags = JSON_LAX),
	JSON_FIELD(struct start_in, ends_group, "group", JSON_BOOL, .flags = JSON_LAX),
	JSON_FIELD(struct start_in, timeout_ms, "timeoutMs", JSON_INT, .flags = JSON_LAX, .min = 1,
		.max = INT32_MAX),
	JSON_FIELD(struct start_in, input, "input", JSON_BYTES, .flags = JSON_LAX),
};
static const struct json_shape start_shape =
	JSON_SHAPE(struct start_in, start_fields, .ignore_unknown = true);

static struct pty_size size_of(const struct pty_in *in)
{
	return (struct pty_size){ (uint16_t)in->size.cols.value, (uint16_t)in->size.rows.value };
}

static void write_config(struct buf *out, const struct config_in *in)
{
	struct jsonw w;

	jsonw_init(&w, out);
	jsonw_object(&w, NULL);
	jsonw_str(&w, "cmd", in->cmd);
	jsonw_array(&w, "args");
	for (size_t i = 0; i < in->args.n; i++)
		jsonw_str(&w, NULL, in->args.v[i]);
	jsonw_end_array(&w);
	jsonw_map(&w, "envs", &in->envs);
	if (in->cwd.p)
		jsonw_str(&w, "cwd", in->cwd);
	jsonw_end_object(&w);
}

/* cmd and args as execve wants them; NULL when the arena is full. */
static char **make_argv(struct arena *a, const struct config_in *in)
{
	char **argv = arena_alloc(a, (in->args.n + 2) * sizeof *argv);

	if (!argv)
		return NULL;
	argv[0] = arena_dup(a, in->cmd);
	for (size_t i = 0; i < in->args.n; i++) {
		argv[i + 1] = arena_dup(a, in->args.v[i]);
		if (!argv[i + 1])
			return NULL;
	}
	return argv[0] ? argv : NULL;
}

/* False: it was answered. */
static bool choose_cwd(struct rpc *rpc, struct str wanted, char cwd[PATH_MAX])
{
	struct stat st;

	if (!rpc_resolve(rpc, wanted, cwd))
		return false;
	if (stat(cwd, &st) == 0 || errno != ENOENT)
		return true;
	rpc_fail(rpc, CONNECT_INVALID_ARGUMENT, "cwd '%s' does not exist", cwd);
	return false;
}

static struct process *start(struct rpc *rpc, const struct start_in *in, const char *cwd,
	int64_t timeout_ms, struct err *e)
{
	CLEANUP(buf_done) struct buf config = BUF_INIT(CONFIG_MAX_BYTES);
	struct process *p = NULL;
	char **envp, **argv = make_argv(rpc->arena, &in->process);
	int r;

	if (!argv || env_build(rpc->arena, &rpc->guest->settings, &rpc->user, &in->process.envs,
			     &envp) < 0) {
		err_set(e, -ENOBUFS, "arguments and environment are too large");
		return NULL;
	}
	write_config(&config, &in->process);
	r = process_start(&rpc->guest->processes,
		&(struct process_spec){
			.user = &rpc->user,
			.cwd = cwd,
			.argv = argv,
			.envp = envp,
			.tag = in->tag,
			.config = buf_str(&config),
			.has_stdin = !in->has_stdin.is_set || in->has_stdin.value,
			.has_pty = in->has_pty,
			.size = size_of(&in->pty),
			.is_held = in->is_held.value,
			.ends_group = in->ends_group.value,
			.timeout_ms = in->timeout_ms.is_set ? in->timeout_ms.value : timeout_ms,
			.asker = guest_asker(rpc->x),
		},
		&p, e);
	if (r < 0)
		err_wrap(e, r, "error starting process '%s'", argv[0]);
	else
		seen_soon(&rpc->guest->seen);
	return r < 0 ? NULL : p;
}

static void input_given(void *arg, int r, const struct err *e)
{
	(void)arg; /* whether it reads is the process's own affair */
	(void)r;
	(void)e;
}

void rpc_process_start(struct rpc *rpc, struct str message)
{
	struct feed_options options;
	struct err e = { 0 };
	struct start_in in;
	char cwd[PATH_MAX];
	struct process *p;

	if (!rpc_decode(rpc, message, &start_shape, &in))
		return;
	if (!rpc_stream_options(rpc, &options))
		return;
	if (!choose_cwd(rpc, in.process.cwd, cwd))
		return;
	p = start(rpc, &in, cwd, options.deadline_ms, &e);
	if (p && in.input.p) {
		(void)input_write(&p->in, in.input, input_given, NULL);
		input_close(&p->in);
	}
	if (!p)
		rpc_fail(rpc, CONNECT_INVALID_ARGUMENT, "%s", e.msg);
	else
		stream_open(p, rpc_take_exchange(rpc), &options, 0);
}

/* ---- Connect ---- */

struct connect_in {
	struct rpc_selector process;
	struct json_int replay_from; /* ours; 0 is the same as absent */
};
static const struct json_field connect_fields[] = {
	JSON_FIELD(struct connect_in, process, "process", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &rpc_selector_shape),
	JSON_FIELD(struct connect_in, replay_from, "replayFrom", JSON_INT, .flags = JSON_LAX,
		.alias = "replay_from", .min = 0, .max = REPLAY_MAX_SEQ),
};
static const struct json_shape connect_shape =
	JSON_SHAPE(struct connect_in, connect_fields, .ignore_unknown = true);

static struct process_ended *select_ended(struct process_table *t, const struct rpc_selector *s)
{
	if (s->pid.is_set)
		return s->pid.value <= INT32_MAX ? process_find_ended(t, (pid_t)s->pid.value)
						 : NULL;
	return s->tag.p ? process_find_ended_tag(t, s->tag) : NULL;
}

/* From the message, or from the header: which clients can add without knowing the message. False:
 * it was answered. */
static bool choose_replay(struct rpc *rpc, const struct connect_in *in, const struct backlog *b,
	uint64_t *ret_from)
{
	struct str header = http_header(rpc->x, "Atoll-Replay-From");
	int64_t from = in->replay_from.value;

	if (!in->replay_from.is_set && header.n &&
		str_to_int(header, 0, REPLAY_MAX_SEQ, &from) < 0) {
		rpc_fail(rpc, CONNECT_INVALID_ARGUMENT, "invalid Atoll-Replay-From '%.*s'",
			STR_ARG(header));
		return false;
	}
	if ((uint64_t)from > backlog_next(b)) {
		rpc_fail(rpc, CONNECT_OUT_OF_RANGE,
			"replay from event %" PRId64 ": the next one will be %" PRIu64, from,
			backlog_next(b));
		return false;
	}
	*ret_from = (uint64_t)from;
	return true;
}

void rpc_process_connect(struct rpc *rpc, struct str message)
{
	struct process_table *t = &rpc->guest->processes;
	const struct process_ended *ended;
	struct feed_options options;
	struct connect_in in;
	struct process *p;
	uint64_t from;

	if (!rpc_decode(rpc, message, &connect_shape, &in))
		return;
	if (!rpc_stream_options(rpc, &options))
		return;
	p = rpc_select(t, &in.process);
	ended = p ? NULL : select_ended(t, &in.process);
	if (!p && !ended)
		(void)rpc_select_or_fail(rpc, &in.process);
	else if (!choose_replay(rpc, &in, p ? p->backlog : ended->backlog, &from))
		return;
	else if (p)
		stream_open(p, rpc_take_exchange(rpc), &options, from);
	else
		stream_replay(t, ended, rpc_take_exchange(rpc), &options, from);
}

/* ---- Forget: ours. Its end was written down, nobody will ask for it again. ---- */

struct forget_in {
	struct rpc_selector process;
};
static const struct json_field forget_fields[] = {
	JSON_FIELD(struct forget_in, process, "process", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &rpc_selector_shape),
};
static const struct json_shape forget_shape =
	JSON_SHAPE(struct forget_in, forget_fields, .ignore_unknown = true);

void rpc_process_forget(struct rpc *rpc, struct str message)
{
	struct process_table *t = &rpc->guest->processes;
	struct process_ended *ended;
	struct forget_in in;

	if (!rpc_decode(rpc, message, &forget_shape, &in))
		return;
	ended = select_ended(t, &in.process);
	if (ended)
		process_forget(t, ended);
	rpc_reply_empty(rpc);
}

/* ---- List, Update ---- */

void rpc_process_list(struct rpc *rpc, struct str message)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(LIST_MAX_BYTES);
	struct jsonw w;

	(void)message;
	jsonw_init(&w, &out);
	jsonw_object(&w, NULL);
	jsonw_array(&w, "processes");
	LIST_EACH(&rpc->guest->processes.live, node)
	{
		struct process *p = container_of(node, struct process, node);

		if (p->hidden)
			continue;
		jsonw_object(&w, NULL);
		jsonw_raw(&w, "config", str_of(p->config));
		jsonw_int(&w, "pid", p->pid);
		if (p->tag)
			jsonw_strz(&w, "tag", p->tag);
		jsonw_end_object(&w);
	}
	jsonw_end_array(&w);
	jsonw_end_object(&w);
	rpc_reply(rpc, &out);
}

struct update_in {
	struct rpc_selector process;
	struct pty_in pty;
	bool has_pty;
};
static const struct json_field update_fields[] = {
	JSON_FIELD(struct update_in, process, "process", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &rpc_selector_shape),
	JSON_FIELD(struct update_in, pty, "pty", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &pty_shape, .present = offsetof(struct update_in, has_pty) + 1),
};
static const struct json_shape update_shape =
	JSON_SHAPE(struct update_in, update_fields, .ignore_unknown = true);

void rpc_process_update(struct rpc *rpc, struct str message)
{
	struct err e = { 0 };
	struct update_in in;
	struct process *p;

	if (!rpc_decode(rpc, message, &update_shape, &in))
		return;
	p = rpc_select_or_fail(rpc, &in.process);
	if (!p)
		return;
	if (in.has_pty && process_resize(p, size_of(&in.pty), &e) < 0)
		rpc_fail(rpc, CONNECT_INTERNAL, "error resizing tty: %s", e.msg);
	else
		rpc_reply_empty(rpc);
}

/* ---- SendSignal ---- */

struct signal_in {
	struct rpc_selector process;
	struct str signal;         /* a name or a number */
	struct json_bool to_group; /* ours: to all of its process group, whatever the signal */
};
static const struct json_field signal_fields[] = {
	JSON_FIELD(struct signal_in, process, "process", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &rpc_selector_shape),
	JSON_FIELD(struct signal_in, signal, "signal", JSON_RAW, .flags = JSON_LAX),
	JSON_FIELD(struct signal_in, to_group, "group", JSON_BOOL, .flags = JSON_LAX),
};
static const struct json_shape signal_shape =
	JSON_SHAPE(struct signal_in, signal_fields, .ignore_unknown = true);

/* Beyond the first two, ours. What a terminal would send goes to the whole process group, as it
 * does from a terminal: a shell that waits for its child would not stop otherwise. */
static const struct signal_name {
	const char *name, *number;
	int signo;
	bool to_group;
} signal_names[] = {
	{ "\"SIGNAL_SIGKILL\"", "9", SIGKILL, false },
	{ "\"SIGNAL_SIGTERM\"", "15", SIGTERM, false },
	{ "\"SIGNAL_SIGINT\"", "2", SIGINT, true },
	{ "\"SIGNAL_SIGQUIT\"", "3", SIGQUIT, true },
	{ "\"SIGNAL_SIGHUP\"", "1", SIGHUP, true },
	{ "\"SIGNAL_SIGUSR1\"", "10", SIGUSR1, false },
	{ "\"SIGNAL_SIGUSR2\"", "12", SIGUSR2, false },
};

static const struct signal_name *find_signal(struct str raw)
{
	for (size_t i = 0; i < ARRAY_SIZE(signal_names); i++)
		if (str_is(raw, signal_names[i].name) || str_is(raw, signal_names[i].number))
			return &signal_names[i];
	return NULL;
}

/* A kill is answered when the process is gone, so that a client's next command no longer sees it.
 * One stuck in the kernel may take its time: then the answer does not wait for it. */
struct kill_wait {
	struct rpc *rpc;
	struct process_waiter waiter;
	struct loop_timer patience;
};

static void kill_answered(void *arg)
{
	struct kill_wait *wait = arg;

	list_remove(&wait->waiter.node);
	loop_timer_cancel(&wait->patience);
	rpc_reply_empty(wait->rpc);
	free(wait);
}

static void kill_wait_start(struct rpc *rpc, struct process *p)
{
	struct kill_wait *wait = XNEW(struct kill_wait);
	struct loop *loop = rpc->guest->loop;

	wait->rpc = rpc;
	process_on_reaped(p, &wait->waiter, kill_answered, wait);
	loop_timer_init(&wait->patience, loop, kill_answered, wait);
	loop_timer_set(&wait->patience, loop_now_ms(loop) + KILL_PATIENCE_MS);
}

void rpc_process_send_signal(struct rpc *rpc, struct str message)
{
	struct err e = { 0 };
	struct signal_in in;
	const struct signal_name *signal;
	struct process *p;
	bool waits;

	if (!rpc_decode(rpc, message, &signal_shape, &in))
		return;
	p = rpc_select_or_fail(rpc, &in.process);
	if (!p)
		return;
	signal = find_signal(in.signal);
	if (!signal) {
		rpc_fail(rpc, CONNECT_UNIMPLEMENTED, "invalid signal: %.*s",
			STR_ARG(in.signal.n ? in.signal : STR("SIGNAL_UNSPECIFIED")));
		return;
	}
	waits = signal->signo == SIGKILL && !p->is_reaped;
	if (process_signal(p, signal->signo, signal->to_group || in.to_group.value, &e) < 0)
		rpc_fail(rpc, CONNECT_INTERNAL, "error sending signal: %s", e.msg);
	else if (waits)
		kill_wait_start(rpc, p);
	else
		rpc_reply_empty(rpc);
}
