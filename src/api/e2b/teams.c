/* Teams and what their sandboxes did over time. */
#include "api/e2b/e2b.h"
#include "observe/observe.h"

enum {
	WEEK_S = 7 * 24 * 3600
};

/* The caller's own team. E2B mints a key here on every call; keys are kept as digests and cannot be
 * shown again, so the one that was sent is repeated: it works, and none is left behind. */
void e2b_teams_list(struct api_call *call)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(4096);
	const struct access_team *team =
		access_team(call->api->config.access, str_of(call->key.team_id));
	struct str sent = http_header(call->x, "X-API-Key");
	struct jsonw w;

	jsonw_init(&w, &body);
	jsonw_array(&w, NULL);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "teamID", call->key.team_id);
	jsonw_strz(&w, "name", team ? team->name : "");
	if (!sent.p)
		sent = api_bearer(call->x);
	jsonw_str(&w, "apiKey", sent);
	jsonw_bool(&w, "isDefault", true);
	jsonw_end_object(&w);
	jsonw_end_array(&w);
	http_add_header(call->x, "Cache-Control", STR("no-store"));
	api_reply_json(call, 200, &body);
}

/* Reads start and end; answers 400 or 403 itself. The future is not known. */
static int read_range(struct api_call *call, int64_t *from_us, int64_t *to_us)
{
	int64_t now_s = time_wall_us() / 1000000, from_s = now_s - WEEK_S, to_s = now_s;

	if (!str_is(call->params[0], call->key.team_id) || call->key.agent_id[0]) {
		api_fail_status(call, 403, "you have no access to this team's metrics");
		return -EPERM;
	}
	if (api_query_range(call, &from_s, &to_s) < 0)
		return -EINVAL;
	*from_us = from_s * 1000000;
	*to_us = (MIN(to_s, now_s) + 1) * 1000000;
	return 0;
}

static void write_time(struct jsonw *w, int64_t at_us)
{
	char at[RFC3339_SIZE];

	time_rfc3339(at_us, at);
	jsonw_strz(w, "timestamp", at);
	jsonw_int(w, "timestampUnix", at_us / 1000000);
}

static void write_points(void *arg, int r, const struct observe_point *v, size_t n,
	const struct err *e)
{
	struct api_call *call = arg;
	struct api_answer answer;

	if (!api_answer_begin(call, &answer, r, e))
		return;
	jsonw_array(&answer.w, NULL);
	for (size_t i = 0; i < n; i++) {
		jsonw_object(&answer.w, NULL);
		write_time(&answer.w, v[i].at_us);
		jsonw_int(&answer.w, "concurrentSandboxes", v[i].running);
		jsonw_num(&answer.w, "sandboxStartRate", v[i].start_rate);
		jsonw_end_object(&answer.w);
	}
	jsonw_end_array(&answer.w);
	api_answer_send(call, &answer, 200);
}

void e2b_team_metrics(struct api_call *call)
{
	struct err none = { 0 };
	int64_t from_us, to_us;

	if (read_range(call, &from_us, &to_us) < 0)
		return;
	if (from_us >= to_us)
		write_points(call, 0, NULL, 0, &none); /* all of it lies ahead */
	else
		observe_team(call->api->config.store, call->key.team_id, from_us, to_us,
			write_points, call);
}

static bool wants_rate(struct api_call *call)
{
	return str_is(http_query_value(call->x, "metric"), "sandbox_start_rate");
}

static void write_max(void *arg, int r, const struct observe_point *v, size_t n,
	const struct err *e)
{
	struct observe_point most = { .at_us = time_wall_us() };
	struct api_call *call = arg;
	bool rate = wants_rate(call);
	struct api_answer answer;

	for (size_t i = 0; i < n; i++)
		if (i == 0 ||
			(rate ? v[i].start_rate > most.start_rate : v[i].running > most.running))
			most = v[i];
	if (!api_answer_begin(call, &answer, r, e))
		return;
	jsonw_object(&answer.w, NULL);
	write_time(&answer.w, most.at_us);
	jsonw_num(&answer.w, "value", rate ? most.start_rate : (double)most.running);
	jsonw_end_object(&answer.w);
	api_answer_send(call, &answer, 200);
}

void e2b_team_metrics_max(struct api_call *call)
{
	struct err none = { 0 };
	int64_t from_us, to_us;

	if (read_range(call, &from_us, &to_us) < 0)
		return;
	if (!wants_rate(call) &&
		!str_is(http_query_value(call->x, "metric"), "concurrent_sandboxes"))
		api_fail_status(call, 400,
			"validation error: metric must be concurrent_sandboxes or "
			"sandbox_start_rate");
	else if (from_us >= to_us)
		write_max(call, 0, NULL, 0, &none);
	else
		observe_team(call->api->config.store, call->key.team_id, from_us, to_us, write_max,
			call);
}
