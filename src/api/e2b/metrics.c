/* Metrics of sandboxes. */
#include "api/e2b/e2b.h"

enum {
	MAX_IDS = 100
};

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
	jsonw_int(w, "cpuCount", sb->limits.v[LIMIT_CPU]);
	jsonw_num(w, "cpuUsedPct", s->cpu_pct);
	jsonw_int(w, "memUsed", s->mem_used);
	jsonw_int(w, "memTotal", s->mem_total);
	jsonw_int(w, "memCache", s->mem_cache);
	jsonw_int(w, "diskUsed", s->disk_used);
	jsonw_int(w, "diskTotal", s->disk_total);
	jsonw_num(w, "cpuThrottledPct", s->cpu_held_pct);
	jsonw_int(w, "oomKills", s->oom_kills);
	jsonw_int(w, "inodesUsed", s->inodes_used);
	jsonw_int(w, "inodesTotal", s->inodes_total);
	jsonw_int(w, "processes", s->processes);
	jsonw_int(w, "processesMax", sb->limits.v[LIMIT_PROCESSES]);
	jsonw_int(w, "processesRefused", s->processes_refused);
	jsonw_int(w, "openFilesMax", sb->limits.v[LIMIT_FILES]);
	jsonw_int(w, "shmUsed", s->shm_used);
	jsonw_int(w, "shmTotal", s->shm_total);
	jsonw_int(w, "connections", s->connections);
	jsonw_int(w, "connectionsMax", sb->limits.v[LIMIT_CONNECTIONS]);
	jsonw_int(w, "logLinesMax", sb->limits.v[LIMIT_LOG_LINES]);
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
	int64_t start = 0, end = time_wall_us() / 1000000;
	struct str id;

	if (e2b_id(call, &id) < 0 || api_query_range(call, &start, &end) < 0)
		return;
	page.sb = sandbox_find_any(call->api->config.sandboxes, &call->owner, id);
	if (!page.sb) {
		e2b_not_found(call, id);
		return;
	}
	page.from_us = start * 1000000;
	page.to_us = (end + 1) * 1000000 - 1; /* the whole last second */
	jsonw_init(&page.w, &body);
	jsonw_array(&page.w, NULL);
	sandbox_each_sample(call->api->config.sandboxes, &call->owner, id, take_sample, &page);
	jsonw_end_array(&page.w);
	api_reply_json(call, 200, &body);
}

/* The last sample of each that has one. Answers 400 itself. */
static int write_last_samples(struct api_call *call, struct str ids, struct metrics_page *page)
{
	CLEANUP(map_done) struct map seen = { 0 };
	struct str one, id;
	int n = 0;

	while (str_split(&ids, ',', &one)) {
		if (e2b_check_id(call, one, &id) < 0)
			return -EINVAL;
		if (++n > MAX_IDS) {
			api_fail_status(call, 400, "Too many sandboxes requested, maximum is 100");
			return -E2BIG;
		}
		page->last.at_us = 0;
		page->sb = sandbox_find_any(call->api->config.sandboxes, &call->owner, id);
		if (!page->sb || map_put(&seen, str_of(page->sb->id), page))
			continue;
		sandbox_each_sample(call->api->config.sandboxes, &call->owner, id, take_sample,
			page);
		if (page->last.at_us)
			write_sample(&page->w, page->sb->id, page->sb, &page->last);
	}
	return 0;
}

/* GET /sandboxes/metrics?sandbox_ids=a,b */
void e2b_metrics_many(struct api_call *call)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(1 << 20);
	struct str ids = http_query_value(call->x, "sandbox_ids");
	struct metrics_page page = { .only_last = true };

	if (!ids.p) {
		api_fail_status(call, 400, "validation error: sandbox_ids: is required");
		return;
	}
	jsonw_init(&page.w, &body);
	jsonw_object(&page.w, NULL);
	jsonw_object(&page.w, "sandboxes");
	if (ids.n && write_last_samples(call, ids, &page) < 0)
		return;
	jsonw_end_object(&page.w);
	jsonw_end_object(&page.w);
	api_reply_json(call, 200, &body);
}
