/* process.Process: SendInput, StreamInput, CloseStdin. A call is answered when its bytes are in the
 * process's pipe or terminal; a process that does not read makes the call wait. */
#include "guest/rpc-process.h"

struct input_in {
	struct str to_stdin, to_pty; /* p NULL: absent */
};
static const struct json_field input_fields[] = {
	JSON_FIELD(struct input_in, to_stdin, "stdin", JSON_BYTES, .flags = JSON_LAX),
	JSON_FIELD(struct input_in, to_pty, "pty", JSON_BYTES, .flags = JSON_LAX),
};
static const struct json_shape input_shape =
	JSON_SHAPE(struct input_in, input_fields, .ignore_unknown = true);

static const char *const no_tty =
	"tty not assigned to process — input should be written to the stdin, not the tty";
static const char *const has_tty =
	"tty assigned to process — input should be written to the pty, not the stdin";

struct outcome {
	enum connect_code code;
	struct err e;
};

static int fail_input(struct outcome *out, enum connect_code code, const char *text)
{
	out->code = code;
	return err_set(&out->e, -EINVAL, "%s", text);
}

static int fail_write(struct outcome *out, const struct process *p, int r)
{
	const char *what = p->is_pty ? "tty" : "stdin";

	out->code = r == -ENOBUFS ? CONNECT_RESOURCE_EXHAUSTED : CONNECT_INTERNAL;
	if (r == -EBADF && !p->is_pty)
		return err_set(&out->e, r, "error writing to stdin: stdin not enabled or closed");
	return err_sys(&out->e, r, "error writing to %s: error writing to %s of process '%d'", what,
		what, p->pid);
}

/* As input_write: 1 done, 0 will be done, negative with the outcome filled in. */
static int give(struct process *p, const struct input_in *in, done_fn done, void *arg,
	struct outcome *out)
{
	struct str bytes = in->to_pty.p ? in->to_pty : in->to_stdin;
	int r;

	if (!bytes.p)
		return fail_input(out, CONNECT_UNIMPLEMENTED, "invalid input type");
	if (in->to_pty.p && !p->is_pty) {
		out->code = CONNECT_INTERNAL;
		return err_set(&out->e, -EINVAL, "error writing to tty: %s", no_tty);
	}
	if (!in->to_pty.p && p->is_pty) {
		out->code = CONNECT_INTERNAL;
		return err_set(&out->e, -EINVAL, "error writing to stdin: %s", has_tty);
	}
	r = input_write(&p->in, bytes, done, arg);
	return r < 0 ? fail_write(out, p, r) : r;
}

/* ---- SendInput ---- */

struct send_in {
	struct rpc_selector process;
	struct input_in input;
};
static const struct json_field send_fields[] = {
	JSON_FIELD(struct send_in, process, "process", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &rpc_selector_shape),
	JSON_FIELD(struct send_in, input, "input", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &input_shape),
};
static const struct json_shape send_shape =
	JSON_SHAPE(struct send_in, send_fields, .ignore_unknown = true);

static void send_done(void *arg, int r, const struct err *e)
{
	if (r < 0)
		rpc_fail(arg, CONNECT_INTERNAL, "error writing to the process: %s", e->msg);
	else
		rpc_reply_empty(arg);
}

void rpc_process_send_input(struct rpc *rpc, struct str message)
{
	struct outcome out = { 0 };
	struct process *p;
	struct send_in in;
	int r;

	if (!rpc_decode(rpc, message, &send_shape, &in))
		return;
	p = rpc_select_or_fail(rpc, &in.process);
	if (!p)
		return;
	r = give(p, &in.input, send_done, rpc, &out);
	if (r < 0)
		rpc_fail(rpc, out.code, "%s", out.e.msg);
	else if (r > 0)
		rpc_reply_empty(rpc);
}

/* ---- CloseStdin ---- */

struct close_in {
	struct rpc_selector process;
};
static const struct json_field close_fields[] = {
	JSON_FIELD(struct close_in, process, "process", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &rpc_selector_shape),
};
static const struct json_shape close_shape =
	JSON_SHAPE(struct close_in, close_fields, .ignore_unknown = true);

void rpc_process_close_stdin(struct rpc *rpc, struct str message)
{
	struct close_in in;
	struct process *p;

	if (!rpc_decode(rpc, message, &close_shape, &in))
		return;
	p = rpc_select_or_fail(rpc, &in.process);
	if (!p)
		return;
	if (p->is_pty) {
		rpc_fail(rpc, CONNECT_UNKNOWN,
			"error closing stdin: cannot close stdin for PTY process — send Ctrl+D "
			"(0x04) instead");
		return;
	}
	input_close(&p->in);
	rpc_reply_empty(rpc);
}

/* ---- StreamInput ---- */

struct chosen_in {
	struct rpc_selector process;
};
static const struct json_field chosen_fields[] = {
	JSON_FIELD(struct chosen_in, process, "process", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &rpc_selector_shape),
};
static const struct json_shape chosen_shape =
	JSON_SHAPE(struct chosen_in, chosen_fields, .ignore_unknown = true);

struct data_in {
	struct input_in input;
};
static const struct json_field data_fields[] = {
	JSON_FIELD(struct data_in, input, "input", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &input_shape),
};
static const struct json_shape data_shape =
	JSON_SHAPE(struct data_in, data_fields, .ignore_unknown = true);

struct event_in {
	struct chosen_in start;
	struct data_in data;
	struct str keepalive;
	bool has_start, has_data;
};
static const struct json_field event_fields[] = {
	JSON_FIELD(struct event_in, start, "start", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &chosen_shape, .present = offsetof(struct event_in, has_start) + 1),
	JSON_FIELD(struct event_in, data, "data", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &data_shape, .present = offsetof(struct event_in, has_data) + 1),
	JSON_FIELD(struct event_in, keepalive, "keepalive", JSON_RAW, .flags = JSON_LAX),
};
static const struct json_shape event_shape =
	JSON_SHAPE(struct event_in, event_fields, .ignore_unknown = true);

struct input_stream {
	struct rpc *rpc;
	struct connect_reader reader;
	pid_t pid;   /* 0: none chosen yet. Looked up each time: the process may end meanwhile. */
	int waiting; /* writes that the process has not taken yet */
	bool at_end;
	struct outcome failed; /* e.code < 0: the answer, once nothing waits */
};

static void stream_settle(struct input_stream *s)
{
	struct rpc *rpc = s->rpc;
	struct outcome failed = s->failed;

	if (s->waiting > 0 || (!s->at_end && failed.e.code == 0))
		return;
	connect_reader_done(&s->reader);
	free(s);
	if (failed.e.code < 0)
		rpc_fail(rpc, failed.code, "%s", failed.e.msg);
	else
		rpc_reply_empty(rpc);
}

static void stream_wrote(void *arg, int r, const struct err *e)
{
	struct input_stream *s = arg;

	if (r < 0 && s->failed.e.code == 0)
		s->failed = (struct outcome){ CONNECT_INTERNAL, *e };
	if (--s->waiting == 0 && s->failed.e.code == 0)
		http_resume_body(s->rpc->x);
	stream_settle(s);
}

static int stream_data(struct input_stream *s, const struct input_in *in)
{
	struct process *p = s->pid ? process_find(&s->rpc->guest->processes, s->pid) : NULL;
	int r;

	if (!s->pid)
		return fail_input(&s->failed, CONNECT_INVALID_ARGUMENT, "data before start");
	if (!p)
		return fail_input(&s->failed, CONNECT_NOT_FOUND, "the process has ended");
	r = give(p, in, stream_wrote, s, &s->failed);
	if (r == 0) {
		s->waiting++;
		http_pause_body(s->rpc->x);
	}
	return r;
}

static int stream_start(struct input_stream *s, const struct rpc_selector *selector)
{
	struct process *p = rpc_select(&s->rpc->guest->processes, selector);

	if (!p) {
		s->failed.code = rpc_select_error(selector, &s->failed.e);
		return s->failed.e.code;
	}
	s->pid = p->pid;
	return 0;
}

static int on_frame(void *arg, unsigned flags, struct str payload, struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(RPC_JSON_BYTES);
	struct input_stream *s = arg;
	struct arena *arena;
	struct event_in in;
	int r;

	if (flags & CONNECT_FLAG_END)
		return 0;
	arena = arena_new(RPC_ARENA_BYTES);
	r = rpc_to_json(s->rpc, &payload, &text, e);
	if (r >= 0)
		r = json_decode(arena, payload, &event_shape, &in, e);
	if (r < 0)
		s->failed = (struct outcome){ CONNECT_INVALID_ARGUMENT, *e };
	else if (in.has_start)
		r = stream_start(s, &in.start.process);
	else if (in.has_data)
		r = stream_data(s, &in.data.input);
	else if (!in.keepalive.p)
		r = fail_input(&s->failed, CONNECT_UNIMPLEMENTED, "invalid event type");
	(void)arena_free(arena);
	return MIN(r, 0);
}

static void on_chunk(void *arg, int r, struct str bytes)
{
	struct input_stream *s = arg;
	struct err e = { 0 };

	if (s->failed.e.code < 0 && bytes.n > 0)
		return; /* the answer waits for earlier writes, the rest is of no interest */
	if (r == 0 && bytes.n > 0)
		r = connect_reader_feed(&s->reader, bytes, on_frame, s, &e);
	else if (r == 0)
		r = connect_reader_finish(&s->reader, &e);
	else
		err_sys(&e, r, "error streaming input");
	if (r < 0 && s->failed.e.code == 0)
		s->failed = (struct outcome){ CONNECT_INVALID_ARGUMENT, e };
	s->at_end = bytes.n == 0;
	stream_settle(s);
}

void rpc_process_stream_input(struct rpc *rpc, struct str message)
{
	struct input_stream *s = XNEW(struct input_stream);

	(void)message;
	s->rpc = rpc;
	connect_reader_init(&s->reader, RPC_MAX_BYTES);
	http_stream_body(rpc->x, on_chunk, s);
}
