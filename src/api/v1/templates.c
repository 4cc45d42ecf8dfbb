/* Templates: what sandboxes start from. Those of the server's directory are the operator's, and
 * every team sees them; a snapshot answers to the same paths, since it can be started from too. */
#include "api/v1/v1.h"
#include "observe/observe.h"

enum {
	MOST_LISTED = 100
};

struct uses { /* NULL: not told, for an agent's key has nothing to do with the team's */
	const struct observe_use *v;
	size_t n;
};

static void write_uses(struct api_call *call, struct jsonw *w, const struct uses *uses,
	const char *id)
{
	const struct observe_use *use = NULL;

	for (size_t i = 0; i < uses->n && !use; i++)
		if (strcmp(uses->v[i].template_id, id) == 0)
			use = &uses->v[i];
	if (call->key.agent_id[0]) {
		jsonw_null(w, "uses");
		jsonw_null(w, "last_used_at");
		return;
	}
	jsonw_int(w, "uses", use ? use->count : 0);
	v1_time(w, "last_used_at", use ? use->last_us : 0);
}

static void write_tag(void *arg, const char *tag, int64_t created_us)
{
	(void)created_us;
	jsonw_strz(arg, NULL, tag);
}

static void write_directory(struct api_call *call, struct jsonw *w, const struct template *t,
	const struct uses *uses)
{
	jsonw_object(w, NULL);
	jsonw_strz(w, "id", t->id);
	jsonw_strz(w, "name", t->name);
	jsonw_strz(w, "kind", "directory");
	jsonw_array(w, "tags");
	template_each_tag(call->api->config.templates, t, write_tag, w);
	jsonw_end_array(w);
	v1_text(w, "user", t->user);
	v1_text(w, "workdir", t->workdir);
	v1_text(w, "start", t->start);
	v1_text(w, "runtime", t->runtime);
	v1_write_limits(w, "limits", &t->limits);
	v1_time(w, "created_at", t->made_us);
	write_uses(call, w, uses, t->id);
	jsonw_end_object(w);
}

struct tags {
	struct jsonw *w;
	const char *template_id;
};

static void write_snapshot_tag(void *arg, const struct sandbox_snapshot *snap)
{
	struct tags *tags = arg;

	if (strcmp(snap->template_id, tags->template_id) == 0)
		jsonw_strz(tags->w, NULL, snap->tag);
}

static void write_snapshot(struct api_call *call, struct jsonw *w,
	const struct sandbox_snapshot *snap, const struct uses *uses)
{
	struct tags tags = { w, snap->template_id };

	jsonw_object(w, NULL);
	jsonw_strz(w, "id", snap->template_id);
	v1_text(w, "name", snap->alias);
	jsonw_strz(w, "kind", "snapshot");
	jsonw_array(w, "tags");
	sandbox_each_snapshot(call->api->config.sandboxes, &call->owner, write_snapshot_tag, &tags);
	jsonw_end_array(w);
	jsonw_null(w, "user"); /* as the sandbox's it was taken of */
	jsonw_null(w, "workdir");
	jsonw_null(w, "start");
	v1_text(w, "runtime", snap->runtime);
	v1_write_limits(w, "limits",
		&(struct limit_set){ .v = { [LIMIT_CPU] = snap->cpu_count,
					     [LIMIT_MEMORY] = snap->memory_mb,
					     [LIMIT_DISK] = snap->disk_mb } });
	v1_time(w, "created_at", snap->created_us);
	write_uses(call, w, uses, snap->template_id);
	jsonw_end_object(w);
}

/* ---- list ---- */

struct list_call { /* in the exchange's arena */
	struct api_call *call;
	struct v1_page page;
	struct uses uses;
	struct jsonw *w;
	int64_t left;
	bool has_more;
	char last[TEMPLATE_NAME_SIZE];
};

static int list_one(void *arg, const struct template *t)
{
	struct list_call *list = arg;

	if (list->page.cursor.n && strcmp(t->name, list->page.cursor.p) <= 0)
		return 0;
	if (list->left == 0) {
		list->has_more = true;
		return 1;
	}
	write_directory(list->call, list->w, t, &list->uses);
	(void)snprintf(list->last, sizeof list->last, "%s", t->name);
	list->left--;
	return 0;
}

static void reply_page(void *arg, int r, const struct observe_use *v, size_t n, const struct err *e)
{
	struct list_call *list = arg;
	struct api_answer answer;

	if (!api_answer_begin(list->call, &answer, r, e))
		return;
	list->uses = (struct uses){ v, n };
	list->left = list->page.limit;
	list->w = &answer.w;
	v1_page_begin(&answer.w);
	(void)template_each(list->call->api->config.templates, list_one, list);
	v1_page_end(&answer.w, list->has_more ? list->last : NULL);
	api_answer_send(list->call, &answer, 200);
}

/* By name; the cursor is the last one that was shown. */
void v1_templates_list(struct api_call *call)
{
	struct list_call *list = arena_alloc(http_arena(call->x), sizeof *list);

	if (!list) {
		api_fail_status(call, 500, "out of memory");
		return;
	}
	*list = (struct list_call){ .call = call };
	if (v1_page_read(call, MOST_LISTED, MOST_LISTED, &list->page) == 0)
		observe_templates(call->api->config.store, call->key.team_id, reply_page, list);
}

/* ---- one ---- */

/* Answers 404 itself, also for what cannot be a name. */
static int find(struct api_call *call, struct api_template *ret)
{
	struct err e = { 0 };
	int r = api_template_look(call, call->params[0], ret, &e);

	if (r == -ENOENT || r == -EINVAL)
		api_fail_as(call, 404, "template_not_found",
			arena_printf(http_arena(call->x), "there is no template '%.*s'",
				(int)MIN(call->params[0].n, (size_t)64), call->params[0].p),
			"GET /api/v1/templates lists them, GET /api/v1/snapshots the snapshots");
	else if (r < 0)
		api_fail(call, &e);
	return r;
}

static void reply_one(void *arg, int r, const struct observe_use *v, size_t n, const struct err *e)
{
	struct api_call *call = arg;
	struct uses uses = { v, n };
	struct api_template found;
	struct api_answer answer;

	if (r < 0) {
		api_fail(call, e);
		return;
	}
	if (find(call, &found) < 0)
		return;
	(void)api_answer_begin(call, &answer, 0, NULL);
	if (found.snap)
		write_snapshot(call, &answer.w, found.snap, &uses);
	else
		write_directory(call, &answer.w, &found.t, &uses);
	api_answer_send(call, &answer, 200);
}

void v1_templates_get(struct api_call *call)
{
	struct api_template found;

	if (find(call, &found) == 0)
		observe_templates(call->api->config.store, call->key.team_id, reply_one, call);
}

/* A directory is the operator's, and the server has no right to remove it. */
void v1_templates_delete(struct api_call *call)
{
	struct api_template found;

	if (find(call, &found) < 0)
		return;
	if (found.snap)
		v1_snapshots_delete(call);
	else
		api_fail_as(call, 409, "template_is_directory",
			arena_printf(http_arena(call->x),
				"template '%s' is a directory of the server: only its operator can "
				"remove it",
				found.t.name),
			"the operator deletes it in the templates directory");
}
