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

const struct limit_set *e2b_ceilings(struct api_call *call)
{
	const struct access_team *team =
		access_team(call->api->config.access, str_of(call->key.team_id));

	return team ? &team->ceilings : NULL;
}

void e2b_admin_limits_get(struct api_call *call)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(4096);
	const struct access_team *team = e2b_admin_team(call);
	struct jsonw w;

	if (!team)
		return;
	jsonw_init(&w, &body);
	limit_set_write(&w, NULL, &team->ceilings);
	api_reply_json(call, 200, &body);
}

/* The whole set: what is not said, or null, is as usual again. */
void e2b_admin_limits_put(struct api_call *call)
{
	const struct access_team *team = e2b_admin_team(call);
	struct limit_set ceilings;
	struct limit_in in;

	if (!team || api_decode(call, &limit_shape, &in, false) < 0)
		return;
	limit_set_read(&in, &ceilings);
	access_set_ceilings(call->api->config.access, str_of(team->id), &ceilings, "admin",
		api_done_empty, call);
}
