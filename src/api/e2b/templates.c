/* Templates as they are read. Those of the templates directory are the operator's and every team
 * sees them; a snapshot is its team's own and answers to the same paths. */
#include "api/e2b/e2b.h"
#include "observe/observe.h"

struct uses {
	const struct observe_use *v;
	size_t n;
};

static void write_names(struct jsonw *w, const char *name)
{
	static const char *const keys[] = { "aliases", "names" };

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		jsonw_array(w, keys[i]);
		if (name[0])
			jsonw_strz(w, NULL, name);
		jsonw_end_array(w);
	}
}

static void write_times(struct jsonw *w, int64_t made_us)
{
	char at[RFC3339_SIZE];

	time_rfc3339(made_us, at);
	jsonw_strz(w, "createdAt", at);
	jsonw_strz(w, "updatedAt", at);
}

static void write_size(struct jsonw *w, int64_t cpu, int64_t memory_mb, int64_t disk_mb)
{
	jsonw_int(w, "cpuCount", cpu);
	jsonw_int(w, "memoryMB", memory_mb);
	jsonw_int(w, "diskSizeMB", disk_mb);
	jsonw_strz(w, "envdVersion", E2B_ENVD_VERSION);
}

static void write_use(struct jsonw *w, const struct uses *uses, const char *id)
{
	const struct observe_use *use = NULL;
	char at[RFC3339_SIZE];

	for (size_t i = 0; i < uses->n && !use; i++)
		if (strcmp(uses->v[i].template_id, id) == 0)
			use = &uses->v[i];
	if (use)
		time_rfc3339(use->last_us, at);
	jsonw_strz(w, "lastSpawnedAt", use ? at : NULL);
	jsonw_int(w, "spawnCount", use ? use->count : 0);
}

static void write_template(struct jsonw *w, const struct template *t, const struct uses *uses)
{
	char build[UUID_SIZE];

	template_build_id(t, build);
	jsonw_object(w, NULL);
	jsonw_strz(w, "templateID", t->id);
	jsonw_strz(w, "buildID", build);
	jsonw_strz(w, "buildStatus", "ready");
	jsonw_bool(w, "public", true);
	write_names(w, t->name);
	write_size(w, t->limits.v[LIMIT_CPU], t->limits.v[LIMIT_MEMORY], t->limits.v[LIMIT_DISK]);
	write_times(w, t->made_us);
	write_use(w, uses, t->id);
	jsonw_int(w, "buildCount", 1);
	jsonw_null(w, "createdBy");
	jsonw_end_object(w);
}

/* ---- lists ---- */

struct template_page {
	struct jsonw w;
	struct uses uses;
	struct str after; /* the name of the last one that was shown */
	int64_t left;
	bool has_more;
	char last[TEMPLATE_NAME_SIZE];
};

static int list_one(void *arg, const struct template *t)
{
	struct template_page *page = arg;

	if (page->after.n && strcmp(t->name, page->after.p) <= 0)
		return 0;
	if (page->left == 0) {
		page->has_more = true;
		return 1;
	}
	write_template(&page->w, t, &page->uses);
	(void)snprintf(page->last, sizeof page->last, "%s", t->name);
	page->left--;
	return 0;
}

/* `limit` was checked when the call came in. */
static void reply_page(void *arg, int r, const struct observe_use *v, size_t n, const struct err *e)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(16 << 20);
	struct api_call *call = arg;
	struct template_page page = { .uses = { v, n }, .left = INT64_MAX };
	bool is_paged = str_has_prefix(http_path(call->x), STR("/v2/"));

	if (r < 0) {
		api_fail(call, e);
		return;
	}
	if (is_paged) {
		page.left = 100;
		(void)api_query_int(call, "limit", 1, 100, &page.left);
		page.after = http_query_value(call->x, "nextToken");
	}
	jsonw_init(&page.w, &body);
	jsonw_array(&page.w, NULL);
	(void)template_each(call->api->config.templates, list_one, &page);
	jsonw_end_array(&page.w);
	if (page.has_more)
		http_add_header(call->x, "X-Next-Token", str_of(page.last));
	api_reply_json(call, 200, &body);
}

void e2b_templates_list(struct api_call *call)
{
	struct str team = http_query_value(call->x, "teamID");
	int64_t limit = 100;

	if (team.n && !str_is(team, call->key.team_id))
		api_fail_status(call, 400, "teamID is not the team of this API key");
	else if (api_query_int(call, "limit", 1, 100, &limit) == 0)
		observe_templates(call->api->config.store, call->key.team_id, reply_page, call);
}

/* ---- one ---- */

static void write_build(struct jsonw *w, const char *id, int64_t made_us)
{
	char at[RFC3339_SIZE];

	time_rfc3339(made_us, at);
	jsonw_object(w, NULL);
	jsonw_strz(w, "buildID", id);
	jsonw_strz(w, "status", "ready");
	write_times(w, made_us);
	jsonw_strz(w, "finishedAt", at);
}

void e2b_snapshot_build_id(const struct sandbox_snapshot *snap, char out[UUID_SIZE])
{
	uint8_t digest[SHA256_SIZE];

	sha256(snap->image, strlen(snap->image), digest);
	uuid_format(digest, out);
}

static void write_found(struct jsonw *w, const struct api_template *f, const struct uses *uses)
{
	const struct sandbox_snapshot *snap = f->snap;
	char build[UUID_SIZE];

	jsonw_object(w, NULL);
	jsonw_strz(w, "templateID", snap ? snap->template_id : f->t.id);
	jsonw_bool(w, "public", !snap);
	write_names(w, snap ? snap->alias : f->t.name);
	write_times(w, snap ? snap->created_us : f->t.made_us);
	write_use(w, uses, snap ? snap->template_id : f->t.id);
	jsonw_array(w, "builds");
	if (snap) {
		e2b_snapshot_build_id(snap, build);
		write_build(w, build, snap->created_us);
		write_size(w, snap->cpu_count, snap->memory_mb, snap->disk_mb);
	} else {
		template_build_id(&f->t, build);
		write_build(w, build, f->t.made_us);
		write_size(w, f->t.limits.v[LIMIT_CPU], f->t.limits.v[LIMIT_MEMORY],
			f->t.limits.v[LIMIT_DISK]);
	}
	jsonw_end_object(w);
	jsonw_end_array(w);
	jsonw_end_object(w);
}

static void reply_one(void *arg, int r, const struct observe_use *v, size_t n, const struct err *e)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(64 << 10);
	struct api_call *call = arg;
	struct uses uses = { v, n };
	struct api_template found;
	struct jsonw w;

	if (r < 0) {
		api_fail(call, e);
		return;
	}
	if (api_template_find(call, call->params[0], &found) < 0)
		return;
	jsonw_init(&w, &body);
	write_found(&w, &found, &uses);
	api_reply_json(call, 200, &body);
}

void e2b_templates_get(struct api_call *call)
{
	struct api_template found;
	int64_t limit = 100;

	if (api_query_int(call, "limit", 1, 100, &limit) == 0 &&
		api_template_find(call, call->params[0], &found) == 0)
		observe_templates(call->api->config.store, call->key.team_id, reply_one, call);
}

void e2b_templates_alias(struct api_call *call)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(4096);
	struct api_template found;
	struct jsonw w;

	if (api_template_find(call, call->params[0], &found) < 0)
		return;
	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "templateID", found.snap ? found.snap->template_id : found.t.id);
	jsonw_bool(&w, "public", !found.snap);
	jsonw_end_object(&w);
	api_reply_json(call, 200, &body);
}

/* ---- changes ---- */

struct in_use {
	const char *template_id;
	int64_t n;
};

static void count_use(void *arg, const struct sandbox *sb)
{
	struct in_use *use = arg;

	use->n += strcmp(sb->template_id, use->template_id) == 0;
}

/* A directory is the operator's, and the server has no right to remove it. */
static void refuse_delete(struct api_call *call, const struct template *t)
{
	struct sandbox_owner team = { .team_id = call->key.team_id };
	struct in_use use = { t->id, 0 };
	struct err e = { 0 };

	sandbox_each(call->api->config.sandboxes, &team, count_use, &use);
	if (use.n)
		(void)err_set(&e, -EINVAL,
			"template '%s' cannot be deleted: %" PRId64 " sandboxes are based on it",
			t->name, use.n);
	else
		(void)err_set(&e, -EINVAL,
			"template '%s' is a directory of the server: its operator removes it by "
			"deleting %s in the templates directory",
			t->name, t->name);
	api_fail(call, &e);
}

void e2b_templates_delete(struct api_call *call)
{
	struct api_template found;

	if (api_template_find(call, call->params[0], &found) < 0)
		return;
	if (found.snap)
		sandbox_delete_snapshot(call->api->config.sandboxes, &call->owner, call->params[0],
			call->actor, api_done_empty, call);
	else
		refuse_delete(call, &found.t);
}

struct patch_in {
	struct json_bool is_public;
};
static const struct json_field patch_fields[] = {
	JSON_FIELD(struct patch_in, is_public, "public", JSON_BOOL),
};
static const struct json_shape patch_shape = JSON_SHAPE(struct patch_in, patch_fields);

/* Who sees a template follows from where it is, so only what is already so can be asked for. */
void e2b_templates_patch(struct api_call *call)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(4096);
	struct patch_in in;
	struct api_template found;
	struct jsonw w;

	if (api_decode(call, &patch_shape, &in, false) < 0 ||
		api_template_find(call, call->params[0], &found) < 0)
		return;
	if (in.is_public.is_set && in.is_public.value == (found.snap != NULL)) {
		api_fail_status(call, 400,
			found.snap ? "a snapshot is seen by its own team only"
				   : "a template of the server's directory is seen by every team");
		return;
	}
	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	jsonw_array(&w, "names");
	if (!found.snap || found.snap->alias[0])
		jsonw_strz(&w, NULL, found.snap ? found.snap->alias : found.t.name);
	jsonw_end_array(&w);
	jsonw_end_object(&w);
	api_reply_json(call, 200, &body);
}
