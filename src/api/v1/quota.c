/* What the team may have at once, and what it has. */
#include "api/v1/v1.h"

static void write_quota(struct api_call *call, struct jsonw *w)
{
	struct sandbox_book *book = call->api->config.sandboxes;
	const char *team_id = call->key.team_id;
	struct sandbox_use use;

	sandbox_use(book, team_id, &use);
	jsonw_object(w, NULL);
	jsonw_strz(w, "team_id", team_id);
	jsonw_object(w, "quota");
	for (size_t i = 0; i < LIMIT_QUOTAS; i++) {
		int64_t most = sandbox_max(book, team_id, (enum limit_quota_kind)i);

		if (most)
			jsonw_int(w, limit_quota_name((enum limit_quota_kind)i), most);
		else
			jsonw_null(w, limit_quota_name((enum limit_quota_kind)i));
	}
	jsonw_end_object(w);
	jsonw_object(w, "used");
	jsonw_int(w, "sandboxes", use.running);
	jsonw_int(w, "per_minute", use.starts);
	jsonw_int(w, "memory_mb", use.memory_mb);
	jsonw_int(w, "disk_mb", use.disk_mb);
	jsonw_int(w, "paused", use.paused);
	jsonw_int(w, "waiting", use.waiting);
	jsonw_end_object(w);
	jsonw_end_object(w);
}

static void reply(struct api_call *call)
{
	struct api_answer answer;

	(void)api_answer_begin(call, &answer, 0, NULL);
	write_quota(call, &answer.w);
	api_answer_send(call, &answer, 200);
}

void v1_quota_get(struct api_call *call)
{
	reply(call);
}

static void quota_set(void *arg, int r, const struct err *e)
{
	if (r < 0)
		api_fail(arg, e);
	else
		reply(arg);
}

/* The whole of it: what is not said, or null, is as usual again. */
void v1_quota_put(struct api_call *call)
{
	struct access_book *access = call->api->config.access;
	struct limit_quota quota = { 0 };
	struct err e = { 0 };

	/* Who is given a quota does not set it. The first team is the server's own. */
	if (!call->is_operator && strcmp(call->key.team_id, access_first_team(access)) != 0) {
		api_fail_as(call, 403, "operator_only", "the operator sets this team's quota",
			"ask with X-Admin-Token and X-Team-ID");
		return;
	}
	if (limit_quota_parse(call->body, &quota, &e) < 0) {
		(void)err_wrap(&e, -EINVAL, "validation error");
		api_fail(call, &e);
		return;
	}
	access_set_quota(access, call->key.team_id, &quota, call->actor, quota_set, call);
}
