/* What a sandbox did and used: its log, once or as it comes, and its metrics. */
#include "cli/cli-internal.h"

enum {
	PAGE = 1000,
	MAX_PAGES = 1000,
	POLL_MS = 1000,
	LINE = 2048,
};

/* ---- logs ---- */

struct entry {
	struct str timestamp, level, message;
	struct json_map fields;
};
static const struct json_field entry_fields[] = {
	JSON_FIELD(struct entry, timestamp, "timestamp", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct entry, level, "level", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct entry, message, "message", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct entry, fields, "fields", JSON_MAP, .flags = JSON_LAX),
};
static const struct json_shape entry_shape =
	JSON_SHAPE(struct entry, entry_fields, .ignore_unknown = true);

struct page {
	struct json_list entries;
};
static const struct json_field page_fields[] = {
	JSON_FIELD(struct page, entries, "logs", JSON_OBJECTS, .flags = JSON_REQUIRED,
		.shape = &entry_shape),
};
static const struct json_shape page_shape =
	JSON_SHAPE(struct page, page_fields, .ignore_unknown = true);

/* The API's cursor is whole milliseconds, so a page begins with what the last one ended with: the
 * time of the newest entry, and how many of that time were shown, tell where to go on. */
struct reading {
	struct cli *cli;
	char id[CLI_ID];
	bool follow;
	bool has_ended; /* the log says so: nothing comes after that */
	int64_t newest_us;
	size_t shown_at_newest;
	struct loop_timer timer;
};

static void show_entry(struct cli *cli, const struct entry *entry, bool alone)
{
	struct jsonw *w = &cli->out.json_writer;
	CLEANUP(buf_done) struct buf text = BUF_INIT(1 << 20);
	char time[OUT_CELL], level[OUT_CELL], line[LINE];

	if (cli->out.json) {
		if (alone)
			jsonw_init(w, &cli->out.text);
		jsonw_object(w, NULL);
		jsonw_str(w, "timestamp", entry->timestamp);
		jsonw_str(w, "level", entry->level);
		jsonw_str(w, "message", entry->message);
		jsonw_map(w, "fields", &entry->fields);
		jsonw_end_object(w);
		if (alone)
			(void)buf_addc(&cli->out.text, '\n');
		return;
	}
	(void)buf_add_str(&text, entry->message);
	for (size_t i = 0; i < entry->fields.n && !cli->out.quiet; i++) {
		(void)buf_addc(&text, ' ');
		(void)buf_add_str(&text, entry->fields.v[i].key);
		(void)buf_addc(&text, '=');
		(void)buf_add_str(&text, entry->fields.v[i].value);
	}
	out_text(entry->timestamp, time);
	out_text(entry->level, level);
	out_clean(buf_str(&text), line, sizeof line);
	if (cli->out.stdout_tty)
		out_line(&cli->out, "%s %-5s %s", time, level, line);
	else
		out_line(&cli->out, "%s\t%s\t%s", time, level, line);
}

/* Skips what was shown before: the number of entries that were new. */
static size_t show_page(struct reading *g, const struct page *page)
{
	const struct entry *v = page->entries.v;
	size_t skip = g->shown_at_newest, shown = 0;
	int64_t skip_us = g->newest_us;

	for (size_t i = 0; i < page->entries.n; i++) {
		int64_t at_us = 0;

		(void)time_parse_rfc3339(v[i].timestamp, &at_us);
		if (at_us < skip_us || (at_us == skip_us && skip > 0)) {
			skip -= at_us == skip_us ? 1 : 0;
			continue;
		}
		g->shown_at_newest = at_us == g->newest_us ? g->shown_at_newest + 1 : 1;
		g->newest_us = at_us;
		show_entry(g->cli, &v[i], g->follow);
		g->has_ended |= str_is(v[i].message, "sandbox.ended");
		shown++;
	}
	return shown;
}

static int read_pages(struct reading *g, struct err *e)
{
	struct api_request request = { .method = "GET" };
	struct api_reply reply;
	struct page page;
	size_t shown;

	for (int i = 0; i < MAX_PAGES; i++) {
		int r;

		request.path = arena_printf(g->cli->arena,
			"/v2/sandboxes/%s/logs?direction=forward&limit=%d&cursor=%" PRId64, g->id,
			PAGE, g->newest_us / 1000);
		r = cli_api_call(g->cli, &request, &reply, e);
		if (r < 0)
			return r;
		r = json_decode(g->cli->arena, reply.body, &page_shape, &page, e);
		if (r < 0)
			return err_wrap(e, -EPROTO, "log of %s", g->id);
		shown = show_page(g, &page);
		if (page.entries.n < PAGE || shown == 0)
			return 0;
	}
	return err_set(e, -EPROTO, "the log does not end");
}

static void on_poll(void *arg)
{
	struct reading *g = arg;

	loop_stop(g->cli->loop);
}

/* Each turn has an arena of its own: a log may be followed for days. */
static int follow_once(struct reading *g, struct err *e)
{
	struct cli *cli = g->cli;
	struct arena *whole_run = cli->arena;
	int r;

	cli->arena = arena_new(CLI_ARENA);
	r = read_pages(g, e);
	cli->arena = arena_free(cli->arena);
	cli->arena = whole_run;
	if (r == 0)
		r = out_flush(&cli->out, e);
	if (r < 0 || g->has_ended)
		return r;
	loop_timer_set(&g->timer, time_now_ms() + POLL_MS);
	return loop_run(cli->loop, e);
}

static int follow(struct reading *g, struct err *e)
{
	int r = cli_api_open(g->cli, e);

	if (r < 0)
		return r;
	loop_timer_init(&g->timer, g->cli->loop, on_poll, g);
	while (r == 0 && !g->has_ended)
		r = follow_once(g, e);
	if (g->has_ended)
		out_note(&g->cli->out, "sandbox %s has ended", g->id);
	return r;
}

int cmd_sandbox_logs(struct cli *cli)
{
	struct reading g = { .cli = cli, .follow = args_has(&cli->args, "follow") };
	bool array = cli->out.json && !g.follow;
	int r = cli_sandbox_resolve(cli, cli->args.words[0], g.id, &cli->e);

	if (r < 0)
		return r;
	if (array)
		jsonw_array(&cli->out.json_writer, NULL);
	r = g.follow ? follow(&g, &cli->e) : read_pages(&g, &cli->e);
	if (r < 0)
		return r;
	if (array) {
		jsonw_end_array(&cli->out.json_writer);
		(void)buf_addc(&cli->out.text, '\n');
	}
	return EXIT_OK;
}

/* ---- metrics ---- */

struct sample {
	struct str timestamp, cpu_used; /* cpu_used: a number's text */
	struct json_int unix_s, cpu_count, mem_used, mem_total, mem_cache, disk_used, disk_total;
};
static const struct json_field sample_fields[] = {
	JSON_FIELD(struct sample, timestamp, "timestamp", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct sample, cpu_used, "cpuUsedPct", JSON_RAW, .flags = JSON_LAX),
	JSON_FIELD(struct sample, unix_s, "timestampUnix", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct sample, cpu_count, "cpuCount", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct sample, mem_used, "memUsed", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct sample, mem_total, "memTotal", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct sample, mem_cache, "memCache", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct sample, disk_used, "diskUsed", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct sample, disk_total, "diskTotal", JSON_INT, .flags = JSON_LAX),
};
static const struct json_shape sample_shape =
	JSON_SHAPE(struct sample, sample_fields, .ignore_unknown = true);

static void sample_json(struct jsonw *w, const struct sample *s)
{
	jsonw_object(w, NULL);
	jsonw_str(w, "timestamp", s->timestamp);
	jsonw_int(w, "timestampUnix", s->unix_s.value);
	jsonw_int(w, "cpuCount", s->cpu_count.value);
	jsonw_raw(w, "cpuUsedPct", s->cpu_used.n ? s->cpu_used : STR("null"));
	jsonw_int(w, "memUsed", s->mem_used.value);
	jsonw_int(w, "memTotal", s->mem_total.value);
	jsonw_int(w, "memCache", s->mem_cache.value);
	jsonw_int(w, "diskUsed", s->disk_used.value);
	jsonw_int(w, "diskTotal", s->disk_total.value);
	jsonw_end_object(w);
}

static void sample_row(struct cli *cli, const struct sample *s, struct out_table *t)
{
	const struct json_int sizes[] = { s->mem_used, s->mem_total, s->disk_used, s->disk_total };
	size_t row = out_table_add(t);
	char cpu[OUT_CELL];

	out_time(&cli->out, s->timestamp, out_table_cell(t, row, 0));
	out_text(s->cpu_used, cpu);
	(void)snprintf(out_table_cell(t, row, 1), OUT_CELL, "%.8s%%", cpu);
	(void)snprintf(out_table_cell(t, row, 2), OUT_CELL, "%" PRId64, s->cpu_count.value);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		out_size((uint64_t)MAX(sizes[i].value, 0), out_table_cell(t, row, 3 + i));
}

static int metrics_path(struct cli *cli, const char *id, const char **ret, struct err *e)
{
	const char *since = args_value(&cli->args, "since");
	int64_t seconds;
	int r;

	*ret = arena_printf(cli->arena, "/sandboxes/%s/metrics", id);
	if (!since)
		return 0;
	r = args_seconds("since", since, &seconds, e);
	if (r == 0)
		*ret = arena_printf(cli->arena, "%s?start=%" PRId64, *ret,
			cli->out.now_us / 1000000 - seconds);
	return r;
}

static void show_samples(struct cli *cli, const struct json_list *samples)
{
	static const char *const titles[] = { "TIME", "CPU", "CPUS", "MEMORY", "OF", "DISK", "OF" };
	CLEANUP(out_table_done) struct out_table t;
	struct jsonw *w = &cli->out.json_writer;
	const struct sample *v = samples->v;

	out_table_init(&t, titles, ARRAY_SIZE(titles));
	if (cli->out.json)
		jsonw_array(w, NULL);
	for (size_t i = 0; i < samples->n; i++) {
		if (cli->out.json)
			sample_json(w, &v[i]);
		else
			sample_row(cli, &v[i], &t);
	}
	if (cli->out.json) {
		jsonw_end_array(w);
		(void)buf_addc(&cli->out.text, '\n');
	} else if (samples->n) {
		out_table_print(&cli->out, &t);
	} else {
		out_note(&cli->out, "no samples yet; one is taken every few seconds");
	}
}

int cmd_sandbox_metrics(struct cli *cli)
{
	struct api_request request = { .method = "GET" };
	struct json_list samples;
	struct api_reply reply = { 0 };
	char id[CLI_ID];
	int r = cli_sandbox_resolve(cli, cli->args.words[0], id, &cli->e);

	if (r == 0)
		r = metrics_path(cli, id, &request.path, &cli->e);
	if (r == 0)
		r = cli_api_call(cli, &request, &reply, &cli->e);
	if (r < 0)
		return r;
	r = json_decode_list(cli->arena, reply.body, &sample_shape, &samples, &cli->e);
	if (r < 0)
		return err_wrap(&cli->e, -EPROTO, "metrics of %s", id);
	show_samples(cli, &samples);
	return EXIT_OK;
}
