/* The handlers of /api/v1, one file a subject; routes.c lists them.
 *
 * A handler decodes (api_decode, api_query_int), calls one door and answers (api_answer_begin,
 * api_answer_send, api_reply_empty). Errors go through api_fail: below /api/v1 their body is {code,
 * message, hint, request_id}, where the code is a stable word. Who the caller is and whose
 * sandboxes it may touch was settled before the handler is called: call->key, call->owner.
 * Times are RFC 3339, durations are whole seconds unless the name says _ms, names are snake_case.
 */
#pragma once

#include "api/api-internal.h"

/* ---- the caller ---- */
struct v1_caller {
	const char *team_id;  /* empty: the operator, who asks of all teams (API_ALL_TEAMS) */
	const char *agent_id; /* the one agent that it may see; empty: all of the team's */
	const char *key_id;   /* the actor of what it does */
	unsigned scopes;      /* ACCESS_* */
	bool is_operator;
};
struct v1_caller v1_caller(const struct api_call *call);
/* For the sandbox room's doors; NULL: everybody's. */
const struct sandbox_owner *v1_owner(const struct api_call *call);

/* ---- sandboxes ---- */
/* The one in the path, call->params[0], running or paused, if it is the caller's. Otherwise the
 * call is answered (404 not_found for one that never was or is another's, 409 sandbox_ended with
 * why) and NULL returned. Read what you need at once: it may be gone on the next turn. */
const struct sandbox *v1_sandbox(struct api_call *call);
/* The same for one that must run: 409 sandbox_paused else. */
const struct sandbox *v1_running(struct api_call *call);
/* The same for one that may have ended long ago: fn on a later turn, or this one; its sandbox may
 * be gone already, the record is a view. Answers 404 itself. */
void v1_record(struct api_call *call,
	void (*fn)(struct api_call *call, const struct sandbox_record *record));

/* ---- answers ---- */
/* Wrong, and the request was well-formed: 422. */
void v1_unprocessable(struct api_call *call, const char *code, const char *message);
/* Members of an open object. */
void v1_time(struct jsonw *w, const char *key, int64_t at_us);    /* 0: null */
void v1_text(struct jsonw *w, const char *key, const char *text); /* empty: null */

/* ---- view.c ---- */
void v1_write_sandbox(struct api_call *call, struct jsonw *w, const struct sandbox_record *record);
void v1_reply_sandbox(struct api_call *call, int status, const struct sandbox *sb);
/* As it is after it was changed. */
void v1_reply_changed(struct api_call *call);
/* A set by the names of template.toml: "cpu", "memory_mb" ... */
void v1_write_limits(struct jsonw *w, const char *key, const struct limit_set *set);
extern const struct json_shape v1_limits_shape; /* of struct limit_in, by the same names */
void v1_write_snapshot(struct api_call *call, struct jsonw *w, const struct sandbox_snapshot *snap);

/* ---- guest.c: what is asked of a sandbox's own API ---- */
struct v1_file {
	struct str path, user; /* user empty: the sandbox's own */
	struct str mode;       /* octal digits; empty: as new files are */
	struct str bytes;      /* as long as the exchange */
};
/* Writes one whole file. The errors are for v1_guest_fail. -E2BIG: as v1_guest_call. */
int v1_guest_write(struct api_call *call, const struct sandbox *sb, const struct v1_file *file,
	done_fn done, void *arg);
/* -ENOENT 404 file_not_found, -EISDIR 422 is_a_directory, -ENOSPC 507 no_space ... */
void v1_guest_fail(struct api_call *call, const struct err *e);
/* As api_fail; -EDQUOT says when to come again. */
void v1_quota_fail(struct api_call *call, const struct err *e);

/* ---- pages: {"items": [...], "next_cursor": "..."} ---- */
struct v1_page {
	int64_t limit;     /* ?limit= */
	struct str cursor; /* what v1_page_end was given last time, terminated; empty: the first */
};
/* Answers 400 itself. */
int v1_page_read(struct api_call *call, int64_t usual, int64_t most, struct v1_page *ret);
/* A cursor "<µs> <id>", for lists that go by time; the first page: 0 and "". Answers 400 itself. */
int v1_cursor_us(struct api_call *call, const struct v1_page *page, int64_t *ret_us,
	struct str *ret_id);
/* Does a row of that time and id come after such a cursor, newest first? */
bool v1_is_behind(int64_t before_us, struct str before_id, int64_t at_us, const char *id);
/* Opens the object and its array. */
void v1_page_begin(struct jsonw *w);
/* Closes both, with such a cursor where there is more. */
void v1_page_end_us(struct jsonw *w, bool more, int64_t last_us, const char *last_id);
/* Closes both; next is a text of the handler's own, without secrets; NULL: that was the last. */
void v1_page_end(struct jsonw *w, const char *next);

/* ---- what the readers of the event log are asked for (filters.c) ---- */
/* Each answers 400 or 403 itself. Absent leaves *ret alone. */
int v1_query_text(struct api_call *call, const char *name, struct str *ret);
int v1_query_time(struct api_call *call, const char *name, int64_t *ret_us); /* RFC 3339, or s */
/* team_id (of the operator), agent_id, task_id, subject or sandbox_id, actor, kind; narrowed to
 * what the caller may see. Borrows from the request. */
int v1_event_filter(struct api_call *call, struct observe_filter *ret);
/* observe_page_fn that answers a call with a page of events. */
void v1_events_page(void *call, int r, const struct observe_item *v, size_t n, bool more,
	const struct err *e);
enum v1_format {
	V1_ANY,
	V1_JSON,
	V1_NDJSON,
	V1_CSV,
	V1_SSE,
	V1_UNKNOWN,
};
/* ?format=, else Accept. */
enum v1_format v1_format(const struct api_call *call);
void v1_csv_cell(struct buf *out, struct str text, bool is_last);

/* ---- handlers ---- */
void v1_openapi(struct api_call *call);
/* create.c, sandboxes.c, life.c */
void v1_sandboxes_create(struct api_call *call);
void v1_sandboxes_list(struct api_call *call);
void v1_sandboxes_get(struct api_call *call);
void v1_sandboxes_delete(struct api_call *call);
void v1_sandboxes_pause(struct api_call *call);
void v1_sandboxes_resume(struct api_call *call);
void v1_sandboxes_extend(struct api_call *call);
void v1_sandboxes_snapshot(struct api_call *call);
void v1_sandboxes_fork(struct api_call *call);
/* A sandbox for a run, made of a body as POST /sandboxes takes it: the same in all but the answer.
 * fn gets it when it is ready; whatever fails before is answered. */
struct v1_made {
	const char *run_id;
	int64_t timeout_s; /* unless the body says */
	void (*fn)(void *arg, const struct sandbox *sb);
	void *arg;
};
void v1_sandbox_make(struct api_call *call, struct str body, const struct v1_made *made);
/* executions.c */
void v1_execute(struct api_call *call);
void v1_executions_list(struct api_call *call);
void v1_executions_get(struct api_call *call);
void v1_executions_logs(struct api_call *call);
void v1_executions_stream(struct api_call *call);
void v1_executions_cancel(struct api_call *call);
/* rules.c */
void v1_rules_get(struct api_call *call);
void v1_rules_put(struct api_call *call);
/* run.c, artifacts.c */
void v1_run(struct api_call *call);
void v1_artifacts_list(struct api_call *call);
void v1_artifacts_get(struct api_call *call);
void v1_artifacts_delete(struct api_call *call);
/* files.c */
void v1_files_get(struct api_call *call);
void v1_files_put(struct api_call *call);
void v1_files_delete(struct api_call *call);
void v1_files_list(struct api_call *call);
/* keys.c */
void v1_keys_list(struct api_call *call);
void v1_keys_create(struct api_call *call);
void v1_keys_rotate(struct api_call *call);
void v1_keys_revoke(struct api_call *call);
/* quota.c */
void v1_quota_get(struct api_call *call);
void v1_quota_put(struct api_call *call);
/* events.c, audit.c, usage.c, metrics.c */
void v1_events(struct api_call *call);
void v1_audit(struct api_call *call);
void v1_usage(struct api_call *call);
void v1_health(struct api_call *call);
void v1_ready(struct api_call *call);
void v1_metrics(struct api_call *call);
/* secrets.c */
void v1_secrets_list(struct api_call *call);
void v1_secrets_put(struct api_call *call);
void v1_secrets_delete(struct api_call *call);
/* templates.c, snapshots.c, volumes.c, network.c */
void v1_templates_list(struct api_call *call);
void v1_templates_get(struct api_call *call);
void v1_templates_delete(struct api_call *call);
void v1_snapshots_list(struct api_call *call);
void v1_snapshots_get(struct api_call *call);
void v1_snapshots_delete(struct api_call *call);
void v1_snapshots_name(struct api_call *call);
void v1_volumes_list(struct api_call *call);
void v1_volumes_create(struct api_call *call);
void v1_volumes_get(struct api_call *call);
void v1_volumes_delete(struct api_call *call);
void v1_volumes_rotate_token(struct api_call *call);
void v1_network_get(struct api_call *call);
void v1_network_put(struct api_call *call);
void v1_network_patch(struct api_call *call);
