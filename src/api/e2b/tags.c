/* Tags: further names of what a template holds. Those of the templates directory are given by the
 * team that the server was set up with, to which the directory belongs. */
#include "api/e2b/e2b.h"

/* ---- list ---- */

struct tag_page {
	struct jsonw w;
	const char *build_id;
	const struct sandbox_snapshot *snap;
};

static void write_tag(struct jsonw *w, const char *tag, const char *build_id, int64_t created_us)
{
	char at[RFC3339_SIZE];

	time_rfc3339(created_us, at);
	jsonw_object(w, NULL);
	jsonw_strz(w, "tag", tag);
	jsonw_strz(w, "buildID", build_id);
	jsonw_strz(w, "createdAt", at);
	jsonw_end_object(w);
}

static void list_tag(void *arg, const char *tag, int64_t created_us)
{
	struct tag_page *page = arg;

	write_tag(&page->w, tag, page->build_id, created_us);
}

static void list_snapshot_tag(void *arg, const struct sandbox_snapshot *snap)
{
	struct tag_page *page = arg;
	char build[UUID_SIZE];

	if (strcmp(snap->template_id, page->snap->template_id) != 0)
		return;
	e2b_snapshot_build_id(snap, build);
	write_tag(&page->w, snap->tag, build, snap->created_us);
}

void e2b_tags_list(struct api_call *call)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(1 << 20);
	struct tag_page page = { 0 };
	struct api_template found;
	char build[UUID_SIZE];

	if (api_template_find(call, call->params[0], &found) < 0)
		return;
	jsonw_init(&page.w, &body);
	jsonw_array(&page.w, NULL);
	if (found.snap) {
		page.snap = found.snap;
		sandbox_each_snapshot(call->api->config.sandboxes, &call->owner, list_snapshot_tag,
			&page);
	} else {
		template_build_id(&found.t, build);
		page.build_id = build;
		template_each_tag(call->api->config.templates, &found.t, list_tag, &page);
	}
	jsonw_end_array(&page.w);
	api_reply_json(call, 200, &body);
}

/* ---- give and take ---- */

struct tags_in {
	struct str name;
	struct json_strs tags;
};
static const struct json_field assign_fields[] = {
	JSON_FIELD(struct tags_in, name, "target", JSON_STR, .flags = JSON_REQUIRED, .max = 256),
	JSON_FIELD(struct tags_in, tags, "tags", JSON_STRS, .flags = JSON_REQUIRED, .max = 100),
};
static const struct json_shape assign_shape = JSON_SHAPE(struct tags_in, assign_fields);
static const struct json_field remove_fields[] = {
	JSON_FIELD(struct tags_in, name, "name", JSON_STR, .flags = JSON_REQUIRED, .max = 256),
	JSON_FIELD(struct tags_in, tags, "tags", JSON_STRS, .flags = JSON_REQUIRED, .max = 100),
};
static const struct json_shape remove_shape = JSON_SHAPE(struct tags_in, remove_fields);

/* What was asked and is done once the store has it; in the exchange's arena. */
struct tagging {
	struct api_call *call;
	struct json_strs tags;
	char build_id[UUID_SIZE];
};

/* E2B folds case and blanks away before it looks. */
static int fold(struct api_call *call, struct str *tag)
{
	struct str trimmed = str_trim(*tag);
	char *kept = arena_dup(http_arena(call->x), trimmed);

	for (size_t i = 0; kept && i < trimmed.n; i++)
		if (kept[i] >= 'A' && kept[i] <= 'Z')
			kept[i] = (char)(kept[i] - 'A' + 'a');
	*tag = (struct str){ kept, kept ? trimmed.n : 0 };
	return template_tag_ok(*tag) ? 0 : -EINVAL;
}

/* Answers 400 itself. */
static int check_tags(struct api_call *call, struct json_strs *tags)
{
	if (tags->n == 0) {
		api_fail_status(call, 400, "At least one tag is required");
		return -EINVAL;
	}
	for (size_t i = 0; i < tags->n; i++)
		if (fold(call, &tags->v[i]) < 0) {
			api_fail_status(call, 400,
				"Invalid tag: use 1 to 64 of a-z, 0-9, '.', '_' and '-', and no "
				"UUID");
			return -EINVAL;
		}
	return 0;
}

/* A template whose tags this team may change. Answers the error itself. */
static int find_own(struct api_call *call, struct str wanted, struct api_template *ret)
{
	int r = api_template_find(call, wanted, ret);

	if (r < 0)
		return r;
	if (ret->snap) {
		api_fail_status(call, 400,
			"a snapshot's tag is given when it is made: name it alias:tag");
		return -EOPNOTSUPP;
	}
	if (strcmp(call->key.team_id, access_first_team(call->api->config.access)) != 0) {
		api_fail_status(call, 403,
			"this template is not your team's: its tags are the operator's");
		return -EPERM;
	}
	return 0;
}

static void tags_added(void *arg, int r, const struct err *e)
{
	struct tagging *t = arg;
	struct api_answer answer;

	if (!api_answer_begin(t->call, &answer, r, e))
		return;
	jsonw_object(&answer.w, NULL);
	jsonw_array(&answer.w, "tags");
	for (size_t i = 0; i < t->tags.n; i++)
		jsonw_str(&answer.w, NULL, t->tags.v[i]);
	jsonw_end_array(&answer.w);
	jsonw_strz(&answer.w, "buildID", t->build_id);
	jsonw_end_object(&answer.w);
	api_answer_send(t->call, &answer, 201);
}

void e2b_tags_assign(struct api_call *call)
{
	struct tagging *t = arena_alloc(http_arena(call->x), sizeof *t);
	struct api_template found;
	struct tags_in in;

	if (!t || api_decode(call, &assign_shape, &in, false) < 0 ||
		check_tags(call, &in.tags) < 0 || find_own(call, in.name, &found) < 0)
		return;
	t->call = call;
	t->tags = in.tags;
	template_build_id(&found.t, t->build_id);
	template_add_tags(call->api->config.templates, found.t.id, in.tags.v, in.tags.n,
		&(struct template_actor){ call->actor, call->key.team_id }, tags_added, t);
}

void e2b_tags_remove(struct api_call *call)
{
	struct api_template found;
	struct tags_in in;

	if (api_decode(call, &remove_shape, &in, false) < 0 || check_tags(call, &in.tags) < 0)
		return;
	for (size_t i = 0; i < in.tags.n; i++)
		if (str_is(in.tags.v[i], "default")) {
			api_fail_status(call, 400, "the tag 'default' cannot be removed");
			return;
		}
	if (str_find(in.name, ':') >= 0)
		api_fail_status(call, 400, "name must be without a tag");
	else if (find_own(call, in.name, &found) == 0)
		template_remove_tags(call->api->config.templates, found.t.id, in.tags.v, in.tags.n,
			&(struct template_actor){ call->actor, call->key.team_id }, api_done_empty,
			call);
}
