/* Metrics and logs of sandboxes. */
#include "api/e2b/e2b.h"

struct metrics_page {
	struct jsonw w;
	const struct sandbox *sb;
	int64_t from_us, to_us;
	bool only_last;
	struct sandbox_sample last;
};

static void write_sample(struct jsonw *w, const char *key, const struct sandbox *sb,
	const struct sandbox_sample *s)
{
	char at[RFC3339_SIZE];

	time_rfc3339(s->at_us, at);
	jsonw_object(w, key);
	jsonw_strz(w, "timestamp", at);
	jsonw_int(w, "timestampUnix", s->at_us / 1000000);
	jsonw_int(w, "cpuCount", sb->cpu_count);
	jsonw_num(w, "cpuUsedPct", s->cpu_pct);
	jsonw_int(w, "memUsed", s->mem_used);
	jsonw_int(w, "memTotal", s->mem_total);
	jsonw_int(w, "memCache", s->mem_cache);
	jsonw_int(w, "diskUsed", s->disk_used);
	jsonw_int(w, "diskTotal", s->disk_total);
	jsonw_end_object(w);
}

static void take_sample(void *arg, const struct sandbox_sample *s)
{
	struct metrics_page *page = arg;

	if (page->only_last)
		page->last = *s;
	else if (s->at_us >= page->from_us && s->at_us <= page->to_us)
		write_sample(&page->w, NULL, page->sb, s);
}

void e2b_metrics(struct api_call *call)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(1 << 20);
	struct metrics_page page = { 0 };
	int64_t start = 0, end = INT32_MAX;
	struct str id;

	if (e2b_id(call, &id) < 0 || api_query_int(call, "start", 0, UINT32_MAX, &start) < 0 ||
		api_query_int(call, "end", 0, UINT32_MAX, &end) < 0)
		return;
	page.sb = sandbox_find_any(call->api->config.sandboxes, call->key.team_id, id);
	if (!page.sb) {
		e2b_not_found(call, id);
		return;
	}
	if (start > end) {
		api_fail_status(call, 400, "validation error: start must not be after end");
		return;
	}
	page.from_us = start * 1000000;
	page.to_us = (end + 1) * 1000000 - 1; /* the whole last second */
	jsonw_init(&page.w, &body);
	jsonw_array(&page.w, NULL);
	sandbox_each_sample(call->api->config.sandboxes, call->key.team_id, id, take_sample, &page);
	jsonw_end_array(&page.w);
	api_reply_json(call, 200, &body);
}

/* GET /sandboxes/metrics?sandbox_ids=a,b: the last sample of each. */
void e2b_metrics_many(struct api_call *call)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(1 << 20);
	struct str ids = http_query_value(call->x, "sandbox_ids"), id;
	struct metrics_page page = { .only_last = true };
	int n = 0;

	jsonw_init(&page.w, &body);
	jsonw_object(&page.w, NULL);
	jsonw_object(&page.w, "sandboxes");
	while (str_split(&ids, ',', &id)) {
		if (++n > 100) {
			api_fail_status(call, 400, "validation error: sandbox_ids: at most 100");
			return;
		}
		page.last.at_us = 0;
		page.sb = sandbox_find_any(call->api->config.sandboxes, call->key.team_id, id);
		sandbox_each_sample(call->api->config.sandboxes, call->key.team_id, id, take_sample,
			&page);
		if (page.sb && page.last.at_us)
			write_sample(&page.w, page.sb->id, page.sb, &page.last);
	}
	jsonw_end_object(&page.w);
	jsonw_end_object(&page.w);
	api_reply_json(call, 200, &body);
}

/* ---- logs ---- */

struct logs_call {
	struct api_call *call;
	struct buf lines, entries;
	struct jsonw lines_w, entries_w;
	bool only_entries;
};

static void log_message(const struct sandbox_log_line *line, struct buf *out)
{
	struct jsonw w;

	jsonw_init(&w, out);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "level", "info");
	jsonw_strz(&w, "logger", "atoll");
	jsonw_str(&w, "message", line->kind);
	jsonw_str(&w, "actor", line->actor);
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
	jsonw_str(&l->entries_w, "data", line->data);
	jsonw_end_object(&l->entries_w);
	jsonw_end_object(&l->entries_w);
}

static void logs_read(void *arg, int r, const struct err *e)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(16 << 20);
	struct logs_call *l = arg;
	struct jsonw w;

	jsonw_end_array(&l->lines_w);
	jsonw_end_array(&l->entries_w);
	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	jsonw_raw(&w, "logs", l->only_entries ? buf_str(&l->entries) : buf_str(&l->lines));
	if (!l->only_entries)
		jsonw_raw(&w, "logEntries", buf_str(&l->entries));
	jsonw_end_object(&w);
	if (r < 0)
		api_fail(l->call, e);
	else
		api_reply_json(l->call, 200, &body);
	buf_done(&l->lines);
	buf_done(&l->entries);
	free(l);
}

static void logs(struct api_call *call, const char *from_name, bool only_entries)
{
	int64_t from_ms = 0, limit = 1000;
	const struct sandbox *sb;
	struct logs_call *l;
	struct str id;

	if (e2b_id(call, &id) < 0 ||
		api_query_int(call, from_name, 0, INT64_MAX / 1000, &from_ms) < 0 ||
		api_query_int(call, "limit", 1, 1000, &limit) < 0)
		return;
	sb = sandbox_find_any(call->api->config.sandboxes, call->key.team_id, id);
	if (!sb) {
		e2b_not_found(call, id);
		return;
	}
	l = XNEW(struct logs_call);
	l->call = call;
	l->only_entries = only_entries;
	l->lines = BUF_INIT(8 << 20);
	l->entries = BUF_INIT(8 << 20);
	jsonw_init(&l->lines_w, &l->lines);
	jsonw_init(&l->entries_w, &l->entries);
	jsonw_array(&l->lines_w, NULL);
	jsonw_array(&l->entries_w, NULL);
	sandbox_read_log(call->api->config.sandboxes, sb->id, from_ms * 1000, limit, log_line,
		logs_read, l);
}

void e2b_logs_v1(struct api_call *call)
{
	logs(call, "start", false);
}

void e2b_logs_v2(struct api_call *call)
{
	logs(call, "cursor", true);
}
