/* Snapshots and forks. */
#include "api/e2b/e2b.h"

/* "alias:tag" for a named one, "templateID:tag" for the others. */
static void snapshot_id(const struct sandbox_snapshot *snap, char *out, size_t size)
{
	(void)snprintf(out, size, "%s:%s", snap->alias[0] ? snap->alias : snap->template_id,
		snap->tag);
}

static void write_snapshot(struct jsonw *w, const struct sandbox_snapshot *snap)
{
	char id[2 * TEMPLATE_NAME_SIZE + 2];

	snapshot_id(snap, id, sizeof id);
	jsonw_object(w, NULL);
	jsonw_strz(w, "snapshotID", id);
	jsonw_array(w, "names");
	if (snap->alias[0])
		jsonw_strz(w, NULL, id);
	jsonw_end_array(w);
	jsonw_end_object(w);
}

struct snapshot_in {
	struct str name;
};
static const struct json_field snapshot_fields[] = {
	JSON_FIELD(struct snapshot_in, name, "name", JSON_STR, .flags = JSON_LAX, .max = 128),
};
static const struct json_shape snapshot_shape =
	JSON_SHAPE(struct snapshot_in, snapshot_fields, .ignore_unknown = true);

static void snapshot_made(void *arg, int r, const struct sandbox_snapshot *snap,
	const struct err *e)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(4096);
	struct api_call *call = arg;
	struct jsonw w;

	if (r < 0) {
		api_fail(call, e);
		return;
	}
	jsonw_init(&w, &body);
	write_snapshot(&w, snap);
	api_reply_json(call, 201, &body);
}

void e2b_snapshot_create(struct api_call *call)
{
	struct snapshot_in in;
	struct str id;

	if (e2b_id(call, &id) < 0 || api_decode(call, &snapshot_shape, &in, true) < 0)
		return;
	sandbox_snapshot(call->api->config.sandboxes, call->key.team_id, id, in.name, call->key.id,
		snapshot_made, call);
}

/* ---- list ---- */

struct snapshot_page {
	struct jsonw w;
	struct str sandbox_id, name, after; /* after: the cursor's image name */
	int64_t left;
	bool is_past_cursor, has_more;
	char last[SANDBOX_ID_SIZE];
};

/* A bare name matches any tag, `name:tag` only that one. */
static bool name_matches(const struct sandbox_snapshot *snap, struct str wanted)
{
	ptrdiff_t slash = str_find(wanted, '/'), colon;
	struct str alias, tag;

	if (slash >= 0)
		wanted = str_from(wanted, (size_t)slash + 1);
	colon = str_find(wanted, ':');
	alias = colon < 0 ? wanted : (struct str){ wanted.p, (size_t)colon };
	tag = colon < 0 ? STR_NONE : str_from(wanted, (size_t)colon + 1);
	return (str_eq_nocase(alias, str_of(snap->alias)) ||
		       str_eq_nocase(alias, str_of(snap->template_id))) &&
	       (!tag.n || str_eq_nocase(tag, str_of(snap->tag)));
}

static void list_one(void *arg, const struct sandbox_snapshot *snap)
{
	struct snapshot_page *page = arg;

	if (page->sandbox_id.n && !str_is(page->sandbox_id, snap->sandbox_id))
		return;
	if (page->name.n && !name_matches(snap, page->name))
		return;
	if (!page->is_past_cursor) {
		page->is_past_cursor = str_is(page->after, snap->image);
		return;
	}
	if (page->left == 0) {
		page->has_more = true;
		return;
	}
	page->left--;
	memcpy(page->last, snap->image, sizeof page->last);
	write_snapshot(&page->w, snap);
}

void e2b_snapshot_list(struct api_call *call)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(4 << 20);
	struct snapshot_page page = { .left = 100 };
	struct str sandbox_id = http_query_value(call->x, "sandboxID");

	if (api_query_int(call, "limit", 1, 100, &page.left) < 0)
		return;
	page.sandbox_id = sandbox_id;
	page.name = http_query_value(call->x, "name");
	page.after = http_query_value(call->x, "nextToken");
	page.is_past_cursor = page.after.n == 0;
	jsonw_init(&page.w, &body);
	jsonw_array(&page.w, NULL);
	sandbox_each_snapshot(call->api->config.sandboxes, call->key.team_id, list_one, &page);
	jsonw_end_array(&page.w);
	if (page.has_more)
		http_add_header(call->x, "X-Next-Token", str_of(page.last));
	api_reply_json(call, 200, &body);
}

/* ---- fork ---- */

struct fork_in {
	struct json_int timeout, count;
};
static const struct json_field fork_fields[] = {
	JSON_FIELD(struct fork_in, timeout, "timeout", JSON_INT, .flags = JSON_LAX, .min = 1,
		.max = INT32_MAX),
	JSON_FIELD(struct fork_in, count, "count", JSON_INT, .flags = JSON_LAX, .min = 1,
		.max = SANDBOX_MAX_FORKS),
};
static const struct json_shape fork_shape =
	JSON_SHAPE(struct fork_in, fork_fields, .ignore_unknown = true);

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
	struct sandbox_fork how = { .actor = call->key.id };
	struct fork_call *f;
	struct fork_in in;
	struct str id;

	if (e2b_id(call, &id) < 0 || api_decode(call, &fork_shape, &in, true) < 0)
		return;
	how.timeout_s = in.timeout.is_set ? in.timeout.value : 300;
	how.count = in.count.is_set ? (int)in.count.value : 1;
	f = XNEW(struct fork_call);
	f->call = call;
	f->body = BUF_INIT(1 << 20);
	jsonw_init(&f->w, &f->body);
	jsonw_array(&f->w, NULL);
	sandbox_fork(call->api->config.sandboxes, call->key.team_id, id, &how, forked_one,
		forked_all, f);
}
