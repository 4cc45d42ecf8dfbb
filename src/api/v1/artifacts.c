/* What runs left behind, until its time is over. */
#include "api/v1/artifacts.h"

void v1_artifact_write(struct jsonw *w, const struct execution_artifact *a)
{
	jsonw_object(w, NULL);
	jsonw_strz(w, "id", a->id);
	jsonw_strz(w, "sandbox_id", a->sandbox_id);
	v1_text(w, "agent_id", a->agent_id);
	v1_text(w, "task_id", a->task_id);
	jsonw_str(w, "path", a->path);
	jsonw_int(w, "bytes", a->bytes);
	jsonw_strz(w, "sha256", a->sha256);
	v1_time(w, "created_at", a->created_us);
	v1_time(w, "expires_at", a->expires_us);
	jsonw_end_object(w);
}

static void reply_page(void *arg, int r, const struct execution_artifact *v, size_t n, bool more,
	const struct err *e)
{
	struct api_call *call = arg;
	struct api_answer answer;
	char next[UUID_SIZE + 24];

	if (!api_answer_begin(call, &answer, r, e))
		return;
	v1_page_begin(&answer.w);
	for (size_t i = 0; i < n; i++)
		v1_artifact_write(&answer.w, &v[i]);
	if (n)
		(void)snprintf(next, sizeof next, "%" PRId64 " %s", v[n - 1].created_us,
			v[n - 1].id);
	v1_page_end(&answer.w, more && n ? next : NULL);
	api_answer_send(call, &answer, 200);
}

void v1_artifacts_list(struct api_call *call)
{
	struct execution_artifact_query query = { .who = v1_owner(call) };
	struct v1_page page;

	if (v1_page_read(call, 50, 200, &page) < 0 ||
		v1_cursor_us(call, &page, &query.before_us, &query.before_id) < 0)
		return;
	query.sandbox_id = http_query_value(call->x, "sandbox_id");
	query.task_id = http_query_value(call->x, "task_id");
	query.limit = (size_t)page.limit;
	execution_list_artifacts(call->api->config.executions, &query, reply_page, call);
}

static void fail(struct api_call *call, const struct err *e)
{
	if (e->code == -ENOENT)
		api_fail_as(call, 404, "artifact_not_found", e->msg,
			"artifacts are kept until expires_at");
	else
		api_fail(call, e);
}

/* ---- ranges ---- */

/* 1: a part; 0: the whole (none asked for, or more than one); -ERANGE: beyond it. */
static int read_range(const struct api_call *call, const struct execution_artifact *a,
	int64_t *from, int64_t *length)
{
	struct str range = http_header(call->x, "Range"), before = http_header(call->x, "If-Range");
	struct str unit, first;
	int64_t a1 = 0, a2 = a->bytes - 1;
	char tag[sizeof a->sha256 + 2];

	*from = 0;
	*length = a->bytes;
	(void)snprintf(tag, sizeof tag, "\"%s\"", a->sha256);
	if (!range.n || (before.n && !str_is(before, tag)))
		return 0;
	if (!str_split(&range, '=', &unit) || !str_is(unit, "bytes") || str_find(range, ',') >= 0 ||
		str_find(range, '-') < 0 || !str_split(&range, '-', &first))
		return 0;
	if (first.n == 0) {
		if (str_to_int(range, 0, INT64_MAX, &a1) < 0)
			return 0;
		if (a1 == 0)
			return -ERANGE;
		a1 = MAX(a->bytes - a1, 0);
	} else if (str_to_int(first, 0, INT64_MAX, &a1) < 0 ||
		   (range.n && (str_to_int(range, 0, INT64_MAX, &a2) < 0 || a2 < a1))) {
		return 0;
	}
	if (a1 >= a->bytes)
		return -ERANGE;
	*from = a1;
	*length = MIN(a2, a->bytes - 1) - a1 + 1;
	return 1;
}

static void send_artifact(struct api_call *call, int take_fd, const struct execution_artifact *a)
{
	char tag[sizeof a->sha256 + 2], range[96];
	int64_t from, length;
	int r = read_range(call, a, &from, &length);

	(void)snprintf(tag, sizeof tag, "\"%s\"", a->sha256);
	http_add_header(call->x, "Accept-Ranges", STR("bytes"));
	if (r < 0) {
		(void)close(take_fd);
		(void)snprintf(range, sizeof range, "bytes */%" PRId64, a->bytes);
		http_add_header(call->x, "Content-Range", str_of(range));
		api_fail_as(call, 416, "range_not_satisfiable", "the artifact is not that long",
			NULL);
		return;
	}
	http_add_header(call->x, "ETag", str_of(tag));
	api_add_attachment(call, STR_NONE);
	if (r > 0) {
		(void)snprintf(range, sizeof range, "bytes %" PRId64 "-%" PRId64 "/%" PRId64, from,
			from + length - 1, a->bytes);
		http_add_header(call->x, "Content-Range", str_of(range));
	}
	api_note_answer(call, r > 0 ? 206 : 200);
	http_begin(call->x, r > 0 ? 206 : 200, "application/octet-stream", length);
	api_take_file(call, take_fd, from, length);
}

static void opened(void *arg, int fd, const struct execution_artifact *a, const struct err *e)
{
	if (fd < 0)
		fail(arg, e);
	else
		send_artifact(arg, fd, a);
}

void v1_artifacts_get(struct api_call *call)
{
	execution_open_artifact(call->api->config.executions, v1_owner(call), call->params[0],
		opened, call);
}

static void deleted(void *arg, int r, const struct err *e)
{
	if (r < 0)
		fail(arg, e);
	else
		api_reply_empty(arg, 204);
}

void v1_artifacts_delete(struct api_call *call)
{
	execution_delete_artifact(call->api->config.executions, v1_owner(call), call->params[0],
		call->actor, deleted, call);
}
