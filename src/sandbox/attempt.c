/* When a runtime fails: each attempt is told with its cause, and so is what became of it. */
#include "sandbox/sandbox-internal.h"

const char *sandbox_origin(const char *ended_by)
{
	if (strcmp(ended_by, "agent") == 0 || strcmp(ended_by, "memory") == 0)
		return "agent";
	return strcmp(ended_by, "infrastructure") == 0 ? "infrastructure" : "user";
}

const char *origin_of(int r)
{
	return runtime_fault_of(r) == RUNTIME_FAULT_REQUEST ? "user" : "infrastructure";
}

static void tell(const struct live *live, const char *kind, const struct err *e, struct str data)
{
	observe_event(live->book->config.events, &(struct observe_event){ .actor = "system",
							 .kind = kind,
							 .subject = live->view.id,
							 .team_id = live->view.team_id,
							 .agent_id = live->view.agent_id,
							 .task_id = live->view.task_id,
							 .cause = e->msg,
							 .data = data });
}

void attempt_failed(const struct live *live, const struct attempt *what, const struct err *e)
{
	CLEANUP(buf_done) struct buf data = BUF_INIT(2048);
	const char *origin = origin_of(e->code);
	struct jsonw w;

	jsonw_init(&w, &data);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "act", what->act);
	jsonw_int(&w, "attempt", what->n);
	jsonw_strz(&w, "runtime", live->view.runtime);
	jsonw_strz(&w, "by", origin);
	jsonw_strz(&w, "origin", origin);
	jsonw_strz(&w, "cause", e->msg);
	if (what->again_ms >= 0)
		jsonw_int(&w, "again_ms", what->again_ms);
	jsonw_end_object(&w);
	log_warn("sandbox.attempt_failed",
		"%s act=%s attempt=%d again_ms=%" PRId64 " origin=%s err=%s",
		live_name(&live->view), what->act, what->n, what->again_ms, origin,
		log_quote(str_of(e->msg)));
	tell(live, "sandbox.attempt_failed", e, buf_str(&data));
	if (what->again_ms < 0)
		tell(live, "sandbox.failed", e, buf_str(&data));
}

/* ---- the breakers ---- */

void on_breaker(void *arg, const struct runtime *rt)
{
	struct sandbox_book *book = arg;
	CLEANUP(buf_done) struct buf data = BUF_INIT(2048);
	struct runtime_breaker breaker;
	const char *state;
	struct jsonw w;

	runtime_breaker(rt, &breaker);
	state = runtime_breaker_name(breaker.state);
	jsonw_init(&w, &data);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "runtime", runtime_name(rt));
	jsonw_strz(&w, "state", state);
	jsonw_int(&w, "failures", breaker.failures);
	jsonw_int(&w, "retry_s", breaker.retry_s);
	jsonw_strz(&w, "origin", "infrastructure");
	jsonw_strz(&w, "cause", breaker.why.msg);
	jsonw_end_object(&w);
	log_warn("runtime.breaker", "runtime=%s state=%s failures=%" PRId64 " err=%s",
		runtime_name(rt), state, breaker.failures, log_quote(str_of(breaker.why.msg)));
	observe_event(book->config.events,
		&(struct observe_event){ .actor = "system",
			.kind = "runtime.breaker",
			.subject = runtime_name(rt),
			.cause = breaker.why.msg[0] ? breaker.why.msg : NULL,
			.data = buf_str(&data) });
}
