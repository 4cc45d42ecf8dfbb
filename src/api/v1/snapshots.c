/* Snapshots: listed, looked at, deleted. They are made of a sandbox (life.c). */
#include "api/v1/v1.h"

enum {
	MOST_LISTED = 200
};

void v1_write_snapshot(struct api_call *call, struct jsonw *w, const struct sandbox_snapshot *snap)
{
	char id[SANDBOX_SNAPSHOT_ID_SIZE];

	sandbox_snapshot_id(snap, &call->owner, id);
	jsonw_object(w, NULL);
	jsonw_strz(w, "snapshot", id); /* what POST /sandboxes takes as template */
	jsonw_strz(w, "template_id", snap->template_id);
	v1_text(w, "name", snap->alias);
	jsonw_strz(w, "tag", snap->tag);
	jsonw_strz(w, "sandbox_id", snap->sandbox_id);
	v1_text(w, "agent_id", snap->agent_id);
	jsonw_strz(w, "base_template", snap->base_template);
	v1_text(w, "runtime", snap->runtime);
	v1_write_limits(w, "limits",
		&(struct limit_set){ .v = { [LIMIT_CPU] = snap->cpu_count,
					     [LIMIT_MEMORY] = snap->memory_mb,
					     [LIMIT_DISK] = snap->disk_mb } });
	if (snap->size_mb)
		jsonw_int(w, "size_mb", snap->size_mb);
	else
		jsonw_null(w, "size_mb");
	v1_time(w, "created_at", snap->created_us);
	jsonw_end_object(w);
}

/* ---- list ---- */

struct list_page {
	struct api_call *call;
	struct jsonw *w;
	struct str sandbox_id;
	struct api_name name; /* a bare one matches any tag */
	int64_t before_us;    /* as the cursor says */
	struct str before_id;
	int64_t left;
	bool has_more;
	const struct sandbox_snapshot *last;
};

static bool is_wanted(const struct list_page *list, const struct sandbox_snapshot *snap)
{
	if (!v1_is_behind(list->before_us, list->before_id, snap->created_us, snap->image))
		return false;
	if (list->sandbox_id.n && !str_is(list->sandbox_id, snap->sandbox_id))
		return false;
	if (list->name.tag.n && !str_is(list->name.tag, snap->tag))
		return false;
	return !list->name.alias.n || str_is(list->name.alias, snap->alias) ||
	       str_is(list->name.alias, snap->template_id);
}

static void list_one(void *arg, const struct sandbox_snapshot *snap)
{
	struct list_page *list = arg;

	if (!is_wanted(list, snap))
		return;
	if (list->left == 0) {
		list->has_more = true;
		return;
	}
	list->left--;
	list->last = snap;
	v1_write_snapshot(list->call, list->w, snap);
}

void v1_snapshots_list(struct api_call *call)
{
	struct list_page list = { .call = call,
		.sandbox_id = http_query_value(call->x, "sandbox_id") };
	struct str wanted = http_query_value(call->x, "name");
	struct api_answer answer;
	struct v1_page page;

	if (v1_page_read(call, 100, MOST_LISTED, &page) < 0 ||
		v1_cursor_us(call, &page, &list.before_us, &list.before_id) < 0 ||
		(wanted.n && api_name_read_own(call, wanted, &list.name) < 0))
		return;
	(void)api_answer_begin(call, &answer, 0, NULL);
	list.w = &answer.w;
	list.left = page.limit;
	v1_page_begin(&answer.w);
	sandbox_each_snapshot(call->api->config.sandboxes, &call->owner, list_one, &list);
	v1_page_end_us(&answer.w, list.has_more, list.last ? list.last->created_us : 0,
		list.last ? list.last->image : "");
	api_answer_send(call, &answer, 200);
}

/* ---- one ---- */

static void fail_not_found(struct api_call *call)
{
	api_fail_as(call, 404, "snapshot_not_found",
		arena_printf(http_arena(call->x), "there is no snapshot '%.*s'",
			(int)MIN(call->params[0].n, (size_t)64), call->params[0].p),
		"GET /api/v1/snapshots lists them");
}

/* NULL: what cannot be a name. */
static const char *wanted(struct api_call *call)
{
	struct api_name name;

	return api_name_read(http_arena(call->x), call->params[0], &name, NULL) < 0
		       ? NULL
		       : arena_dup(http_arena(call->x), name.clean);
}

void v1_snapshots_get(struct api_call *call)
{
	const struct sandbox_snapshot *snap = NULL;
	const char *name = wanted(call);
	struct api_answer answer;

	if (name)
		snap = sandbox_newest_snapshot(call->api->config.sandboxes, &call->owner,
			str_of(name));
	if (!snap) {
		fail_not_found(call);
		return;
	}
	(void)api_answer_begin(call, &answer, 0, NULL);
	v1_write_snapshot(call, &answer.w, snap);
	api_answer_send(call, &answer, 200);
}

struct name_in {
	struct str name;
};
static const struct json_field name_fields[] = {
	JSON_FIELD(struct name_in, name, "name", JSON_STR, .flags = JSON_REQUIRED, .max = 128),
};
static const struct json_shape name_shape = JSON_SHAPE(struct name_in, name_fields);

static void named(void *arg, int r, const struct sandbox_snapshot *snap, const struct err *e)
{
	struct api_call *call = arg;
	struct api_answer answer;

	if (r == -ENOENT) {
		fail_not_found(call);
	} else if (r == -EEXIST) {
		api_fail_as(call, 409, "name_taken", e->msg,
			"delete that one first, or give a tag");
	} else if (api_answer_begin(call, &answer, r, e)) {
		v1_write_snapshot(call, &answer.w, snap);
		api_answer_send(call, &answer, 200);
	}
}

void v1_snapshots_name(struct api_call *call)
{
	const char *of = wanted(call);
	struct api_name name;
	struct name_in in;

	if (api_decode(call, &name_shape, &in, false) < 0 ||
		api_name_read_own(call, in.name, &name) < 0)
		return;
	if (of)
		sandbox_name_snapshot(call->api->config.sandboxes, &call->owner, str_of(of),
			name.clean, call->actor, named, call);
	else
		fail_not_found(call);
}

static void deleted(void *arg, int r, const struct err *e)
{
	if (r == -ENOENT)
		fail_not_found(arg);
	else
		api_done_empty(arg, r, e);
}

void v1_snapshots_delete(struct api_call *call)
{
	const char *name = wanted(call);

	if (name)
		sandbox_delete_snapshot(call->api->config.sandboxes, &call->owner, str_of(name),
			call->actor, deleted, call);
	else
		fail_not_found(call);
}
