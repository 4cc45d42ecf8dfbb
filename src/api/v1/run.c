/* POST /run: a sandbox, files, a command, what it made, and no sandbox any more, in one call. */
#include "api/v1/artifacts.h"
#include "api/v1/execution.h"

enum {
	OWN_FIELDS = 2, /* beside those of a command */
	MAX_ARTIFACTS = 100,
	MARGIN_S = 120, /* the sandbox lives longer than the command, if it must end by itself */
	HEARTBEAT_MS = 15000,
};

struct run_in {
	struct v1_command command;
	struct str sandbox;
	struct json_strs artifacts;
};

struct running { /* in the exchange's arena */
	struct api_call *call;
	struct run_in in;
	char id[UUID_SIZE];
	struct execution_run *run;
	struct loop_timer heartbeat;
	bool is_stream, is_begun;
	struct json_field fields[V1_COMMAND_FIELDS + OWN_FIELDS];
	struct json_shape shape;
};

/* ---- the answer ---- */

static void write_result(struct jsonw *w, const struct execution_run_result *result,
	bool with_output)
{
	jsonw_object(w, NULL);
	jsonw_strz(w, "run_id", result->id);
	jsonw_strz(w, "sandbox_id", result->sandbox_id);
	if (with_output)
		v1_result_write(w, "execution", result->result);
	else
		v1_execution_write(w, "execution", result->result->execution);
	jsonw_array(w, "artifacts");
	for (size_t i = 0; i < result->n_artifacts; i++)
		v1_artifact_write(w, &result->artifacts[i]);
	jsonw_end_array(w);
	v1_text(w, "artifacts_missing", result->artifacts_missing);
	jsonw_end_object(w);
}

static void end_stream(struct running *x, int r, const struct execution_run_result *result,
	const struct err *e)
{
	CLEANUP(buf_done) struct buf data = BUF_INIT(API_ANSWER_BYTES);
	struct jsonw w;

	jsonw_init(&w, &data);
	if (r < 0) {
		jsonw_object(&w, NULL);
		jsonw_strz(&w, "message", e->msg);
		jsonw_end_object(&w);
	} else {
		write_result(&w, result, false);
	}
	(void)http_sse_send(x->call->x, r < 0 ? "error" : "result", NULL, buf_str(&data));
	http_end(x->call->x);
}

static void run_ended(void *arg, int r, const struct execution_run_result *result,
	const struct err *e)
{
	struct running *x = arg;
	struct api_answer answer;

	x->run = NULL;
	loop_timer_cancel(&x->heartbeat);
	if (x->is_begun) {
		end_stream(x, r, result, e);
	} else if (r < 0) {
		v1_execution_fail(x->call, e);
	} else {
		(void)api_answer_begin(x->call, &answer, 0, NULL);
		write_result(&answer.w, result, true);
		api_answer_send(x->call, &answer, 200);
	}
}

static void on_heartbeat(void *arg)
{
	struct running *x = arg;
	struct loop *loop = http_loop(x->call->x);

	(void)http_write(x->call->x, STR(": hb\n\n"));
	loop_timer_set(&x->heartbeat, loop_now_ms(loop) + HEARTBEAT_MS);
}

/* Who sent an Idempotency-Key has its answer kept; a stream is for whoever reads it. */
static void run_gone(void *arg)
{
	struct running *x = arg;

	if (!x->run || x->call->once)
		return;
	loop_timer_cancel(&x->heartbeat);
	execution_run_leave(TAKE(x->run));
	api_abandon(x->call);
}

static void run_started(void *arg, const struct execution *ex)
{
	struct running *x = arg;
	struct loop *loop = http_loop(x->call->x);

	if (!x->is_stream)
		return;
	x->is_begun = true;
	v1_sse_begin(x->call);
	(void)v1_sse_execution(x->call, "started", ex);
	loop_timer_set(&x->heartbeat, loop_now_ms(loop) + HEARTBEAT_MS);
	if (http_is_gone(x->call->x))
		run_gone(x);
}

static bool run_chunk(void *arg, const struct execution_chunk *chunk)
{
	struct running *x = arg;

	return v1_sse_chunk(x->call, chunk);
}

static const struct execution_run_ops stream_ops = { run_started, run_chunk, run_ended };
static const struct execution_run_ops whole_ops = { run_started, NULL, run_ended };

static void run_drained(void *arg)
{
	struct running *x = arg;

	if (x->run)
		execution_run_resume(x->run);
}

/* ---- the way there ---- */

static void sandbox_made(void *arg, const struct sandbox *sb)
{
	struct running *x = arg;
	struct api_call *call = x->call;
	struct execution_run_spec spec = { .id = x->id,
		.artifacts = x->in.artifacts,
		.limit_bytes = v1_command_limit(&x->in.command) };

	(void)v1_command_spec(call, &x->in.command, &spec.command); /* was well once */
	spec.command.sandbox_id = str_of(sb->id);
	x->run = execution_run(call->api->config.executions, &spec,
		x->is_stream ? &stream_ops : &whole_ops, x);
	http_on_drain(call->x, run_drained, x);
	http_on_gone(call->x, run_gone, x);
	if (http_is_gone(call->x))
		run_gone(x);
}

#define RUN_FIELD(member, name, kind, ...) \
	JSON_FIELD(struct run_in, member, name, kind, __VA_ARGS__)

/* The members of a command, and beside them those of a run. */
static void make_shape(struct running *x)
{
	static const struct json_field own[OWN_FIELDS] = {
		RUN_FIELD(sandbox, "sandbox", JSON_RAW),
		RUN_FIELD(artifacts, "artifacts", JSON_STRS, .max = MAX_ARTIFACTS),
	};

	static_assert(offsetof(struct run_in, command) == 0, "their fields lie where they say");
	memcpy(x->fields, v1_command_fields, sizeof v1_command_fields);
	memcpy(x->fields + V1_COMMAND_FIELDS, own, sizeof own);
	x->shape = (struct json_shape){ .fields = x->fields,
		.n_fields = ARRAY_SIZE(x->fields),
		.size = sizeof(struct run_in) };
}

static void run(void *arg)
{
	struct running *x = arg;
	struct api_call *call = x->call;
	struct execution_spec spec;
	struct str accept = http_header(call->x, "Accept");
	struct err e = { 0 };
	int64_t timeout_ms;

	if (v1_command_spec(call, &x->in.command, &spec) < 0)
		return;
	if (x->in.command.background.value ||
		(x->in.command.shell.n > 0) == (x->in.command.argv.n > 0)) {
		api_fail_status(call, 400,
			"validation error: give either shell or argv, and no background");
		return;
	}
	x->is_stream = x->in.command.stream.is_set
			       ? x->in.command.stream.value
			       : accept.n && memmem(accept.p, accept.n, "text/event-stream", 17);
	if (x->in.artifacts.n &&
		execution_artifact_room(call->api->config.executions, call->key.team_id, &e) < 0) {
		api_fail_as(call, 507, "artifact_storage_full", e.msg,
			"DELETE /api/v1/artifacts/{id}, or wait until their time is over");
		return;
	}
	timeout_ms = spec.timeout_ms ? spec.timeout_ms : EXECUTION_TIMEOUT_MS;
	v1_sandbox_make(call, x->in.sandbox.n ? x->in.sandbox : STR("{}"),
		&(struct v1_made){ .run_id = x->id,
			.timeout_s = timeout_ms / 1000 + MARGIN_S,
			.fn = sandbox_made,
			.arg = x });
}

void v1_run(struct api_call *call)
{
	struct running *x = arena_alloc(http_arena(call->x), sizeof *x);

	if (!x) {
		api_fail_status(call, 500, "out of memory");
		return;
	}
	x->call = call;
	uuid_make(x->id);
	loop_timer_init(&x->heartbeat, http_loop(call->x), on_heartbeat, x);
	make_shape(x);
	api_decode_then(call, &x->shape, &x->in, false, run, x);
}
