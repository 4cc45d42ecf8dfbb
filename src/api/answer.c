/* Answers, and the errors among them. What went wrong is a code of errno until here; the one table
 * below makes of it a status, and for /api/v1 a word that stays the same for programs. */
#include "api/api-internal.h"

static const struct {
	int code, status;
	const char *word; /* NULL: as the status says */
} errors[] = {
	{ EINVAL, 400, NULL },
	{ ERANGE, 400, "out_of_range" },
	{ EOPNOTSUPP, 400, "not_supported" },
	{ ESTALE, 400, NULL },  /* a volume that is gone */
	{ ENOTDIR, 400, NULL }, /* no place for a volume */
	{ EACCES, 401, NULL },
	{ EPERM, 403, NULL },
	{ ENOENT, 404, NULL },
	{ EEXIST, 409, NULL },
	{ EBUSY, 409, "busy" },
	{ E2BIG, 413, NULL },
	{ EDQUOT, 429, "quota_exceeded" },
	{ EPIPE, 503, NULL },
	{ EAGAIN, 503, NULL },
	{ EHOSTDOWN, 503, "runtime_unavailable" }, /* its breaker is open */
	{ ETIMEDOUT, 504, NULL },
	{ ENOSPC, 507, NULL },
};

static const struct {
	int status;
	const char *word, *hint;
} statuses[] = {
	{ 400, "invalid_request",
		"the message names the field; /api/v1/openapi.json has the rest" },
	{ 401, "unauthorized", "send a live key as X-API-Key, or as Authorization: Bearer" },
	{ 403, "forbidden", "ask for a key that may do this" },
	{ 404, "not_found", "it may be another's, or its name misspelt" },
	{ 405, "method_not_allowed", "the Allow header has the methods of this path" },
	{ 409, "conflict", "look at its state, then try again" },
	{ 413, "too_large", "send less at once" },
	{ 415, "unsupported_media_type", "send application/json" },
	{ 416, "range_not_satisfiable", "the Content-Range header has the size" },
	{ 422, "unprocessable", NULL },
	{ 429, "too_many_requests", "wait for as long as Retry-After says" },
	{ 500, "internal", "this is a fault of the server: its log has the request_id" },
	{ 501, "not_implemented", NULL },
	{ 503, "unavailable", "try again after a moment" },
	{ 504, "timed_out", "try again after a moment" },
	{ 507, "no_space", "free disk space, or ask for a larger disk" },
};

int api_status_of(int err_code)
{
	for (size_t i = 0; i < ARRAY_SIZE(errors); i++)
		if (-err_code == errors[i].code)
			return errors[i].status;
	return 500;
}

static const char *word_of(int err_code)
{
	for (size_t i = 0; i < ARRAY_SIZE(errors); i++)
		if (-err_code == errors[i].code)
			return errors[i].word;
	return NULL;
}

/* Of whose key it is; NULL: of nobody's. */
static struct observe_metrics *team_metrics(const struct api_call *call)
{
	return observe_metrics_of(call->api->config.metrics, str_of(call->key.team_id));
}

void api_note_answer(struct api_call *call, int status)
{
	struct api_node *node = &call->api->node;

	const char *route = call->route ? call->route->pattern : "none";
	int64_t us = time_now_us() - call->began_us;

	observe_request(call->api->config.metrics, http_method(call->x), route, status, us);
	observe_request(team_metrics(call), http_method(call->x), route, status, us);
	log_debug("api.answered",
		"method=%.*s path=%s status=%d request_id=%s key=%s team_id=%s agent_id=%s",
		STR_ARG(http_method(call->x)), log_quote(http_path(call->x)), status,
		call->request_id, call->key.id, call->key.team_id, call->key.agent_id);
	once_streamed(call);
	if (!call->is_counted)
		return;
	call->is_counted = false;
	node->starting--;
	node->created += status < 300;
	node->failed += status >= 500;
}

void api_abandon(struct api_call *call)
{
	once_abandoned(call);
	call->api->node.starting -= call->is_counted;
	call->is_counted = false;
	http_abort(call->x);
}

static void reply(struct api_call *call, int status, const char *type, struct str body)
{
	once_answered(call, status, body);
	api_note_answer(call, status);
	http_reply(call->x, status, type, body);
}

void api_reply_json(struct api_call *call, int status, const struct buf *body)
{
	if (body->failed)
		api_fail_status(call, 500, "the answer is larger than the server allows");
	else
		reply(call, status, "application/json; charset=utf-8", buf_str(body));
}

void api_reply_text(struct api_call *call, int status, struct str json)
{
	reply(call, status, "application/json; charset=utf-8", json);
}

void api_reply_empty(struct api_call *call, int status)
{
	reply(call, status, NULL, STR_NONE);
}

/* ---- errors ---- */

static void count_error(struct api_call *call, int status, const char *word)
{
	CLEANUP(buf_done) struct buf labels = BUF_INIT(512);

	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++)
		if (!word && statuses[i].status == status)
			word = statuses[i].word;
	observe_label(&labels, "cause", str_of(word ? word : "error"));
	observe_count(call->api->config.metrics, OBSERVE_ERRORS, buf_str(&labels), 1);
	observe_count(team_metrics(call), OBSERVE_ERRORS, buf_str(&labels), 1);
}

/* Whose doing it is: what a caller asked for wrongly is its own, the rest is ours, unless a handler
 * knows better. */
static const char *origin_of(const struct api_call *call, int status)
{
	if (call->origin)
		return call->origin;
	return status >= 500 ? "infrastructure" : "user";
}

static void write_v1(struct api_call *call, struct jsonw *w, int status, const char *word,
	const char *message, const char *hint)
{
	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++)
		if (statuses[i].status == status) {
			word = word ? word : statuses[i].word;
			hint = hint ? hint : statuses[i].hint;
		}
	jsonw_strz(w, "code", word ? word : "error");
	jsonw_strz(w, "message", message);
	jsonw_strz(w, "hint", hint);
	jsonw_strz(w, "origin", origin_of(call, status));
	jsonw_strz(w, "request_id", call->request_id);
}

void api_fail_as(struct api_call *call, int status, const char *code, const char *message,
	const char *hint)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(64 << 10);
	struct jsonw w;

	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	if (call->is_v1) {
		write_v1(call, &w, status, code, message, hint);
	} else {
		jsonw_int(&w, "code", status);
		jsonw_strz(&w, "message", message);
	}
	jsonw_end_object(&w);
	count_error(call, status, code);
	if ((status == 429 || status == 503) && !call->retry_is_said)
		api_retry_after(call, 1);
	reply(call, status, "application/json; charset=utf-8", buf_str(&body));
}

void api_retry_after(struct api_call *call, int64_t seconds)
{
	char text[24];
	int n = snprintf(text, sizeof text, "%" PRId64, MAX(seconds, 1));

	http_add_header(call->x, "Retry-After", str_make(text, (size_t)n));
	call->retry_is_said = true;
}

void api_fail_status(struct api_call *call, int status, const char *message)
{
	api_fail_as(call, status, NULL, message, NULL);
}

/* Where what a status says in general does not fit. */
static const char *hint_of(int err_code)
{
	if (err_code == -EDQUOT) /* some of it goes by waiting, and some does not */
		return "make room as the message says, or have the operator raise the limit: "
		       "docs/limits.md";
	return NULL;
}

void api_fail(struct api_call *call, const struct err *e)
{
	int status = api_status_of(e->code);

	if (e->code == -EHOSTDOWN && !call->retry_is_said)
		api_retry_after(call, runtime_retry_s(call->api->config.runtimes));
	if (call->is_v1 && status == 504)
		status = 503; /* nothing behind us is a gateway there: the same again may do */
	if (status >= 500)
		log_error("api.failed",
			"method=%.*s path=%s status=%d origin=%s request_id=%s err=%s",
			STR_ARG(http_method(call->x)), log_quote(http_path(call->x)), status,
			origin_of(call, status), call->request_id, log_quote(str_of(e->msg)));
	api_fail_as(call, status, word_of(e->code), e->msg, hint_of(e->code));
}

/* ---- what handlers share ---- */

void api_add_attachment(struct api_call *call, struct str disposition)
{
	CLEANUP(buf_done) struct buf value = BUF_INIT(16 << 10);

	http_attachment(disposition, &value);
	http_add_header(call->x, "Content-Disposition",
		value.failed ? STR("attachment") : buf_str(&value));
}

int api_labels(struct api_call *call, struct str agent_id, struct str task_id,
	struct api_labels *ret)
{
	const char *bound = call->key.agent_id;

	if ((agent_id.p && !access_is_agent(agent_id)) ||
		(task_id.p && !access_is_agent(task_id))) {
		api_fail_status(call, 400,
			"validation error: agent_id and task_id are 1 to 128 letters, digits and "
			". _ : / @ - inside");
		return -EINVAL;
	}
	if (bound[0] && agent_id.n && !str_is(agent_id, bound)) {
		api_fail_as(call, 403, "not_your_agent",
			"this key acts for one agent, and agent_id names another",
			"leave agent_id out, or use a key of the team");
		return -EPERM;
	}
	ret->agent_id = bound[0] ? bound : arena_dup(http_arena(call->x), agent_id);
	ret->task_id = arena_dup(http_arena(call->x), task_id);
	if (ret->agent_id && ret->task_id)
		return 0;
	api_fail_status(call, 413, "the request is too large");
	return -E2BIG;
}

bool api_answer_begin(struct api_call *call, struct api_answer *answer, int r, const struct err *e)
{
	if (r < 0) {
		api_fail(call, e);
		return false;
	}
	answer->body = BUF_INIT(API_ANSWER_BYTES);
	jsonw_init(&answer->w, &answer->body);
	return true;
}

void api_answer_send(struct api_call *call, struct api_answer *answer, int status)
{
	api_reply_json(call, status, &answer->body);
	buf_done(&answer->body);
}

void api_done_empty(void *arg, int r, const struct err *e)
{
	if (r < 0)
		api_fail(arg, e);
	else
		api_reply_empty(arg, 204);
}

static int decode(struct arena *arena, struct str body, const struct json_shape *shape, void *out,
	struct err *e)
{
	int r = json_check(body, API_BODY_VALUES, e);

	return r < 0 ? r : json_decode(arena, body, shape, out, e);
}

static void fail_decoding(struct api_call *call, int r, const struct err *why)
{
	struct err e = *why;

	(void)err_wrap(&e, r, "validation error");
	api_fail_status(call, r == -ENOBUFS ? 413 : 400, e.msg);
}

int api_decode(struct api_call *call, const struct json_shape *shape, void *out, bool optional)
{
	struct str body = optional && call->body.n == 0 ? STR("{}") : call->body;
	struct err e = { 0 };
	int r = decode(http_arena(call->x), body, shape, out, &e);

	if (r < 0)
		fail_decoding(call, r, &e);
	return r;
}

enum {
	LOOP_BODY_BYTES = 256 << 10, /* decoded at once: a few ms */
	DECODED_BYTES = 32 << 20,
};

/* Its call is answered by nobody else meanwhile, so that the job may read what lies in it. */
struct decoding {
	struct api_call *call;
	const struct json_shape *shape;
	void *out;
	loop_fn then;
	void *arg;
};

static int decode_long(void *arg, struct err *e)
{
	struct decoding *d = arg;

	return decode(d->call->decoded, d->call->body, d->shape, d->out, e);
}

static void decoded(void *arg, int r, const struct err *e)
{
	struct decoding *d = arg;
	struct api_call *call = d->call;
	loop_fn then = d->then;
	void *then_arg = d->arg;

	free(d);
	if (http_is_gone(call->x))
		api_abandon(call); /* its key may be gone, too */
	else if (r < 0)
		fail_decoding(call, r, e);
	else
		then(then_arg);
}

void api_decode_then(struct api_call *call, const struct json_shape *shape, void *out,
	bool optional, loop_fn then, void *arg)
{
	struct decoding *d;

	if (call->body.n <= LOOP_BODY_BYTES) {
		if (api_decode(call, shape, out, optional) == 0)
			then(arg);
		return;
	}
	d = XNEW(struct decoding);
	*d = (struct decoding){ call, shape, out, then, arg };
	if (!call->decoded) /* a run's holds a sandbox's, which comes later */
		call->decoded = arena_new(DECODED_BYTES);
	api_holds(call);
	loop_job_for(call->api->config.loop, call->key.team_id, decode_long, decoded, d);
}

int api_query_int(struct api_call *call, const char *name, int64_t min, int64_t max, int64_t *ret)
{
	struct str text = http_query_value(call->x, name);
	struct err e = { 0 };

	if (!text.p || str_to_int(text, min, max, ret) == 0)
		return 0;
	(void)err_set(&e, -EINVAL,
		"validation error: %s must be a whole number from %" PRId64 " to %" PRId64, name,
		min, max);
	api_fail(call, &e);
	return -EINVAL;
}

int api_query_range(struct api_call *call, int64_t *start_s, int64_t *end_s)
{
	static const int64_t last_s =
		10413791999; /* 2299-12-31T23:59:59Z: E2B's store ends there */
	const char *wrong = NULL;

	if (api_query_int(call, "start", 0, INT64_MAX, start_s) < 0 ||
		api_query_int(call, "end", 0, INT64_MAX, end_s) < 0)
		return -EINVAL;
	if (*start_s > last_s)
		wrong = "start time cannot be after 2299-12-31 23:59:59 UTC";
	else if (*end_s > last_s)
		wrong = "end time cannot be after 2299-12-31 23:59:59 UTC";
	else if (*start_s > *end_s)
		wrong = "start time cannot be after end time";
	if (wrong)
		api_fail_status(call, 400, wrong);
	return wrong ? -EINVAL : 0;
}
