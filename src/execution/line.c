/* The line to the guest. A command is started by Start and followed on the same connection; when
 * that breaks it is found again by its tag, and the guest goes on from the event we name. Which
 * sandbox has ended and which only stands still is the sandbox room's knowledge: we look each time.
 */
#include "execution/execution-internal.h"

enum {
	FRAME_MAX_BYTES = 256 << 10, /* an event of 32 KiB, in base64 */
	FRAME_ARENA_BYTES = 1 << 20,
	HEAD_MS = 20000,
	KEEPALIVE_S = 30,
	STALL_MS = 100 * 1000, /* three keepalives have not come */
	RETRY_MS = 100,
	RETRY_MAX = 30, /* with growing waits: about 20 s */
	STILL_MS = 500, /* between two looks at a sandbox that is paused */
	CALL_MS = 10000,
	CALL_BYTES = 64 << 10,
};

/* ---- what the guest sends ---- */

struct gap_in {
	struct json_int from, to;
};
static const struct json_field gap_fields[] = {
	JSON_FIELD(struct gap_in, from, "from", JSON_INT),
	JSON_FIELD(struct gap_in, to, "to", JSON_INT),
};
static const struct json_shape gap_shape =
	JSON_SHAPE(struct gap_in, gap_fields, .ignore_unknown = true);

struct start_in {
	struct gap_in gap;
	bool has_gap;
};
static const struct json_field start_fields[] = {
	JSON_FIELD(struct start_in, gap, "replayGap", JSON_OBJECT, .shape = &gap_shape,
		.present = offsetof(struct start_in, has_gap) + 1),
};
static const struct json_shape start_shape =
	JSON_SHAPE(struct start_in, start_fields, .ignore_unknown = true);

struct data_in {
	struct str out, err;
	struct json_int seq;
};
static const struct json_field data_fields[] = {
	JSON_FIELD(struct data_in, out, "stdout", JSON_BYTES),
	JSON_FIELD(struct data_in, err, "stderr", JSON_BYTES),
	JSON_FIELD(struct data_in, seq, "seq", JSON_INT, .min = 0, .max = INT64_MAX - 1),
};
static const struct json_shape data_shape =
	JSON_SHAPE(struct data_in, data_fields, .ignore_unknown = true);

struct end_in {
	struct json_int exit_code, signal;
	struct json_bool exited;
	struct str status, error, fault;
};
static const struct json_field end_fields[] = {
	JSON_FIELD(struct end_in, exit_code, "exitCode", JSON_INT),
	JSON_FIELD(struct end_in, signal, "signal", JSON_INT, .min = 0, .max = 255),
	JSON_FIELD(struct end_in, exited, "exited", JSON_BOOL),
	JSON_FIELD(struct end_in, status, "status", JSON_STR),
	JSON_FIELD(struct end_in, error, "error", JSON_STR),
	JSON_FIELD(struct end_in, fault, "fault", JSON_STR),
};
static const struct json_shape end_shape =
	JSON_SHAPE(struct end_in, end_fields, .ignore_unknown = true);

struct event_in {
	struct start_in start;
	struct data_in data;
	struct end_in end;
	bool has_start, has_data, has_end;
};
static const struct json_field event_fields[] = {
	JSON_FIELD(struct event_in, start, "start", JSON_OBJECT, .shape = &start_shape,
		.present = offsetof(struct event_in, has_start) + 1),
	JSON_FIELD(struct event_in, data, "data", JSON_OBJECT, .shape = &data_shape,
		.present = offsetof(struct event_in, has_data) + 1),
	JSON_FIELD(struct event_in, end, "end", JSON_OBJECT, .shape = &end_shape,
		.present = offsetof(struct event_in, has_end) + 1),
};
static const struct json_shape event_shape =
	JSON_SHAPE(struct event_in, event_fields, .ignore_unknown = true);

struct error_in {
	struct str code, message;
};
static const struct json_field error_fields[] = {
	JSON_FIELD(struct error_in, code, "code", JSON_STR),
	JSON_FIELD(struct error_in, message, "message", JSON_STR),
};
static const struct json_shape error_shape =
	JSON_SHAPE(struct error_in, error_fields, .ignore_unknown = true);

struct frame_in {
	struct event_in event;
	struct error_in error;
	bool has_event, has_error;
};
static const struct json_field frame_fields[] = {
	JSON_FIELD(struct frame_in, event, "event", JSON_OBJECT, .shape = &event_shape,
		.present = offsetof(struct frame_in, has_event) + 1),
	JSON_FIELD(struct frame_in, error, "error", JSON_OBJECT, .shape = &error_shape,
		.present = offsetof(struct frame_in, has_error) + 1),
};
static const struct json_shape frame_shape =
	JSON_SHAPE(struct frame_in, frame_fields, .ignore_unknown = true);

/* ---- its end ---- */

static const struct sandbox *tenant(const struct command *c)
{
	return sandbox_find_tenant(c->book->config.sandboxes, c->view.sandbox_id);
}

/* The guest names what it was given: a directory, a program. What is too long is cut between two
 * characters, or no database would take it. */
static void take_message(const struct command *c, int code, struct str text, struct err *ret)
{
	CLEANUP(buf_done) struct buf masked = BUF_INIT((size_t)4 * FRAME_MAX_BYTES);

	if (mask_text(c->needles, text, &masked) < 0)
		buf_clear(&masked);
	(void)err_set(ret, code, "%.*s", STR_ARG(buf_str(&masked)));
}

static void take_end(struct command *c, const struct end_in *in)
{
	struct command_end end = { .by = EXECUTION_END_PROCESS,
		.has_exit_code = in->exited.value,
		.exit_code = in->exit_code.value,
		.signo = (int)in->signal.value };
	struct err why = { 0 };

	take_message(c, -EIO, in->error, &why);
	if (str_is(in->fault, "timeout") || c->is_timed_out) {
		end.by = EXECUTION_END_TIMEOUT;
		(void)err_set(&why, -ETIMEDOUT, "its time of %" PRId64 " ms was up",
			(c->view.deadline_us - c->view.started_us) / 1000);
	} else if (str_is(in->fault, "memory")) {
		end.by = EXECUTION_END_MEMORY;
	} else if (c->is_cancelled) {
		end.by = EXECUTION_END_USER;
		(void)err_set(&why, -ECANCELED, "cancelled");
	}
	end.why = why.msg;
	command_end(c, &end);
}

static void take_start(struct command *c, const struct start_in *in)
{
	if (in->has_gap) {
		log_warn("execution.gap",
			"sandbox_id=%s n=%" PRId64 " from=%" PRId64 " to=%" PRId64,
			c->view.sandbox_id, c->view.n, in->gap.from.value, in->gap.to.value);
		c->view.truncated = true;
	}
	c->tries = 0;
	command_begun(c);
}

static void take_data(struct command *c, const struct data_in *in)
{
	if (in->seq.is_set) {
		if (in->seq.value <= c->guest_seq)
			return;
		c->guest_seq = in->seq.value;
	}
	if (in->out.n)
		command_output(c, EXECUTION_STDOUT, in->out);
	if (in->err.n)
		command_output(c, EXECUTION_STDERR, in->err);
}

static int error_code(struct str name)
{
	static const struct {
		const char *name;
		int code;
	} table[] = {
		{ "invalid_argument", -EINVAL },
		{ "unauthenticated", -EINVAL }, /* the user is not one of the sandbox's */
		{ "not_found", -ENOENT },
		{ "out_of_range", -ENOENT }, /* another process under the same name */
		{ "resource_exhausted", -E2BIG },
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (str_is(name, table[i].name))
			return table[i].code;
	return -EIO;
}

/* Negative: the command is over, and nothing more of this connection is of interest. */
static int take_frame(void *arg, unsigned flags, struct str payload, struct err *e)
{
	CLEANUP(arena_freep) struct arena *arena = arena_new(FRAME_ARENA_BYTES);
	struct command *c = arg;
	struct frame_in in;
	int r = json_decode(arena, payload, &frame_shape, &in, e);

	if (r < 0)
		return r;
	if (in.has_error) {
		c->has_failed = true;
		take_message(c, error_code(in.error.code), in.error.message, &c->failure);
	}
	if ((flags & CONNECT_FLAG_END) || !in.has_event)
		return 0;
	if (in.event.has_start)
		take_start(c, &in.event.start);
	if (in.event.has_data)
		take_data(c, &in.event.data);
	if (in.event.has_end)
		take_end(c, &in.event.end);
	return c->is_ending ? -ECANCELED : 0;
}

/* ---- the connection ---- */

static void lost(struct command *c);

static void on_head(void *arg, int status)
{
	struct command *c = arg;

	c->guest_status = status;
}

struct team_talk {
	char team_id[SANDBOX_TEAM_SIZE];
	struct talk talk;
};

static struct talk *talk_of(struct execution_book *book, const char *team_id)
{
	struct team_talk *of = map_get(&book->talks, str_of(team_id));

	if (!of) {
		of = XNEW(struct team_talk);
		(void)snprintf(of->team_id, sizeof of->team_id, "%s", team_id);
		(void)map_put(&book->talks, str_of(of->team_id), of);
	}
	return &of->talk;
}

void line_talks_done(struct execution_book *book)
{
	struct team_talk *of;
	size_t at = 0;

	while ((of = map_next(&book->talks, &at)))
		free(of);
	map_done(&book->talks);
}

static bool may_read(void *arg)
{
	struct command *c = arg;

	return talk_may_read(c->talk, &c->talker, loop_turn(c->book->config.loop));
}

static void on_body(void *arg, struct str bytes)
{
	struct command *c = command_ref(arg);
	struct err e = { 0 };

	talk_note(c->talk, loop_turn(c->book->config.loop), bytes.n);
	if (c->guest_status == 200 &&
		connect_reader_feed(&c->reader, bytes, take_frame, c, &e) < 0 && !c->is_ending) {
		log_warn("execution.guest", "sandbox_id=%s n=%" PRId64 " err=%s",
			c->view.sandbox_id, c->view.n, log_quote(str_of(e.msg)));
		line_drop(c);
		lost(c);
	}
	if (c->stream && c->unsaved_bytes > UNSAVED_HIGH_BYTES)
		http_stream_pause(c->stream);
	command_unref(c);
}

static void on_end(void *arg, int r, const struct err *e)
{
	struct command *c = command_ref(arg);

	(void)r;
	(void)e;
	c->stream = NULL; /* gone by itself */
	connect_reader_done(&c->reader);
	lost(c);
	command_unref(c);
}

static const struct http_stream_ops stream_ops = {
	.head = on_head,
	.body = on_body,
	.end = on_end,
	.may_read = may_read,
};

void line_drop(struct command *c)
{
	if (!c->stream)
		return;
	http_stream_cancel(TAKE(c->stream));
	connect_reader_done(&c->reader);
}

void line_resume(struct command *c)
{
	if (c->stream)
		http_stream_resume(c->stream);
}

static void add_headers(const struct command *c, struct buf *out)
{
	char token[SANDBOX_TOKEN_SIZE];

	sandbox_token(c->book->config.sandboxes, c->view.sandbox_id, token);
	(void)buf_printf(out,
		"X-Access-Token: %s\r\nContent-Type: application/connect+json\r\n"
		"Connect-Protocol-Version: 1\r\nKeepalive-Ping-Interval: %d\r\n",
		token, KEEPALIVE_S);
	if (c->view.user[0]) {
		char user[EXECUTION_NAME_SIZE + 1], text[2 * EXECUTION_NAME_SIZE] = "";

		(void)snprintf(user, sizeof user, "%s:", c->view.user);
		base64_encode(user, strlen(user), text);
		(void)buf_printf(out, "Authorization: Basic %s\r\n", text);
	}
	(void)buf_adds(out, "Atoll-Recorded: 1\r\n"); /* by us, under its tag */
	explicit_bzero(token, sizeof token);
}

static void open_stream(struct command *c, const char *path, struct str json)
{
	CLEANUP(buf_done) struct buf headers = BUF_INIT(2048), body = BUF_INIT(json.n + 16);
	struct http_stream_request request = { .method = "POST",
		.target = path,
		.head_timeout_ms = HEAD_MS,
		.stall_timeout_ms = STALL_MS };
	size_t mark = connect_frame_begin(&body);

	(void)buf_add_str(&body, json);
	connect_frame_end(&body, mark, 0);
	add_headers(c, &headers);
	request.headers = headers.p;
	request.body = buf_str(&body);
	c->guest_status = 0;
	c->has_failed = false;
	c->talk = talk_of(c->book, c->team_id);
	connect_reader_init(&c->reader, FRAME_MAX_BYTES);
	c->stream = http_stream_open(c->book->config.loop, TAKE_FD(c->dial_fd), &request,
		&stream_ops, c);
	explicit_bzero(headers.p, headers.n);
}

/* ---- starting ---- */

static void fail_start(struct command *c, int code, const char *why)
{
	struct err e = { 0 };

	(void)err_set(&e, code, "%s", why);
	command_fail_start(c, &e);
}

static void start(struct command *c)
{
	c->is_asked = true;
	CRASH_POINT("execution.start");
	open_stream(c, "/process.Process/Start", buf_str(&c->message));
	explicit_bzero(c->message.p, c->message.cap);
	buf_done(&c->message);
}

static void dialled(void *arg, int fd, const struct err *e)
{
	struct command *c = arg;

	flight_end(c->book);
	c->is_dialling = false;
	if (c->is_over)
		close_fdp(&fd);
	else if (fd >= 0) {
		c->dial_fd = fd;
		start(c);
	} else {
		fail_start(c, -EAGAIN, e->msg);
	}
	command_unref(c);
}

/* The process is started while its row is being written: what a crash leaves in between is a
 * process that ends by its own deadline, and that nobody was told of. */
void line_start(struct command *c)
{
	const struct sandbox *sb = tenant(c);

	c->is_dialling = true;
	flight_begin(c->book);
	sandbox_dial(c->book->config.sandboxes, sb, RUNTIME_GUEST_PORT, dialled, command_ref(c));
}

/* ---- following ---- */

static void retry(struct command *c, int64_t after_ms)
{
	loop_timer_set(&c->retry, time_now_ms() + after_ms);
}

static void retry_or_give_up(struct command *c, const char *why)
{
	struct command_end end = { .by = EXECUTION_END_INFRASTRUCTURE, .why = why };

	if (++c->tries <= RETRY_MAX)
		retry(c, (int64_t)RETRY_MS * MIN(c->tries, 10));
	else
		command_end(c, &end);
}

static void redialled(void *arg, int fd, const struct err *e)
{
	struct command *c = arg;
	char json[160];

	flight_end(c->book);
	c->is_dialling = false;
	if (c->is_ending || c->is_over || c->book->is_stopping) {
		close_fdp(&fd);
	} else if (fd < 0) {
		retry_or_give_up(c, e->msg);
	} else {
		c->dial_fd = fd;
		(void)snprintf(json, sizeof json,
			"{\"process\":{\"tag\":\"%s\"},\"replayFrom\":%" PRId64 "}", c->tag,
			c->guest_seq + 1);
		open_stream(c, "/process.Process/Connect", str_of(json));
	}
	command_unref(c);
}

static void end_with_sandbox(struct command *c, const char *why)
{
	struct command_end end = { .by = EXECUTION_END_SANDBOX, .why = why };

	if (c->started && !c->is_told_started && c->view.state == EXECUTION_STARTING)
		fail_start(c, -ENOENT, why);
	else
		command_end(c, &end);
}

void line_follow(struct command *c)
{
	const struct sandbox *sb = tenant(c);

	if (c->is_ending || c->is_dialling || c->stream || c->book->is_stopping)
		return;
	if (!sb || sb->state == SANDBOX_ENDING)
		end_with_sandbox(c, "the sandbox ended");
	else if (sb->state == SANDBOX_PAUSED && sb->image[0])
		end_with_sandbox(c, "the sandbox was paused to disk, which no process outlives");
	else if (sb->state != SANDBOX_RUNNING)
		retry(c, STILL_MS);
	else {
		c->is_dialling = true;
		flight_begin(c->book);
		sandbox_dial(c->book->config.sandboxes, sb, RUNTIME_GUEST_PORT, redialled,
			command_ref(c));
	}
}

/* The guest runs, and does not know it. */
static void unknown(struct command *c)
{
	const struct sandbox *sb = tenant(c);
	struct command_end end = { .by = EXECUTION_END_INFRASTRUCTURE,
		.why = "the sandbox no longer knows how it ended" };

	if (sb && sb->run_started_us > c->view.started_us) {
		end.by = EXECUTION_END_SANDBOX;
		end.why = "the sandbox was booted anew, and its processes were gone";
	} else if (c->view.state == EXECUTION_STARTING) {
		end.why = "it was not started: the server stopped before";
	}
	if (c->started)
		fail_start(c, -EAGAIN, "the sandbox's guest did not start it");
	else
		command_end(c, &end);
}

/* The connection is over, and the command's end was not on it. */
static void lost(struct command *c)
{
	if (c->is_ending || c->is_over)
		return;
	if (c->has_failed && c->started)
		command_fail_start(c, &c->failure);
	else if (c->has_failed && c->failure.code == -ENOENT)
		unknown(c);
	else if (!tenant(c))
		line_follow(c);
	else
		retry_or_give_up(c, "the connection to the sandbox's guest was lost");
}

/* ---- single calls ---- */

struct unary {
	struct execution_book *book;
	char sandbox_id[SANDBOX_ID_SIZE], path[64];
	struct buf json;
	struct loop_task task;
	done_fn done;
	void *arg;
};

static void unary_end(struct unary *u, int r, const struct err *e)
{
	flight_end(u->book);
	if (u->done)
		u->done(u->arg, r, e);
	buf_done(&u->json);
	free(u);
}

static void answered(void *arg, int r, int status, struct str body, const struct err *e)
{
	struct err mine = { 0 };

	(void)body;
	if (r >= 0 && status != 200)
		r = err_set(&mine, status == 404 ? -ESRCH : -EIO, "the sandbox's guest said %d",
			status);
	unary_end(arg, r, mine.code ? &mine : e);
}

static void unary_dialled(void *arg, int fd, const struct err *e)
{
	struct unary *u = arg;
	char token[SANDBOX_TOKEN_SIZE], headers[256];
	struct http_request request = { .method = "POST",
		.target = u->path,
		.headers = headers,
		.body = buf_str(&u->json),
		.max_bytes = CALL_BYTES,
		.timeout_ms = CALL_MS };

	if (fd < 0) {
		unary_end(u, fd, e);
		return;
	}
	sandbox_token(u->book->config.sandboxes, u->sandbox_id, token);
	(void)snprintf(headers, sizeof headers,
		"X-Access-Token: %s\r\nContent-Type: application/json\r\n", token);
	http_request(u->book->config.loop, fd, &request, answered, u);
}

static void unary_gone(void *arg)
{
	struct err e = { 0 };

	unary_end(arg, err_set(&e, -ESRCH, "the sandbox does not run"), &e);
}

void line_call(struct execution_book *book, const char *sandbox_id, const char *path,
	struct str json, done_fn done, void *arg)
{
	const struct sandbox *sb = sandbox_find(book->config.sandboxes, NULL, str_of(sandbox_id));
	struct unary *u = XNEW(struct unary);

	flight_begin(book);
	u->book = book;
	u->json = BUF_INIT(json.n + 1);
	u->done = done;
	u->arg = arg;
	(void)buf_add_str(&u->json, json);
	(void)snprintf(u->sandbox_id, sizeof u->sandbox_id, "%s", sandbox_id);
	(void)snprintf(u->path, sizeof u->path, "%s", path);
	if (sb)
		sandbox_dial(book->config.sandboxes, sb, RUNTIME_GUEST_PORT, unary_dialled, u);
	else
		loop_defer(book->config.loop, &u->task, unary_gone, u);
}

void line_signal(struct command *c, const char *name, done_fn done, void *arg)
{
	char json[200];

	(void)snprintf(json, sizeof json,
		"{\"process\":{\"tag\":\"%s\"},\"signal\":\"%s\",\"group\":true}", c->tag, name);
	line_call(c->book, c->view.sandbox_id, "/process.Process/SendSignal", str_of(json), done,
		arg);
}

void line_forget(struct command *c)
{
	char json[100];

	(void)snprintf(json, sizeof json, "{\"process\":{\"tag\":\"%s\"}}", c->tag);
	line_call(c->book, c->view.sandbox_id, "/process.Process/Forget", str_of(json), NULL, NULL);
}
