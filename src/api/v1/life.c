/* A sandbox's life: paused, resumed, extended, kept as a snapshot, forked. */
#include "api/v1/v1.h"
#include "observe/observe.h"

enum {
	USUAL_TIMEOUT_S = 300
};

struct life_in {
	struct json_int timeout, by, count;
	struct json_bool memory;
	struct str name;
};

/* ---- quota ---- */

void v1_quota_fail(struct api_call *call, const struct err *e)
{
	if (e->code == -ECANCELED) { /* nobody is left to be told */
		api_abandon(call);
		return;
	}
	if (e->code == -EDQUOT) {
		api_retry_after(call,
			sandbox_retry_s(call->api->config.sandboxes, call->key.team_id));
		api_fail_as(call, 429, "quota_exceeded", e->msg,
			"end a sandbox, wait for Retry-After, or ask with \"wait\": seconds");
		return;
	}
	api_fail(call, e);
}

/* ---- pause and resume ---- */

static const struct json_field pause_fields[] = {
	JSON_FIELD(struct life_in, memory, "memory", JSON_BOOL),
};
static const struct json_shape pause_shape = JSON_SHAPE(struct life_in, pause_fields);

static void paused(void *arg, int r, const struct err *e)
{
	struct api_call *call = arg;

	if (r == -EEXIST)
		api_fail_as(call, 409, "already_paused", "the sandbox is paused already", NULL);
	else if (r < 0)
		v1_quota_fail(call, e);
	else
		v1_reply_changed(call);
}

void v1_sandboxes_pause(struct api_call *call)
{
	struct sandbox_pause how = { .asker = http_peer(call->x), .actor = call->actor };
	struct life_in in;

	if (api_decode(call, &pause_shape, &in, true) < 0 || !v1_sandbox(call))
		return;
	how.keep_memory = !in.memory.is_set || in.memory.value;
	sandbox_pause(call->api->config.sandboxes, v1_owner(call), call->params[0], &how, paused,
		call);
}

static const struct json_field resume_fields[] = {
	JSON_FIELD(struct life_in, timeout, "timeout", JSON_INT, .min = 1, .max = INT32_MAX),
	JSON_FIELD(struct life_in, memory, "memory", JSON_BOOL),
};
static const struct json_shape resume_shape = JSON_SHAPE(struct life_in, resume_fields);

static void resumed(void *arg, int r, bool was_paused, const struct sandbox *sb,
	const struct err *e)
{
	struct api_call *call = arg;

	(void)was_paused;
	if (r == -EEXIST)
		api_fail_as(call, 409, "already_running", "the sandbox runs already",
			"extend it, if it should run longer");
	else if (r < 0)
		v1_quota_fail(call, e);
	else
		v1_reply_sandbox(call, 200, sb);
}

/* Answers 400 itself. */
static int check_timeout(struct api_call *call, struct json_int asked, int64_t usual, int64_t *ret)
{
	int64_t most = call->api->config.max_timeout_s;

	*ret = asked.is_set ? asked.value : MIN(usual, most);
	if (*ret <= most)
		return 0;
	api_fail_as(call, 400, "out_of_range",
		arena_printf(http_arena(call->x),
			"validation error: timeout must be from 1 to %" PRId64 " seconds", most),
		NULL);
	return -EINVAL;
}

void v1_sandboxes_resume(struct api_call *call)
{
	struct sandbox_resume how = { .only_paused = true, .actor = call->actor };
	const struct sandbox *sb;
	struct life_in in;

	if (api_decode(call, &resume_shape, &in, true) < 0)
		return;
	sb = v1_sandbox(call);
	/* It gets the time that it was made with, unless the request says another. */
	if (!sb || check_timeout(call, in.timeout, sb->timeout_s, &how.timeout_s) < 0)
		return;
	how.cold = in.memory.is_set && !in.memory.value;
	sandbox_connect(call->api->config.sandboxes, v1_owner(call), call->params[0], &how, resumed,
		call);
}

/* ---- extend ---- */

static const struct json_field extend_fields[] = {
	JSON_FIELD(struct life_in, timeout, "timeout", JSON_INT, .min = 0, .max = INT32_MAX),
	JSON_FIELD(struct life_in, by, "by", JSON_INT, .min = 1, .max = INT32_MAX),
};
static const struct json_shape extend_shape = JSON_SHAPE(struct life_in, extend_fields);

static void tell_extended(const struct api_call *call, const struct sandbox *sb)
{
	CLEANUP(buf_done) struct buf data = BUF_INIT(1024);
	struct observe_event event = { .actor = call->actor,
		.kind = "sandbox.extended",
		.subject = sb->id,
		.team_id = sb->team_id,
		.agent_id = sb->agent_id,
		.task_id = sb->task_id };
	struct jsonw w;

	jsonw_init(&w, &data);
	jsonw_object(&w, NULL);
	v1_time(&w, "ends_at", sb->end_us);
	jsonw_strz(&w, "request_id", call->request_id);
	jsonw_end_object(&w);
	event.data = buf_str(&data);
	observe_event(call->api->config.events, &event);
}

static void extended(void *arg, int r, const struct err *e)
{
	struct api_call *call = arg;
	const struct sandbox *sb;

	if (r < 0) {
		api_fail(call, e);
		return;
	}
	sb = v1_sandbox(call);
	if (!sb)
		return;
	tell_extended(call, sb);
	v1_reply_sandbox(call, 200, sb);
}

/* What would be cut short is refused. Answers 400 itself. */
static int check_latest(struct api_call *call, const char *field, int64_t timeout_s)
{
	int64_t latest_us = sandbox_latest_us(call->api->config.sandboxes, call->params[0]);
	int64_t most_s = MAX(latest_us - time_wall_us(), INT64_C(0)) / 1000000;
	char latest[RFC3339_SIZE];

	if (timeout_s <= most_s)
		return 0;
	time_rfc3339(latest_us, latest);
	api_fail_as(call, 400, "out_of_range",
		arena_printf(http_arena(call->x),
			"validation error: %s: this sandbox can run until %s at the latest, "
			"%" PRId64 " seconds from now",
			field, latest, most_s),
		arena_printf(http_arena(call->x),
			"a sandbox runs for at most %" PRId64
			" seconds from when it was made or resumed, and becomes no older than its "
			"max_age",
			call->api->config.max_timeout_s));
	return -ERANGE;
}

/* `timeout`: that many seconds from now; `by`: so much later than it would end. */
void v1_sandboxes_extend(struct api_call *call)
{
	const struct sandbox *sb;
	struct life_in in;
	int64_t timeout_s;

	if (api_decode(call, &extend_shape, &in, false) < 0)
		return;
	if (in.timeout.is_set == in.by.is_set) {
		api_fail_status(call, 400, "validation error: give either timeout or by");
		return;
	}
	sb = v1_running(call);
	if (!sb)
		return;
	timeout_s = in.timeout.value;
	if (in.by.is_set)
		timeout_s = in.by.value + (sb->end_us - time_wall_us() + 500000) / 1000000;
	if (check_latest(call, in.by.is_set ? "by" : "timeout", timeout_s) < 0)
		return;
	sandbox_set_timeout(call->api->config.sandboxes, v1_owner(call), call->params[0], timeout_s,
		extended, call);
}

/* ---- snapshots ---- */

static const struct json_field snapshot_fields[] = {
	JSON_FIELD(struct life_in, name, "name", JSON_STR, .max = 128),
};
static const struct json_shape snapshot_shape = JSON_SHAPE(struct life_in, snapshot_fields);

static void snapshot_made(void *arg, int r, const struct sandbox_snapshot *snap,
	const struct err *e)
{
	struct api_call *call = arg;
	struct api_answer answer;

	if (!api_answer_begin(call, &answer, r, e))
		return;
	v1_write_snapshot(call, &answer.w, snap);
	api_answer_send(call, &answer, 201);
}

void v1_sandboxes_snapshot(struct api_call *call)
{
	struct api_name name = { 0 };
	struct life_in in;

	if (api_decode(call, &snapshot_shape, &in, true) < 0 ||
		(in.name.p && api_name_read_own(call, in.name, &name) < 0) || !v1_running(call))
		return;
	sandbox_snapshot(call->api->config.sandboxes, v1_owner(call), call->params[0], name.clean,
		call->actor, snapshot_made, call);
}

/* ---- fork ---- */

static const struct json_field fork_fields[] = {
	JSON_FIELD(struct life_in, timeout, "timeout", JSON_INT, .min = 1, .max = INT32_MAX),
	JSON_FIELD(struct life_in, count, "count", JSON_INT, .min = 1, .max = SANDBOX_MAX_FORKS),
};
static const struct json_shape fork_shape = JSON_SHAPE(struct life_in, fork_fields);

struct fork_call {
	struct api_call *call;
	struct api_answer answer;
	int made;
	struct err e; /* of the first that failed */
};

/* Those that could not be made are told among those that were. */
static void forked_one(void *arg, int r, const struct sandbox *sb, const struct err *e)
{
	struct fork_call *f = arg;
	struct jsonw *w = &f->answer.w;

	if (r >= 0) {
		const struct sandbox_record record = { .sb = *sb };

		f->made++;
		v1_write_sandbox(f->call, w, &record);
		return;
	}
	if (f->e.code >= 0)
		f->e = *e;
	jsonw_object(w, NULL);
	jsonw_object(w, "error");
	jsonw_strz(w, "code", r == -EDQUOT ? "quota_exceeded" : "failed");
	jsonw_strz(w, "message", e->msg);
	jsonw_end_object(w);
	jsonw_end_object(w);
}

static void forked_all(void *arg, int r, const struct err *e)
{
	struct fork_call *f = arg;

	if (r < 0 || f->made == 0) {
		v1_quota_fail(f->call, r < 0 ? e : &f->e);
		buf_done(&f->answer.body);
	} else {
		v1_page_end(&f->answer.w, NULL);
		api_answer_send(f->call, &f->answer, 201);
	}
	free(f);
}

void v1_sandboxes_fork(struct api_call *call)
{
	struct sandbox_fork how = { .actor = call->actor };
	struct fork_call *f;
	struct life_in in;

	if (api_decode(call, &fork_shape, &in, true) < 0 ||
		check_timeout(call, in.timeout, USUAL_TIMEOUT_S, &how.timeout_s) < 0 ||
		!v1_running(call))
		return;
	how.count = in.count.is_set ? (int)in.count.value : 1;
	f = XNEW(struct fork_call);
	f->call = call;
	(void)api_answer_begin(call, &f->answer, 0, NULL);
	v1_page_begin(&f->answer.w);
	sandbox_fork(call->api->config.sandboxes, v1_owner(call), call->params[0], &how, forked_one,
		forked_all, f);
}
