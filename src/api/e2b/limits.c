/* Limits of sandboxes, and the ceilings that a team has for them. */
#include "api/e2b/e2b.h"

void e2b_write_limits(struct api_call *call, struct jsonw *w, const struct sandbox *sb)
{
	struct sandbox_crossings crossed;

	limit_set_write(w, "limits", &sb->limits);
	if (sandbox_crossings(call->api->config.sandboxes, sb->id, &crossed) < 0)
		return;
	jsonw_object(w, "limitsReached"); /* how often, where at all */
	for (size_t i = 0; i < LIMIT_KINDS; i++)
		if (crossed.times[i])
			jsonw_int(w, limit_name((enum limit_kind)i), crossed.times[i]);
	if (crossed.lines_dropped)
		jsonw_int(w, limit_name(LIMIT_LOG_LINES), crossed.lines_dropped);
	jsonw_end_object(w);
}

const struct limit_ceilings *e2b_ceilings(const struct api_call *call, struct limit_ceilings *ret)
{
	access_ceilings(call->api->config.access, call->key.team_id, ret);
	return ret;
}

/* ---- a team's ---- */

/* All of them, the usual ones too, and what the team keeps of what they are for. */
static void write_team(struct api_call *call, struct jsonw *w, const char *team_id)
{
	static const struct {
		enum limit_kind kind;
		enum store_use use;
	} rows[] = { { LIMIT_HISTORY, STORE_USE_HISTORY }, { LIMIT_COMMANDS, STORE_USE_COMMANDS },
		{ LIMIT_OUTPUT, STORE_USE_OUTPUT }, { LIMIT_EVENTS, STORE_USE_EVENTS } };
	struct limit_ceilings c;
	struct sandbox_snapshot_use snapshots;
	struct volume_team_use volumes;

	access_ceilings(call->api->config.access, team_id, &c);
	sandbox_snapshot_use(call->api->config.sandboxes, team_id, &snapshots);
	volume_team_use(call->api->config.volumes, team_id, &volumes);
	jsonw_object(w, "ceilings");
	for (size_t i = 0; i < LIMIT_ALL_KINDS; i++)
		jsonw_int(w, limit_name((enum limit_kind)i), limit_ceiling(&c, (enum limit_kind)i));
	jsonw_end_object(w);
	jsonw_object(w, "used");
	jsonw_int(w, limit_name(LIMIT_SNAPSHOTS), snapshots.count);
	jsonw_int(w, limit_name(LIMIT_SNAPSHOT_STORAGE), snapshots.size_mb);
	jsonw_int(w, limit_name(LIMIT_VOLUMES), volumes.count);
	jsonw_int(w, limit_name(LIMIT_VOLUME_STORAGE), volumes.used_bytes >> 20);
	jsonw_int(w, limit_name(LIMIT_ARTIFACT_STORAGE),
		execution_artifact_bytes(call->api->config.executions, team_id) >> 20);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		jsonw_int(w, limit_name(rows[i].kind),
			store_used(call->api->config.store, team_id, rows[i].use) >> 20);
	jsonw_end_object(w);
}

void e2b_team_limits(struct api_call *call)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(4096);
	struct jsonw w;

	if (!str_is(call->params[0], call->key.team_id)) {
		api_fail_status(call, 403, "you have no access to this team's limits");
		return;
	}
	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	write_team(call, &w, call->key.team_id);
	jsonw_end_object(&w);
	api_reply_json(call, 200, &body);
}

struct team_list {
	struct api_call *call;
	struct jsonw w;
};

static void list_team(void *arg, const struct access_team *team)
{
	struct team_list *list = arg;

	jsonw_object(&list->w, NULL);
	jsonw_strz(&list->w, "teamID", team->id);
	jsonw_strz(&list->w, "name", team->name);
	limit_ceilings_write(&list->w, "limits", &team->ceilings);
	write_team(list->call, &list->w, team->id);
	jsonw_end_object(&list->w);
}

void e2b_admin_teams(struct api_call *call)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(16 << 20);
	struct team_list list = { .call = call };

	jsonw_init(&list.w, &body);
	jsonw_array(&list.w, NULL);
	access_each_team(call->api->config.access, list_team, &list);
	jsonw_end_array(&list.w);
	api_reply_json(call, 200, &body);
}

void e2b_admin_limits_get(struct api_call *call)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(4096);
	const struct access_team *team = e2b_admin_team(call);
	struct jsonw w;

	if (!team)
		return;
	jsonw_init(&w, &body);
	limit_ceilings_write(&w, NULL, &team->ceilings);
	api_reply_json(call, 200, &body);
}

/* The whole set: what is not said, or null, is as usual again. */
void e2b_admin_limits_put(struct api_call *call)
{
	const struct access_team *team = e2b_admin_team(call);
	struct limit_ceilings ceilings;
	struct limit_ceilings_in in;

	if (!team || api_decode(call, &limit_ceilings_shape, &in, false) < 0)
		return;
	limit_ceilings_read(&in, &ceilings);
	access_set_ceilings(call->api->config.access, str_of(team->id), &ceilings, call->actor,
		api_done_empty, call);
}

/* What is not said stays; null is as usual again. */
void e2b_admin_limits_patch(struct api_call *call)
{
	const struct access_team *team = e2b_admin_team(call);
	struct limit_ceilings_change change;
	struct limit_ceilings ceilings;
	struct err e = { 0 };

	if (!team || api_decode(call, &limit_change_shape, &change, false) < 0)
		return;
	ceilings = team->ceilings;
	if (limit_ceilings_change(&ceilings, &change, &e) < 0)
		api_fail(call, &e);
	else
		access_set_ceilings(call->api->config.access, str_of(team->id), &ceilings,
			call->actor, api_done_empty, call);
}

/* ---- how much is told of what is done in its sandboxes ---- */

void e2b_admin_activity_get(struct api_call *call)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(256);
	const struct access_team *team = e2b_admin_team(call);
	struct jsonw w;

	if (!team)
		return;
	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "activity", limit_activity_name(team->activity)); /* null: as usual */
	jsonw_strz(&w, "holds",
		limit_activity_name(access_activity(call->api->config.access, team->id)));
	jsonw_end_object(&w);
	api_reply_json(call, 200, &body);
}

struct activity_in {
	struct str activity;
};
static const struct json_field activity_fields[] = {
	JSON_FIELD(struct activity_in, activity, "activity", JSON_STR, .flags = JSON_NULLABLE,
		.max = 16),
};
static const struct json_shape activity_shape = JSON_SHAPE(struct activity_in, activity_fields);

/* Not said, or null: as usual again. */
void e2b_admin_activity_put(struct api_call *call)
{
	const struct access_team *team = e2b_admin_team(call);
	enum limit_activity activity = LIMIT_ACTIVITY_UNSAID;
	struct activity_in in;
	struct err e = { 0 };

	if (!team || api_decode(call, &activity_shape, &in, false) < 0)
		return;
	if (in.activity.p && limit_activity_parse(in.activity, &activity, &e) < 0) {
		(void)err_wrap(&e, -EINVAL, "validation error");
		api_fail(call, &e);
		return;
	}
	access_set_activity(call->api->config.access, team->id, activity, call->actor,
		api_done_empty, call);
}

/* ---- what all sandboxes of a team have in their environment ---- */

struct environment_in {
	struct json_map variables;
};
static const struct json_field environment_fields[] = {
	JSON_FIELD(struct environment_in, variables, "variables", JSON_MAP, .flags = JSON_REQUIRED,
		.max = ACCESS_MAX_ENV),
};
static const struct json_shape environment_shape =
	JSON_SHAPE(struct environment_in, environment_fields);

void e2b_admin_environment_get(struct api_call *call)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(256 << 10);
	const struct access_team *team = e2b_admin_team(call);
	struct json_map env = { 0 };
	struct jsonw w;

	if (!team)
		return;
	access_env(call->api->config.access, team->id, &env);
	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	jsonw_map(&w, "variables", &env);
	jsonw_end_object(&w);
	http_add_header(call->x, "Cache-Control", STR("no-store"));
	api_reply_json(call, 200, &body);
}

/* All of them: what is not said is not there any more. */
void e2b_admin_environment_put(struct api_call *call)
{
	const struct access_team *team = e2b_admin_team(call);
	struct environment_in in;

	if (team && api_decode(call, &environment_shape, &in, false) >= 0)
		access_set_env(call->api->config.access, team->id, &in.variables, "admin",
			api_done_empty, call);
}
