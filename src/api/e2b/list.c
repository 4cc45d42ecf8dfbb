/* Listing: filters, order and paging over the running sandboxes (e2b-wire: S3 and S4). */
#include "api/e2b/e2b.h"

struct filter {
	struct json_pair *metadata;
	size_t n_metadata;
	bool running, paused, ascending;
	int64_t started_after_us;
	const char *template_id; /* NULL: any */
	bool no_match;           /* a template that does not exist */
	int64_t limit;
	struct e2b_cursor cursor;
};

struct page {
	const struct filter *filter;
	const struct sandbox **v;
	size_t n, cap, n_running;
};

static bool metadata_matches(const struct sandbox *sb, const struct filter *f)
{
	for (size_t i = 0; i < f->n_metadata; i++) {
		bool found = false;

		for (size_t k = 0; k < sb->metadata.n && !found; k++)
			found = str_eq(sb->metadata.v[k].key, f->metadata[i].key) &&
				str_eq(sb->metadata.v[k].value, f->metadata[i].value);
		if (!found)
			return false;
	}
	return true;
}

static void collect(void *arg, const struct sandbox *sb)
{
	struct page *page = arg;
	const struct filter *f = page->filter;

	if (f->no_match || !(sandbox_is_paused(sb) ? f->paused : f->running) ||
		!metadata_matches(sb, f) || sb->started_us < f->started_after_us)
		return;
	if (f->template_id && strcmp(f->template_id, sb->template_id) != 0)
		return;
	if (page->n == page->cap)
		return;
	page->v[page->n++] = sb;
	page->n_running += !sandbox_is_paused(sb);
}

/* Newest first; of the same microsecond, by id. Ascending is the exact reverse. */
static int newest_first(const void *a, const void *b)
{
	const struct sandbox *x = *(const struct sandbox *const *)a,
			     *y = *(const struct sandbox *const *)b;

	if (x->started_us != y->started_us)
		return x->started_us < y->started_us ? 1 : -1;
	return strcmp(x->id, y->id);
}

/* k=v&k=v, escaped once as a whole and once each: what the SDKs really send. */
static int parse_metadata(struct api_call *call, struct str text, struct filter *f)
{
	CLEANUP(buf_done) struct buf whole = BUF_INIT(64 << 10);
	struct str rest, pair;

	if (percent_decode(text, true, &whole) < 0)
		return -EINVAL;
	f->metadata = arena_alloc(http_arena(call->x), 64 * sizeof *f->metadata);
	rest = buf_str(&whole);
	while (f->metadata && rest.n && str_split(&rest, '&', &pair)) {
		struct str parts[2];
		size_t n = 0;

		while (n < 2 && str_split(&pair, '=', &parts[n]))
			n++;
		if (n != 2 || pair.p || f->n_metadata == 64)
			return -EINVAL;
		for (size_t i = 0; i < 2; i++) {
			CLEANUP(buf_done) struct buf one = BUF_INIT(64 << 10);
			char *kept;

			if (percent_decode(parts[i], true, &one) < 0)
				return -EINVAL;
			kept = arena_dup(http_arena(call->x), buf_str(&one));
			if (!kept)
				return -EINVAL;
			parts[i] = (struct str){ kept, one.n };
		}
		f->metadata[f->n_metadata++] = (struct json_pair){ parts[0], parts[1] };
	}
	return f->metadata ? 0 : -EINVAL;
}

static int parse_states(struct str text, struct filter *f)
{
	struct str state;

	f->running = f->paused = false;
	while (str_split(&text, ',', &state)) {
		if (str_is(state, "running"))
			f->running = true;
		else if (str_is(state, "paused"))
			f->paused = true;
		else
			return -EINVAL;
	}
	return 0;
}

static int parse_template(struct api_call *call, struct str text, struct filter *f)
{
	struct arena *arena = http_arena(call->x);
	struct template *t = arena_alloc(arena, sizeof *t);
	const struct sandbox_snapshot *snap;
	struct api_name name;

	if (!t || api_name_read(arena, text, &name, NULL) < 0 || name.tag.p)
		return -EINVAL;
	snap = sandbox_newest_snapshot(call->api->config.sandboxes, &call->owner, name.alias);
	if (snap)
		f->template_id = arena_dup(arena, str_of(snap->template_id));
	else
		f->no_match = template_find(call->api->config.templates, name.alias, t, NULL) < 0;
	if (!f->template_id)
		f->template_id = t->id;
	return 0;
}

/* Answers 400 itself. */
static int parse_filter(struct api_call *call, struct filter *f)
{
	struct str metadata = http_query_value(call->x, "metadata"),
		   state = http_query_value(call->x, "state"),
		   order = http_query_value(call->x, "order"),
		   after = http_query_value(call->x, "startedAfter"),
		   template = http_query_value(call->x, "template");
	const char *wrong = NULL;

	*f = (struct filter){ .running = true,
		.paused = true,
		.limit = 100,
		.ascending = str_is(order, "asc") };
	if (api_query_int(call, "limit", 1, 100, &f->limit) < 0)
		return -EINVAL;
	if (metadata.n && parse_metadata(call, metadata, f) < 0)
		wrong = "validation error: metadata must be key=value pairs joined by &";
	else if (state.p && parse_states(state, f) < 0)
		wrong = "validation error: state must be running, paused or both";
	else if (order.p && !f->ascending && !str_is(order, "desc"))
		wrong = "validation error: order must be asc or desc";
	else if (after.p && time_parse_rfc3339(after, &f->started_after_us) < 0)
		wrong = "validation error: startedAfter must be an RFC 3339 time";
	else if (template.n && parse_template(call, template, f) < 0)
		wrong = "validation error: template must be an id or a name without a tag";
	else if (e2b_cursor_read(call, f->ascending, &f->cursor) < 0)
		wrong = "validation error: nextToken is not one of this listing";
	if (wrong)
		api_fail_status(call, 400, wrong);
	return wrong ? -EINVAL : 0;
}

static int collect_page(struct api_call *call, const struct filter *f, struct page *page)
{
	struct sandbox_book *book = call->api->config.sandboxes;

	*page = (struct page){ .filter = f, .cap = sandbox_count(book) };
	page->v = calloc(page->cap + 1, sizeof *page->v);
	if (!page->v) {
		api_fail_status(call, 500, "out of memory");
		return -ENOMEM;
	}
	sandbox_each(book, &call->owner, collect, page);
	qsort(page->v, page->n, sizeof *page->v, newest_first);
	return 0;
}

/* Writes up to the limit, in the order asked for; the cursor goes into a header when more is left.
 */
static void write_page(struct api_call *call, const struct page *page, struct jsonw *w)
{
	const struct filter *f = page->filter;
	const struct sandbox *last = NULL;
	int64_t shown = 0;

	jsonw_array(w, NULL);
	for (size_t i = 0; i < page->n; i++) {
		const struct sandbox *sb = page->v[f->ascending ? page->n - 1 - i : i];

		if (!e2b_cursor_passed(&f->cursor, sb->started_us, sb->id))
			continue;
		if (last && shown == f->limit) {
			e2b_cursor_add(call, last->started_us, last->id, f->ascending);
			break;
		}
		e2b_write_listed(w, sb);
		last = sb;
		shown++;
	}
	jsonw_end_array(w);
}

static void reply_list(struct api_call *call, const struct filter *f, bool totals)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(64 << 20);
	struct page page;
	struct jsonw w;
	char total[24];

	if (collect_page(call, f, &page) < 0)
		return;
	if (totals && f->running) {
		int n = snprintf(total, sizeof total, "%zu", page.n_running);

		http_add_header(call->x, "X-Total-Running", str_make(total, (size_t)n));
	}
	jsonw_init(&w, &body);
	write_page(call, &page, &w);
	free(page.v);
	api_reply_json(call, 200, &body);
}

void e2b_list_v2(struct api_call *call)
{
	struct filter f;

	if (parse_filter(call, &f) == 0)
		reply_list(call, &f, true);
}

/* The old list: running ones, newest first, all at once. */
void e2b_list_v1(struct api_call *call)
{
	struct str metadata = http_query_value(call->x, "metadata");
	struct filter f = { .running = true, .limit = INT64_MAX };

	if (metadata.n && parse_metadata(call, metadata, &f) < 0)
		api_fail_status(call, 400,
			"validation error: metadata must be key=value pairs joined by &");
	else
		reply_list(call, &f, false);
}
