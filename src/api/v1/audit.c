/* GET /api/v1/audit: who did what, newest first; by pages, or all of it as a file. */
#include "api/v1/v1.h"

enum {
	EXPORT_PAGE = 500,
};

/* ---- export: page after page, as fast as the client reads ---- */

struct export
{
	struct api_call *call;
	struct observe_query query; /* its texts are the request's */
	bool is_csv, has_begun, is_full, is_last;
};

static void write_csv(struct buf *out, const struct observe_item *item)
{
	char seq[24], at[RFC3339_SIZE];

	(void)snprintf(seq, sizeof seq, "%" PRId64, item->seq);
	time_rfc3339(item->at_us, at);
	v1_csv_cell(out, str_of(seq), false);
	v1_csv_cell(out, str_of(at), false);
	v1_csv_cell(out, item->kind, false);
	v1_csv_cell(out, item->subject, false);
	v1_csv_cell(out, item->actor, false);
	v1_csv_cell(out, item->team_id, false);
	v1_csv_cell(out, item->agent_id, false);
	v1_csv_cell(out, item->task_id, false);
	v1_csv_cell(out, item->cause, false);
	v1_csv_cell(out, item->data, false);
	v1_csv_cell(out, item->actor_name, false);
	v1_csv_cell(out, item->source, true);
}

static void begin(struct export *x)
{
	struct http_exchange *http = x->call->x;

	x->has_begun = true;
	http_add_header(http, "Cache-Control", STR("no-store"));
	http_add_header(http, "Content-Disposition",
		x->is_csv ? STR("attachment; filename=\"audit.csv\"")
			  : STR("attachment; filename=\"audit.ndjson\""));
	api_note_answer(x->call, 200);
	http_begin(http, 200, x->is_csv ? "text/csv; charset=utf-8" : "application/x-ndjson", -1);
	if (x->is_csv)
		(void)http_write(http,
			STR("seq,at,kind,subject,actor,team_id,agent_id,task_id,cause,data,"
			    "actor_name,source\r\n"));
}

static void send_items(struct export *x, const struct observe_item *v, size_t n)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(64 << 20);

	for (size_t i = 0; i < n; i++) {
		struct jsonw w;

		if (x->is_csv) {
			write_csv(&out, &v[i]);
			continue;
		}
		jsonw_init(&w, &out);
		observe_item_write(&w, &v[i]);
		(void)buf_addc(&out, '\n');
	}
	x->is_full = !http_write(x->call->x, buf_str(&out));
}

static void next_page(struct export *x);

static void export_read(void *arg, int r, const struct observe_item *v, size_t n, bool more,
	const struct err *e)
{
	struct export *x = arg;
	struct http_exchange *http = x->call->x;

	if (r < 0 && !x->has_begun) {
		api_fail(x->call, e);
		return;
	}
	if (r < 0) {
		http_abort(http); /* a part must not look like the whole */
		return;
	}
	if (!x->has_begun)
		begin(x);
	send_items(x, v, n);
	x->is_last = !more;
	if (n)
		x->query.before = v[n - 1].seq;
	if (x->is_last || http_is_gone(http))
		http_end(http);
	else if (!x->is_full)
		next_page(x);
}

static void next_page(struct export *x)
{
	observe_read(x->call->api->config.store, &x->query, export_read, x);
}

static void on_drain(void *arg)
{
	struct export *x = arg;

	if (!x->is_full || x->is_last)
		return;
	x->is_full = false;
	next_page(x);
}

/* Who leaves while the next page waits for him is not heard of by it. */
static void on_gone(void *arg)
{
	struct export *x = arg;

	if (x->is_full && !x->is_last) {
		x->is_last = true;
		http_end(x->call->x);
	}
}

static void export_all(struct api_call *call, const struct observe_query *query, bool is_csv)
{
	struct export *x = arena_alloc(http_arena(call->x), sizeof *x);

	x->call = call;
	x->query = *query;
	x->query.limit = EXPORT_PAGE;
	x->is_csv = is_csv;
	http_on_drain(call->x, on_drain, x);
	http_on_gone(call->x, on_gone, x);
	next_page(x);
}

static int read_query(struct api_call *call, struct observe_query *query)
{
	struct v1_page page;

	query->to_us = INT64_MAX;
	if (v1_event_filter(call, &query->filter) < 0 ||
		v1_query_time(call, "from", &query->from_us) < 0 ||
		v1_query_time(call, "to", &query->to_us) < 0 ||
		v1_page_read(call, 100, OBSERVE_MAX_PAGE, &page) < 0)
		return -EINVAL;
	query->to_us = MAX(query->to_us, 1); /* 0 would be no end at all */
	query->limit = page.limit;
	query->newest_first = true;
	if (!page.cursor.n || str_to_int(page.cursor, 1, INT64_MAX, &query->before) == 0)
		return 0;
	api_fail_status(call, 400, "validation error: cursor is none of ours");
	return -EINVAL;
}

void v1_audit(struct api_call *call)
{
	struct observe_query query = { 0 };

	if (read_query(call, &query) < 0)
		return;
	switch (v1_format(call)) {
	case V1_ANY:
	case V1_JSON:
		observe_read(call->api->config.store, &query, v1_events_page, call);
		return;
	case V1_NDJSON:
	case V1_CSV:
		export_all(call, &query, v1_format(call) == V1_CSV);
		return;
	case V1_SSE:
	case V1_UNKNOWN:
		break;
	}
	api_fail_status(call, 400, "validation error: format must be json, ndjson or csv");
}
