/* Snapshots and forks. */
#include "api/e2b/e2b.h"

static void write_snapshot(struct jsonw *w, const struct api_call *call,
	const struct sandbox_snapshot *snap)
{
	char id[SANDBOX_SNAPSHOT_ID_SIZE];

	sandbox_snapshot_id(snap, &call->owner, id);
	jsonw_object(w, NULL);
	jsonw_strz(w, "snapshotID", id);
	jsonw_array(w, "names");
	if (snap->alias[0])
		jsonw_strz(w, NULL, snap->alias);
	jsonw_end_array(w);
	jsonw_end_object(w);
}

struct snapshot_in {
	struct str name;
};
static const struct json_field snapshot_fields[] = {
	JSON_FIELD(struct snapshot_in, name, "name", JSON_STR, .flags = JSON_NULLABLE, .max = 128),
};
static const struct json_shape snapshot_shape = JSON_SHAPE(struct snapshot_in, snapshot_fields);

static void snapshot_made(void *arg, int r, const struct sandbox_snapshot *snap,
	const struct err *e)
{
	struct api_call *call = arg;
	struct api_answer answer;

	if (!api_answer_begin(call, &answer, r, e))
		return;
	write_snapshot(&answer.w, call, snap);
	api_answer_send(call, &answer, 201);
}

void e2b_snapshot_create(struct api_call *call)
{
	struct api_name name = { 0 };
	struct snapshot_in in;
	struct str id;

	if (e2b_id(call, &id) < 0 || api_decode(call, &snapshot_shape, &in, true) < 0 ||
		(in.name.p && api_name_read_own(call, in.name, &name) < 0))
		return;
	sandbox_snapshot(call->api->config.sandboxes, &call->owner, id, name.clean, call->actor,
		snapshot_made, call);
}

/* ---- list ---- */

struct snapshot_page {
	const struct api_call *call;
	struct jsonw w;
	struct str sandbox_id, name, tag;
	struct e2b_cursor cursor;
	struct map seen; /* template ids: of several tags only the newest is listed */
	int64_t left;
	bool has_more;
	const struct sandbox_snapshot *last;
};

/* A bare name matches any tag, `name:tag` only that one. */
static bool is_wanted(const struct snapshot_page *page, const struct sandbox_snapshot *snap)
{
	if (page->sandbox_id.n && !str_is(page->sandbox_id, snap->sandbox_id))
		return false;
	if (page->tag.n && !str_is(page->tag, snap->tag))
		return false;
	return !page->name.n || str_is(page->name, snap->alias) ||
	       str_is(page->name, snap->template_id);
}

static void list_one(void *arg, const struct sandbox_snapshot *snap)
{
	struct snapshot_page *page = arg;

	if (!is_wanted(page, snap) ||
		map_put(&page->seen, str_of(snap->template_id), page) != NULL ||
		!e2b_cursor_passed(&page->cursor, snap->created_us, snap->image))
		return;
	if (page->left == 0) {
		page->has_more = true;
		return;
	}
	page->left--;
	page->last = snap;
	write_snapshot(&page->w, page->call, snap);
}

/* Answers 400 itself. */
static int read_page(struct api_call *call, struct snapshot_page *page)
{
	struct str id = http_query_value(call->x, "sandboxID"),
		   wanted = http_query_value(call->x, "name");
	struct api_name name = { 0 };

	if (api_query_int(call, "limit", 1, 100, &page->left) < 0 ||
		(id.p && e2b_check_id(call, id, &page->sandbox_id) < 0) ||
		(wanted.p && api_name_read_own(call, wanted, &name) < 0))
		return -EINVAL;
	page->name = name.alias;
	page->tag = name.tag;
	if (e2b_cursor_read(call, false, &page->cursor) == 0)
		return 0;
	api_fail_status(call, 400, "Invalid next token");
	return -EINVAL;
}

void e2b_snapshot_list(struct api_call *call)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(4 << 20);
	struct snapshot_page page = { .call = call, .left = 100 };

	if (read_page(call, &page) < 0)
		return;
	jsonw_init(&page.w, &body);
	jsonw_array(&page.w, NULL);
	sandbox_each_snapshot(call->api->config.sandboxes, &call->owner, list_one, &page);
	jsonw_end_array(&page.w);
	map_done(&page.seen);
	if (page.has_more)
		e2b_cursor_add(call, page.last->created_us, page.last->image, false);
	api_reply_json(call, 200, &body);
}

/* ---- fork ---- */

struct fork_in {
	struct json_int timeout, count;
};
static const struct json_field fork_fields[] = {
	JSON_FIELD(struct fork_in, timeout, "timeout", JSON_INT, .flags = JSON_NULLABLE, .min = 1,
		.max = INT32_MAX),
	JSON_FIELD(struct fork_in, count, "count", JSON_INT, .flags = JSON_NULLABLE, .min = 1,
		.max = SANDBOX_MAX_FORKS),
};
static const struct json_shape fork_shape = JSON_SHAPE(struct fork_in, fork_fields);

struct fork_call {
	struct api_call *call;
	struct buf body;
	struct jsonw w;
};

static void forked_one(void *arg, int r, const struct sandbox *sb, const struct err *e)
{
	struct fork_call *f = arg;

	jsonw_object(&f->w, NULL);
	if (r < 0) {
		jsonw_object(&f->w, "error");
		jsonw_int(&f->w, "code", api_status_of(r));
		jsonw_strz(&f->w, "message", e->msg);
		jsonw_end_object(&f->w);
	} else {
		e2b_write_sandbox(f->call, &f->w, "sandbox", sb);
	}
	jsonw_end_object(&f->w);
}

static void forked_all(void *arg, int r, const struct err *e)
{
	struct fork_call *f = arg;

	jsonw_end_array(&f->w);
	if (r < 0)
		api_fail(f->call, e);
	else
		api_reply_json(f->call, 201, &f->body);
	buf_done(&f->body);
	free(f);
}

void e2b_fork(struct api_call *call)
{
	struct sandbox_fork how = { .actor = call->actor };
	struct fork_call *f;
	struct fork_in in;
	struct str id;

	if (e2b_id(call, &id) < 0 || api_decode(call, &fork_shape, &in, true) < 0)
		return;
	how.timeout_s = in.timeout.is_set ? in.timeout.value : 300;
	how.count = in.count.is_set ? (int)in.count.value : 1;
	if (how.timeout_s > call->api->config.max_timeout_s) {
		api_fail_status(call, 400,
			"validation error: timeout: longer than this server allows");
		return;
	}
	f = XNEW(struct fork_call);
	f->call = call;
	f->body = BUF_INIT(1 << 20);
	jsonw_init(&f->w, &f->body);
	jsonw_array(&f->w, NULL);
	sandbox_fork(call->api->config.sandboxes, &call->owner, id, &how, forked_one, forked_all,
		f);
}
