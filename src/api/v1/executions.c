/* Commands in sandboxes: run, looked at, followed, cancelled. */
#include "api/v1/v1.h"
#include "api/v1/execution.h"

enum {
	MAX_WORDS = 4096,
	MAX_ENVS = 1024,
	ANSWER_MAX_BYTES = 16 << 20, /* of each stream in one answer */
	LARGE_BYTES = 1 << 20,
	HEARTBEAT_MS = 15000,
	MAX_CHUNKS = 1000,
};

/* ---- what is asked for ---- */

const struct json_field v1_command_fields[V1_COMMAND_FIELDS] = {
	JSON_FIELD(struct v1_command, shell, "shell", JSON_STR, .max = 1 << 20),
	JSON_FIELD(struct v1_command, argv, "argv", JSON_STRS, .max = MAX_WORDS),
	JSON_FIELD(struct v1_command, cwd, "cwd", JSON_STR, .max = 4096),
	JSON_FIELD(struct v1_command, user, "user", JSON_STR, .max = 64),
	JSON_FIELD(struct v1_command, envs, "envs", JSON_MAP, .max = MAX_ENVS),
	JSON_FIELD(struct v1_command, secrets, "secrets", JSON_MAP, .max = EXECUTION_MAX_SECRETS),
	JSON_FIELD(struct v1_command, input, "stdin", JSON_STR, .max = EXECUTION_MAX_INPUT_BYTES),
	JSON_FIELD(struct v1_command, input_bytes, "stdin_base64", JSON_BYTES,
		.max = EXECUTION_MAX_INPUT_BYTES),
	JSON_FIELD(struct v1_command, timeout_ms, "timeout_ms", JSON_INT, .min = 1,
		.max = EXECUTION_MAX_TIMEOUT_MS),
	JSON_FIELD(struct v1_command, keep_bytes, "max_output_bytes", JSON_INT, .min = 1,
		.max = EXECUTION_MAX_KEEP_BYTES),
	JSON_FIELD(struct v1_command, stream, "stream", JSON_BOOL),
	JSON_FIELD(struct v1_command, background, "background", JSON_BOOL),
};
static const struct json_shape command_shape = { .fields = v1_command_fields,
	.n_fields = V1_COMMAND_FIELDS,
	.size = sizeof(struct v1_command) };

int v1_command_spec(struct api_call *call, const struct v1_command *in, struct execution_spec *ret)
{
	*ret = (struct execution_spec){ .who = v1_owner(call),
		.actor = call->actor,
		.shell = in->shell,
		.argv = in->argv,
		.cwd = in->cwd,
		.user = in->user,
		.envs = in->envs,
		.secrets = in->secrets,
		.input = in->input.p ? in->input : in->input_bytes,
		.timeout_ms = in->timeout_ms.value,
		.keep_bytes = in->keep_bytes.value,
		.traceparent = str_of(call->traceparent),
		.baggage = request_list(call->x, "baggage") };
	if (call->traceparent[0])
		ret->tracestate = request_list(call->x, "tracestate");
	if (in->input.p && in->input_bytes.p) {
		api_fail_status(call, 400,
			"validation error: give either stdin or stdin_base64, not both");
		return -EINVAL;
	}
	if (in->stream.value && in->background.value) {
		api_fail_status(call, 400,
			"validation error: stream and background exclude each other");
		return -EINVAL;
	}
	if (in->secrets.n && !api_may(call, ACCESS_SECRETS_USE)) {
		api_fail_as(call, 403, "missing_scope", "this key lacks the scope secrets:use",
			NULL);
		return -EPERM;
	}
	return 0;
}

size_t v1_command_limit(const struct v1_command *in)
{
	int64_t keep = in->keep_bytes.is_set ? in->keep_bytes.value : EXECUTION_ANSWER_BYTES;

	return (size_t)MIN(keep, (int64_t)ANSWER_MAX_BYTES);
}

void v1_execution_fail(struct api_call *call, const struct err *e)
{
	switch (e->code) {
	case -EPERM:
		api_fail_as(call, 403, "command_not_allowed", e->msg,
			"GET /api/v1/rules/commands shows what is allowed");
		break;
	case -EINVAL:
		api_fail_as(call, 422, "invalid_command", e->msg, NULL);
		break;
	case -EBUSY:
		api_fail_as(call, 409, "sandbox_paused", e->msg, "resume it: POST .../resume");
		break;
	case -EDQUOT:
		api_fail_as(call, 429, "too_many_executions", e->msg,
			"wait for one to end, or cancel one");
		break;
	default:
		api_fail(call, e);
		break;
	}
}

/* ---- views ---- */

static void write_members(struct jsonw *w, const struct execution *ex)
{
	bool is_ended = ex->state == EXECUTION_ENDED;

	jsonw_strz(w, "sandbox_id", ex->sandbox_id);
	jsonw_int(w, "execution", ex->n);
	jsonw_strz(w, "state", execution_state_name(ex->state));
	jsonw_raw(w, "command", ex->command.n ? ex->command : STR("{}"));
	if (ex->cwd.n)
		jsonw_str(w, "cwd", ex->cwd);
	else
		jsonw_null(w, "cwd");
	v1_text(w, "user", ex->user);
	v1_text(w, "agent_id", ex->agent_id);
	v1_text(w, "task_id", ex->task_id);
	jsonw_str(w, "actor", actor_id(ex->actor));
	v1_time(w, "started_at", ex->started_us);
	v1_time(w, "deadline_at", ex->deadline_us);
	v1_time(w, "ended_at", is_ended ? ex->ended_us : 0);
	if (is_ended)
		jsonw_int(w, "duration_ms", (ex->ended_us - ex->started_us) / 1000);
	else
		jsonw_null(w, "duration_ms");
	if (is_ended && ex->has_exit_code)
		jsonw_int(w, "exit_code", ex->exit_code);
	else
		jsonw_null(w, "exit_code");
	v1_text(w, "signal", is_ended ? ex->signal : "");
	v1_text(w, "ended_by", is_ended ? execution_end_name(ex->ended_by) : "");
	v1_text(w, "ended_why", is_ended ? ex->ended_why : "");
	jsonw_int(w, "stdout_bytes", ex->stdout_bytes);
	jsonw_int(w, "stderr_bytes", ex->stderr_bytes);
	jsonw_int(w, "last_seq", ex->last_seq);
	jsonw_bool(w, "truncated", ex->truncated);
	v1_text(w, "traceparent", ex->traceparent);
}

void v1_execution_write(struct jsonw *w, const char *key, const struct execution *ex)
{
	jsonw_object(w, key);
	write_members(w, ex);
	jsonw_end_object(w);
}

/* Of most control characters JSON makes six: then the largest outputs would not fit. */
static bool is_mostly_escapes(struct str text)
{
	size_t more = 0;

	for (size_t i = 0; i < text.n; i++)
		if ((unsigned char)text.p[i] < 0x20 || text.p[i] == '"' || text.p[i] == '\\')
			more += memchr("\b\t\n\f\r\"\\", text.p[i], 7) ? 1 : 5;
	return more > text.n / 2;
}

/* Text where it is text. */
static void write_stream(struct jsonw *w, const char *key, const char *encoding_key,
	struct str bytes)
{
	bool is_text = str_is_utf8(bytes) && !(bytes.n > LARGE_BYTES && is_mostly_escapes(bytes));

	if (is_text)
		jsonw_str(w, key, bytes);
	else
		jsonw_base64(w, key, bytes);
	jsonw_strz(w, encoding_key, is_text ? "utf-8" : "base64");
}

void v1_result_write(struct jsonw *w, const char *key, const struct execution_result *result)
{
	struct execution ex = *result->execution;

	ex.truncated |= result->out_cut || result->err_cut;
	jsonw_object(w, key);
	write_members(w, &ex);
	write_stream(w, "stdout", "stdout_encoding", result->out);
	write_stream(w, "stderr", "stderr_encoding", result->err);
	jsonw_end_object(w);
}

static void write_chunk(struct jsonw *w, const struct execution_chunk *chunk)
{
	jsonw_object(w, NULL);
	jsonw_int(w, "seq", chunk->seq);
	v1_time(w, "at", chunk->at_us);
	jsonw_strz(w, "stream", chunk->stream == EXECUTION_STDOUT ? "stdout" : "stderr");
	if (str_is_utf8(chunk->bytes))
		jsonw_str(w, "text", chunk->bytes);
	else
		jsonw_base64(w, "base64", chunk->bytes);
	jsonw_end_object(w);
}

/* ---- as it happens ---- */

void v1_sse_begin(struct api_call *call)
{
	http_add_header(call->x, "Cache-Control", STR("no-store, no-transform"));
	http_add_header(call->x, "X-Accel-Buffering", STR("no"));
	api_note_answer(call, 200);
	http_sse_begin(call->x);
}

bool v1_sse_execution(struct api_call *call, const char *event, const struct execution *ex)
{
	CLEANUP(buf_done) struct buf data = BUF_INIT(API_ANSWER_BYTES);
	struct jsonw w;

	jsonw_init(&w, &data);
	v1_execution_write(&w, NULL, ex);
	return http_sse_send(call->x, event, NULL, buf_str(&data));
}

bool v1_sse_chunk(struct api_call *call, const struct execution_chunk *chunk)
{
	CLEANUP(buf_done) struct buf data = BUF_INIT(API_ANSWER_BYTES);
	struct jsonw w;
	char id[24];

	jsonw_init(&w, &data);
	write_chunk(&w, chunk);
	(void)snprintf(id, sizeof id, "%" PRId64, chunk->seq);
	return http_sse_send(call->x, chunk->stream == EXECUTION_STDOUT ? "stdout" : "stderr", id,
		buf_str(&data));
}

struct following { /* in the exchange's arena */
	struct api_call *call;
	struct execution_follower *follower;
	struct loop_timer heartbeat;
};

static void following_over(struct following *f)
{
	loop_timer_cancel(&f->heartbeat);
	http_end(f->call->x);
}

static void on_heartbeat(void *arg)
{
	struct following *f = arg;
	struct loop *loop = http_loop(f->call->x);

	(void)http_write(f->call->x, STR(": hb\n\n"));
	loop_timer_set(&f->heartbeat, loop_now_ms(loop) + HEARTBEAT_MS);
}

static bool follow_chunk(void *arg, const struct execution_chunk *chunk)
{
	struct following *f = arg;

	return v1_sse_chunk(f->call, chunk);
}

static void follow_end(void *arg, int r, const struct execution *ex, const struct err *e)
{
	struct following *f = arg;

	f->follower = NULL;
	if (r >= 0) {
		(void)v1_sse_execution(f->call, "end", ex);
		following_over(f);
	} else {
		log_warn("v1.follow_failed", "err=%s", log_quote(str_of(e->msg)));
		loop_timer_cancel(&f->heartbeat);
		http_abort(f->call->x); /* the client comes again, and goes on where it was */
	}
}

static const struct execution_follow_ops follow_ops = { follow_chunk, follow_end };

static void follow_drained(void *arg)
{
	struct following *f = arg;

	if (f->follower)
		execution_follow_resume(f->follower);
}

/* The command runs on: whoever wants it ended says so. */
static void follow_gone(void *arg)
{
	struct following *f = arg;

	if (!f->follower)
		return;
	execution_follow_stop(TAKE(f->follower));
	following_over(f);
}

static void follow(struct api_call *call, const struct execution *ex, int64_t from)
{
	struct following *f = arena_alloc(http_arena(call->x), sizeof *f);
	struct execution_ref ref = { v1_owner(call), str_of(ex->sandbox_id), ex->n };
	struct loop *loop = http_loop(call->x);

	if (!f) {
		api_fail_status(call, 500, "out of memory");
		return;
	}
	f->call = call;
	v1_sse_begin(call);
	loop_timer_init(&f->heartbeat, loop, on_heartbeat, f);
	loop_timer_set(&f->heartbeat, loop_now_ms(loop) + HEARTBEAT_MS);
	if (from == 1)
		(void)v1_sse_execution(call, "started", ex);
	f->follower = execution_follow(call->api->config.executions, &ref, from, &follow_ops, f);
	http_on_drain(call->x, follow_drained, f);
	http_on_gone(call->x, follow_gone, f);
}

/* ---- POST .../execute ---- */

struct executing { /* in the exchange's arena */
	struct api_call *call;
	struct v1_command in;
	struct execution_wait *wait;
};

static void reply_result(void *arg, int r, const struct execution_result *result,
	const struct err *e)
{
	struct executing *x = arg;
	struct api_answer answer;

	x->wait = NULL;
	if (!api_answer_begin(x->call, &answer, r, e))
		return;
	v1_result_write(&answer.w, NULL, result);
	api_answer_send(x->call, &answer, 200);
}

static void wait_gone(void *arg)
{
	struct executing *x = arg;

	if (!x->wait)
		return;
	execution_wait_stop(TAKE(x->wait));
	http_abort(x->call->x);
}

static void reply_started(struct api_call *call, const struct execution *ex)
{
	CLEANUP(buf_done) struct buf place = BUF_INIT(256);
	struct api_answer answer;

	(void)buf_printf(&place, "/api/v1/sandboxes/%s/executions/%" PRId64, ex->sandbox_id, ex->n);
	http_add_header(call->x, "Location", buf_str(&place));
	(void)api_answer_begin(call, &answer, 0, NULL);
	v1_execution_write(&answer.w, NULL, ex);
	api_answer_send(call, &answer, 202);
}

static bool wants_stream(const struct executing *x)
{
	struct str accept = http_header(x->call->x, "Accept");

	return x->in.stream.is_set
		       ? x->in.stream.value
		       : accept.n && memmem(accept.p, accept.n, "text/event-stream", 17);
}

static void execution_started(void *arg, int r, const struct execution *ex, const struct err *e)
{
	struct executing *x = arg;
	struct api_call *call = x->call;

	if (r < 0) {
		v1_execution_fail(call, e);
	} else if (x->in.background.value) {
		reply_started(call, ex);
	} else if (wants_stream(x)) {
		follow(call, ex, 1);
	} else {
		struct execution_ref ref = { v1_owner(call), str_of(ex->sandbox_id), ex->n };

		x->wait = execution_wait(call->api->config.executions, &ref,
			v1_command_limit(&x->in), reply_result, x);
		http_on_gone(call->x, wait_gone, x);
	}
}

static void execute(void *arg)
{
	struct executing *x = arg;
	struct api_call *call = x->call;
	struct execution_spec spec;

	if (!v1_running(call) || v1_command_spec(call, &x->in, &spec) < 0)
		return;
	spec.sandbox_id = call->params[0];
	execution_start(call->api->config.executions, &spec, execution_started, x);
}

void v1_execute(struct api_call *call)
{
	struct executing *x = arena_alloc(http_arena(call->x), sizeof *x);

	if (!x) {
		api_fail_status(call, 500, "out of memory");
		return;
	}
	x->call = call;
	api_decode_then(call, &command_shape, &x->in, false, execute, x);
}

/* ---- looking ---- */

/* Answers 404 itself for a number that is none. */
static int read_ref(struct api_call *call, struct execution_ref *ret)
{
	*ret = (struct execution_ref){ v1_owner(call), call->params[0], 0 };
	if (str_to_int(call->params[1], 1, INT32_MAX, &ret->n) == 0)
		return 0;
	api_fail_as(call, 404, "execution_not_found", "there is no such execution", NULL);
	return -ENOENT;
}

static void fail_lookup(struct api_call *call, const struct err *e)
{
	if (e->code == -ENOENT)
		api_fail_as(call, 404, "execution_not_found", e->msg, NULL);
	else
		api_fail(call, e);
}

static void reply_execution(void *arg, int r, const struct execution *ex, const struct err *e)
{
	struct api_call *call = arg;
	struct api_answer answer;

	if (r < 0) {
		fail_lookup(call, e);
		return;
	}
	(void)api_answer_begin(call, &answer, 0, NULL);
	v1_execution_write(&answer.w, NULL, ex);
	api_answer_send(call, &answer, 200);
}

void v1_executions_get(struct api_call *call)
{
	struct execution_ref ref;

	if (read_ref(call, &ref) == 0)
		execution_get(call->api->config.executions, &ref, reply_execution, call);
}

static void reply_page(void *arg, int r, const struct execution *v, size_t n, bool more,
	const struct err *e)
{
	struct api_call *call = arg;
	struct api_answer answer;
	char next[24];

	if (r == -ENOENT) {
		api_fail_as(call, 404, "sandbox_not_found", e->msg, NULL);
		return;
	}
	if (!api_answer_begin(call, &answer, r, e))
		return;
	v1_page_begin(&answer.w);
	for (size_t i = 0; i < n; i++)
		v1_execution_write(&answer.w, NULL, &v[i]);
	(void)snprintf(next, sizeof next, "%" PRId64, n ? v[n - 1].n : 0);
	v1_page_end(&answer.w, more && n ? next : NULL);
	api_answer_send(call, &answer, 200);
}

void v1_executions_list(struct api_call *call)
{
	struct execution_ref ref = { v1_owner(call), call->params[0], 0 };
	struct v1_page page;
	int64_t before = 0;

	if (v1_page_read(call, 50, 200, &page) < 0)
		return;
	if (page.cursor.n && str_to_int(page.cursor, 1, INT64_MAX, &before) < 0)
		api_fail_as(call, 400, "invalid_cursor",
			"validation error: cursor is not one of this listing", NULL);
	else
		execution_list(call->api->config.executions, &ref, before, (size_t)page.limit,
			reply_page, call);
}

static void reply_chunks(void *arg, int r, const struct execution *ex,
	const struct execution_chunk *v, size_t n, const struct err *e)
{
	struct api_call *call = arg;
	struct api_answer answer;
	int64_t next = 0;

	if (r < 0) {
		fail_lookup(call, e);
		return;
	}
	if (api_query_int(call, "from", 1, INT64_MAX, &next) < 0)
		return;
	(void)api_answer_begin(call, &answer, 0, NULL);
	jsonw_object(&answer.w, NULL);
	jsonw_array(&answer.w, "items");
	for (size_t i = 0; i < n; i++)
		write_chunk(&answer.w, &v[i]);
	jsonw_end_array(&answer.w);
	next = n ? v[n - 1].seq + 1 : MAX(next, 1);
	jsonw_int(&answer.w, "next", next);
	jsonw_bool(&answer.w, "complete", ex->state == EXECUTION_ENDED && next > ex->last_seq);
	jsonw_strz(&answer.w, "state", execution_state_name(ex->state));
	jsonw_bool(&answer.w, "truncated", ex->truncated);
	jsonw_end_object(&answer.w);
	api_answer_send(call, &answer, 200);
}

void v1_executions_logs(struct api_call *call)
{
	int64_t from = 1, limit = 200;
	struct execution_ref ref;

	if (read_ref(call, &ref) == 0 && api_query_int(call, "from", 1, INT64_MAX, &from) == 0 &&
		api_query_int(call, "limit", 1, MAX_CHUNKS, &limit) == 0)
		execution_logs(call->api->config.executions, &ref, from, (size_t)limit,
			reply_chunks, call);
}

/* ---- GET .../stream ---- */

struct resuming {
	struct api_call *call;
	int64_t from;
};

static void resume_found(void *arg, int r, const struct execution *ex, const struct err *e)
{
	struct resuming *x = arg;

	if (r < 0)
		fail_lookup(x->call, e);
	else
		follow(x->call, ex, x->from);
}

void v1_executions_stream(struct api_call *call)
{
	struct resuming *x = arena_alloc(http_arena(call->x), sizeof *x);
	struct str last = http_header(call->x, "Last-Event-ID");
	struct execution_ref ref;
	int64_t seen = 0;

	if (!x || read_ref(call, &ref) < 0)
		return;
	x->call = call;
	x->from = 1;
	if (last.n && str_to_int(last, 0, INT64_MAX - 1, &seen) < 0) {
		api_fail_status(call, 400, "validation error: Last-Event-ID must be a number");
		return;
	}
	if (api_query_int(call, "from", 1, INT64_MAX, &x->from) < 0)
		return;
	if (last.n)
		x->from = seen + 1;
	execution_get(call->api->config.executions, &ref, resume_found, x);
}

/* ---- POST .../cancel ---- */

struct cancel_in {
	struct str signal;
	struct json_int grace_ms;
};
static const struct json_field cancel_fields[] = {
	JSON_FIELD(struct cancel_in, signal, "signal", JSON_STR, .max = 16),
	JSON_FIELD(struct cancel_in, grace_ms, "grace_ms", JSON_INT, .min = 0, .max = 600000),
};
static const struct json_shape cancel_shape = JSON_SHAPE(struct cancel_in, cancel_fields);

/* Whether it was asked for now or had ended before: how it stands. */
static void cancelled(void *arg, int r, const struct err *e)
{
	struct api_call *call = arg;
	struct execution_ref ref;

	if (r == -EINVAL)
		api_fail_as(call, 400, "invalid_signal", e->msg, NULL);
	else if (r == -EBUSY)
		v1_execution_fail(call, e);
	else if (r < 0 && r != -ESRCH)
		api_fail(call, e);
	else if (read_ref(call, &ref) == 0)
		execution_get(call->api->config.executions, &ref, reply_execution, call);
}

void v1_executions_cancel(struct api_call *call)
{
	struct execution_ref ref;
	struct cancel_in in;
	int64_t grace_ms;

	if (read_ref(call, &ref) < 0 || api_decode(call, &cancel_shape, &in, true) < 0)
		return;
	grace_ms = in.grace_ms.is_set ? in.grace_ms.value : EXECUTION_GRACE_MS;
	execution_cancel(call->api->config.executions, &ref, in.signal.p, grace_ms, call->actor,
		cancelled, call);
}
