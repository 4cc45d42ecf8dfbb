/* Logs of sandboxes: their events, in the form that E2B's clients read. */
#include "api/e2b/e2b.h"

enum {
	MAX_LINES = 1000,
	MAX_SEARCH = 256,
};

struct logs_call {
	struct api_call *call;
	struct buf lines, entries;
	struct jsonw lines_w, entries_w;
	bool only_entries;
};

/* The command line parses each line as JSON and shows its level. */
static void log_message(const struct sandbox_log_line *line, struct buf *out)
{
	struct jsonw w;

	jsonw_init(&w, out);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "level", "info");
	jsonw_strz(&w, "logger", "atoll");
	jsonw_str(&w, "message", line->kind);
	jsonw_str(&w, "actor", line->actor);
	if (line->cause.n)
		jsonw_str(&w, "cause", line->cause);
	jsonw_raw(&w, "data", line->data);
	jsonw_end_object(&w);
}

static void log_line(void *arg, const struct sandbox_log_line *line)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(256 << 10);
	struct logs_call *l = arg;
	char at[RFC3339_SIZE];

	time_rfc3339(line->at_us, at);
	log_message(line, &text);
	jsonw_object(&l->lines_w, NULL);
	jsonw_strz(&l->lines_w, "timestamp", at);
	jsonw_str(&l->lines_w, "line", buf_str(&text));
	jsonw_end_object(&l->lines_w);
	jsonw_object(&l->entries_w, NULL);
	jsonw_strz(&l->entries_w, "timestamp", at);
	jsonw_str(&l->entries_w, "message", line->kind);
	jsonw_strz(&l->entries_w, "level", "info");
	jsonw_object(&l->entries_w, "fields");
	jsonw_str(&l->entries_w, "actor", line->actor);
	if (line->cause.n)
		jsonw_str(&l->entries_w, "cause", line->cause);
	jsonw_str(&l->entries_w, "data", line->data);
	jsonw_end_object(&l->entries_w);
	jsonw_end_object(&l->entries_w);
}

static void logs_read(void *arg, int r, const struct err *e)
{
	struct logs_call *l = arg;
	struct api_answer answer;

	jsonw_end_array(&l->lines_w);
	jsonw_end_array(&l->entries_w);
	if (api_answer_begin(l->call, &answer, r, e)) {
		jsonw_object(&answer.w, NULL);
		jsonw_raw(&answer.w, "logs",
			l->only_entries ? buf_str(&l->entries) : buf_str(&l->lines));
		if (!l->only_entries)
			jsonw_raw(&answer.w, "logEntries", buf_str(&l->entries));
		jsonw_end_object(&answer.w);
		answer.body.failed |= l->lines.failed || l->entries.failed;
		api_answer_send(l->call, &answer, 200);
	}
	buf_done(&l->lines);
	buf_done(&l->entries);
	free(l);
}

static void read_logs(struct api_call *call, struct str id, const struct sandbox_log_query *query,
	bool only_entries)
{
	struct logs_call *l = XNEW(struct logs_call);

	l->call = call;
	l->only_entries = only_entries;
	l->lines = BUF_INIT(16 << 20);
	l->entries = BUF_INIT(16 << 20);
	jsonw_init(&l->lines_w, &l->lines);
	jsonw_init(&l->entries_w, &l->entries);
	jsonw_array(&l->lines_w, NULL);
	jsonw_array(&l->entries_w, NULL);
	sandbox_read_log(call->api->config.sandboxes, &call->owner, id, query, log_line, logs_read,
		l);
}

/* Oldest first, from `start` (ms) on. */
void e2b_logs_v1(struct api_call *call)
{
	struct sandbox_log_query query = { .to_us = INT64_MAX, .limit = MAX_LINES };
	int64_t start_ms = 0;
	struct str id;

	if (e2b_id(call, &id) < 0 ||
		api_query_int(call, "start", 0, INT64_MAX / 1000, &start_ms) < 0 ||
		api_query_int(call, "limit", 0, MAX_LINES, &query.limit) < 0)
		return;
	query.from_us = start_ms * 1000;
	read_logs(call, id, &query, false);
}

/* All our lines are of level info: what asks for more than that wants none of them. Answers 400
 * itself. */
static int read_level(struct api_call *call, int64_t *limit)
{
	static const char *const levels[] = { "debug", "info", "warn", "error" };
	struct str level = http_query_value(call->x, "level");

	for (size_t i = 0; i < ARRAY_SIZE(levels); i++)
		if (!level.p || str_is(level, levels[i])) {
			if (i > 1)
				*limit = 0;
			return 0;
		}
	api_fail_status(call, 400, "validation error: level must be debug, info, warn or error");
	return -EINVAL;
}

/* Newest first up to `cursor` (ms), or with direction=forward oldest first from it on. */
void e2b_logs_v2(struct api_call *call)
{
	struct sandbox_log_query query = { .to_us = INT64_MAX, .limit = MAX_LINES };
	struct str direction = http_query_value(call->x, "direction"), id;
	int64_t cursor_ms = -1;

	query.search = http_query_value(call->x, "search");
	query.newest_first = !str_is(direction, "forward");
	if (e2b_id(call, &id) < 0 ||
		api_query_int(call, "cursor", 0, INT64_MAX / 1000 - 1, &cursor_ms) < 0 ||
		api_query_int(call, "limit", 0, MAX_LINES, &query.limit) < 0 ||
		read_level(call, &query.limit) < 0)
		return;
	if (direction.p && query.newest_first && !str_is(direction, "backward")) {
		api_fail_status(call, 400,
			"validation error: direction must be forward or backward");
		return;
	}
	if (query.search.n > MAX_SEARCH) {
		api_fail_status(call, 400, "validation error: search: at most 256 bytes");
		return;
	}
	if (cursor_ms >= 0 && query.newest_first)
		query.to_us = cursor_ms * 1000 + 999;
	else if (cursor_ms >= 0)
		query.from_us = cursor_ms * 1000;
	read_logs(call, id, &query, true);
}
