/* What happened: the newest events, or all as they come; and the audit, which is the same by who
 * did it. Following goes on over restarts of the server: it comes again with the last number it
 * has. */
#include "cli/cli-internal.h"
#include "cli/sse.h"

#include <signal.h>

enum {
	USUAL = 50,
	MOST = 1000,
	AGAIN_MS = 500, /* at first; then longer, up to */
	AGAIN_MOST_MS = 10000,
	SILENT_MS = 40000, /* a stream has a heartbeat each 15 s */
	ERROR_BYTES = 64 << 10,
};

struct event {
	struct str at, kind, subject, actor, actor_name, source, cause, team_id, agent_id, task_id;
	struct str data;
	struct json_int seq;
};
static const struct json_field event_fields[] = {
	JSON_FIELD(struct event, seq, "seq", JSON_INT, .flags = JSON_REQUIRED),
	JSON_FIELD(struct event, at, "at", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct event, kind, "kind", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct event, subject, "subject", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct event, actor, "actor", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct event, actor_name, "actor_name", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct event, source, "source", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct event, cause, "cause", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct event, team_id, "team_id", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct event, agent_id, "agent_id", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct event, task_id, "task_id", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct event, data, "data", JSON_RAW, .flags = JSON_LAX),
};
static const struct json_shape event_shape =
	JSON_SHAPE(struct event, event_fields, .ignore_unknown = true);

struct page {
	struct json_list items;
	struct str next;
};
static const struct json_field page_fields[] = {
	JSON_FIELD(struct page, items, "items", JSON_OBJECTS, .flags = JSON_REQUIRED,
		.shape = &event_shape),
	JSON_FIELD(struct page, next, "next_cursor", JSON_STR, .flags = JSON_LAX),
};
static const struct json_shape page_shape =
	JSON_SHAPE(struct page, page_fields, .ignore_unknown = true);

/* ---- what is asked for ---- */

static void add_query(struct buf *path, const char *name, const char *value)
{
	if (!value)
		return;
	(void)buf_printf(path, "%c%s=", memchr(path->p, '?', path->n) ? '&' : '?', name);
	(void)percent_encode(str_of(value), path);
}

static int add_time(struct cli *cli, struct buf *path, const char *name, const char *option,
	struct err *e)
{
	const char *text = args_value(&cli->args, option);
	int64_t seconds, at_us;
	char at[24];
	int r;

	if (!text || time_parse_rfc3339(str_of(text), &at_us) == 0) {
		add_query(path, name, text);
		return 0;
	}
	r = args_seconds(option, text, &seconds, e);
	(void)snprintf(at, sizeof at, "%" PRId64, cli->out.now_us / 1000000 - seconds);
	if (r == 0)
		add_query(path, name, at);
	return r;
}

static void add_filters(struct cli *cli, struct buf *path)
{
	add_query(path, "agent_id", args_value(&cli->args, "agent"));
	add_query(path, "task_id", args_value(&cli->args, "task"));
	add_query(path, "subject", args_value(&cli->args, "subject"));
	add_query(path, "kind", args_value(&cli->args, "kind"));
}

/* ---- showing ---- */

static void show_json(struct jsonw *w, const struct event *v)
{
	jsonw_object(w, NULL);
	jsonw_int(w, "seq", v->seq.value);
	jsonw_str(w, "at", v->at);
	jsonw_str(w, "kind", v->kind);
	jsonw_str(w, "subject", v->subject);
	jsonw_str(w, "actor", v->actor);
	jsonw_strz(w, "actor_name", v->actor_name.p);
	jsonw_strz(w, "source", v->source.p);
	jsonw_strz(w, "team_id", v->team_id.p);
	jsonw_strz(w, "agent_id", v->agent_id.p);
	jsonw_strz(w, "task_id", v->task_id.p);
	jsonw_strz(w, "cause", v->cause.p);
	jsonw_raw(w, "data", v->data.n ? v->data : STR("{}"));
	jsonw_end_object(w);
}

enum {
	COLUMNS = 9
};
static const char *const titles[COLUMNS] = { "SEQ", "TIME", "KIND", "SUBJECT", "BY", "FROM",
	"AGENT", "TASK", "CAUSE" };

static void fill_row(struct cli *cli, const struct event *v, struct out_table *t)
{
	size_t row = out_table_add(t);

	(void)snprintf(out_table_cell(t, row, 0), OUT_CELL, "%" PRId64, v->seq.value);
	out_time(&cli->out, v->at, out_table_cell(t, row, 1));
	out_text(v->kind, out_table_cell(t, row, 2));
	out_text(v->subject, out_table_cell(t, row, 3));
	out_text(v->actor_name.n ? v->actor_name : v->actor, out_table_cell(t, row, 4));
	out_text(v->source, out_table_cell(t, row, 5));
	out_text(v->agent_id, out_table_cell(t, row, 6));
	out_text(v->task_id, out_table_cell(t, row, 7));
	out_text(v->cause, out_table_cell(t, row, 8));
}

static void show_page(struct cli *cli, const struct page *page, bool reversed)
{
	CLEANUP(out_table_done) struct out_table t;
	const struct event *v = page->items.v;
	size_t n = page->items.n;

	out_table_init(&t, titles, COLUMNS);
	if (cli->out.json)
		jsonw_array(&cli->out.json_writer, NULL);
	for (size_t i = 0; i < n; i++) {
		const struct event *event = &v[reversed ? n - 1 - i : i];

		if (cli->out.json)
			show_json(&cli->out.json_writer, event);
		else if (cli->out.quiet)
			out_line(&cli->out, "%" PRId64, event->seq.value);
		else
			fill_row(cli, event, &t);
	}
	if (cli->out.json) {
		jsonw_end_array(&cli->out.json_writer);
		(void)buf_addc(&cli->out.text, '\n');
	} else if (n && !cli->out.quiet) {
		out_table_print(&cli->out, &t);
	} else if (n == 0) {
		out_note(&cli->out, "nothing of that kind has happened");
	}
}

/* The same columns, a row at a time: as wide as what they hold usually is. */
static const size_t widths[COLUMNS] = { 7, 27, 22, 36, 12, 15, 8, 8, 0 };

/* Where a person reads. */
static void show_titles(struct cli *cli)
{
	CLEANUP(out_table_done) struct out_table t = { 0 };

	if (!cli->out.stdout_tty || cli->out.json || cli->out.quiet)
		return;
	out_table_init(&t, titles, COLUMNS);
	(void)out_table_add(&t);
	for (size_t i = 0; i < COLUMNS; i++)
		out_text(str_of(titles[i]), out_table_cell(&t, 0, i));
	out_table_row(&cli->out, &t, 0, widths);
}

static void show_followed(struct cli *cli, const struct event *v)
{
	CLEANUP(out_table_done) struct out_table t;

	out_table_init(&t, titles, COLUMNS);
	if (cli->out.quiet) {
		out_line(&cli->out, "%" PRId64, v->seq.value);
		return;
	}
	fill_row(cli, v, &t);
	out_text(v->at, out_table_cell(&t, 0, 1)); /* it stays on the screen: "1 s ago" would not */
	out_table_row(&cli->out, &t, 0, widths);
}

static int read_limit(struct cli *cli, struct buf *path)
{
	const char *text = args_value(&cli->args, "limit");
	int64_t limit = USUAL;
	char number[24];
	int r = text ? args_number("--limit", text, 1, MOST, &limit, &cli->e) : 0;

	(void)snprintf(number, sizeof number, "%" PRId64, limit);
	add_query(path, "limit", number);
	return r;
}

static int show_list(struct cli *cli, struct buf *path, bool reversed)
{
	struct api_request request = { .method = "GET" };
	struct api_reply reply;
	struct page page;
	int r = read_limit(cli, path);

	if (r < 0)
		return r;
	add_query(path, "format", "json");
	request.path = arena_dup(cli->arena, buf_str(path));
	r = cli_api_call(cli, &request, &reply, &cli->e);
	if (r < 0)
		return r;
	if (json_decode(cli->arena, reply.body, &page_shape, &page, &cli->e) < 0)
		return err_wrap(&cli->e, -EPROTO, "the server's events");
	show_page(cli, &page, reversed);
	if (page.next.n)
		out_note(&cli->out, "there are more: use --limit");
	return EXIT_OK;
}

/* ---- a long answer, as it comes ---- */

struct flow {
	struct cli *cli;
	const char *path;
	struct sse sse;
	bool is_sse;
	char last[32];    /* the newest number that was shown */
	struct buf error; /* of an answer that is one */
	struct client_call *call;
	struct loop_timer timer;
	int64_t again_ms;
	int signo, status, r;
	struct err e;
};

static int flow_event(void *arg, const struct sse_event *event, struct err *e)
{
	struct flow *f = arg;
	struct cli *cli = f->cli;
	struct arena *arena;
	struct event v;

	if (event->id.n)
		(void)snprintf(f->last, sizeof f->last, "%.*s", STR_ARG(event->id));
	if (event->name.n) { /* a gap, or a reset: what was missed comes now */
		out_note(&cli->out, "%.*s: %.*s", STR_ARG(event->name), STR_ARG(event->data));
		return 0;
	}
	f->again_ms = AGAIN_MS;
	if (!event->data.p)
		return 0;
	if (cli->out.json) {
		out_body(&cli->out, event->data);
		(void)buf_addc(&cli->out.text, '\n');
		return out_flush(&cli->out, e);
	}
	arena = arena_new(CLI_ARENA);
	if (json_decode(arena, event->data, &event_shape, &v, e) < 0) {
		(void)arena_free(arena);
		return err_wrap(e, -EPROTO, "the server's event");
	}
	show_followed(cli, &v);
	(void)arena_free(arena);
	return out_flush(&cli->out, e);
}

static void flow_data(void *arg, struct client_call *call, struct str bytes)
{
	struct flow *f = arg;
	int r = 0;

	f->status = client_status(call);
	if (f->status >= 300) {
		(void)buf_add_str(&f->error, bytes);
	} else if (f->is_sse) {
		r = sse_feed(&f->sse, bytes, &f->e);
	} else {
		out_body(&f->cli->out, bytes);
		r = out_flush(&f->cli->out, &f->e);
	}
	if (r < 0) {
		f->r = r;
		client_cancel(call);
	}
}

static void flow_done(void *arg, int r, const struct err *e)
{
	struct flow *f = arg;

	f->call = NULL;
	if (f->r >= 0 && r < 0) {
		f->r = r;
		f->e = *e;
	}
	loop_stop(f->cli->loop);
}

static void on_signal(void *arg, int signo)
{
	struct flow *f = arg;

	if (signo == SIGWINCH)
		return;
	f->signo = signo;
	if (f->call)
		client_cancel(f->call);
	else
		loop_stop(f->cli->loop);
}

static int flow_once(struct flow *f, struct err *e)
{
	struct cli *cli = f->cli;
	char key[sizeof cli->config.api_key + sizeof "X-API-Key: "], last[64];
	const char *headers[5] = { "User-Agent: atoll/" ATOLL_VERSION,
		f->is_sse ? "Accept: text/event-stream" : "Accept: */*", key };
	struct client_request request = { .method = "GET",
		.url = arena_printf(cli->arena, "%s%s", cli->config.api_url, f->path),
		.headers = headers,
		.idle_timeout_ms = SILENT_MS };
	const struct client_handlers handlers = { .data = flow_data, .done = flow_done, .arg = f };
	int r;

	(void)snprintf(key, sizeof key, "X-API-Key: %s", cli->config.api_key);
	if (f->is_sse && f->last[0]) {
		(void)snprintf(last, sizeof last, "Last-Event-ID: %s", f->last);
		headers[3] = last;
	}
	f->r = f->status = 0;
	buf_clear(&f->error);
	sse_reset(&f->sse);
	f->call = client_start(cli->client, &request, &handlers);
	r = loop_run(cli->loop, e);
	explicit_bzero(key, sizeof key);
	return r;
}

static int flow_result(struct flow *f, struct err *e)
{
	if (f->status >= 300 && f->r >= 0)
		cli_api_message(f->cli, f->status, buf_str(&f->error), e);
	else if (f->r < 0)
		*e = f->e;
	return e->code;
}

static void on_again(void *arg)
{
	loop_stop(arg);
}

/* Whatever may be mended by waiting: a server that restarts, a proxy that lost it. */
static bool is_passing(const struct flow *f)
{
	if (f->status >= 300)
		return f->status >= 500 || f->status == 429;
	return f->r >= 0 || f->r == -ECONNREFUSED || f->r == -ECONNRESET || f->r == -ETIMEDOUT ||
	       f->r == -EHOSTUNREACH;
}

static int wait_again(struct flow *f, struct err *e)
{
	out_note(&f->cli->out, "the server is away: trying again in %" PRId64 " ms", f->again_ms);
	loop_timer_set(&f->timer, time_now_ms() + f->again_ms);
	f->again_ms = MIN(2 * f->again_ms, AGAIN_MOST_MS);
	return loop_run(f->cli->loop, e);
}

static int flow_open(struct flow *f, struct cli *cli, const char *path, bool is_sse)
{
	int r = cli_catch_signals(cli, &cli->e);

	*f = (struct flow){ .cli = cli,
		.path = path,
		.is_sse = is_sse,
		.error = BUF_INIT(ERROR_BYTES),
		.again_ms = AGAIN_MS };
	sse_init(&f->sse, flow_event, f);
	if (r < 0)
		return r;
	cli->on_signal = on_signal;
	cli->signal_arg = f;
	loop_timer_init(&f->timer, cli->loop, on_again, cli->loop);
	return 0;
}

static void flow_close(struct flow *f)
{
	loop_timer_cancel(&f->timer);
	sse_done(&f->sse);
	buf_done(&f->error);
	f->cli->on_signal = NULL;
}

static int follow(struct cli *cli, const char *path)
{
	CLEANUP(flow_close) struct flow f;
	int r = flow_open(&f, cli, path, true);

	show_titles(cli);
	while (r >= 0 && !f.signo) {
		r = flow_once(&f, &cli->e);
		if (r >= 0 && !f.signo && !is_passing(&f))
			return flow_result(&f, &cli->e);
		if (r >= 0 && !f.signo)
			r = wait_again(&f, &cli->e);
	}
	if (r < 0)
		return r;
	if (f.last[0])
		out_note(&cli->out, "go on with: atoll events --follow --after %s", f.last);
	return EXIT_SIGNAL + f.signo;
}

int cmd_events(struct cli *cli)
{
	CLEANUP(buf_done) struct buf path = BUF_INIT(64 << 10);
	const char *after = args_value(&cli->args, "after");
	bool following = args_has(&cli->args, "follow");

	(void)buf_adds(&path, "/api/v1/events");
	add_filters(cli, &path);
	add_query(&path, "after", after);
	if (following)
		return follow(cli, arena_dup(cli->arena, buf_str(&path)));
	if (!after) /* the newest, shown as they happened */
		add_query(&path, "order", "desc");
	return show_list(cli, &path, !after);
}

static int export(struct cli *cli, const char *path)
{
	CLEANUP(flow_close) struct flow f;
	int r = flow_open(&f, cli, path, false);

	if (r >= 0)
		r = flow_once(&f, &cli->e);
	if (r >= 0)
		r = flow_result(&f, &cli->e);
	return r < 0 ? r : f.signo ? EXIT_SIGNAL + f.signo : EXIT_OK;
}

int cmd_audit(struct cli *cli)
{
	CLEANUP(buf_done) struct buf path = BUF_INIT(64 << 10);
	const char *format = args_value(&cli->args, "export");

	(void)buf_adds(&path, "/api/v1/audit");
	add_filters(cli, &path);
	add_query(&path, "actor", args_value(&cli->args, "actor"));
	if (add_time(cli, &path, "from", "from", &cli->e) < 0 ||
		add_time(cli, &path, "to", "to", &cli->e) < 0)
		return cli->e.code;
	if (!format)
		return show_list(cli, &path, false);
	if (strcmp(format, "csv") != 0 && strcmp(format, "ndjson") != 0)
		return err_set(&cli->e, -EINVAL, "--export must be csv or ndjson");
	add_query(&path, "format", format);
	return export(cli, arena_dup(cli->arena, buf_str(&path)));
}
