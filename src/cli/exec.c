#include "cli/exec-internal.h"
#include "cli/terminal.h"

#include <sys/stat.h>

enum {
	START_MAX = 4 << 20, /* argv and environment together */
	REFUSAL_MAX = 64 << 10,
	PING_S = 50,             /* asked of the guest */
	SILENCE_MS = 150 * 1000, /* three pings missed: the other end is gone */
};

/* ---- calls ---- */

void session_rpc_done(void *arg, int r, const struct client_call *call, struct str body,
	const struct err *e)
{
	struct rpc *slot = arg;

	(void)e;
	slot->call = NULL;
	if (slot->session->is_closing)
		session_settle(slot->session);
	else
		slot->answered(slot->session, r, r < 0 ? 0 : client_status(call), body);
}

bool session_rpc(struct session *s, struct rpc *slot, const char *method, const struct buf *body,
	int64_t timeout_ms, void (*answered)(struct session *, int, int, struct str))
{
	char url[CONFIG_VALUE + 64];
	struct client_request request = { .method = "POST",
		.url = url,
		.headers = s->unary_headers,
		.body = buf_str(body),
		.timeout_ms = timeout_ms };

	if (slot->call)
		return false;
	(void)snprintf(url, sizeof url, "%s/process.Process/%s", s->cli->config.sandbox_url,
		method);
	slot->session = s;
	slot->answered = answered;
	slot->call = client_fetch(s->cli->client, &request, REFUSAL_MAX, session_rpc_done, slot);
	return true;
}

/* ---- the end ---- */

void session_fail(struct session *s, int code, const char *fmt, ...)
{
	va_list ap;

	if (s->e.code < 0)
		return; /* the first is the cause of the others */
	s->e.code = code;
	va_start(ap, fmt);
	(void)vsnprintf(s->e.msg, sizeof s->e.msg, fmt, ap);
	va_end(ap);
}

static bool output_waits(const struct session *s)
{
	return outlet_is_full(&s->out) || outlet_is_full(&s->err_out);
}

static bool has_calls(const struct session *s)
{
	return s->stream || s->input.call || s->control.call || s->resize.call || s->extend.call;
}

void session_settle(struct session *s)
{
	bool leaving = s->leaving_signo || s->e.code < 0;

	if (s->is_closing) {
		if (!has_calls(s))
			loop_stop(s->cli->loop);
		return;
	}
	/* A signal that we promised the command goes out before we do. */
	if ((leaving && !s->control.call) || (s->is_over && !output_waits(s)))
		loop_stop(s->cli->loop);
}

/* ---- the stream ---- */

static void on_drained(void *arg)
{
	struct session *s = arg;

	if (s->out.error < 0 || s->err_out.error < 0) {
		int error = s->out.error < 0 ? s->out.error : s->err_out.error;

		session_fail(s, error, "write the command's output: %s", strerrordesc_np(-error));
		if (s->pid && !s->is_ended) /* as SIGPIPE would have */
			session_send_signal(s, "SIGNAL_SIGKILL");
	} else if (s->stream && !output_waits(s)) {
		client_resume(s->stream);
	}
	session_settle(s);
}

static int on_output(struct session *s, bool is_stderr, struct str bytes, struct err *e)
{
	struct outlet *to = is_stderr ? s->err_to : &s->out;

	if (s->request->output)
		return s->request->output(s->request->output_arg, is_stderr, bytes, e);
	if (outlet_write(to, bytes) < 0)
		on_drained(s);
	else if (outlet_is_full(to))
		client_pause(s->stream);
	return 0;
}

static void on_closed(struct session *s, const struct process_event *event)
{
	enum connect_code code = CONNECT_UNKNOWN;

	if (event->code.n == 0) {
		if (!s->is_ended)
			session_fail(s, -EPROTO, "the sandbox did not say how the command ended");
		return;
	}
	(void)connect_code_parse(event->code, &code);
	if (code == CONNECT_DEADLINE_EXCEEDED && s->request->timeout_ms > 0) {
		s->result.timed_out = true;
		s->result.exit_code = EXIT_TIMEOUT;
		s->is_ended = true;
		return;
	}
	session_fail(s, cli_api_code_of(connect_code_http(code)), "%.*s",
		STR_ARG(event->message.n ? event->message : event->code));
}

static int on_event(void *arg, const struct process_event *event, struct err *e)
{
	struct session *s = arg;

	switch (event->kind) {
	case PROCESS_STARTED:
		s->pid = event->pid;
		s->started_us = time_now_us();
		session_input_start(s);
		return 0;
	case PROCESS_STDOUT:
	case PROCESS_STDERR:
		return on_output(s, event->kind == PROCESS_STDERR, event->bytes, e);
	case PROCESS_ENDED:
		s->is_ended = true;
		s->result.exit_code = event->exit_code;
		s->result.signo = event->signo;
		(void)snprintf(s->result.cause, sizeof s->result.cause, "%.*s",
			STR_ARG(event->cause));
		session_input_stop(s);
		return 0;
	case PROCESS_CLOSED:
		on_closed(s, event);
		return 0;
	case PROCESS_ALIVE:
		return 0;
	}
	return 0;
}

static void stream_data(void *arg, struct client_call *call, struct str bytes)
{
	struct session *s = arg;
	struct err e = { 0 };
	int r;

	if (client_status(call) != 200) {
		(void)buf_add_str(&s->refusal, bytes);
		return;
	}
	r = event_stream_feed(&s->events, bytes, &e);
	if (r < 0) {
		session_fail(s, r, "%s", e.msg);
		client_cancel(call);
	}
}

static void stream_head(void *arg, struct client_call *call)
{
	struct session *s = arg;

	if (client_status(call) == 200 &&
		!str_is(client_header(call, "content-type"), "application/connect+json")) {
		session_fail(s, -EPROTO, "the answer is not a command's stream");
		client_cancel(call);
	}
}

static void stream_done(void *arg, int r, const struct err *e)
{
	struct session *s = arg;
	int status = client_status(s->stream);
	struct err why = { 0 };

	s->stream = NULL;
	s->is_over = true;
	if (s->is_closing) {
		session_settle(s);
		return;
	}
	if (r < 0) {
		session_fail(s, r, "%s", e->msg);
	} else if (status != 200) {
		cli_api_message(s->cli, status, buf_str(&s->refusal), &why);
		session_fail(s, why.code, "%s", why.msg);
	} else if (event_stream_finish(&s->events, &why) < 0) {
		session_fail(s, -ECONNRESET, "%s", why.msg);
	}
	session_settle(s);
}

/* ---- starting ---- */

static void write_environment(struct session *s, struct jsonw *w)
{
	const struct cli *cli = s->cli;
	const char *pair;
	size_t at = 0;

	jsonw_object(w, "envs");
	if (s->request->tty) {
		jsonw_strz(w, "TERM", cli->term && *cli->term ? cli->term : "xterm-256color");
		jsonw_strz(w, "LANG", "C.UTF-8");
	}
	while (s->request->use_env_options && (pair = args_next(&cli->args, "env", &at))) {
		const char *value = strchr(pair, '=') + 1;

		jsonw_pair(w, str_make(pair, (size_t)(value - pair) - 1), str_of(value));
	}
	jsonw_end_object(w);
}

static void write_start(struct session *s, struct buf *body)
{
	const struct exec_request *q = s->request;
	size_t mark = connect_frame_begin(body);
	struct terminal_size size = terminal_size();
	struct jsonw w;

	jsonw_init(&w, body);
	jsonw_object(&w, NULL);
	jsonw_object(&w, "process");
	jsonw_strz(&w, "cmd", q->argv[0]);
	jsonw_array(&w, "args");
	for (size_t i = 1; i < q->argc; i++)
		jsonw_strz(&w, NULL, q->argv[i]);
	jsonw_end_array(&w);
	write_environment(s, &w);
	if (q->cwd)
		jsonw_strz(&w, "cwd", q->cwd);
	jsonw_end_object(&w);
	if (q->tty) {
		jsonw_object(&w, "pty");
		jsonw_object(&w, "size");
		jsonw_int(&w, "cols", size.columns);
		jsonw_int(&w, "rows", size.rows);
		jsonw_end_object(&w);
		jsonw_end_object(&w);
	} else {
		jsonw_bool(&w, "stdin", q->stdin_fd >= 0);
	}
	jsonw_bool(&w, "group", true); /* --timeout ends what it has started, too */
	jsonw_end_object(&w);
	connect_frame_end(body, mark, 0);
}

static int start(struct session *s, struct err *e)
{
	static const char *const unary[] = { "Content-Type: application/json",
		"Connect-Protocol-Version: 1", NULL };
	const struct client_handlers handlers = { stream_head, stream_data, stream_done, s };
	CLEANUP(buf_done) struct buf body = BUF_INIT(START_MAX);
	const struct exec_request *q = s->request;
	char url[CONFIG_VALUE + 64], ping[48], timeout[48];
	const char *more[] = { "Content-Type: application/connect+json",
		"Connect-Protocol-Version: 1", ping, q->timeout_ms ? timeout : NULL, NULL };
	struct client_request request = { .method = "POST",
		.url = url,
		.idle_timeout_ms = SILENCE_MS };

	write_start(s, &body);
	if (body.failed)
		return err_set(e, -EINVAL, "the command line is longer than %d MiB",
			START_MAX >> 20);
	(void)snprintf(url, sizeof url, "%s/process.Process/Start", s->cli->config.sandbox_url);
	(void)snprintf(ping, sizeof ping, "Keepalive-Ping-Interval: %d", PING_S);
	(void)snprintf(timeout, sizeof timeout, "Connect-Timeout-Ms: %" PRId64, q->timeout_ms);
	request.headers = cli_sandbox_headers(s->cli, q->target, q->user, more);
	request.body = buf_str(&body);
	s->unary_headers = cli_sandbox_headers(s->cli, q->target, q->user, unary);
	s->stream = client_start(s->cli->client, &request, &handlers);
	return 0;
}

/* ---- the session ---- */

static bool same_channel(int a, int b)
{
	struct stat sa, sb;

	return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
	       sa.st_ino == sb.st_ino && sa.st_rdev == sb.st_rdev;
}

static void session_init(struct session *s, struct cli *cli, const struct exec_request *request)
{
	*s = (struct session){ .cli = cli, .request = request };
	s->refusal = BUF_INIT(REFUSAL_MAX);
	event_stream_init(&s->events, on_event, s);
	outlet_init(&s->out, cli->loop, STDOUT_FILENO, on_drained, s);
	outlet_init(&s->err_out, cli->loop, STDERR_FILENO, on_drained, s);
	/* One queue keeps the order of what goes to one place. */
	s->err_to = same_channel(STDOUT_FILENO, STDERR_FILENO) ? &s->out : &s->err_out;
	cli->on_signal = session_signal;
	cli->signal_arg = s;
}

/* Every call that is cut still ends once, and names the session when it does: wait for them. */
static void session_done(struct session *s)
{
	struct client_call *calls[] = { s->stream, s->input.call, s->control.call, s->resize.call,
		s->extend.call };

	s->cli->on_signal = NULL;
	s->is_closing = true;
	session_input_stop(s);
	loop_timer_cancel(&s->extend_timer);
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		if (calls[i])
			client_cancel(calls[i]);
	while (has_calls(s))
		(void)loop_run(s->cli->loop, NULL);
	outlet_done(&s->out);
	outlet_done(&s->err_out);
	event_stream_done(&s->events);
	buf_done(&s->refusal);
	free(s->stdin_bytes);
}

/* What a broken stream means is the sandbox's state, not the socket's. */
static int explain_break(struct cli *cli, const struct target *target, struct err *e)
{
	struct sandbox_info info;
	struct err why = { 0 };

	if (e->code != -ECONNRESET || sandbox_look_up(cli, target->id, &info, &why) != -ENOENT)
		return e->code;
	return err_set(e, -ENOENT, "sandbox %s ended while the command ran", target->id);
}

static int run_session(struct session *s, struct err *e)
{
	const struct exec_request *q = s->request;
	int r = 0;

	if (q->tty && q->stdin_fd >= 0 && isatty(q->stdin_fd))
		r = terminal_make_raw(q->stdin_fd, e);
	if (r == 0)
		r = start(s, e);
	if (r == 0) {
		session_extend_start(s);
		r = loop_run(s->cli->loop, e);
	}
	terminal_restore();
	if (r == 0 && s->e.code < 0)
		r = err_set(e, s->e.code, "%s", s->e.msg);
	return r;
}

static void left_by(int signo, struct exec_result *ret)
{
	*ret = (struct exec_result){ .exit_code = EXIT_SIGNAL + signo, .signo = signo };
}

int cli_exec_run(struct cli *cli, const struct exec_request *request, struct exec_result *ret,
	struct err *e)
{
	struct session s;
	int r = cli_catch_signals(cli, e);

	if (r < 0)
		return r;
	if (cli->signal_seen) { /* while the sandbox was made: nothing runs yet */
		left_by(cli->signal_seen, ret);
		return 0;
	}
	session_init(&s, cli, request);
	r = run_session(&s, e);
	session_done(&s);
	if (s.leaving_signo) {
		left_by(s.leaving_signo, &s.result);
		r = 0;
	}
	if (r < 0)
		return explain_break(cli, request->target, e);
	s.result.duration_ms = s.started_us ? (time_now_us() - s.started_us) / 1000 : 0;
	*ret = s.result;
	return 0;
}
