/* Which programs a team's or an agent's commands may run. */
#include "api/v1/execution.h"

struct rules_in {
	struct str agent_id;
	struct json_strs programs;
};
static const struct json_field rules_fields[] = {
	JSON_FIELD(struct rules_in, agent_id, "agent_id", JSON_STR, .flags = JSON_NULLABLE,
		.max = ACCESS_AGENT_SIZE - 1),
	JSON_FIELD(struct rules_in, programs, "programs", JSON_STRS, .flags = JSON_NULLABLE,
		.max = EXECUTION_MAX_RULES),
};
static const struct json_shape rules_shape = JSON_SHAPE(struct rules_in, rules_fields);

struct rules_call { /* in the exchange's arena */
	struct api_call *call;
	const char *agent_id;
};

static void reply_rules(void *arg, int r, bool is_set, const struct json_strs *programs,
	const struct err *e)
{
	struct rules_call *rc = arg;
	struct api_answer answer;

	if (!api_answer_begin(rc->call, &answer, r, e))
		return;
	jsonw_object(&answer.w, NULL);
	v1_text(&answer.w, "agent_id", rc->agent_id);
	if (is_set) {
		jsonw_array(&answer.w, "programs");
		for (size_t i = 0; i < programs->n; i++)
			jsonw_str(&answer.w, NULL, programs->v[i]);
		jsonw_end_array(&answer.w);
	} else {
		jsonw_null(&answer.w, "programs");
	}
	jsonw_end_object(&answer.w);
	api_answer_send(rc->call, &answer, 200);
}

void v1_rules_get(struct api_call *call)
{
	struct rules_call *rc = arena_alloc(http_arena(call->x), sizeof *rc);
	struct str agent = http_query_value(call->x, "agent_id");

	if (!rc || agent.n >= ACCESS_AGENT_SIZE) {
		api_fail_status(call, 400, "validation error: agent_id is too long");
		return;
	}
	*rc = (struct rules_call){ call, agent.n ? agent.p : "" };
	execution_get_rules(call->api->config.executions, call->key.team_id, rc->agent_id,
		reply_rules, rc);
}

static void rules_set(void *arg, int r, const struct err *e)
{
	struct rules_call *rc = arg;

	if (r == -EINVAL)
		api_fail_as(rc->call, 422, "invalid_rules", e->msg, NULL);
	else if (r < 0)
		api_fail(rc->call, e);
	else
		execution_get_rules(rc->call->api->config.executions, rc->call->key.team_id,
			rc->agent_id, reply_rules, rc);
}

void v1_rules_put(struct api_call *call)
{
	struct rules_call *rc = arena_alloc(http_arena(call->x), sizeof *rc);
	struct rules_in in;

	if (!rc || api_decode(call, &rules_shape, &in, false) < 0)
		return;
	*rc = (struct rules_call){ call, in.agent_id.n ? in.agent_id.p : "" };
	execution_set_rules(call->api->config.executions, call->key.team_id, rc->agent_id,
		in.programs.is_set ? &in.programs : NULL, call->actor, rules_set, rc);
}
